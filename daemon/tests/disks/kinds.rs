//! The kinds as they are shipped, run by the daemon's own program on a machine that a folder plays.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::bench::{Bench, MIB};

/// Runs a kind; answers its report and the exit code.
#[expect(clippy::disallowed_methods, reason = "this test is about a program")]
fn run(bench: &Bench, kind: &str, payload: &Value, more: &[&str]) -> (Value, Option<i32>) {
    let cache = std::env::current_exe().expect("a running program has a path").with_file_name("compiled-kinds");
    let config = format!(
        "role = 'ramdisk'\nroot = '{}'\nstate-dir = '{}'\ncache-dir = '{}'\n[disks]\npath = '{}:/usr/bin:/bin'\npoll = '5ms'\n\
         [images]\nsources = ['file://{}']\n[grants.'metal.*']\nblock-devices = {{ devices = ['/dev/*'], erase = true, write = true }}\n",
        bench.root().display(),
        bench.root().display(),
        cache.display(),
        bench.path("tools").display(),
        bench.path("images").display(),
    );
    let file = bench.path("bcd.toml");
    std::fs::write(&file, config).expect("written");
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it lies in the repository").join("plugins/dist");
    let component = dist.join(kind).with_added_extension("wasm");
    assert!(component.is_file(), "{} is not there: cargo xtask plugins", component.display());
    let mut bcd = Command::new(env!("CARGO_BIN_EXE_bcd"));
    bcd.args(["kind", "run", "--payload", &payload.to_string(), "--config"]).arg(file).args(more).arg(component);
    let out = bcd.output().expect("it starts");
    let text = String::from_utf8_lossy(&out.stdout);
    let report = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text} {}", String::from_utf8_lossy(&out.stderr)));
    (report, out.status.code())
}

#[test]
fn promise_34_a_wipe_names_method_level_serial_and_verification() {
    let bench = Bench::new();
    let (first, second) = (bench.loop_of("first", MIB), bench.loop_of("second", MIB));
    first.fill(0xa5);
    second.fill(0xa5);
    bench.drive("vda", &first, Some("S1"));
    bench.drive("vdb", &second, Some("S2"));
    let payload = json!({ "all": true, "expected": 2, "minimumLevel": "clear", "methods": ["overwrite"], "verify": { "samples": 20, "seed": 7 } });
    let (plan, code) = run(&bench, "metal.disk.wipe", &payload, &["--plan"]);
    assert_eq!((plan["outcome"].as_str(), code), (Some("succeeded"), Some(0)), "{plan}");
    assert_eq!(plan["effects"].as_array().map(Vec::len), Some(2), "{plan}");
    assert_eq!(first.bytes(0, 1), [0xa5], "a plan changes nothing");

    let (report, code) = run(&bench, "metal.disk.wipe", &payload, &[]);
    assert_eq!((report["outcome"].as_str(), code), (Some("succeeded"), Some(0)), "{report}");
    for (index, serial) in [(0, "S1"), (1, "S2")] {
        let device = &report["result"]["devices"][index];
        let said = ["method", "level", "serial", "status"].map(|field| device[field].as_str().expect("a word"));
        assert_eq!(said, ["overwrite", "clear", serial, "wiped"], "{device}");
        let verification = &device["verification"];
        assert_eq!((&verification["verdict"], &verification["samples"]), (&json!("passed"), &json!(20)), "{device}");
    }
    for disk in [first, second] {
        assert!(disk.bytes(0, 1024 * 1024).iter().all(|byte| *byte == 0));
    }
}

