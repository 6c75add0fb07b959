//! `node.reboot` on a machine that really boots: a kernel in qemu. By hand, since it needs qemu, a kernel, busybox and socat:
//! `docs/kinds/node.reboot.md` says how.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use bc_tests::cluster::process::Process;
use bc_tests::cluster::{Cluster, until};
use bc_tests::programs;
use serde_json::json;

#[expect(clippy::disallowed_methods, reason = "these tests are about programs")]
fn machine(disk: &Path, kernel: &Path) -> Command {
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(["-accel", "tcg", "-cpu", "max", "-m", "1024", "-display", "none"]);
    qemu.args(["-monitor", "none", "-serial", "file:/dev/stderr", "-netdev", "user,id=net"]);
    qemu.args(["-device", "virtio-net-pci,netdev=net,romfile=", "-append", "console=ttyS0 quiet panic=-1"]);
    qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(disk);
    qemu
}

/// The boot ids that it has said at its console.
fn boots(console: &str) -> BTreeSet<String> {
    console.lines().filter_map(|line| line.trim().strip_prefix("BOOT ")).map(ToOwned::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs qemu and a kernel: BC_VM_KERNEL names vmlinuz, BC_VM_MODULES its lib/modules/VERSION"]
async fn promise_01_a_real_machine_boots_once() {
    let path = |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set")));
    let mut cluster = Cluster::start(1, 1).await;
    cluster.api.register(bc_tests::inspected("node.reboot").bytes).await;
    let node = &mut cluster.nodes[0];
    let (id, folder) = (node.id.clone(), node.path(""));
    node.kill();
    let port = cluster.replicas[0].gateway_url().rsplit(':').next().expect("a port").to_owned();
    let disk = cluster.folder().join("disk");
    #[expect(clippy::disallowed_methods, reason = "these tests are about programs")]
    let mut make = Command::new(programs::repository().join("tests/vm/initramfs.sh"));
    let said = programs::run(
        make.arg(&disk)
            .arg(path("BC_VM_MODULES"))
            .arg(programs::program("bcd"))
            .arg(folder.components().as_path())
            .arg(&port),
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    let mut machine = Process::start("the machine", &mut machine(&disk, &path("BC_VM_KERNEL")));
    machine.has_said("a session is open").await;
    assert_eq!(boots(&machine.said()).len(), 1);
    let command = cluster.api.run(&id, "node.reboot", "really", json!({ "reason": "a test" })).await;
    let settled = cluster.api.settled(&command).await;
    assert_eq!((settled.state.as_str(), settled.result), ("succeeded", Some(json!({ "rebooted": true }))));
    until("it has said so", || boots(&machine.said()).len() == 2).await;
    // It has its command's end, and lives on.
    let next = cluster.api.run(&id, "test.count", "next", bc_tests::cluster::node::Node::counted(0, 0)).await;
    assert!(cluster.api.settled(&next).await.settled_at.is_some());
    assert_eq!(boots(&machine.said()).len(), 2, "{}", machine.said());
}
