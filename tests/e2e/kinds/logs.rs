//! `logs.collect` on a played machine: its folder is the root, and its programs are scripts.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bc_tests::machine::Machine;
use bc_tests::programs::{self, Said};
use fake_nvml::State;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const JOURNAL: &str = "case \"$*\" in *--unit=bcd.service*) echo bcd says;; *) echo \"journal $*\";; esac";
const DMESG: &str = "echo kern  :info  : NVRM: Xid";
/// Its report lies below the root that the script itself lies in.
const NVIDIA: &str = "root=${0%/usr/bin/*}; echo report > \"$root$3.gz\"";

struct Node(Machine);

impl Node {
    fn new() -> Self {
        let node = Self(Machine::new(&State::eight_h100()));
        for folder in ["var/log/app", "usr/bin"] {
            fs::create_dir_all(node.0.path(folder)).expect("a folder");
        }
        node.script("journalctl", JOURNAL);
        node.script("dmesg", DMESG);
        node.script("nvidia-bug-report.sh", NVIDIA);
        node.log("syslog", b"system\n");
        node.log("app/a.log", b"app\n");
        fs::write(node.0.path("var/secret"), "key").expect("a file");
        symlink("../secret", node.0.path("var/log/leak")).expect("a link");
        node
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.0.path("usr/bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }

    fn log(&self, name: &str, content: &[u8]) {
        fs::write(self.0.path("var/log").join(name), content).expect("a file");
    }

    fn run(&self, payload: &Value) -> (Value, Said) {
        self.run_by(programs::command("bcd"), payload)
    }

    fn run_by(&self, mut bcd: Command, payload: &Value) -> (Value, Said) {
        bcd.args(["kind", "run", "--grant-declared", "--payload", &payload.to_string(), "--config"]);
        bcd.arg(self.0.config()).arg("--upload-to").arg(self.0.path("bundle.tar.zst"));
        let said = programs::run(bcd.arg(programs::kind("logs.collect")));
        let report = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("no report: {error}: {said:?}"));
        (report, said)
    }

    /// The manifest and the lengths and beginnings of the files.
    fn bundle(&self) -> (Value, BTreeMap<String, (u64, Vec<u8>)>) {
        let decoder = zstd::Decoder::new(File::open(self.0.path("bundle.tar.zst")).expect("it was stored"));
        let mut archive = tar::Archive::new(decoder.expect("zstd reads it"));
        let (mut manifest, mut files) = (Value::Null, BTreeMap::new());
        for (at, entry) in archive.entries().expect("tar reads it").enumerate() {
            let mut entry = entry.expect("a good header");
            let path = entry.path().expect("a path").display().to_string();
            if at == 0 {
                assert_eq!(path, "manifest.json");
                manifest = serde_json::from_reader(&mut entry).expect("JSON");
                continue;
            }
            let (mut hash, mut piece, mut bytes, mut head) = (Sha256::new(), vec![0; 1 << 16], 0, Vec::new());
            while let Some(count) = Some(entry.read(&mut piece).expect("all of it")).filter(|count| *count > 0) {
                hash.update(&piece[..count]);
                bytes += count as u64;
                head.extend_from_slice(&piece[..count.min(4096_usize.saturating_sub(head.len()))]);
            }
            let told = &manifest["files"][at - 1];
            assert_eq!((&told["path"], &told["bytes"]), (&json!(path), &json!(bytes)));
            assert_eq!(told["sha256"], hex::encode(hash.finalize()));
            files.insert(path, (bytes, head));
        }
        (manifest, files)
    }
}

#[test]
fn the_logs_of_a_node_come_in_one_bundle() {
    let node = Node::new();
    let (report, said) = node.run(&json!({}));
    assert_eq!(report["outcome"], "succeeded", "{said:?}");
    let stored = fs::read(node.0.path("bundle.tar.zst")).expect("it was stored");
    assert_eq!(report["result"]["sha256"], hex::encode(Sha256::digest(&stored)));
    assert_eq!(report["result"]["bytes"], stored.len());
    let (manifest, files) = node.bundle();
    let text = |path: &str| String::from_utf8_lossy(&files[path].1).into_owned();
    assert_eq!(text("files/var/log/syslog"), "system\n");
    assert_eq!(text("files/var/log/app/a.log"), "app\n");
    assert_eq!(text("kernel/dmesg.log"), "kern :info : NVRM: Xid\n");
    assert!(text("journal/system.log").starts_with("journal --no-pager"), "{}", text("journal/system.log"));
    assert_eq!(text("daemon/bcd.log"), "bcd says\n");
    assert_eq!(text("nvidia/nvidia-bug-report.log.gz"), "report\n");
    assert!(text("daemon/inventory.json").contains("gpus"));
    assert!(!files.keys().any(|path| path.contains("leak")), "{:?}", files.keys());
    let leak = json!({ "path": "/var/log/leak", "reason": "is a link" });
    assert!(manifest["skipped"].as_array().is_some_and(|all| all.contains(&leak)), "{manifest}");
    assert_eq!(manifest["problems"], json!([]));
    // The one that leaves something on the node, and the upload.
    let effects: Vec<_> = report["effects"].as_array().expect("a list").iter().map(|effect| &effect["name"]).collect();
    assert_eq!(effects, ["process.run", "upload.finish"], "{}", report["effects"]);
}

#[test]
fn promise_17_a_log_that_grows_while_it_is_collected_does_not_break_the_bundle() {
    let node = Node::new();
    let before = b"0123456789abcde\n".repeat(200_000);
    node.log("syslog", &before);
    let is_over = AtomicBool::new(false);
    let (report, said, grown) = thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let log = OpenOptions::new().append(true).open(node.0.path("var/log/syslog"));
            let (mut log, mut bytes) = (log.expect("it is there"), before.len());
            while !is_over.load(Ordering::Relaxed) && bytes < 64 << 20 {
                log.write_all(b"0123456789abcde\n").expect("it grows");
                bytes += 16;
            }
            bytes as u64
        });
        let (report, said) = node.run(&json!({ "sources": ["journal", "files"] }));
        is_over.store(true, Ordering::Relaxed);
        (report, said, writing.join().expect("no panic"))
    });
    assert_eq!(report["outcome"], "succeeded", "{said:?}");
    // The bundle's own reader compares lengths and hashes with the manifest.
    let (manifest, files) = node.bundle();
    let (bytes, head) = &files["files/var/log/syslog"];
    assert!((before.len() as u64..=grown).contains(bytes) && grown > before.len() as u64, "{bytes} of {grown}");
    assert!(before.starts_with(head));
    assert_eq!((&manifest["problems"], &report["result"]["truncated"]), (&json!([]), &json!(false)));
}

