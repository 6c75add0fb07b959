//! `xid.recent`: what each line of the kernel's log means for its GPU.

use std::fs;

use bc_tests::machine::Machine;
use fake_nvml::{Preset, State};

use super::diagnosis::Diagnosis;

/// What the lines of every driver generation that we know of do to the GPU at the address in them: its place in the log,
/// the rest of the line, the status of `xid.recent` and a part of its reason.
const LINES: [(&str, &str, &str, &str); 18] = [
    // Before drivers printed `PCI:`; the catalog has no action for 14.
    ("0000:03:00", "(0000:03:00): 14, Channel 00000001", "unknown", "XID 14 (unknown)"),
    (
        "0000:05:00",
        "(PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "fail",
        "XID 79 (restart-bm): GPU has fallen off the bus.",
    ),
    ("0000:01:00", "(PCI:0000:01:00): 79, GPU has fallen off the bus.", "fail", "XID 79 (restart-bm)"),
    ("0000:3b:00", "(PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 43, pid=4242, name=python3, Ch 00000008", "pass", ""),
    ("0000:3b:00", "(PCI:0000:3b:00 GPU-I:05): 94, Contained: SM (0x1). RST: No, D-RST: No", "pass", ""),
    ("0000:dc:00", "(PCI:0000:dc:00): 45, pid=1000, name=python3, Ch 00000001 caused by previous Xid 149", "pass", ""),
    (
        "0002:00:00",
        "(PCI:0002:00:00): 119, pid=1000, name=nvc:[driver], Timeout after 6s of waiting for RPC response from GPU1 GSP! \
         Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8).",
        "fail",
        "XID 119 (reset-gpu): Timeout after 6s",
    ),
    (
        "0009:01:00",
        "(PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000 0x00000000 \
         0x00000000 0x00000000)",
        "fail",
        "XID 149, see workflow: NETIR_LINK_EVT",
    ),
    (
        "0009:01:00",
        "(PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
        "fail",
        "XID 154 (reset-gpu)",
    ),
    (
        "0009:01:00",
        "(PCI:0009:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
        "pass",
        "",
    ),
    (
        "0000:10:1c",
        "(PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
        "pass",
        "",
    ),
    ("0000:00:05", "(PCI:0000:00:05): 43, pid=1000, name=ray::RayWorker, a, Ch 00000008", "pass", ""),
    (
        "0000:00:05",
        "(PCI:0000:00:05): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal \
         Instruction Parameter",
        "pass",
        "",
    ),
    ("0000:3b:00", "(PCI:0000:3b:00): 64, Row Remapper: Remapping failed", "fail", "XID 64 (reset-gpu)"),
    ("0000:3b:00", "(PCI:0000:3b:00 GPU-I:05): 95, Uncontained: SM (0x1)", "fail", "on MIG GI 5: Uncontained"),
    ("0000:3b:00", "(PCI:0000:3b:00): 48, DBE", "fail", "XID 48, see workflow"),
    ("0000:3b:00", "(PCI:0000:3b:00): 123, PMU", "fail", "XID 123 (contact-support)"),
    ("0000:3b:00", "(PCI:0000:3b:00): 54, Auxiliary power", "fail", "XID 54 (mechanical)"),
];

/// A node whose first GPU sits at `address` (`dddd:bb:dd`), and whose log holds these lines.
fn with_log(machine: &Machine, address: &str, lines: &[String]) -> Diagnosis {
    machine.node.update(|state| state.gpus[0].pci = format!("{address}.0")).expect("the state changes");
    let stamped = (100..).zip(lines).map(|(second, line)| format!("[  {second}.000001] {line}\n"));
    fs::write(machine.node.kernel_log(), stamped.collect::<String>()).expect("the log is written");
    Diagnosis::of(machine)
}

#[test]
fn promise_31_lines_of_every_driver_generation_count_to_their_gpu() {
    let machine = Machine::new(&State::eight_h100());
    for (address, line, status, reason) in LINES {
        let diagnosis = with_log(&machine, address, &[format!("NVRM: Xid {line}")]);
        let found = diagnosis.check("xid.recent", Some(0));
        assert!(found.0 == status && found.1.contains(reason), "{line}: {found:?}");
        assert_eq!(diagnosis.status(), status, "{line}");
        diagnosis.assert_others_pass(&[0]);
    }
}

