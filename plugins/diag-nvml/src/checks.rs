//! From what the node answered to the report. Pure.
//!
//! The checks of the node come first (`nvml.init`, `gpus.visible`, then log events that no listed GPU explains), then
//! those of each GPU in the driver's order.
//!
//! **Invariant:** what could not be asked is `unknown` with the error's code and number, never a pass; and nothing passes
//! beside a driver that does not answer.

use sdk::nvml::{DriverInfo, EccCounts, Identity, Link, RowRemapping};
use sdk::{Error, describe};

use crate::report::{Check, Driver, Report, Status, Verdict};
use crate::xid::{Event, KernelLog};

const INIT: &str = "nvml.init";
const VISIBLE: &str = "gpus.visible";
const ECC: &str = "ecc.uncorrectable";
const REMAP_PENDING: &str = "row-remap.pending";
const REMAP_FAILURE: &str = "row-remap.failure";
const PCIE: &str = "pcie.link";
const XID: &str = "xid.recent";

/// Everything that was asked, as it was answered.
pub(crate) struct Facts {
    pub(crate) driver: Result<DriverInfo, Error>,
    /// The driver's list; empty when the driver did not answer.
    pub(crate) gpus: Result<Vec<Gpu>, Error>,
    /// The kernel's log, which can be read without the driver.
    pub(crate) xids: Result<String, Error>,
}

/// One index of the driver's list.
pub(crate) struct Gpu {
    pub(crate) index: u32,
    /// An error when not even its identity could be read.
    pub(crate) readings: Result<Readings, Error>,
}

/// What a GPU says about itself.
pub(crate) struct Readings {
    pub(crate) identity: Identity,
    pub(crate) ecc: Result<EccCounts, Error>,
    pub(crate) rows: Result<RowRemapping, Error>,
    pub(crate) link: Result<Link, Error>,
}

/// Decides every check.
pub(crate) fn report(facts: &Facts, expected_gpus: Option<u32>) -> Report {
    let log = KernelLog::parse(&facts.xids);
    let gpus = facts.gpus.as_deref().unwrap_or_default();

    let mut checks = vec![Check::node(INIT, init(&facts.driver))];
    match (&facts.driver, &facts.gpus) {
        (Ok(_), Ok(gpus)) => checks.push(Check::node(VISIBLE, visible(gpus, expected_gpus))),
        (Ok(_), Err(error)) => {
            checks.push(Check::node(VISIBLE, Verdict::unknown(could_not_ask(error))));
            not_asked(&mut checks, "the GPUs could not be listed");
        }
        (Err(_), _) => {
            checks.push(Check::node(VISIBLE, Verdict::unknown("not asked: the driver did not answer")));
            not_asked(&mut checks, "the driver did not answer");
        }
    }
    xids_of_others(&mut checks, &log, gpus, facts.driver.is_ok());
    for gpu in gpus {
        one_gpu(&mut checks, gpu, &log);
    }
    Report::new(facts.driver.as_ref().ok().map(Driver::from), checks)
}

fn init(driver: &Result<DriverInfo, Error>) -> Verdict {
    match driver {
        Ok(_) => Verdict::pass(),
        Err(error) => Verdict::fail(format!("the driver's management interface did not answer: {}", describe(error))),
    }
}

/// The checks that would follow for each GPU, once for the node.
fn not_asked(checks: &mut Vec<Check>, why: &str) {
    for name in [ECC, REMAP_PENDING, REMAP_FAILURE, PCIE] {
        checks.push(Check::node(name, Verdict::unknown(format!("not asked: {why}"))));
    }
}

fn visible(gpus: &[Gpu], expected: Option<u32>) -> Verdict {
    let mut failures = Vec::new();
    let mut doubts = Vec::new();
    let count = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
    match expected {
        Some(expected) if expected != count => {
            failures.push(format!("the driver lists {count} GPUs, expected {expected}"));
        }
        None if count == 0 => failures.push("the driver lists no GPU".to_owned()),
        _ => {}
    }
    for gpu in gpus {
        let index = gpu.index;
        let lost = match &gpu.readings {
            Ok(readings) => readings.errors().into_iter().flatten().find(|error| is_gone(error)),
            Err(error) if is_gone(error) => Some(error),
            Err(error) => {
                doubts.push(format!("GPU {index}: {}", could_not_ask(error)));
                None
            }
        };
        if let Some(error) = lost {
            failures.push(format!("GPU {index} does not answer: {}", describe(error)));
        }
    }
    if !failures.is_empty() {
        failures.append(&mut doubts);
        Verdict::fail(failures.join("; "))
    } else if !doubts.is_empty() {
        Verdict::unknown(doubts.join("; "))
    } else {
        Verdict::pass()
    }
}

impl Readings {
    fn errors(&self) -> [Option<&Error>; 3] {
        [self.ecc.as_ref().err(), self.rows.as_ref().err(), self.link.as_ref().err()]
    }
}

/// Whether the error says that the GPU itself does not work, and not merely that it could not be asked: NVML's
/// INSUFFICIENT_POWER, IRQ_ISSUE, GPU_IS_LOST, RESET_REQUIRED and GPU_NOT_FOUND (nvml.h).
fn is_gone(error: &Error) -> bool {
    matches!(error.native, Some(8 | 11 | 15 | 16 | 28)) || error.code == "gpu-is-lost"
}

/// NVML's NOT_SUPPORTED: a fact about the GPU.
fn is_unsupported(error: &Error) -> bool {
    error.native == Some(3) || error.code == "not-supported"
}

