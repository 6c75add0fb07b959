use std::{fs, path::Path};

use bc_proto::xid::Report;
use tempfile::TempDir;

use super::{KernelLog, Source};

const XID: &str = "NVRM: Xid (PCI:0000:3b:00): 94, Contained: SM (0x1). RST: No, D-RST: No";

/// A `journalctl` that is a shell script.
fn journalctl(log: KernelLog, script: &str) -> KernelLog {
    KernelLog { journalctl: ["sh", "-c", script].map(Into::into).to_vec(), ..log }
}

fn entry(message: &str, us: u64) -> String {
    let entry = serde_json::json!({
        "_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "MESSAGE": message, "_SOURCE_MONOTONIC_TIMESTAMP": us.to_string(),
    });
    format!("echo '{entry}'\n")
}

fn check(log: &KernelLog) -> Report {
    let json = log.xids(&|pci| (pci == "0000:3b:00").then(|| "GPU-of-nvml".to_owned())).expect("the log is readable");
    serde_json::from_str(&json).expect("it is the documented JSON")
}

fn check_unreadable(log: &KernelLog) -> String {
    let error = log.xids(&|_| None).expect_err("the log is unreadable");
    assert_eq!(error.code, "kernel-log-unreadable");
    error.message
}

#[test]
fn a_file_is_read_with_the_times_of_dmesg() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("kernel.log");
    let lost = "[   20.000001] NVRM: The NVIDIA GPU 0000:b3:00.0\n               NVRM: (PCI ID: 10de:2330) installed in this \
                system has\n               NVRM: fallen off the bus and is not responding to commands.\n";
    fs::write(&path, format!("[    0.000000] Linux\n[   12.345678] {XID}\n[   13.000000] {XID}\n{lost}"))
        .expect("it writes");
    insta::assert_json_snapshot!(check(&KernelLog::new(Source::File(path))));
}

#[test]
fn promise_32_a_missing_file_is_an_error_not_an_empty_list() {
    let message = check_unreadable(&KernelLog::new(Source::File("/nonexistent/kernel.log".into())));
    assert_eq!(message, "/nonexistent/kernel.log: No such file or directory (os error 2)");
}

#[test]
fn promise_32_neither_source_readable_is_an_error_with_both_reasons() {
    let log = KernelLog { kmsg: "/nonexistent/kmsg".into(), ..KernelLog::new(Source::Auto) };
    let message = check_unreadable(&journalctl(log.clone(), "echo 'No journal files were found.' >&2; exit 1"));
    assert_eq!(
        message,
        "journalctl ended with exit status: 1: No journal files were found.; /nonexistent/kmsg: No such file or directory (os error 2)"
    );
    let message = check_unreadable(&journalctl(log, "exit 0"));
    assert!(message.starts_with("the journal holds no kernel messages of this boot; "), "{message}");
}

#[test]
fn a_missing_journalctl_is_an_error() {
    let log = KernelLog { journalctl: vec!["/nonexistent/journalctl".into()], ..KernelLog::new(Source::Journald) };
    assert!(check_unreadable(&log).starts_with("journalctl: No such file"));
}

#[test]
fn promise_31_the_journal_of_this_boot_is_read() {
    let script = entry("Linux version", 0) + &entry(XID, 5_000_000) + "echo no json\n";
    let report = check(&journalctl(KernelLog::new(Source::Journald), &script));
    let [event] = &report.events[..] else { panic!("{report:?}") };
    assert_eq!((event.code, event.gpu.as_deref(), event.first_ms), (Some(94), Some("GPU-of-nvml"), Some(5000)));
    assert_eq!(report.problems, ["1 lines of journalctl's output could not be read"]);
    assert!(!report.complete, "the line may have been an XID");
}

#[test]
fn messages_that_are_no_text_come_as_bytes() {
    let bytes = serde_json::to_string(format!("{XID}\u{1b}").as_bytes()).expect("it serializes");
    let script = entry("Linux version", 0) + &entry("BYTES", 7).replace("\"BYTES\"", &bytes);
    let report = check(&journalctl(KernelLog::new(Source::Journald), &script));
    assert_eq!((report.events.len(), report.complete), (1, true), "{report:?}");
}

#[test]
fn only_the_kernel_is_believed() {
    let script = entry("Linux version", 0)
        + &entry(XID, 1).replace(r#""SYSLOG_FACILITY":"0""#, r#""SYSLOG_FACILITY":"1""#)
        + &entry(XID, 2).replace(r#""_TRANSPORT":"kernel""#, r#""_TRANSPORT":"syslog""#);
    let report = check(&journalctl(KernelLog::new(Source::Journald), &script));
    assert_eq!((report.events, report.complete), (Vec::new(), true));
}

#[test]
fn a_journal_that_begins_after_boot_or_missed_messages_is_incomplete() {
    let late = check(&journalctl(KernelLog::new(Source::Journald), &entry(XID, 4_123_000_000)));
    assert!(!late.complete);
    assert_eq!(late.problems, ["the journal of this boot begins only 4123 s after its start"]);

    let missed = r#"echo '{"_TRANSPORT":"driver","MESSAGE_ID":"e9bf28e6e834481bb6f48f548ad13606","MESSAGE":"Missed 7 kernel messages"}'"#;
    let gap = check(&journalctl(KernelLog::new(Source::Journald), &(entry("Linux version", 0) + missed)));
    assert!(!gap.complete);
    assert_eq!(gap.problems, ["journald: Missed 7 kernel messages"]);
}

#[test]
fn auto_keeps_an_incomplete_journal_where_there_is_nothing_better() {
    let log = KernelLog { kmsg: "/nonexistent/kmsg".into(), ..KernelLog::new(Source::Auto) };
    let report = check(&journalctl(log, &entry(XID, 4_123_000_000)));
    assert_eq!((report.source.as_str(), report.complete, report.events.len()), ("journald", false, 1));
}

/// On the machine that runs the tests, whatever it has.
#[test]
fn the_real_ring_buffer_is_read_or_refused() {
    let log = KernelLog::new(Source::Kmsg);
    if fs::File::open("/dev/kmsg").is_ok() {
        let report = check(&log);
        assert_eq!(report.source, "kmsg");
        assert!(report.complete || !report.problems.is_empty(), "{report:?}");
    } else {
        check_unreadable(&log);
    }
    let fallen_back = journalctl(KernelLog::new(Source::Auto), "exit 0");
    if Path::new("/dev/kmsg").exists() && fs::File::open("/dev/kmsg").is_ok() {
        let report = check(&fallen_back);
        assert_eq!(report.problems[0], "journald was passed over: the journal holds no kernel messages of this boot");
    }
}

#[test]
#[ignore = "needs a machine with a journal of this boot"]
fn the_real_journal_is_read() {
    let report = check(&KernelLog::new(Source::Journald));
    assert_eq!(report.source, "journald");
    assert!(report.complete, "{report:?}");
}