#[test]
fn promise_31_a_gpu_lost_without_an_xid_is_found_over_three_lines() {
    let machine = Machine::new(&State::eight_h100());
    let lines = [
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    ];
    let diagnosis = with_log(&machine, "0000:b3:00", &lines.map(str::to_owned));
    let (status, reason) = diagnosis.check("xid.recent", Some(0));
    assert!(status == "fail" && reason.starts_with("fell off the bus without an XID"), "{status}: {reason}");
}

#[test]
fn promise_31_instances_of_mig_count_to_their_gpu() {
    let machine = Machine::new(&Preset::MigSplit.state());
    let line = "NVRM: Xid (PCI:0000:1b:00 GPU-I:07 GPU-CI:00): 109, pid=1, name=a, Ch 00000008".to_owned();
    let diagnosis = with_log(&machine, "0000:1b:00", &[line]);
    let (status, reason) = diagnosis.check("xid.recent", Some(0));
    assert!(status == "fail" && reason.contains("XID 109 (reset-gpu) on MIG GI 7 CI 0"), "{status}: {reason}");
}

#[test]
fn thousands_of_benign_lines_pass_and_hide_no_failure() {
    let machine = Machine::new(&State::eight_h100());
    let benign = |at| format!("NVRM: Xid (PCI:0000:1b:00): 45, pid={at}, name=python3, Ch 00000001");
    let mut lines: Vec<_> = (0..11_000).map(benign).collect();
    lines.push("NVRM: Xid (PCI:0000:1b:00): 94, pid=1, name=python3, Contained: SM (0x1). RST: No, D-RST: No".into());
    assert_eq!(with_log(&machine, "0000:1b:00", &lines).status(), "pass");
    lines.insert(5_000, "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.".into());
    let diagnosis = with_log(&machine, "0000:1b:00", &lines);
    let (status, reason) = diagnosis.check("xid.recent", Some(0));
    assert!(status == "fail" && reason.contains("XID 79 (restart-bm): GPU has fallen"), "{status}: {reason}");
}

#[test]
fn promise_31_a_lost_gpu_keeps_the_name_that_it_had() {
    let machine = Machine::new(&State::eight_h100());
    assert_eq!(Diagnosis::of(&machine).status(), "pass");
    machine.node.update(|state| state.gpus[3].lost = true).expect("the state changes");
    let uuid = machine.node.state().expect("a state").gpus.swap_remove(3).uuid;
    let line = "[  200.000000] NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.\n";
    fs::write(machine.node.kernel_log(), line).expect("the log is written");
    let diagnosis = Diagnosis::of(&machine);
    let about = |check: &&serde_json::Value| check["name"] == "xid.recent" && check["gpu"] == uuid.as_str();
    let check = diagnosis.checks().iter().find(about).expect("the lost GPU is named");
    assert_eq!(check["status"], "fail", "{check}");
    diagnosis.assert_others_pass(&[3]);
}

#[test]
fn promise_31_a_lost_gpu_that_was_never_seen_is_told_by_its_address() {
    let machine = Machine::changed(|state| state.gpus[3].lost = true);
    let line = "NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.".to_owned();
    let diagnosis = with_log(&machine, "0000:1b:00", &[line]);
    let (status, reason) = diagnosis.check("xid.recent", None);
    assert!(status == "fail" && reason.starts_with("0000:61:00: XID 79 (restart-bm)"), "{status}: {reason}");
}

#[test]
fn promise_32_a_log_that_cannot_be_read_is_unknown_and_never_silence() {
    let machine = Machine::new(&State::eight_h100());
    fs::remove_file(machine.node.kernel_log()).expect("the log goes");
    let diagnosis = Diagnosis::of(&machine);
    assert_eq!(diagnosis.status(), "unknown");
    for index in 0..8 {
        let (status, reason) = diagnosis.check("xid.recent", Some(index));
        assert!(status == "unknown" && reason.contains("kernel-log-unreadable"), "{status}: {reason}");
        assert_eq!(diagnosis.check("pcie.link", Some(index)).0, "pass");
    }
}

#[test]
fn promise_31_the_log_is_read_though_the_driver_is_gone() {
    let machine = Machine::new(&Preset::NoDriver.state());
    let diagnosis = with_log(
        &machine,
        "0000:1b:00",
        &["NVRM: Xid (PCI:0000:c3:00): 119, Timeout after 6s of waiting for RPC response from GPU5 GSP!".to_owned()],
    );
    let (status, reason) = diagnosis.check("xid.recent", None);
    assert!(status == "fail" && reason.starts_with("0000:c3:00: XID 119 (reset-gpu)"), "{status}: {reason}");
}