fn could_not_ask(error: &Error) -> String {
    format!("could not ask: {}", describe(error))
}

fn one_gpu(checks: &mut Vec<Check>, gpu: &Gpu, log: &Result<KernelLog, String>) {
    let index = Some(gpu.index);
    let mut add = |name, gpu, Verdict { status, reason }| {
        checks.push(Check { name, gpu, index, status, reason });
    };
    let readings = match &gpu.readings {
        Ok(readings) => readings,
        Err(error) => {
            for name in [ECC, REMAP_PENDING, REMAP_FAILURE, PCIE, XID] {
                add(name, None, Verdict::unknown(format!("not asked: the GPU has no name: {}", describe(error))));
            }
            return;
        }
    };
    let identity = &readings.identity;
    let uuid = || Some(identity.uuid.clone());
    add(ECC, uuid(), read(&readings.ecc, "ECC is not supported", ecc));
    let mig = identity.mig_enabled == Some(true);
    let unsupported = if mig { "not told while MIG instances are active" } else { "row remapping is not supported" };
    add(REMAP_PENDING, uuid(), read(&readings.rows, unsupported, remap_pending));
    add(REMAP_FAILURE, uuid(), read(&readings.rows, unsupported, remap_failure));
    add(PCIE, uuid(), read(&readings.link, "there is no PCIe link to ask about", pcie));
    let xid = match log {
        Ok(log) => {
            let is_about = |event: &&Event| event.is_about(&identity.uuid, &identity.pci_address);
            log.verdict(&log.events.iter().filter(is_about).collect::<Vec<_>>(), Event::told)
        }
        Err(reason) => Verdict::unknown(reason),
    };
    add(XID, uuid(), xid);
}

/// Judges a reading, if there is one.
fn read<T>(reading: &Result<T, Error>, unsupported: &str, judge: fn(&T) -> Verdict) -> Verdict {
    match reading {
        Ok(value) => judge(value),
        Err(error) if is_unsupported(error) => Verdict::skipped(format!("{unsupported}: {}", describe(error))),
        Err(error) => Verdict::unknown(could_not_ask(error)),
    }
}

fn ecc(counts: &EccCounts) -> Verdict {
    if !counts.enabled {
        return Verdict::skipped("ECC is off");
    }
    match counts.volatile_uncorrected {
        0 => Verdict::pass(),
        1 => Verdict::fail("1 uncorrectable memory error since the driver was loaded"),
        n => Verdict::fail(format!("{n} uncorrectable memory errors since the driver was loaded")),
    }
}

fn remap_pending(rows: &RowRemapping) -> Verdict {
    if rows.pending { Verdict::fail("a row remap waits for a reset of the GPU") } else { Verdict::pass() }
}

fn remap_failure(rows: &RowRemapping) -> Verdict {
    if rows.failure {
        Verdict::fail(format!(
            "a row remap failed, the board is a candidate for replacement ({} rows remapped, {} of them after uncorrectable \
             errors)",
            u64::from(rows.correctable) + u64::from(rows.uncorrectable),
            rows.uncorrectable
        ))
    } else {
        Verdict::pass()
    }
}

/// Speed is left out: idle GPUs lower it on purpose.
fn pcie(link: &Link) -> Verdict {
    if link.max_width == 0 {
        Verdict::unknown("could not ask: the driver gives no maximum width")
    } else if link.current_width < link.max_width {
        Verdict::fail(format!("the link is {} lanes wide, its maximum is {}", link.current_width, link.max_width))
    } else {
        Verdict::pass()
    }
}

/// Log events that no listed GPU explains: GPUs that the host named but the driver does not list, and PCI addresses
/// without a name. With no GPU listed, the node's own line says what the log as a whole tells.
fn xids_of_others(checks: &mut Vec<Check>, log: &Result<KernelLog, String>, gpus: &[Gpu], driver_answers: bool) {
    let named: Vec<&Identity> = gpus.iter().filter_map(|gpu| gpu.readings.as_ref().ok()).map(|r| &r.identity).collect();
    let log = match log {
        Ok(log) => log,
        Err(reason) if named.is_empty() => return checks.push(Check::node(XID, Verdict::unknown(reason))),
        // Each GPU says so itself.
        Err(_) => return,
    };
    let is_listed = |event: &Event| named.iter().any(|id| event.is_about(&id.uuid, &id.pci_address));
    let (unlisted, nameless): (Vec<_>, Vec<_>) =
        log.events.iter().filter(|event| !is_listed(event)).partition(|event| event.gpu.is_some());
    let silence_proves = |verdict: Verdict| match verdict.status {
        Status::Pass if !driver_answers => {
            Verdict::unknown("nothing found, but a driver that does not answer may not have logged anything")
        }
        _ => verdict,
    };

    if !nameless.is_empty() || (named.is_empty() && unlisted.is_empty()) {
        let verdict = log.verdict(&nameless, Event::told_with_address);
        checks.push(Check::node(XID, silence_proves(verdict)));
    }
    let mut uuids: Vec<&str> = Vec::new();
    for uuid in unlisted.iter().filter_map(|event| event.gpu.as_deref()) {
        if !uuids.contains(&uuid) {
            uuids.push(uuid);
        }
    }
    for uuid in uuids {
        let events: Vec<_> = unlisted.iter().copied().filter(|event| event.gpu.as_deref() == Some(uuid)).collect();
        let Verdict { status, reason } = silence_proves(log.verdict(&events, Event::told_with_address));
        checks.push(Check { name: XID, gpu: Some(uuid.to_owned()), index: None, status, reason });
    }
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
