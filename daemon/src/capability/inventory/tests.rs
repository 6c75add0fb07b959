use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use bc_runtime::capability::{
    Answer, Error, Inventory, Nvml,
    nvml::{Device, DriverInfo, EccCounts, Identity, Link, Process, RowRemapping},
};
use serde_json::Value;
use tempfile::TempDir;

use super::MachineInventory;

/// A machine with two sockets, five GPUs and one disk of each kind; ` -> ` makes a link.
const MACHINE: &str = r"
sys/class/dmi/id/sys_vendor = Acme
sys/class/dmi/id/product_name = G8
sys/class/dmi/id/product_serial = To Be Filled By O.E.M.
sys/class/dmi/id/product_uuid = 4C4C4544-0001-0002-0003-000000000004
sys/class/dmi/id/board_vendor = Acme
sys/class/dmi/id/board_name = G8-B
sys/class/dmi/id/board_serial = B123
sys/class/dmi/id/chassis_serial = C123
sys/class/dmi/id/bios_vendor = Acme
sys/class/dmi/id/bios_version = 1.2
sys/class/dmi/id/bios_date = 01/02/2026
proc/sys/kernel/hostname = gpu-7
proc/sys/kernel/osrelease = 6.8.0-71-generic
proc/sys/kernel/random/boot_id = 11111111-2222-4333-8444-555555555555
usr/lib/os-release = NAME=X|ID=ubuntu|VERSION_ID=`24.04`|PRETTY_NAME=`Ubuntu 24.04.3 LTS`
proc/cpuinfo = processor : 0|vendor_id : GenuineIntel|model name : Xeon 8480||processor : 1|vendor_id : GenuineIntel|model name : Xeon 8480
sys/devices/system/cpu/online = 0-3
sys/devices/system/cpu/cpu0/topology/physical_package_id = 0
sys/devices/system/cpu/cpu0/topology/core_cpus_list = 0,2
sys/devices/system/cpu/cpu1/topology/physical_package_id = 1
sys/devices/system/cpu/cpu1/topology/core_cpus_list = 1,3
sys/devices/system/cpu/cpu2/topology/physical_package_id = 0
sys/devices/system/cpu/cpu2/topology/core_cpus_list = 0,2
sys/devices/system/cpu/cpu3/topology/physical_package_id = 1
sys/devices/system/cpu/cpu3/topology/thread_siblings_list = 1,3
sys/devices/system/node/node0/cpulist = 0,2
sys/devices/system/node/node1/cpulist = 1,3
sys/devices/system/node/node10/cpulist =
sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages = 4
sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages = 3
sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages = 0
sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages = x
sys/devices/pci0000:00/0000:00:01.0/nvme/nvme0/model = PM9A3
sys/devices/pci0000:00/0000:00:01.0/nvme/nvme0/serial = S64
sys/devices/pci0000:00/0000:00:01.0/nvme/nvme0/transport = pcie
sys/devices/pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1/size = 7501476528
sys/devices/pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1/wwid = eui.0025
sys/devices/pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1/removable = 0
sys/devices/pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1/queue/rotational = 0
sys/devices/pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1/device -> ..
sys/block/nvme0n1 -> ../devices/pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1
sys/devices/pci0000:00/0000:00:02.0/ata1/host0/target0:0:0/0:0:0:0/model = HGST
sys/devices/pci0000:00/0000:00:02.0/ata1/host0/target0:0:0/0:0:0:0/vpd_pg80 = VPD
sys/devices/pci0000:00/0000:00:02.0/ata1/host0/target0:0:0/0:0:0:0/wwid = naa.5000
sys/devices/pci0000:00/0000:00:02.0/ata1/host0/target0:0:0/0:0:0:0/block/sda/size = 2048
sys/devices/pci0000:00/0000:00:02.0/ata1/host0/target0:0:0/0:0:0:0/block/sda/removable = 0
sys/devices/pci0000:00/0000:00:02.0/ata1/host0/target0:0:0/0:0:0:0/block/sda/queue/rotational = 1
sys/devices/pci0000:00/0000:00:02.0/ata1/host0/target0:0:0/0:0:0:0/block/sda/device -> ../..
sys/block/sda -> ../devices/pci0000:00/0000:00:02.0/ata1/host0/target0:0:0/0:0:0:0/block/sda
sys/devices/pci0000:00/0000:00:03.0/virtio2/vendor = 0x1af4
sys/devices/pci0000:00/0000:00:03.0/virtio2/block/vda/size = 16
sys/devices/pci0000:00/0000:00:03.0/virtio2/block/vda/removable = 0
sys/devices/pci0000:00/0000:00:03.0/virtio2/block/vda/queue/rotational = 1
sys/devices/pci0000:00/0000:00:03.0/virtio2/block/vda/device -> ../..
sys/block/vda -> ../devices/pci0000:00/0000:00:03.0/virtio2/block/vda
sys/block/loop0/size = 8
sys/block/dm-0/size = 8
sys/devices/pci0000:00/0000:00:04.0/net/eth0/address = 02:00:00:00:00:01
sys/devices/pci0000:00/0000:00:04.0/net/eth0/mtu = 9000
sys/devices/pci0000:00/0000:00:04.0/net/eth0/operstate = up
sys/devices/pci0000:00/0000:00:04.0/net/eth0/speed = 200000
sys/devices/pci0000:00/0000:00:04.0/net/eth0/device -> ../..
sys/devices/pci0000:00/0000:00:04.0/driver -> ../../../bus/pci/drivers/mlx5_core
sys/class/net/eth0 -> ../../devices/pci0000:00/0000:00:04.0/net/eth0
sys/devices/pci0000:00/0000:00:04.0/net/eth1/address = 02:00:00:00:00:02
sys/devices/pci0000:00/0000:00:04.0/net/eth1/mtu = 1500
sys/devices/pci0000:00/0000:00:04.0/net/eth1/operstate = down
sys/devices/pci0000:00/0000:00:04.0/net/eth1/speed = -1
sys/devices/pci0000:00/0000:00:04.0/net/eth1/device -> ../..
sys/class/net/eth1 -> ../../devices/pci0000:00/0000:00:04.0/net/eth1
sys/class/net/lo/address = 00:00:00:00:00:00
sys/class/net/br0/address = 02:00:00:00:00:03
";

