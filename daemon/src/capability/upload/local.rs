//! The upload of a run that no control plane asked for: into a file that whoever runs it names, or nowhere.
//!
//! **Invariant:** the file is there whole or not at all.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bc_runtime::capability::upload::Receipt;
use bc_runtime::capability::{Answer, Error, Upload};

use super::spool::Spool;
use super::{Held, no_destination};

/// Uploads into a file.
pub struct ToFile {
    file: PathBuf,
    cap: u64,
    held: Mutex<Held>,
}

impl ToFile {
    /// At most `cap` bytes. A file that is there is replaced.
    pub fn new(file: PathBuf, cap: u64) -> Self {
        Self { file, cap, held: Mutex::default() }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upload for ToFile {
    fn begin(&self, content_type: &str) -> Answer<u32> {
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.map_or_else(|| PathBuf::from("."), PathBuf::from);
        self.held().begin(|| Spool::new(&folder, content_type, self.cap, 0))
    }

    fn write(&self, handle: u32, bytes: &[u8]) -> Answer<u64> {
        self.held().write(handle, bytes)
    }

    fn finish(&self, handle: u32) -> Answer<Receipt> {
        let mut held = self.held();
        let spool = held.take(handle)?;
        let store = || {
            let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
            let mut named = tempfile::NamedTempFile::new_in(folder.unwrap_or_else(|| ".".as_ref()))?;
            let mut from = spool.file().map_err(|error| std::io::Error::other(error.message))?;
            std::io::Seek::rewind(&mut from)?;
            std::io::copy(&mut from, &mut named)?;
            named.persist(&self.file).map_err(|error| error.error)?;
            std::io::Result::Ok(())
        };
        store().map_err(|error| Error::new("io", format!("{}: {error}", self.file.display())))?;
        held.is_done = true;
        Ok(spool.receipt())
    }

    fn abort(&self, handle: u32) -> Answer<()> {
        self.held().take(handle).map(drop)
    }
}

/// For runs that have no destination.
#[derive(Debug, Clone, Copy)]
pub struct Nowhere;

impl Upload for Nowhere {
    fn begin(&self, _: &str) -> Answer<u32> {
        Err(no_destination())
    }

    fn write(&self, _: u32, _: &[u8]) -> Answer<u64> {
        Err(no_destination())
    }

    fn finish(&self, _: u32) -> Answer<Receipt> {
        Err(no_destination())
    }

    fn abort(&self, _: u32) -> Answer<()> {
        Err(no_destination())
    }
}
