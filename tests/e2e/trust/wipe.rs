//! The shipped wiping kind through a whole cluster: what the node signs is what was done to the disk.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use bc_tests::cluster::Cluster;
use bc_tests::cluster::node::Node;
use bc_tests::programs;
use serde_json::{Value, json};

const WIPE: &str = "metal.disk.wipe";
const BYTES: usize = 1024 * 1024;

/// A loop device that plays the disk `vda` of a node.
struct Disk(String);

impl Disk {
    /// # Panics
    /// Without root and `losetup` of util-linux.
    fn new(node: &Node) -> Self {
        let file = node.path("disk.img");
        fs::write(&file, vec![0xa5; BYTES]).expect("a file");
        let path = losetup(&["-f", "--show", file.to_str().expect("text")])
            .expect("root, /dev/loop-control and losetup are there");
        let disk = Self(path);
        let name = disk.0.trim_start_matches("/dev/");
        let number = fs::read_to_string(Path::new("/sys/block").join(name).join("dev")).expect("a device");
        for (file, text) in [
            ("sys/block/vda/dev", number.as_str()),
            ("sys/block/vda/size", "2048"),
            ("sys/block/vda/device/model", "ACME Drive 1"),
            ("sys/block/vda/device/serial", "S1"),
            ("proc/self/mountinfo", ""),
        ] {
            let file = node.path(file);
            fs::create_dir_all(file.parent().expect("a folder")).and_then(|()| fs::write(file, text)).expect("written");
        }
        fs::create_dir_all(node.path("dev")).and_then(|()| symlink(&disk.0, node.path("dev/vda"))).expect("a link");
        disk
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = losetup(&["-d", &self.0]);
    }
}

#[expect(clippy::disallowed_methods, reason = "this test needs a real block device")]
fn losetup(argv: &[&str]) -> Option<String> {
    let out = Command::new("losetup").args(argv).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_34_a_wipe_s_signed_result_names_method_level_serial_and_verification() {
    let mut cluster = Cluster::start(1, 1).await;
    cluster.api.register(fs::read(programs::kind(WIPE)).expect("it is built")).await;
    let node = &mut cluster.nodes[0];
    let disk = Disk::new(node);
    node.kill();
    let config = fs::read_to_string(node.path("bcd.toml")).expect("a configuration");
    let grants = "[grants.'metal.*']\nblock-devices = { devices = ['/dev/*'], erase = true }\n";
    fs::write(node.path("bcd.toml"), format!("role = 'ramdisk'\n{config}{grants}")).expect("written");
    node.start();
    node.process().has_said("a session is open").await;

    let payload = |level: &str, methods: &[&str]| {
        let device = json!({ "path": "/dev/vda", "serial": "S1" });
        json!({ "devices": [device], "minimumLevel": level, "methods": methods, "verify": { "samples": 16, "seed": 7 } })
    };
    let run = async |key: &str, payload: Value| {
        let queued = cluster.api.run(&cluster.nodes[0].id, WIPE, key, payload).await;
        cluster.api.settled(&queued).await
    };
    // Nothing that the disk offers reaches this level: refused, signed, and the disk is as it was.
    let refused = run("purge", payload("purge", &["nvme-format-user", "overwrite"])).await;
    assert_eq!((refused.state.as_str(), refused.attested), ("failed", true), "{refused:?}");
    let result = refused.result.expect("a result");
    assert_eq!((&result["code"], &result["effects"]), (&json!("no-method"), &json!([])), "{result}");
    assert!(fs::read(&disk.0).expect("it reads").iter().all(|byte| *byte == 0xa5));

    let wiped = run("clear", payload("clear", &["overwrite"])).await;
    assert_eq!(
        (wiped.state.as_str(), wiped.attested, wiped.attested_by.is_some()),
        ("succeeded", true, true),
        "{wiped:?}"
    );
    let result = wiped.result.expect("a result");
    let device = &result["devices"][0];
    let said = ["method", "level", "serial", "model", "status"].map(|field| device[field].as_str().expect("a word"));
    assert_eq!(said, ["overwrite", "clear", "S1", "ACME Drive 1", "wiped"], "{device}");
    let verification = &device["verification"];
    assert_eq!((&verification["verdict"], &verification["samples"]), (&json!("passed"), &json!(16)), "{device}");
    assert_eq!(device["attempts"], json!([{ "method": "overwrite", "code": null, "message": null }]));
    assert!(fs::read(&disk.0).expect("it reads").iter().all(|byte| *byte == 0));
}
