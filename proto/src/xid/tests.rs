use std::fmt::Write as _;

use proptest::prelude::*;

use super::{Action, Condition, Findings, Line, LinkEvent, PciAddress, Report, Scanner, Xid, parse};

/// A line of every form that the driver generations print.
const LINES: [&str; 17] = [
    "NVRM: Xid (0000:03:00): 14, Channel 00000001",
    "NVRM: Xid (03:00): 13, 0003 00000000 00008597 00001b0c 1000f010 00000040",
    "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 43, pid=4242, name=python3, Ch 00000008",
    "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, Contained: SM (0x1). RST: No, D-RST: No",
    "NVRM: Xid (PCI:0000:dc:00): 45, pid=1000, name=python3, Ch 00000001 caused by previous Xid 149",
    "NVRM: Xid (PCI:0002:00:00): 119, pid=1000, name=nvc:[driver], Timeout after 6s of waiting for RPC response from \
     GPU1 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8).",
    "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000 \
     0x00000000 0x00000000 0x00000000)",
    "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
    "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
    "NVRM: Xid (PCI:0000:00:05): 43, pid=1000, name=ray::RayWorker, a, Ch 00000008",
    "NVRM: Xid (PCI:0000:00:05): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): \
     Illegal Instruction Parameter",
    "NVRM: Xid (PCI:0000:01:00): 45, pid=9684, name=python, channel 0x00000015",
    "NVRM: GPU at PCI:0000:b3:00: GPU-01234567-89ab-cdef-0123-456789abcdef",
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.",
];

/// The loss of a GPU before the driver could give it an XID.
const LOST: &str = "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n\
                    NVRM: fallen off the bus and is not responding to commands.\n";

fn scan(records: &[(&str, u64)]) -> Findings {
    let mut scanner = Scanner::new();
    for (text, time_us) in records {
        scanner.record(text, Some(*time_us));
    }
    scanner.finish()
}

fn xid(line: &str) -> Xid<'_> {
    match parse(line) {
        Line::Xid(xid) => xid,
        other => panic!("{line}: {other:?}"),
    }
}

/// What of a condition the tests compare.
fn brief(condition: &Condition) -> (String, Option<u32>, Action, u64) {
    (condition.pci.to_string(), condition.code, condition.action, condition.count)
}

#[test]
fn promise_31_lines_of_every_driver_generation_parse() {
    let mut seen = String::new();
    for line in LINES {
        writeln!(seen, "{line}\n    {:?}", parse(line)).expect("a string takes it");
    }
    insta::assert_snapshot!("every_generation", seen);
}

#[test]
fn promise_31_a_gpu_lost_without_an_xid_is_found() {
    let findings = scan(&[(LOST, 5_000_000)]);
    let found: Vec<_> = findings.conditions.iter().map(brief).collect();
    assert_eq!(found, [("0000:b3:00".to_owned(), None, Action::RestartBm, 1)]);

    // As three records, with lines of other parts of the kernel in between.
    let mut scanner = Scanner::new();
    for line in LOST.lines().flat_map(|line| [line, "nvidia: probe of 0000:b3:00.0 failed with error -1"]) {
        scanner.record(line, None);
    }
    assert_eq!(scanner.finish().conditions.iter().map(brief).collect::<Vec<_>>(), found);

    // The older forms.
    for older in [
        "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:2d04) installed in this system has\nNVRM: fallen off the bus and is \
         not responding to commands.",
        "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5)\nNVRM: installed in this system has fallen off the bus \
         and is not responding to commands.",
    ] {
        assert_eq!(scan(&[(older, 0)]).conditions.iter().map(brief).collect::<Vec<_>>(), found, "{older}");
    }
}

#[test]
fn the_same_first_line_before_another_message_is_no_loss() {
    let findings = scan(&[
        ("NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:1db6)", 0),
        ("NVRM: installed in this system is not supported by the NVIDIA 595.91 driver release.", 0),
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module", 0),
    ]);
    assert_eq!(findings, Findings::default());
}

#[test]
fn a_loss_with_xid_79_is_told_once() {
    let findings = scan(&[(LINES[3], 1), (LINES[16], 2)]);
    assert_eq!(
        findings.conditions.iter().map(brief).collect::<Vec<_>>(),
        [("0000:01:00".to_owned(), Some(79), Action::RestartBm, 1)]
    );
    let without = scan(&[(LINES[16], 2)]);
    assert_eq!(
        without.conditions.iter().map(brief).collect::<Vec<_>>(),
        [("0000:01:00".to_owned(), None, Action::RestartBm, 1)]
    );
}

#[test]
fn a_loss_whose_first_line_is_gone_is_a_problem_rather_than_nothing() {
    let findings = scan(&[("NVRM: fallen off the bus and is not responding to commands.", 0)]);
    assert_eq!(findings.problems.len(), 1, "{findings:?}");
}

