//! Table tests of the checks: one healthy node, one thing changed at a time.

use sdk::nvml::{DriverInfo, EccCounts, Identity, Link, RowRemapping};

use super::*;
use crate::report::Status::{Fail, Pass, Skipped, Unknown};

fn error(code: &str, native: i32) -> Error {
    Error { code: code.into(), native: Some(native), message: code.replace('-', " ") }
}

fn uuid(index: u32) -> String {
    format!("GPU-{index}")
}

fn gpu(index: u32) -> Gpu {
    let identity = Identity {
        uuid: uuid(index),
        name: "NVIDIA H100 80GB HBM3".into(),
        pci_address: format!("0000:{index:02x}:00.0"),
        serial: None,
        minor: Some(index),
        mig_enabled: Some(false),
        persistence: Some(true),
    };
    let ecc = EccCounts {
        enabled: true,
        volatile_corrected: 7,
        volatile_uncorrected: 0,
        aggregate_corrected: 7,
        // Of an earlier life: it does not count.
        aggregate_uncorrected: 3,
    };
    let rows = RowRemapping { correctable: 1, uncorrectable: 2, pending: false, failure: false };
    let link = Link { current_width: 16, max_width: 16, current_generation: 1, max_generation: 5 };
    Gpu { index, readings: Ok(Readings { identity, ecc: Ok(ecc), rows: Ok(rows), link: Ok(link) }) }
}

fn healthy() -> Facts {
    let driver = DriverInfo { version: "570.124.06".into(), nvml_version: "12.570".into(), cuda_version: Some(12080) };
    Facts { driver: Ok(driver), gpus: Ok(vec![gpu(0), gpu(1)]), xids: Ok(log(true, "")) }
}

fn log(complete: bool, events: &str) -> String {
    format!(r#"{{"complete":{complete},"source":"journal","problems":[],"events":[{events}]}}"#)
}

fn event(code: &str, pci: &str, gpu: Option<&str>, action: &str) -> String {
    let gpu = gpu.map_or("null".to_owned(), |gpu| format!("\"{gpu}\""));
    format!(
        r#"{{"code":{code},"pci":"{pci}","gpu":{gpu},"gi":null,"ci":null,"count":1,"action":"{action}","lastMessage":"m",
        "firstMs":1,"lastMs":2}}"#
    )
}

/// Changes GPU 1 of a healthy node and tells the state and reason of one of its checks; all others must stay passes, so
/// that one fault never colours another.
fn check_gpu(name: &str, change: impl FnOnce(&mut Readings)) -> (Status, String) {
    let mut facts = healthy();
    let gpus = facts.gpus.as_mut().expect("healthy");
    change(gpus[1].readings.as_mut().expect("healthy"));
    let report = report(&facts, None);
    let mut found = None;
    for check in report.checks {
        if (check.name, check.index) == (name, Some(1)) {
            assert_eq!(check.gpu, Some(uuid(1)));
            found = Some((check.status, check.reason.unwrap_or_default()));
        } else if !name.starts_with("row-remap") || !check.name.starts_with("row-remap") {
            assert_eq!(check.status, Pass, "{name} coloured {check:?}");
        }
    }
    found.expect("the check is there")
}

/// The check of a name and GPU index in a report, the node's with none.
fn find<'a>(report: &'a Report, name: &str, index: Option<u32>) -> &'a Check {
    report.checks.iter().find(|check| check.name == name && check.index == index).expect("the check is there")
}

fn reason(check: &Check) -> &str {
    check.reason.as_deref().unwrap_or_default()
}

#[test]
fn a_healthy_node_passes_every_check() {
    let report = report(&healthy(), Some(2));
    assert_eq!(report.status, Pass);
    assert!(report.driver.is_some());
    assert_eq!(report.summary, "12 passed");
    let names: Vec<_> = report.checks.iter().map(|check| (check.name, check.index)).collect();
    let per_gpu = |index| [ECC, REMAP_PENDING, REMAP_FAILURE, PCIE, XID].map(|name| (name, Some(index)));
    assert_eq!(names, [&[(INIT, None), (VISIBLE, None)][..], &per_gpu(0), &per_gpu(1)].concat());
    assert!(report.checks.iter().all(|check| check.status == Pass && check.reason.is_none()));
}