#[test]
fn promise_34_a_level_that_cannot_be_reached_refuses_the_wipe_and_touches_nothing() {
    let bench = Bench::new();
    let (first, second) = (bench.loop_of("first", MIB), bench.loop_of("second", MIB));
    first.fill(0xa5);
    second.fill(0xa5);
    bench.drive("nvme0n1", &first, Some("S1"));
    bench.drive("vdb", &second, Some("S2"));
    bench.tool("nvme", r#"case "$1" in id-ctrl) echo '{"oacs":23,"fna":4,"sanicap":3}' ;; *) exit 1 ;; esac"#);
    let payload = json!({ "devices": [{ "path": "/dev/nvme0n1" }, { "path": "/dev/vdb" }], "minimumLevel": "purge" });
    let (report, code) = run(&bench, "metal.disk.wipe", &payload, &[]);
    assert_eq!((report["outcome"].as_str(), code), (Some("guest-failure"), Some(2)), "{report}");
    assert_eq!(report["code"], "no-method", "{report}");
    assert!(report["message"].as_str().expect("words").contains("/dev/vdb"), "{report}");
    assert_eq!(report["effects"], json!([]));
    assert!(bench.calls().iter().all(|call| call.starts_with("nvme id-ctrl")), "{:?}", bench.calls());
    assert_eq!((first.bytes(0, 1), second.bytes(0, 1)), (vec![0xa5], vec![0xa5]));
}

#[test]
fn promise_34_a_fallback_is_one_that_the_payload_lists_and_each_attempt_is_told() {
    let bench = Bench::new();
    let disk = bench.loop_of("disk", MIB);
    disk.fill(0xa5);
    bench.drive("nvme0n1", &disk, Some("S1"));
    let script = r#"case "$1" in
        id-ctrl) echo '{"oacs":23,"fna":4,"sanicap":3}' ;;
        format) echo 'NVMe status: Invalid Command Opcode(0x4001)' >&2; exit 1 ;;
        *) exit 1 ;; esac"#;
    bench.tool("nvme", script);
    let payload = |methods: &[&str]| json!({ "devices": [{ "path": "/dev/nvme0n1", "serial": "S1" }], "minimumLevel": "clear", "methods": methods });
    let (report, _) = run(&bench, "metal.disk.wipe", &payload(&["nvme-format-crypto"]), &[]);
    assert_eq!(report["code"], "wipe-failed", "{report}");
    assert_eq!(disk.bytes(0, 1), [0xa5], "nobody listed another method");

    let (report, _) = run(&bench, "metal.disk.wipe", &payload(&["nvme-format-crypto", "zero-out"]), &[]);
    assert_eq!(report["outcome"], "succeeded", "{report}");
    let device = &report["result"]["devices"][0];
    assert_eq!((&device["method"], &device["level"]), (&json!("zero-out"), &json!("clear")));
    let attempts: Vec<_> =
        device["attempts"].as_array().expect("a list").iter().map(|it| (&it["method"], &it["code"])).collect();
    assert_eq!(attempts, [(&json!("nvme-format-crypto"), &json!("not-supported")), (&json!("zero-out"), &Value::Null)]);
}

#[test]
fn an_image_is_deployed_and_a_wrong_one_fails_the_command() {
    let bench = Bench::new();
    let disk = bench.loop_of("disk", 16 * MIB);
    bench.drive("vda", &disk, Some("S1"));
    let image = vec![0x5a; 5_000_000];
    let sha256 = hex::encode(Sha256::digest(&image));
    std::fs::create_dir(bench.path("images")).expect("a folder");
    std::fs::write(bench.path("images/os.raw"), &image).expect("written");
    let payload = |sha256: &str, bytes: u64| json!({ "device": { "path": "/dev/vda", "serial": "S1" }, "image": "os.raw", "sha256": sha256, "bytes": bytes });
    let (report, code) = run(&bench, "metal.image.deploy", &payload(&sha256, 17 * MIB), &[]);
    assert_eq!((&report["code"], code), (&json!("too-large"), Some(2)), "{report}");
    assert_eq!(disk.bytes(0, 1), [0]);

    let (report, code) = run(&bench, "metal.image.deploy", &payload(&sha256, 5_000_000), &[]);
    assert_eq!(code, Some(0), "{report}");
    let expected = json!({
        "path": "/dev/vda", "model": "ACME Drive 1", "serial": "S1", "image": "os.raw", "bytes": 5_000_000,
        "sha256": sha256, "status": "verified",
    });
    assert_eq!(report["result"], expected);
    assert!(disk.bytes(0, 5_000_000) == image);

    let (report, _) = run(&bench, "metal.image.deploy", &payload(&"0".repeat(64), 5_000_000), &[]);
    assert_eq!(report["code"], "wrong-digest", "{report}");
    assert!(disk.bytes(0, 1024 * 1024).iter().all(|byte| *byte == 0));
}