#[test]
fn the_table_of_actions() {
    let mut table = String::new();
    for code in 0..=175 {
        let action = Action::of_code(code);
        if action != Action::Unknown {
            writeln!(table, "{code} {action:?}").expect("a string takes it");
        }
    }
    insta::assert_snapshot!("actions", table);
}

#[test]
fn the_strongest_action_wins() {
    use Action::{
        ContactSupport, FollowPrinted, Ignore, Mechanical, ResetGpu, RestartApp, RestartBm, RestartVm, Unknown,
        Workflow,
    };
    let order = [
        Ignore,
        RestartApp,
        Unknown,
        Workflow,
        FollowPrinted,
        ResetGpu,
        RestartVm,
        RestartBm,
        ContactSupport,
        Mechanical,
    ];
    assert!(order.is_sorted(), "{order:?}");
    // 154 may print a reset when the 79 before it needs a reboot.
    let findings = scan(&[
        (LINES[3], 1),
        ("NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", 2),
    ]);
    assert_eq!(findings.conditions.iter().map(|condition| condition.action).max(), Some(RestartBm));
}

#[test]
fn the_printed_action_is_read_by_its_number() {
    let of = |printed: &str| {
        let line = format!("NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to {printed}");
        Action::of(&xid(&line))
    };
    assert_eq!(of("0x0 (None)"), Action::Ignore);
    assert_eq!(of("0x1 (GPU Reset Required)"), Action::ResetGpu);
    assert_eq!(of("0x1 (PF FLR)"), Action::ResetGpu);
    assert_eq!(of("0x2 (Node Reboot Required)"), Action::RestartBm);
    assert_eq!(of("0x2 (OS Reboot)"), Action::RestartBm);
    assert_eq!(of("0x3 (Drain P2P)"), Action::Workflow);
    assert_eq!(of("0x4 (Drain and Reset)"), Action::ResetGpu);
    assert_eq!(of("0x9 (Reboot twice)"), Action::RestartBm);
    assert_eq!(of("0x9 (Something else)"), Action::FollowPrinted);
    assert_eq!(of("Reset"), Action::ResetGpu);
    assert_eq!(of(""), Action::FollowPrinted);
}

#[test]
fn a_45_asks_for_what_its_cause_does() {
    let named = "NVRM: Xid (PCI:0000:dc:00): 45, pid=1000, name=python3, Ch 00000001 caused by previous Xid 94";
    assert_eq!(Action::of(&xid(named)), Action::RestartApp);

    let contained = "NVRM: Xid (PCI:0000:dc:00 GPU-I:05): 94, Contained: SM (0x1). RST: No, D-RST: No";
    let follow = "NVRM: Xid (PCI:0000:dc:00): 45, pid=1000, name=python3, Ch 00000001";
    let actions = |records: &[(&str, u64)]| -> Vec<_> {
        scan(records).conditions.iter().map(|condition| (condition.code, condition.action, condition.count)).collect()
    };
    let with_contained = (Some(94), Action::RestartApp, 1);
    assert_eq!(
        actions(&[(contained, 10_000_000), (follow, 11_000_000), (follow, 12_000_000)]),
        [(Some(45), Action::RestartApp, 2), with_contained]
    );
    assert_eq!(
        actions(&[(contained, 10_000_000), (follow, 900_000_000)]),
        [(Some(45), Action::Workflow, 1), with_contained],
        "a solo one, long after"
    );
}

#[test]
fn link_events_decode() {
    let event = LinkEvent::of(&xid(LINES[8])).expect("149 has the form");
    assert_eq!((event.unit, event.fatal, event.link), ("NETIR_LINK_EVT", Some(true), Some(1)));
    assert_eq!((event.intr_info, event.error_status, event.subcode()), (0x0214_25c6, 0, 0x21));
    assert_eq!(LinkEvent::of(&xid(LINES[7])), None);
}

#[test]
fn conditions_fold_by_gpu_instance_code_and_action() {
    let findings =
        scan(&[(LINES[14], 0), (LINES[4], 1_500_000), (LINES[4], 2_500_999), (LOST, 3_000_000), (LINES[5], 4_000_000)]);
    let report =
        Report::new(findings, "kmsg", true, Vec::new(), &|pci| (pci == "0000:3b:00").then(|| "GPU-nvml".to_owned()));
    insta::assert_json_snapshot!("report", report);
    let again: Report =
        serde_json::from_str(&serde_json::to_string(&report).expect("it serializes")).expect("it parses");
    assert_eq!(again, report);
}

#[test]
fn the_number_of_conditions_is_bounded_and_reaching_it_is_said() {
    let mut scanner = Scanner::with_limit(2);
    for code in [43, 94, 79, 43, 79] {
        scanner.record(&format!("NVRM: Xid (PCI:0000:01:00): {code}, x"), None);
    }
    let findings = scanner.finish();
    assert_eq!(findings.conditions.len(), 2);
    assert_eq!(findings.problems, ["more than 2 distinct GPU errors: 2 lines about further ones were left out"]);
}

