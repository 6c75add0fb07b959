//! Where an upload waits until its length is known: a file without a name.
//!
//! **Invariant:** nothing of it is left on the disk when it is dropped, or when the process is gone; and it never takes the last of a
//! disk, which the journal needs.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use bc_runtime::capability::Error;
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

/// The spool of one upload.
pub(super) struct Spool {
    file: File,
    pub(super) content_type: String,
    pub(super) bytes: u64,
    cap: u64,
    pub(super) truncated: bool,
    hash: Sha256,
    keep_free: u64,
}

/// The disk has no room.
fn no_space(why: impl std::fmt::Display) -> Error {
    let message = format!("the upload's spool does not fit: {why}; free space on the node's state directory");
    Error::native("no-space", Errno::NOSPC.raw_os_error(), message)
}

fn failed(error: &io::Error) -> Error {
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return no_space(error);
    }
    Error::native("io", error.raw_os_error().unwrap_or(0), format!("the upload's spool: {error}"))
}

impl Spool {
    /// An empty one in a folder, which is made where it is not there. It takes `cap` bytes and leaves `keep_free` on the disk.
    pub(super) fn new(folder: &Path, content_type: &str, cap: u64, keep_free: u64) -> Result<Self, Error> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let file = made.and_then(|()| tempfile::tempfile_in(folder)).map_err(|error| failed(&error))?;
        let content_type = content_type.to_owned();
        let spool = Self { file, content_type, bytes: 0, cap, truncated: false, hash: Sha256::new(), keep_free };
        spool.has_room(0)?;
        Ok(spool)
    }

    fn has_room(&self, bytes: u64) -> Result<(), Error> {
        let disk = rustix::fs::fstatvfs(&self.file).map_err(|error| failed(&error.into()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < self.keep_free.saturating_add(bytes) {
            let keep = self.keep_free;
            return Err(no_space(format!("the disk has {free} bytes left, of which {keep} stay free")));
        }
        Ok(())
    }

    /// Appends what fits under the cap and drops the rest; answers what is free under it.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        let free = self.cap - self.bytes;
        let taken = &bytes[..bytes.len().min(usize::try_from(free).unwrap_or(usize::MAX))];
        self.has_room(taken.len() as u64)?;
        self.file.write_all(taken).map_err(|error| failed(&error))?;
        self.hash.update(taken);
        self.bytes += taken.len() as u64;
        self.truncated |= taken.len() < bytes.len();
        Ok(self.cap - self.bytes)
    }

    /// Of all that was written, 64 hex digits.
    pub(super) fn sha256(&self) -> String {
        hex::encode(self.hash.clone().finalize())
    }

    /// To read it, from any place, at any time.
    pub(super) fn file(&self) -> Result<File, Error> {
        self.file.try_clone().map_err(|error| failed(&error))
    }
}