#[test]
fn ecc_counts_volatile_uncorrectable_errors() {
    let set = |enabled, volatile_uncorrected| {
        move |gpu: &mut Readings| {
            let ecc = gpu.ecc.as_mut().expect("healthy");
            (ecc.enabled, ecc.volatile_uncorrected) = (enabled, volatile_uncorrected);
        }
    };
    assert_eq!(check_gpu(ECC, set(true, 0)).0, Pass);
    let (status, reason) = check_gpu(ECC, set(true, 1));
    assert_eq!((status, reason.as_str()), (Fail, "1 uncorrectable memory error since the driver was loaded"));
    let (status, reason) = check_gpu(ECC, set(true, 12));
    assert_eq!((status, reason.as_str()), (Fail, "12 uncorrectable memory errors since the driver was loaded"));
    let (status, reason) = check_gpu(ECC, set(false, 0));
    assert_eq!((status, reason.as_str()), (Skipped, "ECC is off"));
}

#[test]
fn row_remaps_fail_while_pending_or_failed() {
    let set = |pending, failure| {
        move |gpu: &mut Readings| {
            let rows = gpu.rows.as_mut().expect("healthy");
            (rows.pending, rows.failure) = (pending, failure);
        }
    };
    for (pending, failure, expected) in [
        (false, false, (Pass, Pass)),
        (true, false, (Fail, Pass)),
        (false, true, (Pass, Fail)),
        (true, true, (Fail, Fail)),
    ] {
        let found =
            (check_gpu(REMAP_PENDING, set(pending, failure)).0, check_gpu(REMAP_FAILURE, set(pending, failure)).0);
        assert_eq!(found, expected);
    }
    assert_eq!(check_gpu(REMAP_PENDING, set(true, false)).1, "a row remap waits for a reset of the GPU");
    assert!(check_gpu(REMAP_FAILURE, set(false, true)).1.contains("replacement (3 rows remapped, 2 of them"));
}

#[test]
fn a_narrow_link_fails_and_a_slow_one_does_not() {
    for (current, max, expected) in
        [(16, 16, Pass), (8, 16, Fail), (1, 16, Fail), (0, 16, Fail), (8, 8, Pass), (0, 0, Unknown)]
    {
        let found = check_gpu(PCIE, |gpu| {
            let link = gpu.link.as_mut().expect("healthy");
            (link.current_width, link.max_width) = (current, max);
        });
        assert_eq!(found.0, expected, "{current} of {max}");
        assert_eq!(found.1.is_empty(), expected == Pass);
    }
}

#[test]
fn a_gpu_is_gone_by_nvmls_numbers_and_a_timeout_is_no_loss() {
    // nvml.h: 8 INSUFFICIENT_POWER, 10 TIMEOUT, 11 IRQ_ISSUE, 15 GPU_IS_LOST, 16 RESET_REQUIRED, 28 GPU_NOT_FOUND.
    for (native, gone) in [(8, true), (10, false), (11, true), (15, true), (16, true), (17, false), (28, true)] {
        assert_eq!(is_gone(&error("a-code", native)), gone, "{native}");
    }
}

/// Puts an error in the place of a reading.
type Set = fn(&mut Readings, Error);

#[test]
fn promise_32_could_not_ask_is_never_pass() {
    for (code, native) in [("no-permission", 4), ("function-not-found", 13), ("timeout", 5), ("unknown", 999)] {
        let failed = || error(code, native);
        let set: [(&str, Set); 4] = [
            (ECC, |gpu, error| gpu.ecc = Err(error)),
            (REMAP_PENDING, |gpu, error| gpu.rows = Err(error)),
            (REMAP_FAILURE, |gpu, error| gpu.rows = Err(error)),
            (PCIE, |gpu, error| gpu.link = Err(error)),
        ];
        for (name, set) in set {
            let (status, reason) = check_gpu(name, |gpu| set(gpu, failed()));
            assert_eq!(status, Unknown, "{name} {code}");
            assert!(reason.contains(&format!("({code}, {native})")), "{name}: {reason}");
        }
    }
}

#[test]
fn what_a_gpu_does_not_support_is_skipped() {
    let unsupported = || error("not-supported", 3);
    let (status, reason) = check_gpu(ECC, |gpu| gpu.ecc = Err(unsupported()));
    assert_eq!((status, reason.as_str()), (Skipped, "ECC is not supported: not supported (not-supported, 3)"));
    assert_eq!(check_gpu(PCIE, |gpu| gpu.link = Err(unsupported())).0, Skipped);
    for name in [REMAP_PENDING, REMAP_FAILURE] {
        let (status, reason) = check_gpu(name, |gpu| gpu.rows = Err(unsupported()));
        assert_eq!(status, Skipped);
        assert!(reason.starts_with("row remapping is not supported"), "{reason}");
        let (status, reason) = check_gpu(name, |gpu| {
            gpu.identity.mig_enabled = Some(true);
            gpu.rows = Err(unsupported());
        });
        assert_eq!(status, Skipped);
        assert!(reason.starts_with("not told while MIG instances are active"), "{reason}");
    }
}

