//! Writes a folder that plays a GPU node, with a `bcd.toml` that makes bcd take it for its machine. Driver, GPUs and kernel
//! log are played; processor, memory, disks and network are this machine's own, by links.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use fake_nvml::{Preset, SimulatedNode};

/// Write a folder that plays a GPU node
#[derive(Parser)]
#[command(name = "simulated-node", version)]
struct Arguments {
    /// The folder; made if need be
    folder: PathBuf,
    /// What the node is like: eight-h100, mig-split, faulty or no-driver
    #[arg(long, default_value = "eight-h100")]
    preset: Preset,
}

/// Grants for the kinds that only read: what such a node's operator would give them.
const GRANTS: &str = "[grants.\"diag.nvml\"]\nnvml = {}\n\n[grants.\"inventory.refresh\"]\ninventory = {}\n";

/// What the kernel of the faulty node logged: GPU 3 was lost, and two errors of programs, which fail no GPU.
const FAULTS: [(u64, &str); 3] = [
    (5_012, "NVRM: Xid (PCI:0000:1b:00): 94, pid=4242, name=python3, Contained: SM (0x1). RST: No, D-RST: No"),
    (5_013, "NVRM: Xid (PCI:0000:43:00): 45, pid=4242, name=python3, Ch 00000008"),
    (7_200, "NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus."),
];

fn main() -> io::Result<()> {
    let Arguments { folder, preset } = Arguments::parse();
    let node = SimulatedNode::create(&folder, &preset.state())?;
    if preset == Preset::Faulty {
        for (seconds, line) in FAULTS {
            node.log(Duration::from_secs(seconds), line)?;
        }
    }
    for own in ["proc", "etc", "sys/block", "sys/class", "sys/devices", "sys/kernel"] {
        link(&Path::new("/").join(own), &folder.join(own))?;
    }
    let config = format!(
        "# A simulated node. Paths are relative to this folder: run bcd in it.\nroot = \".\"\ncache-dir = \"cache\"\n\
         kernel-log = {{ file = \"kernel.log\" }}\n\n[nvml]\nlibrary = \"./libnvidia-ml.so.1\"\n\n{GRANTS}"
    );
    fs::write(folder.join("bcd.toml"), config)
}

fn link(to: &Path, from: &Path) -> io::Result<()> {
    match symlink(to, from) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}
