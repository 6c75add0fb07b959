//! Room on the disk that is kept for terminal records: a file beside the journal whose blocks are really taken, and which
//! gives them back when a record finds the disk full.
//!
//! **Invariant:** as long as the reserve is whole, the results of every command that was accepted fit.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, fallocate};

pub(super) struct Reserve {
    path: PathBuf,
    bytes: u64,
    whole: AtomicBool,
    /// Said once until there is room again: it is asked at every delivery.
    missed: AtomicBool,
}

impl Reserve {
    pub(super) fn new(path: PathBuf, bytes: u64) -> Self {
        Self { path, bytes, whole: AtomicBool::new(false), missed: AtomicBool::new(false) }
    }

    /// Whether the reserve is whole; makes it so if there is room.
    pub(super) fn keep(&self) -> bool {
        if self.whole.load(Ordering::Acquire) {
            return true;
        }
        let kept = self.allocate();
        let missed = self.missed.swap(kept.is_err(), Ordering::AcqRel);
        if let Err(error) = &kept {
            if !missed {
                tracing::warn!(%error, bytes = self.bytes, "the disk has no room for the journal's reserve");
            }
            // A part of a reserve helps nobody, and takes from those who write now.
            let _ = fs::remove_file(&self.path);
        }
        self.whole.store(kept.is_ok(), Ordering::Release);
        kept.is_ok()
    }

    fn allocate(&self) -> io::Result<()> {
        let file = File::options().create(true).truncate(false).write(true).open(&self.path)?;
        fallocate(&file, FallocateFlags::empty(), 0, self.bytes)?;
        file.sync_all()
    }

    /// Gives the room back; says whether there was any.
    pub(super) fn give_back(&self) -> bool {
        self.whole.store(false, Ordering::Release);
        fs::remove_file(&self.path).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promise_06_the_reserve_is_taken_given_back_and_taken_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal.reserve");
        let reserve = Reserve::new(path.clone(), 1 << 20);
        assert!(reserve.keep());
        let taken = fs::metadata(&path).expect("it is there");
        assert!(std::os::unix::fs::MetadataExt::blocks(&taken) * 512 >= 1 << 20, "its blocks are taken");
        assert!(reserve.give_back() && !path.exists());
        assert!(!reserve.give_back(), "there is nothing left to give");
        assert!(reserve.keep() && path.exists());

        let endless = Reserve::new(folder.path().join("endless.reserve"), 1 << 60);
        assert!(!endless.keep(), "no disk has that");
        assert!(!folder.path().join("endless.reserve").exists());
    }
}