#[test]
fn the_count_must_be_the_expected_one() {
    for (count, expected, status) in [
        (2, None, Pass),
        (2, Some(2), Pass),
        (2, Some(8), Fail),
        (2, Some(1), Fail),
        (2, Some(0), Fail),
        (0, None, Fail),
        (0, Some(0), Pass),
        (0, Some(8), Fail),
    ] {
        let facts = Facts { gpus: Ok((0..count).map(gpu).collect()), ..healthy() };
        let report = report(&facts, expected);
        let found = find(&report, VISIBLE, None);
        assert_eq!(found.status, status, "{count} of {expected:?}");
        assert_eq!(found.reason.is_none(), status == Pass);
    }
}

#[test]
fn a_lost_gpu_is_named_and_the_others_are_still_checked() {
    let mut facts = healthy();
    facts.gpus.as_mut().expect("healthy")[0].readings = Err(error("gpu-is-lost", 15));
    let report = report(&facts, Some(2));
    assert_eq!(report.status, Fail);
    let visible = find(&report, VISIBLE, None);
    assert_eq!((visible.status, reason(visible)), (Fail, "GPU 0 does not answer: gpu is lost (gpu-is-lost, 15)"));
    for name in [ECC, REMAP_PENDING, REMAP_FAILURE, PCIE, XID] {
        let lost = find(&report, name, Some(0));
        assert_eq!((lost.status, &lost.gpu), (Unknown, &None));
        assert!(reason(lost).contains("(gpu-is-lost, 15)"), "{lost:?}");
        assert_eq!(find(&report, name, Some(1)).status, Pass);
    }
}

#[test]
fn a_gpu_that_is_lost_while_it_is_asked_is_not_visible() {
    let mut facts = healthy();
    facts.gpus.as_mut().expect("healthy")[1].readings.as_mut().expect("healthy").link = Err(error("gpu-is-lost", 15));
    let report = report(&facts, None);
    assert_eq!(find(&report, PCIE, Some(1)).status, Unknown);
    assert_eq!(find(&report, VISIBLE, None).status, Fail);
}

#[test]
fn a_gpu_that_may_not_be_asked_is_unknown_not_lost() {
    let mut facts = healthy();
    facts.gpus.as_mut().expect("healthy")[1].readings = Err(error("no-permission", 4));
    let with = |expected| report(&facts, expected);
    assert_eq!(with(None).status, Unknown);
    let report = with(None);
    let visible = find(&report, VISIBLE, None);
    assert_eq!((visible.status, reason(visible)), (Unknown, "GPU 1: could not ask: no permission (no-permission, 4)"));
    assert_eq!(find(&with(Some(8)), VISIBLE, None).status, Fail);
}

#[test]
fn nothing_passes_beside_a_driver_that_does_not_answer() {
    for events in
        ["", &event("45", "0000:01:00", None, "workflow"), &event("13", "0000:01:00", Some("GPU-9"), "restart-app")]
    {
        let facts = Facts { driver: Err(error("driver-not-loaded", 9)), gpus: Ok(vec![]), xids: Ok(log(true, events)) };
        for expected in [None, Some(0), Some(8)] {
            let report = report(&facts, expected);
            assert_eq!((report.status, report.driver.is_none()), (Fail, true));
            let init = find(&report, INIT, None);
            assert_eq!(init.status, Fail);
            assert!(reason(init).ends_with("driver not loaded (driver-not-loaded, 9)"));
            for check in &report.checks[1..] {
                assert_eq!(check.status, Unknown, "{check:?}");
                assert!(check.reason.is_some());
            }
            let names: Vec<_> = report.checks.iter().map(|check| check.name).collect();
            assert_eq!(names, [INIT, VISIBLE, ECC, REMAP_PENDING, REMAP_FAILURE, PCIE, XID]);
        }
    }
}

#[test]
fn the_kernel_log_is_read_beside_a_driver_that_does_not_answer() {
    let events =
        [event("79", "0000:01:00", Some("GPU-7"), "restart-bm"), event("119", "0000:02:00", None, "reset-gpu")];
    let facts = Facts { driver: Err(error("unknown", 999)), gpus: Ok(vec![]), xids: Ok(log(true, &events.join(","))) };
    let report = report(&facts, None);
    let xids: Vec<_> = report.checks.iter().filter(|check| check.name == XID).collect();
    let [node, named] = xids[..] else { panic!("{xids:?}") };
    assert_eq!((node.status, reason(node)), (Fail, "0000:02:00: XID 119 (reset-gpu): m"));
    assert_eq!((named.status, named.gpu.as_deref()), (Fail, Some("GPU-7")));
}