fn write(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("it lies in a directory")).expect("directories are made");
    fs::write(path, bytes).expect("it writes");
}

fn link(root: &Path, path: &str, target: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("it lies in a directory")).expect("directories are made");
    symlink(target, path).expect("it links");
}

fn gpu(root: &Path, address: &str, driver: Option<&str>) {
    for (file, text) in [("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2330"), ("numa_node", "0")] {
        write(root, &format!("sys/bus/pci/devices/{address}/{file}"), text.as_bytes());
    }
    if let Some(driver) = driver {
        link(root, &format!("sys/bus/pci/devices/{address}/driver"), &format!("../../drivers/{driver}"));
    }
}

fn machine() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    let root = dir.path();
    for line in MACHINE.lines().filter(|line| !line.is_empty()) {
        if let Some((path, target)) = line.split_once(" -> ") {
            link(root, path, target);
        } else {
            let (path, text) = line.split_once(" =").expect("it is a file");
            write(root, path, text.trim().replace('|', "\n").replace('`', "\"").as_bytes());
        }
    }
    write(
        root,
        "sys/devices/pci0000:00/0000:00:02.0/ata1/host0/target0:0:0/0:0:0:0/vpd_pg80",
        b"\0\x80\0\x08    K7J1xx",
    );
    write(root, "proc/meminfo", b"MemTotal:        1024 kB\nMemFree:          512 kB\nSwapTotal:       2048 kB\n");
    gpu(root, "0000:3b:00.0", Some("nvidia"));
    gpu(root, "0000:b3:00.0", Some("nvidia"));
    gpu(root, "0000:b4:00.0", Some("vfio-pci"));
    for (file, text) in [("vendor", "0x10de"), ("class", "0x068000")] {
        write(root, &format!("sys/bus/pci/devices/0000:c1:00.0/{file}"), text.as_bytes());
    }
    dir
}

/// NVML with a list that tests change.
#[derive(Default)]
struct FakeNvml(Mutex<Vec<Device>>);

fn lost(index: u32) -> Device {
    Device { index, identity: Err(Error::native("gpu-is-lost", 15, "the GPU is lost")) }
}

fn listed(index: u32, pci_address: &str) -> Device {
    Device {
        index,
        identity: Ok(Identity {
            uuid: format!("GPU-at-{pci_address}"),
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            pci_address: pci_address.to_owned(),
            serial: Some("165".to_owned()),
            minor: Some(index),
            mig_enabled: Some(false),
            persistence: Some(true),
        }),
    }
}

fn unused<T>() -> Answer<T> {
    Err(Error::new("not-supported", "the inventory does not ask for it"))
}

impl Nvml for FakeNvml {
    fn driver(&self) -> Answer<DriverInfo> {
        Ok(DriverInfo {
            version: "570.124.06".to_owned(),
            nvml_version: "12.570".to_owned(),
            cuda_version: Some(12080),
        })
    }
    fn devices(&self) -> Answer<Vec<Device>> {
        Ok(self.0.lock().expect("no test panics with it").clone())
    }
    fn ecc_errors(&self, _: &str) -> Answer<EccCounts> {
        unused()
    }
    fn remapped_rows(&self, _: &str) -> Answer<RowRemapping> {
        unused()
    }
    fn pcie_link(&self, _: &str) -> Answer<Link> {
        unused()
    }
    fn processes(&self, _: &str) -> Answer<Vec<Process>> {
        unused()
    }
    fn recovery_action(&self, _: &str) -> Answer<u32> {
        unused()
    }
    fn xids(&self) -> Answer<String> {
        unused()
    }
}

fn inventory(root: &Path, devices: &[Device]) -> (MachineInventory, Arc<FakeNvml>) {
    let nvml = Arc::new(FakeNvml(Mutex::new(devices.to_vec())));
    let clock = AtomicU64::new(1_000);
    let now_ms = move || clock.fetch_add(1, Ordering::Relaxed);
    (MachineInventory::new(root.to_owned(), Some(nvml.clone()), now_ms), nvml)
}