#[test]
fn a_line_that_only_looks_like_an_xid_is_a_problem() {
    for line in [
        "NVRM: Xid (PCI:0000:01:00): x, y",
        "NVRM: Xid (nowhere): 79, x",
        "NVRM: Xid: 79",
        "NVRM: Xid (PCI:0:0:0): 4294967296, x",
    ] {
        let findings = scan(&[(line, 0)]);
        assert_eq!((findings.conditions.len(), findings.problems.len()), (0, 1), "{line}");
    }
    let chosen_by_a_user = "audit: comm=\"NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\"";
    assert_eq!(scan(&[(chosen_by_a_user, 0)]), Findings::default());
}

#[test]
fn what_was_logged_before_a_reset_that_cured_a_gpu_is_left_out_and_said_to_be() {
    let lines = [
        ("NVRM: Xid (PCI:0000:01:00): 119, timeout", 1_000_000),
        ("NVRM: Xid (PCI:0000:01:00): 95, uncontained", 2_000_000),
        ("NVRM: Xid (PCI:0000:02:00): 95, uncontained", 1_000_000),
        ("NVRM: Xid (PCI:0000:03:00): 79, gone", 1_000_000),
    ];
    let uuid_of = |pci: &str| (pci != "0000:03:00").then(|| format!("GPU-{}", &pci[6..7]));
    let mut report = Report::new(scan(&lines), "file", true, Vec::new(), &uuid_of);
    assert_eq!((report.last_ms_of("GPU-1"), report.last_ms_of("GPU-9")), (Some(2_000), None));
    report.leave_out(&|gpu| (gpu == "GPU-1").then_some(1_999));
    let left: Vec<_> = report.events.iter().map(|event| (event.pci.to_string(), event.code)).collect();
    let expected = [("0000:01:00", 95), ("0000:02:00", 95), ("0000:03:00", 79)];
    assert_eq!(left, expected.map(|(pci, code)| (pci.to_owned(), Some(code))), "what came later stays, and other GPUs");
    assert_eq!(report.problems.len(), 1);
    let mut timeless = Report::new(scan(&lines), "file", true, Vec::new(), &uuid_of);
    timeless.events.iter_mut().for_each(|event| event.last_ms = None);
    timeless.leave_out(&|_| Some(u64::MAX));
    assert_eq!(timeless.events.len(), 4, "nobody knows when they were logged");
}

proptest! {
    #[test]
    fn promise_31_no_text_makes_the_parser_panic(text in any::<String>(), prefix in prop::sample::select(&["", "NVRM: ", "NVRM: Xid (", "NVRM: Xid (PCI:0000:01:00): 154, ", "NVRM: The NVIDIA GPU "][..])) {
        let mut scanner = Scanner::with_limit(4);
        scanner.record(&format!("{prefix}{text}"), None);
        let findings = scanner.finish();
        prop_assert!(findings.conditions.len() <= 4);
    }

    /// Real lines with a part cut out and something else put in its place.
    #[test]
    fn promise_31_mutated_lines_neither_panic_nor_vanish(
        line in prop::sample::select(&LINES[..14]), from in 12usize..80, length in 0usize..40, insert in "[ -~]{0,12}|\\PC{0,4}",
    ) {
        let from = line.floor_char_boundary(from);
        let to = line.floor_char_boundary(from + length);
        let mutated = format!("{}{insert}{}", &line[..from], &line[to..]);
        let findings = scan(&[(&mutated, 0)]);
        prop_assert_eq!(findings.conditions.len() + findings.problems.len(), 1, "{}", mutated);
        for condition in &findings.conditions {
            prop_assert!(condition.last_message.len() <= 1024);
        }
    }

    #[test]
    fn promise_31_what_the_driver_prints_reads_back(
        domain in 0u32..0x1_0000, bus: u8, device in 0u8..32, gi in prop::option::of(0u32..16), pid in prop::option::of(1u32..4_194_304),
        code in 1u32..200, cause in prop::option::of(1u32..200),
    ) {
        let pci = PciAddress { domain, bus, device };
        let instance = gi.map(|gi| format!(" GPU-I:{gi:02}")).unwrap_or_default();
        let process = pid.map(|pid| format!("pid={pid}, name=a[b]::c, ")).unwrap_or_default();
        let suffix = cause.map(|cause| format!(" caused by previous Xid {cause}")).unwrap_or_default();
        let line = format!("NVRM: Xid (PCI:{pci}{instance}): {code}, {process}Ch 00000001{suffix}");
        let name = pid.map(|_| "a[b]::c");
        prop_assert_eq!(xid(&line), Xid { pci, gi, ci: None, code, pid, name, message: "Ch 00000001", caused_by: cause });
        prop_assert_eq!(pci.to_string().parse(), Ok(pci));
    }
}
