//! What a reset switched off and has to switch on again, on the disk.
//!
//! **Invariant:** it is on the disk before anything is switched off, and stays there until all of it is on again: whatever ends the
//! daemon, the next one puts things back.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::tools::Tools;

/// The file, below the state directory.
const FILE: &str = "gpu-restore.json";

/// What was on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Taken {
    /// GPUs whose persistence mode was on.
    #[serde(default)]
    pub(super) persistence: Vec<String>,
    /// Services that ran, in the order in which they were stopped.
    #[serde(default)]
    pub(super) services: Vec<String>,
}

impl Taken {
    pub(super) fn is_empty(&self) -> bool {
        self.persistence.is_empty() && self.services.is_empty()
    }
}

/// Where it is kept; `None` keeps it in no file.
#[derive(Debug, Clone)]
pub(super) struct Shelf(Option<PathBuf>);

impl Shelf {
    pub(super) fn new(state_dir: Option<&Path>) -> Self {
        Self(state_dir.map(|dir| dir.join(FILE)))
    }

    pub(super) fn read(&self) -> io::Result<Taken> {
        let Some(path) = &self.0 else { return Ok(Taken::default()) };
        match fs::read(path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Taken::default()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn write(&self, taken: &Taken) -> io::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        write_whole(path, &serde_json::to_vec(taken)?)
    }

    pub(super) fn clear(&self) -> io::Result<()> {
        match self.0.as_ref().map(fs::remove_file) {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Puts a file in the place of another, whole and on the disk.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_added_extension("new");
    let mut file = File::create(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Switches everything on again, and says what could not be. Each thing has its own time, so that one that hangs does not keep the
/// others off; what stays off stays in the file.
pub(super) fn put_back(taken: &Taken, tools: &Tools, shelf: &Shelf) -> Vec<String> {
    let (mut left, mut problems) = (Taken::default(), Vec::new());
    for gpu in &taken.persistence {
        if let Err(why) = tools.set_persistence(gpu, true) {
            problems.push(format!("persistence mode of {gpu} was not switched on again: {why}"));
            left.persistence.push(gpu.clone());
        }
    }
    for service in taken.services.iter().rev() {
        if let Err(why) = tools.set_service(service, true) {
            problems.push(format!("the service {service} was not started again: {why}"));
            left.services.insert(0, service.clone());
        }
    }
    let kept = if left.is_empty() { shelf.clear() } else { shelf.write(&left) };
    if let Err(error) = kept {
        tracing::error!(%error, "what a reset of GPUs switched off cannot be kept");
    }
    for problem in &problems {
        tracing::error!(problem, "a reset of GPUs left something switched off; it is tried again before the next one");
    }
    problems
}
