//! Releases and `slots.json` below the state directory.
//!
//! **Invariant:** `slots.json` is replaced as a whole and is on the disk when a change returns. One that is damaged is set aside: the
//! installed binary then runs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bc_proto::rules::slots::{Release, Slots};
use sha2::{Digest as _, Sha256};

use super::VERSION;
use crate::faults::crash_at;

/// What is remembered, below the state directory.
const NAME: &str = "slots.json";
/// Where a damaged one is kept.
const DAMAGED: &str = "slots.json.damaged";
/// The binaries, below the state directory: each in a folder that its digest names.
const RELEASES: &str = "releases";
/// The file in such a folder. Its name begins with `bcd`: so a daemon finds itself as a supervisor of programs.
const BINARY: &str = "bcd";
/// The name of the file beside it while it is fetched.
const DRAFT: &str = "bcd.part";

/// The binaries of a node; clones are handles to one.
#[derive(Debug, Clone)]
pub struct Store {
    state_dir: PathBuf,
    changing: Arc<Mutex<()>>,
}

impl Store {
    /// Those below a state directory. Nothing is read yet.
    pub fn new(state_dir: PathBuf) -> Self {
        Self { state_dir, changing: Arc::default() }
    }

    /// What is remembered; none where there never was anything but the installed binary.
    pub fn read(&self) -> io::Result<Option<Slots>> {
        let path = self.state_dir.join(NAME);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
            Err(error) => return Err(error),
        };
        if let Some(slots) = parse(&text) {
            return Ok(Some(slots));
        }
        tracing::error!(file = %path.display(), "it is not as it was written: the installed binary runs");
        fs::rename(&path, self.state_dir.join(DAMAGED))?;
        Ok(None)
    }

    /// Changes what is remembered, and returns it when it is on the disk. An error of `change` changes nothing. Where nothing was
    /// remembered yet, the installed binary is the one that runs.
    pub fn change<E: From<io::Error>>(&self, change: impl FnOnce(Slots) -> Result<Slots, E>) -> Result<Slots, E> {
        let _changing = self.changing();
        let before = self.read()?;
        let after = change(before.clone().unwrap_or_else(|| Slots::of(VERSION)))?;
        if before.as_ref() != Some(&after) {
            self.write(&after)?;
        }
        Ok(after)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes it over the one that is there.
    pub(super) fn write(&self, slots: &Slots) -> io::Result<()> {
        let json = serde_json::to_string(slots)?;
        let text = format!("{json}\n{}\n", hex::encode(Sha256::digest(&json)));
        let draft = self.state_dir.join(format!("{NAME}.new"));
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        crash_at("slots.before-write");
        fs::rename(&draft, self.state_dir.join(NAME))?;
        File::open(&self.state_dir)?.sync_all()?;
        crash_at("slots.after-write");
        Ok(())
    }

    /// The file of a release.
    pub fn binary(&self, sha256: &str) -> PathBuf {
        self.folder(sha256).join(BINARY)
    }

    fn folder(&self, sha256: &str) -> PathBuf {
        self.state_dir.join(RELEASES).join(sha256)
    }

    /// Whether the file of a release is there as it was checked.
    pub fn is_whole(&self, release: &Release) -> bool {
        digest(&self.binary(&release.sha256)).is_ok_and(|found| found == release.sha256)
    }

    /// A new, empty file for a release that is fetched, over what an earlier fetch left there.
    pub fn draft(&self, sha256: &str) -> io::Result<File> {
        fs::create_dir_all(self.folder(sha256))?;
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o700).open(self.draft_path(sha256))
    }

    /// Where that is.
    pub fn draft_path(&self, sha256: &str) -> PathBuf {
        self.folder(sha256).join(DRAFT)
    }

    /// Gives a fetched, checked and synced file its name, durably.
    pub fn keep(&self, sha256: &str) -> io::Result<()> {
        crash_at("release.before-keep");
        let folder = self.folder(sha256);
        fs::rename(self.draft_path(sha256), folder.join(BINARY))?;
        for folder in [folder.as_path(), &self.state_dir.join(RELEASES), &self.state_dir] {
            File::open(folder)?.sync_all()?;
        }
        crash_at("release.after-keep");
        Ok(())
    }

    /// Removes the files of all releases but those that are needed, and `beside` those.
    pub fn tidy(&self, slots: &Slots, beside: Option<&str>) -> io::Result<()> {
        let entries = match fs::read_dir(self.state_dir.join(RELEASES)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let is_needed = slots.needed().map(|it| it.sha256.as_str()).chain(beside).any(|sha256| name == sha256);
            if !is_needed {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Reads what was written; none where it is not that.
fn parse(text: &str) -> Option<Slots> {
    let (json, sum) = text.trim_end().split_once('\n')?;
    if hex::encode(Sha256::digest(json)) != sum {
        return None;
    }
    serde_json::from_str(json).ok()
}

/// The SHA-256 of a file, 64 hexadecimal digits.
pub fn digest(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1024 * 1024];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hex::encode(hash.finalize())),
            read => hash.update(&piece[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> Slots {
        Slots::of(VERSION).stage(Release { version: "9.9.9".into(), sha256: "ab".repeat(32) })
    }

    #[test]
    fn what_is_written_reads_back_and_what_was_changed_by_others_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::new(folder.path().into());
        assert_eq!(store.read().expect("nothing is there"), None);
        let written = store.change::<io::Error>(|_| Ok(slots())).expect("written");
        assert_eq!(store.read().expect("readable"), Some(written));
        let path = folder.path().join(NAME);
        let text = fs::read(&path).expect("it is there");
        for at in 0..text.len() - 1 {
            let mut bad = text.clone();
            bad[at] ^= 1;
            fs::write(&path, bad).expect("writable");
            assert_eq!(store.read().expect("readable"), None, "byte {at}");
        }
        assert!(folder.path().join(DAMAGED).exists());
    }

    #[test]
    fn files_that_nothing_needs_are_removed_and_no_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::new(folder.path().into());
        let (needed, fetched, old) = ("ab".repeat(32), "cd".repeat(32), "ef".repeat(32));
        for sha256 in [&needed, &fetched, &old] {
            store.draft(sha256).expect("a draft");
            store.keep(sha256).expect("kept");
        }
        store.tidy(&slots(), Some(&fetched)).expect("tidied");
        let there = [&needed, &fetched, &old].map(|sha256| store.binary(sha256).exists());
        assert_eq!(there, [true, true, false]);
        assert!(!store.is_whole(&Release { version: "9.9.9".into(), sha256: needed }), "it is empty");
    }
}
