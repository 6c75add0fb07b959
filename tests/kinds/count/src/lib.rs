//! `test.count`: asks for one GPU's link, once. The driver of a test's node writes down on disk what it is asked, so that how
//! often this ran is known outside of everything that could forget it.
//!
//! **Invariant:** one run asks once, before it does anything else.

use sdk::{Context, Failure, Kind, clock, nvml};
use serde::{Deserialize, Serialize};

struct Count;

/// What is sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Payload {
    gpu: String,
    #[serde(default)]
    hold_ms: u32,
}

/// What is answered.
#[derive(Serialize)]
struct Output {
    attempt: u32,
}

impl Kind for Count {
    type Payload = Payload;
    type Output = Output;

    fn run(context: &Context, Payload { gpu, hold_ms }: Payload) -> Result<Output, Failure> {
        nvml::pcie_link(&gpu)?;
        if hold_ms > 0 {
            clock::sleep(hold_ms);
        }
        Ok(Output { attempt: context.attempt })
    }
}

sdk::export!(Count);
