//! Disks: what stands behind `better-compute:host/block-devices`.
//!
//! A device is changed only when its serial number is the one that was named and nothing uses it. Reads and writes go past the page
//! cache and through buffers of a fixed size; the drive's own erasing goes through `nvme` and `hdparm`.
//!
//! A cancel stops what the kernel or this process writes, between two pieces, and waits for what a drive does by itself. When the
//! run is over (its deadline has passed), programs are killed and writing stops; a drive that erases itself goes on all the same.
//!
//! **Invariant:** a failure that leaves a device changed says how far it came.

mod ata;
mod disk_io;
mod erase;
mod identify;
mod image;
mod list;
mod nvme;
mod sample;
mod source;
mod tools;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bc_runtime::Watcher;
use bc_runtime::capability::block_devices::{
    Device, EraseReport, EraseRequest, ImageReport, ImageRequest, SampleReport,
};
use bc_runtime::capability::{Answer, BlockDevices, Capabilities, Error};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use self::identify::Firmware;
use self::list::Disk;
pub use self::source::Images;
use self::source::Sources;
use super::commanded::{Commanded, Provider};
use super::process::{self, Programs};

/// `[disks]` of the configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tools {
    /// The folders in which `nvme` and `hdparm` are looked up, with colons between.
    pub path: String,
    /// How often a drive that erases itself is asked how far it is.
    #[serde(deserialize_with = "crate::config::span")]
    pub poll: Duration,
}

impl Default for Tools {
    fn default() -> Self {
        Self { path: process::PATH.into(), poll: Duration::from_secs(5) }
    }
}

/// The disks of a machine; clones are handles to the same.
#[derive(Clone)]
pub struct Disks(Arc<Machine>);

struct Machine {
    root: PathBuf,
    supervisor: Option<PathBuf>,
    tools: Tools,
    sources: Sources,
}

/// What they have to know of a run.
pub struct Doing {
    /// Hears how far it is.
    pub watcher: Arc<dyn Watcher>,
    /// The run is called off.
    pub cancel: CancellationToken,
    /// Nobody waits for the run any more.
    pub over: CancellationToken,
}

impl Disks {
    /// Those below a root. `supervisor`: what supervises their tools. Errors when the image sources do not fit.
    pub fn new(root: PathBuf, supervisor: Option<PathBuf>, tools: Tools, images: &Images) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(Machine { root, supervisor, tools, sources: Sources::new(images)? })))
    }

    /// The disks as one run has them. To be called within a runtime.
    pub fn of(&self, run: Doing) -> Arc<dyn BlockDevices> {
        let programs = self.0.programs().map(Arc::new);
        if let Some(programs) = programs.clone() {
            let over = run.over.clone();
            tokio::spawn(async move {
                over.cancelled().await;
                programs.kill_all();
            });
        }
        Arc::new(OfRun { machine: Arc::clone(&self.0), run, programs })
    }
}

impl Machine {
    fn programs(&self) -> Option<Programs> {
        Some(Programs::new(self.supervisor.clone()?, self.tools.path.clone()))
    }
}

impl Provider for Disks {
    fn provide(&self, command: &Commanded<'_>, capabilities: &mut Capabilities) {
        let (watcher, cancel, over) = (Arc::clone(&command.watcher), command.cancel.clone(), command.over.clone());
        capabilities.block_devices.get_or_insert_with(|| self.of(Doing { watcher, cancel, over }));
    }
}

/// The disks of one run.
struct OfRun {
    machine: Arc<Machine>,
    run: Doing,
    programs: Option<Arc<Programs>>,
}

impl OfRun {
    fn root(&self) -> &Path {
        &self.machine.root
    }

    fn programs(&self) -> Option<&Programs> {
        self.programs.as_deref()
    }

    /// For what has to be done though the run is over.
    fn new_programs(&self) -> Programs {
        self.machine.programs().expect("who needs others had some")
    }

    /// A device that may be changed: the serial number fits, and nothing uses it.
    fn claimed(&self, path: &str, serial: Option<&str>) -> Answer<Disk> {
        let disk = list::find(self.root(), path)?;
        if disk.serial.as_deref() != serial {
            let word = |serial: Option<&str>| {
                serial.map_or("no serial number".to_owned(), |it| format!("the serial number {it}"))
            };
            let message =
                format!("{path} has {}, and one with {} was named", word(disk.serial.as_deref()), word(serial));
            return Err(Error::new("wrong-serial", message));
        }
        if !disk.users.is_empty() {
            return Err(Error::new("in-use", format!("{path} is in use: {}", disk.users.join(", "))));
        }
        Ok(disk)
    }

    /// Between two pieces: is the run still to go on?
    fn go_on(&self) -> Answer<()> {
        if self.run.cancel.is_cancelled() {
            return Err(Error::new("cancelled", "called off"));
        }
        if self.run.over.is_cancelled() {
            return Err(Error::new("cancelled", "the run is over"));
        }
        Ok(())
    }

    fn progress(&self, done: u64, total: Option<u64>, unit: &str, message: &str) {
        self.run.watcher.progress(done, total, unit, message);
    }

    /// Until a drive is asked again. A cancel does not end it: the drive goes on, and its end is worth knowing.
    fn wait_a_turn(&self) -> Answer<()> {
        let over = self.run.over.clone();
        let waited = tokio::time::timeout(self.machine.tools.poll, over.cancelled());
        if tokio::runtime::Handle::current().block_on(waited).is_err() {
            return Ok(());
        }
        let message = "the run is over while the drive still erases itself: nobody knows yet how that ends";
        Err(Error::new("unknown-state", message))
    }

    async fn pause(&self, span: Duration) -> Answer<()> {
        self.while_wanted(tokio::time::sleep(span)).await
    }

    /// What is awaited, unless the run is called off first.
    async fn while_wanted<T>(&self, awaited: impl Future<Output = T>) -> Answer<T> {
        tokio::select! {
            biased;
            () = self.run.cancel.cancelled() => Err(Error::new("cancelled", "called off")),
            () = self.run.over.cancelled() => Err(Error::new("cancelled", "the run is over")),
            done = awaited => Ok(done),
        }
    }
}

impl BlockDevices for OfRun {
    fn devices(&self) -> Answer<Vec<Device>> {
        Ok(list::all(self.root())?.iter().map(Disk::record).collect())
    }

    fn identify(&self, device: &str) -> Answer<String> {
        let disk = list::find(self.root(), device)?;
        let firmware = Firmware::of(self.root(), self.programs(), &disk)?;
        Ok(identify::identity(&disk, &firmware).to_string())
    }

    fn sample(&self, device: &str, count: u32, seed: u64) -> Answer<SampleReport> {
        sample::sample(&list::find(self.root(), device)?, count, seed, || self.go_on())
    }

    fn erase(&self, request: &EraseRequest) -> Answer<EraseReport> {
        self.carry_out(request)
    }

    fn write_image(&self, request: &ImageRequest) -> Answer<ImageReport> {
        self.deploy(&self.machine.sources, request)
    }
}
