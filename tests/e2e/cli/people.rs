//! What an operator reads, at 100 columns.

use bc_tests::machine::Machine;
use fake_nvml::{Preset, State};

use super::{better_compute, kind, word};

fn read(machine: &Machine, name: &str, payload: &str) -> String {
    let (file, config) = (kind(name), machine.config());
    let run = ["kind", "run", &file, "--config", word(&config), "--payload", payload];
    let said = better_compute(&run);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    machine.anonymous(&said.out)
}

fn assert_fits(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "more than 100 columns: {line}");
        assert_eq!(line, line.trim_end(), "nothing trails");
    }
}

#[test]
fn a_healthy_node_takes_three_lines() {
    let text = read(&Machine::new(&State::eight_h100()), "diag.nvml", "{}");
    assert_eq!(text, "pass: 42 pass (driver 570.124.06)\n\nevery check passed: node, GPUs 0–7\n");
}

#[test]
fn a_faulty_node_shows_what_needs_attention() {
    let machine = Machine::new(&Preset::Faulty.state());
    machine
        .node
        .update(|state| state.gpus[6].errors.insert("nvmlDeviceGetRemappedRows".into(), 4242))
        .expect("changed");
    let at = std::time::Duration::from_secs(4711);
    machine.node.log(at, "NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.").expect("logged");
    let text = read(&machine, "diag.nvml", r#"{"expectedGpus":8}"#);
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn a_node_without_driver_shows_why() {
    let text = read(&Machine::new(&Preset::NoDriver.state()), "diag.nvml", "{}");
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn gpus_with_the_same_finding_are_told_together() {
    let machine = Machine::changed(|state| {
        for gpu in &mut state.gpus[2..6] {
            gpu.ecc.as_mut().expect("an H100 has ECC").enabled = false;
        }
    });
    let text = read(&machine, "diag.nvml", "{}");
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn eight_gpus_are_a_table_and_a_lost_one_stands_out() {
    let healthy = read(&Machine::new(&State::eight_h100()), "inventory.refresh", r#"{"sections":["gpus"]}"#);
    assert_fits(&healthy);
    insta::assert_snapshot!(healthy);
    let machine = Machine::changed(|state| state.gpus[3].lost = true);
    let lost = read(&machine, "inventory.refresh", r#"{"sections":["gpus"]}"#);
    assert_fits(&lost);
    insta::assert_snapshot!(lost);
}

#[test]
fn a_whole_inventory_reads_as_sections() {
    let machine = Machine::new(&State::eight_h100());
    machine_files(&machine);
    let text = read(&machine, "inventory.refresh", r#"{"sections":["os","memory","disks","nics"]}"#);
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

/// Some of what a real machine has in `proc`, `sys` and `etc`.
fn machine_files(machine: &Machine) {
    let disk = |name: &str, sectors: &str, model: &str| {
        let at = format!("sys/block/{name}");
        [(format!("{at}/size"), sectors.to_owned()), (format!("{at}/device/model"), model.to_owned())]
    };
    let nic = |name: &str, mac: &str, state: &str, speed: &str| {
        let at = format!("sys/class/net/{name}");
        [("address", mac), ("operstate", state), ("speed", speed), ("mtu", "9000"), ("device/uevent", "")]
            .map(|(file, text)| (format!("{at}/{file}"), text.to_owned()))
    };
    let mut files = vec![
        ("proc/meminfo".to_owned(), "MemTotal:  2113372160 kB\nSwapTotal:  0 kB\n".to_owned()),
        ("proc/sys/kernel/hostname".to_owned(), "gpu-7".to_owned()),
        ("proc/sys/kernel/osrelease".to_owned(), "6.8.0-71-generic".to_owned()),
        ("etc/os-release".to_owned(), "ID=ubuntu\nPRETTY_NAME=\"Ubuntu 24.04.3 LTS\"\nVERSION_ID=24.04\n".to_owned()),
    ];
    files.extend(disk("nvme0n1", "7501476528", "PM9A3"));
    files.extend(disk("nvme1n1", "7501476528", "PM9A3"));
    files.extend(nic("eth0", "02:00:00:00:00:01", "up", "200000"));
    files.extend(nic("eth1", "02:00:00:00:00:02", "up", "200000"));
    files.extend(nic("eth2", "02:00:00:00:00:03", "down", "-1"));
    for (path, text) in files {
        let path = machine.path(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder is made");
        std::fs::write(path, text).expect("a file is written");
    }
}