#[test]
fn gpus_that_cannot_be_listed_are_unknown() {
    let report = report(&Facts { gpus: Err(error("unknown", 999)), ..healthy() }, Some(2));
    assert_eq!(report.status, Unknown);
    assert_eq!(find(&report, INIT, None).status, Pass);
    assert_eq!(reason(find(&report, VISIBLE, None)), "could not ask: unknown (unknown, 999)");
    for name in [ECC, REMAP_PENDING, REMAP_FAILURE, PCIE] {
        let check = find(&report, name, None);
        assert_eq!((check.status, reason(check)), (Unknown, "not asked: the GPUs could not be listed"));
    }
    // The driver works and the whole log was read: its silence counts.
    assert_eq!(find(&report, XID, None).status, Pass);
}

#[test]
fn promise_31_events_fail_the_gpu_they_are_about() {
    for (event, failing) in [
        (event("64", "0000:01:00", Some("GPU-1"), "reset-gpu"), Some(1)),
        // The host could not name it, its address can.
        (event("64", "0000:01:00", None, "reset-gpu"), Some(1)),
        (event("null", "0000:01:00", None, "unknown"), Some(1)),
        // The name counts, not the address: that of another boot's slot.
        (event("64", "0000:01:00", Some("GPU-0"), "reset-gpu"), Some(0)),
        (event("94", "0000:01:00", Some("GPU-1"), "restart-app"), None),
    ] {
        let report = report(&Facts { xids: Ok(log(true, &event)), ..healthy() }, None);
        for check in &report.checks {
            let fails = check.name == XID && check.index == failing && failing.is_some();
            assert_eq!(check.status, if fails { Fail } else { Pass }, "{event}: {check:?}");
        }
    }
}

#[test]
fn an_event_of_a_gpu_that_is_not_listed_is_not_dropped() {
    let fallen = event("null", "0000:b3:00", None, "unknown");
    let nameless = report(&Facts { xids: Ok(log(true, &fallen)), ..healthy() }, None);
    let node = find(&nameless, XID, None);
    let expected = "0000:b3:00: fell off the bus without an XID: m";
    assert_eq!((node.status, &node.gpu, reason(node)), (Fail, &None, expected));

    let remembered = event("79", "0000:b3:00", Some("GPU-7"), "restart-bm");
    let report = report(&Facts { xids: Ok(log(true, &remembered)), ..healthy() }, None);
    let named = find(&report, XID, None);
    assert_eq!((named.status, named.gpu.as_deref()), (Fail, Some("GPU-7")));
    assert_eq!(report.checks.len(), 13);
}

#[test]
fn a_log_that_is_not_whole_or_not_read_passes_no_gpu() {
    for (xids, expected) in [
        (Ok(log(false, "")), "nothing found, but"),
        (Err(error("io", 5)), "the kernel's log could not be read: io (io, 5)"),
        (Ok("nonsense".to_owned()), "the kernel's log was not understood: "),
    ] {
        let with = |gpus| report(&Facts { xids: xids.clone(), gpus, ..healthy() }, None);
        let found = with(Ok(vec![gpu(0), gpu(1)]));
        assert_eq!(found.status, Unknown);
        for index in [0, 1] {
            let check = find(&found, XID, Some(index));
            assert_eq!(check.status, Unknown);
            assert!(reason(check).starts_with(expected), "{check:?}");
        }
        assert_eq!(found.checks.len(), 12, "no line of the node beside those of the GPUs");
        // With no GPU to say it, the node does.
        assert_eq!(find(&with(Ok(vec![])), XID, None).status, Unknown);
    }
}

#[test]
fn the_report_is_the_json_that_the_manifest_promises() {
    let mut facts = healthy();
    facts.gpus.as_mut().expect("healthy").truncate(1);
    let json = serde_json::to_value(report(&facts, None)).expect("serialises");
    assert_eq!(json["status"], "pass");
    assert_eq!(json["driver"], serde_json::json!({"version":"570.124.06","nvmlVersion":"12.570","cudaVersion":"12.8"}));
    let checks = &json["checks"];
    assert_eq!(checks[0], serde_json::json!({"name":"nvml.init","gpu":null,"status":"pass","reason":null}));
    let expected =
        serde_json::json!({"name":"ecc.uncorrectable","gpu":"GPU-0","index":0,"status":"pass","reason":null});
    assert_eq!(checks[2], expected);
}