fn parsed(answer: Answer<String>) -> Value {
    serde_json::from_str(&answer.expect("it collects")).expect("it is JSON")
}

fn gpus(inventory: &MachineInventory) -> Value {
    parsed(inventory.rescan(&["gpus".to_owned()]))["gpus"].take()
}

#[test]
fn a_whole_machine() {
    let dir = machine();
    let (inventory, _) = inventory(dir.path(), &[listed(0, "0000:3b:00.0"), listed(1, "0000:b3:00.0")]);
    insta::assert_json_snapshot!("a_whole_machine", parsed(inventory.collected(&[])));
}

#[test]
fn promise_32_what_cannot_be_read_is_null_with_a_reason() {
    fn has_null(value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Array(values) => values.iter().any(has_null),
            Value::Object(fields) => fields.iter().any(|(name, value)| name != "nvmlError" && has_null(value)),
            _ => false,
        }
    }
    let empty = TempDir::new().expect("a directory");
    for root in [empty.path(), Path::new("/")] {
        let inventory = MachineInventory::new(root.to_owned(), None, || 0);
        let document = parsed(inventory.collected(&[]));
        for (section, collected) in document.as_object().expect("sections by name") {
            let problems = collected["problems"].as_array().expect("a list");
            assert!(
                !has_null(&collected["data"]) || !problems.is_empty(),
                "{section} of {}: {collected}",
                root.display()
            );
        }
    }
    let nothing = MachineInventory::new(empty.path().to_owned(), None, || 0);
    insta::assert_json_snapshot!("an_empty_root", parsed(nothing.collected(&[])));
}

#[test]
fn a_lost_gpu_is_listed_with_what_nvml_said_before() {
    let dir = machine();
    let (inventory, nvml) = inventory(dir.path(), &[listed(0, "0000:3b:00.0"), listed(1, "0000:b3:00.0")]);
    gpus(&inventory);
    *nvml.0.lock().expect("no test panics with it") = vec![listed(0, "0000:3b:00.0"), lost(1)];
    let gpus = gpus(&inventory);
    let gpu = &gpus["data"]["gpus"][1];
    assert_eq!(gpu["uuid"], "GPU-at-0000:b3:00.0");
    assert_eq!(gpu["nvmlError"], "gpu-is-lost");
    assert_eq!(gpu["sources"], serde_json::json!(["pci", "nvml-earlier"]));
    assert_eq!(gpus["problems"][0], "NVML's index 1: gpu-is-lost: the GPU is lost");
}

#[test]
fn gpus_lost_before_the_daemon_started_are_placed_where_as_many_are_left() {
    let dir = machine();
    let one = gpus(&inventory(dir.path(), &[listed(0, "0000:3b:00.0"), lost(1)]).0);
    assert_eq!(one["data"]["gpus"].as_array().map(Vec::len), Some(3));
    assert_eq!(one["data"]["gpus"][1]["nvmlError"], "gpu-is-lost");
    assert_eq!(one["data"]["gpus"][1]["uuid"], Value::Null);

    let two = gpus(&inventory(dir.path(), &[lost(0), lost(1)]).0);
    let errors = [0, 1, 2].map(|at| two["data"]["gpus"][at]["nvmlError"].clone());
    assert_eq!(errors, [Value::from("gpu-is-lost"), Value::from("gpu-is-lost"), Value::Null]);

    insta::assert_json_snapshot!("unplaced", gpus(&inventory(dir.path(), &[lost(0)]).0));
}

#[test]
fn collected_keeps_and_rescan_renews() {
    let dir = machine();
    let (inventory, _) = inventory(dir.path(), &[]);
    let os = ["os".to_owned()];
    let at = |answer| parsed(answer)["os"]["collectedAtMs"].as_u64();
    assert_eq!(at(inventory.collected(&os)), Some(1_000));
    assert_eq!(at(inventory.collected(&os)), Some(1_000));
    assert_eq!(at(inventory.rescan(&os)), Some(1_001));
    assert_eq!(at(inventory.collected(&os)), Some(1_001));
    assert_eq!(parsed(inventory.collected(&os)).as_object().map(serde_json::Map::len), Some(1));
}

#[test]
fn an_unknown_section_is_named() {
    let inventory = MachineInventory::new("/nonexistent".into(), None, || 0);
    let error = inventory.collected(&["cpu".to_owned(), "tape".to_owned()]).expect_err("there is no such section");
    assert_eq!(error.code, "not-found");
    assert_eq!(error.message, "no section `tape`; there are system, os, cpu, memory, disks, nics, gpus");
}

/// On the machine that runs the tests.
#[test]
fn the_real_machine_is_collected() {
    let document = parsed(MachineInventory::new("/".into(), None, || 0).collected(&[]));
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux has it");
    assert_eq!(document["os"]["data"]["bootId"], boot_id.trim());
    assert!(document["cpu"]["data"]["threads"].as_u64().is_some_and(|threads| threads > 0), "{document}");
    assert!(document["memory"]["data"]["totalBytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{document}");
}
