//! Reading and writing a device past the page cache, with memory that does not grow with it.
//!
//! **Invariant:** a device is opened for writing exclusively, and only when its file still is the device that sysfs described.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bc_runtime::capability::{Answer, Error};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::list::{Disk, number_of};

/// The size of one read or write.
pub(super) const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// Direct reads and writes start and end at multiples of this, in memory and on the device: the largest logical block in use.
pub(super) const ALIGN_BYTES: usize = 4096;

/// Memory for direct reads and writes.
pub(super) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Zeroes.
    pub(super) fn new(len: usize) -> Self {
        let memory = vec![0; len + ALIGN_BYTES];
        let start = memory.as_ptr().align_offset(ALIGN_BYTES);
        Self { memory, start, len }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// An open device.
pub(super) struct Device<'a> {
    disk: &'a Disk,
    file: File,
}

impl<'a> Device<'a> {
    /// Opens it to read.
    pub(super) fn read(disk: &'a Disk) -> Answer<Self> {
        Self::open(disk, OFlags::RDONLY)
    }

    /// Opens it to write, if nothing uses it.
    pub(super) fn write(disk: &'a Disk) -> Answer<Self> {
        Self::open(disk, OFlags::RDWR | OFlags::EXCL)
    }

    fn open(disk: &'a Disk, flags: OFlags) -> Answer<Self> {
        let fd = rustix::fs::open(&disk.node, flags | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty());
        let fd = fd.map_err(|errno| failed(disk, "opened", &errno.into()))?;
        if number_of(&disk.node) != Some(disk.number) {
            let message = format!("{} is no longer the device that the system lists under that name", disk.path);
            return Err(Error::new("gone", message));
        }
        Ok(Self { disk, file: fd.into() })
    }

    /// Fills the buffer's beginning with what stands there.
    pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Answer<()> {
        self.file.read_exact_at(bytes, offset).map_err(|error| self.failed("read", offset, &error))
    }

    pub(super) fn write_at(&self, bytes: &[u8], offset: u64) -> Answer<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| self.failed("written", offset, &error))
    }

    /// Has the kernel zero a range, with the device's own command where it has one.
    pub(super) fn zero(&self, offset: u64, len: u64) -> Answer<()> {
        let done = rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::ZERO_RANGE, offset, len);
        done.map_err(|errno| match errno {
            Errno::OPNOTSUPP => Error::native(
                "not-supported",
                errno.raw_os_error(),
                format!("the kernel cannot zero ranges of {}: use `overwrite`", self.disk.path),
            ),
            _ => self.failed("zeroed", offset, &errno.into()),
        })
    }

    /// Returns when everything is on the device.
    pub(super) fn sync(&self) -> Answer<()> {
        self.file.sync_all().map_err(|error| failed(self.disk, "synced", &error))
    }

    /// What the device's cache holds must not stand for what the medium holds.
    pub(super) fn drop_cache(&self) {
        // Advice: reads are direct anyway.
        let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
    }

    fn failed(&self, what: &str, offset: u64, error: &io::Error) -> Error {
        failed(self.disk, &format!("{what} at byte {offset}"), error)
    }
}

/// What the system's error means.
pub(super) fn failed(disk: &Disk, what: &str, error: &io::Error) -> Error {
    let errno = Errno::from_io_error(error);
    let is_gone = matches!(errno, Some(Errno::NODEV | Errno::NXIO | Errno::NOENT)) || !disk.node.exists();
    let code = match errno {
        Some(Errno::BUSY) => "in-use",
        _ if is_gone => "gone",
        _ => "io",
    };
    let message = format!("{} could not be {what}: {error}", disk.path);
    match error.raw_os_error() {
        Some(number) => Error::native(code, number, message),
        None => Error::new(code, message),
    }
}
