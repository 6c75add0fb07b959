//! `diag.nvml`: is every GPU of this node fit to work? The driver's management interface answers most of it, the kernel's
//! log of this boot the rest.
//!
//! This file asks and hands the answers on; [`checks`] decides.
//!
//! **Invariant:** an answer that did not come is passed on as the error it was, never as a default.

mod checks;
mod report;
mod xid;

use checks::{Facts, Gpu, Readings};
use report::Report;
use sdk::{Context, Failure, Kind, nvml};
use serde::Deserialize;

struct Diag;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Payload {
    /// How many GPUs the node should have; none: whatever it has.
    #[serde(default, deserialize_with = "sdk::payload::present")]
    expected_gpus: Option<u32>,
}

impl Kind for Diag {
    type Payload = Payload;
    type Output = Report;

    fn run(_: &Context, payload: Payload) -> Result<Report, Failure> {
        Ok(checks::report(&gather(), payload.expected_gpus))
    }
}

sdk::export!(Diag);

/// Asks everything that can be asked.
fn gather() -> Facts {
    let driver = nvml::driver();
    let gpus = match &driver {
        Ok(_) => nvml::devices().map(|devices| devices.into_iter().map(readings).collect()),
        // Nothing would answer; `checks` reports the driver's own error.
        Err(_) => Ok(Vec::new()),
    };
    Facts { driver, gpus, xids: nvml::xids() }
}

fn readings(device: nvml::Device) -> Gpu {
    let readings = device.identity.map(|identity| Readings {
        ecc: nvml::ecc_errors(&identity.uuid),
        rows: nvml::remapped_rows(&identity.uuid),
        link: nvml::pcie_link(&identity.uuid),
        identity,
    });
    Gpu { index: device.index, readings }
}