#[test]
fn without_a_destination_it_says_what_to_configure() {
    let node = Node::new();
    let mut bcd = programs::command("bcd");
    bcd.args(["kind", "run", "--grant-declared", "--config"]).arg(node.0.config());
    let said = programs::run(bcd.arg(programs::kind("logs.collect")));
    let report: Value = serde_json::from_str(&said.out).expect("a report");
    assert_eq!((&report["code"], said.code), (&json!("no-destination"), Some(2)), "{said:?}");
    assert!(report["message"].to_string().contains("supportBundles"), "{report}");
}

#[test]
fn a_plan_collects_and_stores_nothing() {
    let node = Node::new();
    let mut bcd = programs::command("bcd");
    bcd.args(["kind", "run", "--plan", "--grant-declared", "--config"]).arg(node.0.config());
    bcd.arg("--upload-to").arg(node.0.path("bundle.tar.zst"));
    let said = programs::run(bcd.arg(programs::kind("logs.collect")));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!node.0.path("bundle.tar.zst").exists());
    assert!(!node.0.path("var/log/nvidia-bug-report-bcd.log.gz").exists());
}

/// 64 MiB hold no such log; neither does the process, with compiler and threads.
#[test]
#[expect(clippy::disallowed_methods, reason = "a limit is set by a program of the system")]
fn memory_is_bounded_whatever_lies_in_the_logs() {
    let node = Node::new();
    File::create(node.0.path("var/log/sparse")).and_then(|file| file.set_len(1 << 30)).expect("a sparse file");
    let bcd = programs::program("bcd");
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--data={}", 768 << 20)).arg(bcd);
    let (report, said) = node.run_by(limited, &json!({ "sources": ["files"] }));
    assert_eq!(report["outcome"], "succeeded", "{said:?}");
    let stats = &report["stats"];
    assert!(stats["peakMemoryBytes"].as_u64().is_some_and(|bytes| bytes < 64 << 20), "{stats}");
    let (manifest, files) = node.bundle();
    // Half of what may be taken, in whole MiB: something was taken before it.
    assert_eq!(files["files/var/log/sparse"].0, 255 << 20, "its newest part");
    assert_eq!(files["files/var/log/app/a.log"].0, 4, "it leaves room for the others");
    let listed = manifest["files"].as_array().expect("a list");
    let sparse = listed.iter().find(|file| file["path"] == "files/var/log/sparse").expect("it is listed");
    assert_eq!((&report["result"]["truncated"], &sparse["truncated"]), (&json!(true), &json!(true)));
}
