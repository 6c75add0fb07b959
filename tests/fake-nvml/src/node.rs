//! A folder that plays a GPU node: driver, sysfs and kernel log.
//!
//! ```text
//! libnvidia-ml.so.1              a copy of the fake library; it reads the state beside it
//! fake-nvml.json                 the state
//! bin/nvidia-smi                 a copy of the fake program, where it is built; it reads the state one folder up
//! bin/dcgmi, bin/systemctl       the same program under these names
//! fake-nvml.json.calls           how the programs were called, a line each
//! sys/bus/pci/devices/<address>/ vendor, device, class, …
//! sys/bus/pci/drivers/nvidia/
//! kernel.log                     lines as dmesg prints them: `[   12.345678] NVRM: …`
//! ```
//!
//! **Invariant:** everything is inside the folder; nothing depends on the environment.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    library::{nvidia_smi_path, write_library},
    state::{Gpu, STATE_FILE, State},
};

/// Files of every H100 SXM5 in sysfs. 10de:2330 is its id in the public PCI id list, 030200 the class "3D controller".
const SYSFS_FILES: [(&str, &str); 7] = [
    ("vendor", "0x10de"),
    ("device", "0x2330"),
    ("class", "0x030200"),
    ("subsystem_vendor", "0x10de"),
    ("subsystem_device", "0x16c1"),
    ("revision", "0xa1"),
    ("enable", "1"),
];

/// A folder that plays a GPU node.
#[derive(Clone, Debug)]
pub struct SimulatedNode {
    folder: PathBuf,
}

impl SimulatedNode {
    /// Writes the node into `folder`, which is made if need be.
    ///
    /// Errs when the library is not built; a missing `nvidia-smi` is left out, as tests that only load the library do not
    /// build it.
    pub fn create(folder: &Path, state: &State) -> io::Result<Self> {
        let node = Self { folder: folder.to_owned() };
        fs::create_dir_all(node.programs())?;
        state.store(&node.state_file())?;
        write_library(&node.library())?;
        if let Ok(program) = nvidia_smi_path() {
            for name in ["nvidia-smi", "dcgmi", "systemctl"] {
                fs::copy(&program, node.programs().join(name))?;
            }
        }
        fs::create_dir_all(node.sysfs().join("bus/pci/drivers/nvidia"))?;
        for (index, gpu) in state.gpus.iter().enumerate() {
            node.write_pci_device(gpu, index)?;
        }
        File::create(node.kernel_log())?;
        let loading = format!(
            "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (simulated)",
            state.driver_version
        );
        node.log(Duration::from_micros(12_345_678), &loading)?;
        Ok(node)
    }

    /// A node that [`SimulatedNode::create`] wrote earlier.
    pub fn open(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Stands in for `libnvidia-ml.so.1`.
    pub fn library(&self) -> PathBuf {
        self.folder.join("libnvidia-ml.so.1")
    }

    /// The state file.
    pub fn state_file(&self) -> PathBuf {
        self.folder.join(STATE_FILE)
    }

    /// Holds `nvidia-smi`, `dcgmi` and `systemctl`.
    pub fn programs(&self) -> PathBuf {
        self.folder.join("bin")
    }

    /// Stands in for `/sys`.
    pub fn sysfs(&self) -> PathBuf {
        self.folder.join("sys")
    }

    /// The kernel's log of this boot.
    pub fn kernel_log(&self) -> PathBuf {
        self.folder.join("kernel.log")
    }

    /// The state now.
    pub fn state(&self) -> io::Result<State> {
        State::load(&self.state_file())
    }

    /// Changes the state, for library and program at once.
    pub fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> io::Result<T> {
        State::update(&self.state_file(), change)
    }

    /// Appends a line to the kernel log, `since_boot` after the boot.
    pub fn log(&self, since_boot: Duration, message: &str) -> io::Result<()> {
        let mut log = File::options().append(true).create(true).open(self.kernel_log())?;
        writeln!(log, "[{:5}.{:06}] {message}", since_boot.as_secs(), since_boot.subsec_micros())
    }

    fn write_pci_device(&self, gpu: &Gpu, index: usize) -> io::Result<()> {
        let address = gpu.address();
        let folder = self.sysfs().join("bus/pci/devices").join(address.to_string());
        fs::create_dir_all(&folder)?;
        for (file, value) in SYSFS_FILES {
            fs::write(folder.join(file), format!("{value}\n"))?;
        }
        // Two sockets, half of the GPUs on each.
        fs::write(folder.join("numa_node"), format!("{}\n", index / 4))?;
        fs::write(folder.join("current_link_width"), format!("{}\n", gpu.link.current_width))?;
        fs::write(folder.join("max_link_width"), format!("{}\n", gpu.link.max_width))?;
        fs::write(
            folder.join("uevent"),
            format!("DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:2330\nPCI_SLOT_NAME={address}\n"),
        )?;
        match symlink("../../drivers/nvidia", folder.join("driver")) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }
}
