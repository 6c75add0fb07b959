//! Network interfaces that a driver made for a piece of hardware.
//!
//! **Invariant:** bridges, bonds, tunnels and the loopback are no hardware and are left out.

use serde::Serialize;

use super::facts::{Facts, pci_function};

const NET: &str = "sys/class/net";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Nic {
    name: String,
    /// Lower case; 20 bytes for InfiniBand.
    mac: Option<String>,
    /// In bytes, but named as everywhere.
    mtu: Option<u32>,
    /// The kernel's operational state: `up`, `down`, `dormant`, `unknown`, …
    state: Option<String>,
    /// In megabits per second. Null while there is no link.
    speed_mbps: Option<u32>,
    driver: Option<String>,
    /// `dddd:bb:dd.f`, of the nearest PCI function above it.
    pci: Option<String>,
}

/// By name.
pub(super) fn collect(facts: &mut Facts<'_>) -> Option<Vec<Nic>> {
    let mut names = facts.names(NET)?;
    names.retain(|name| name != "lo" && facts.exists(&format!("{NET}/{name}/device")));
    Some(names.into_iter().map(|name| nic(facts, name)).collect())
}

fn nic(facts: &mut Facts<'_>, name: String) -> Nic {
    let at = |file: &str| format!("{NET}/{name}/{file}");
    let path = facts.resolved(&at("device"));
    let pci = path.as_deref().and_then(pci_function);
    if path.is_some() && pci.is_none() {
        facts.problem(format!("nic {name}: pci: it is on no PCI bus"));
    }
    Nic {
        mac: facts.text(&at("address")),
        mtu: facts.number(&at("mtu")),
        state: facts.text(&at("operstate")),
        speed_mbps: speed(facts, &name),
        driver: facts.link(&at("device/driver")),
        pci,
        name,
    }
}

/// Without a link the kernel answers an error or -1, as it does for a driver that knows no speed.
fn speed(facts: &mut Facts<'_>, name: &str) -> Option<u32> {
    let speed: i64 = facts.number(&format!("{NET}/{name}/speed"))?;
    let known = u32::try_from(speed).ok();
    if known.is_none() {
        facts.problem(format!("nic {name}: speed: the driver does not know it"));
    }
    known
}
