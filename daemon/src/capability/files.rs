//! Reading the node's files: what stands behind `better-compute:host/files`.
//!
//! **Invariant:** every path is walked below an opened folder of the grant, so that no link and no `..` leads out of it, whoever changes
//! the folder meanwhile; and only ordinary files are opened for reading, so that no pipe or device makes a call hang.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use bc_proto::grants::Grants;
use bc_runtime::capability::files::{Entry, FileType};
use bc_runtime::capability::{Answer, Error, Files};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt as _, OpenOptions, OpenOptionsExt as _};

/// The most bytes of one read.
const MAX_BYTES: usize = 1024 * 1024;
/// The most entries of a folder that are told: a list has to fit into one answer.
const MAX_ENTRIES: usize = 20_000;

/// The folders of one kind's grants.
#[derive(Debug, Clone)]
pub struct Folders {
    /// The machine's root.
    root: PathBuf,
    /// Absolute, the longest first.
    folders: Vec<PathBuf>,
}

impl Folders {
    /// The folders of these grants, below a root.
    pub fn new(root: &Path, grants: &Grants) -> Self {
        let granted = grants.files.iter().flat_map(|files| &files.folders);
        let mut folders: Vec<_> = granted.map(PathBuf::from).collect();
        folders.sort_by_key(|folder| std::cmp::Reverse(folder.components().count()));
        Self { root: root.to_owned(), folders }
    }

    /// The opened folder in which a path lies, and the path below it. A grant that names a file is a grant of that file.
    fn find(&self, path: &str) -> Answer<(Dir, PathBuf)> {
        let path = Path::new(path);
        let found = self.folders.iter().find_map(|folder| Some((folder, path.strip_prefix(folder).ok()?)));
        let (folder, below) = found
            .ok_or_else(|| Error::new("not-found", format!("{} lies in no folder that is granted", path.display())))?;
        let outer = self.root.join(folder.strip_prefix("/").unwrap_or(folder));
        match Dir::open_ambient_dir(&outer, ambient_authority()) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory && below.as_os_str().is_empty() => {
                let (Some(parent), Some(name)) = (outer.parent(), outer.file_name()) else {
                    return Err(failed(path, &error));
                };
                let dir = Dir::open_ambient_dir(parent, ambient_authority()).map_err(|error| failed(path, &error))?;
                Ok((dir, name.into()))
            }
            Err(error) => Err(failed(path, &error)),
            Ok(dir) if below.as_os_str().is_empty() => Ok((dir, ".".into())),
            Ok(dir) => Ok((dir, below.to_owned())),
        }
    }
}

impl Files for Folders {
    fn entries(&self, folder: &str) -> Answer<Vec<Entry>> {
        let (dir, below) = self.find(folder)?;
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotADirectory => Error::new("not-a-folder", format!("{folder} is no folder")),
            _ => failed(Path::new(folder), &error),
        };
        let mut entries = Vec::new();
        for entry in dir.open_dir(&below).and_then(|dir| dir.entries()).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entries.len() >= MAX_ENTRIES {
                return Err(Error::new("io", format!("{folder} has more than {MAX_ENTRIES} entries")));
            }
            // One that is gone meanwhile is no entry any more.
            let Ok(metadata) = entry.metadata() else { continue };
            let kind = metadata.file_type();
            let (file_type, size_bytes) = if kind.is_file() {
                (FileType::File, metadata.len())
            } else if kind.is_dir() {
                (FileType::Folder, 0)
            } else if kind.is_symlink() {
                (FileType::Link, 0)
            } else {
                (FileType::Other, 0)
            };
            let modified = metadata.modified().ok().and_then(|at| at.into_std().duration_since(UNIX_EPOCH).ok());
            entries.push(Entry {
                name: entry.file_name().to_string_lossy().into_owned(),
                file_type,
                size_bytes,
                modified_ms: modified.and_then(|since| u64::try_from(since.as_millis()).ok()),
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn read(&self, file: &str, offset: u64, max_bytes: u32) -> Answer<Vec<u8>> {
        let (dir, below) = self.find(file)?;
        let failed = |error: io::Error| failed(Path::new(file), &error);
        let no_file = || Error::new("not-a-file", format!("{file} is no ordinary file"));
        // Asked before it is opened, since opening a device may do something; and again below, since it may be another one by then.
        let metadata = dir.metadata(&below).map_err(failed)?;
        if !metadata.is_file() {
            return Err(no_file());
        }
        let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.union(rustix::fs::OFlags::NOCTTY).bits());
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags.expect("flags of open are an int"));
        let opened = dir.open_with(&below, &options).map_err(failed)?;
        let now = opened.metadata().map_err(failed)?;
        if !now.is_file() || (now.dev(), now.ino()) != (metadata.dev(), metadata.ino()) {
            return Err(no_file());
        }
        let left = usize::try_from(now.len().saturating_sub(offset)).unwrap_or(MAX_BYTES);
        let most = usize::try_from(max_bytes).unwrap_or(MAX_BYTES).min(MAX_BYTES);
        // Files of /proc and /sys say that they have no bytes.
        let mut bytes = vec![0; if now.len() == 0 { most } else { left.min(most) }];
        let (opened, mut filled) = (opened.into_std(), 0);
        while filled < bytes.len() {
            match opened.read_at(&mut bytes[filled..], offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let code = if error.kind() == io::ErrorKind::NotFound { "not-found" } else { "io" };
    let message = format!("{}: {error}", path.display());
    error.raw_os_error().map_or_else(|| Error::new(code, &message), |number| Error::native(code, number, &message))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A machine with a log folder and a secret beside it.
    fn machine() -> (tempfile::TempDir, Folders) {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("var/log/app")).expect("a folder");
        fs::write(root.path().join("var/log/b.log"), "0123456789").expect("a file");
        fs::write(root.path().join("var/log/a.log"), "a").expect("a file");
        fs::write(root.path().join("var/secret"), "key").expect("a file");
        let grants: Grants = toml::from_str("files.folders = ['/var/log', '/var/one']").expect("grants");
        let folders = Folders::new(root.path(), &grants);
        (root, folders)
    }

    fn code<T: std::fmt::Debug>(answer: Answer<T>) -> String {
        answer.expect_err("it is refused").code
    }

    #[test]
    fn folders_are_listed_in_order_and_files_are_read_in_pieces() {
        let (root, folders) = machine();
        symlink("b.log", root.path().join("var/log/c.log")).expect("a link");
        let names: Vec<_> = folders
            .entries("/var/log")
            .expect("a list")
            .into_iter()
            .map(|entry| {
                assert!(entry.modified_ms.is_some());
                (entry.name, entry.file_type, entry.size_bytes)
            })
            .collect();
        assert_eq!(
            names,
            [
                ("a.log".into(), FileType::File, 1),
                ("app".into(), FileType::Folder, 0),
                ("b.log".into(), FileType::File, 10),
                ("c.log".into(), FileType::Link, 0),
            ]
        );
        assert_eq!(folders.read("/var/log/b.log", 2, 3), Ok(b"234".to_vec()));
        assert_eq!(folders.read("/var/log/b.log", 8, u32::MAX), Ok(b"89".to_vec()));
        assert_eq!(folders.read("/var/log/b.log", u64::MAX, 5), Ok(vec![]));
        assert_eq!(folders.read("/var/log/c.log", 0, 2), Ok(b"01".to_vec()), "a link within the folder");
        assert_eq!(code(folders.entries("/var/log/a.log")), "not-a-folder");
        assert_eq!(code(folders.read("/var/log/app", 0, 1)), "not-a-file");
        assert_eq!(code(folders.read("/var/log/none", 0, 1)), "not-found");
    }

    #[test]
    fn promise_22_no_link_leads_out_of_a_granted_folder() {
        let (root, folders) = machine();
        for (name, target) in [("up", "../secret"), ("absolute", "/etc/passwd"), ("dir", "..")] {
            symlink(target, root.path().join("var/log").join(name)).expect("a link");
        }
        assert_eq!(code(folders.read("/var/log/up", 0, 9)), "io");
        assert_eq!(code(folders.read("/var/log/absolute", 0, 9)), "io");
        assert_eq!(code(folders.read("/var/log/dir/secret", 0, 9)), "io");
        assert_eq!(code(folders.entries("/var/log/dir")), "io");
        assert_eq!(code(folders.read("/var/secret", 0, 9)), "not-found");
    }

    #[test]
    fn a_pipe_is_no_file_and_makes_no_call_hang() {
        let (root, folders) = machine();
        let pipe = root.path().join("var/log/pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
        assert_eq!(code(folders.read("/var/log/pipe", 0, 1)), "not-a-file");
        let entries = folders.entries("/var/log").expect("a list");
        assert!(entries.iter().any(|entry| entry.name == "pipe" && entry.file_type == FileType::Other));
    }

    #[test]
    fn a_grant_that_names_a_file_is_a_grant_of_that_file() {
        let (root, folders) = machine();
        fs::write(root.path().join("var/one"), "1").expect("a file");
        assert_eq!(folders.read("/var/one", 0, 9), Ok(b"1".to_vec()));
        assert_eq!(code(folders.read("/var/one/x", 0, 9)), "io");
    }

    #[test]
    fn a_file_that_grows_or_shrinks_meanwhile_is_read_as_it_is() {
        let (root, folders) = machine();
        let log = root.path().join("var/log/b.log");
        fs::write(&log, vec![7; 3 * MAX_BYTES]).expect("it grows");
        assert_eq!(folders.read("/var/log/b.log", 1, u32::MAX).map(|bytes| bytes.len()), Ok(MAX_BYTES));
        fs::write(&log, "x").expect("it shrinks");
        assert_eq!(folders.read("/var/log/b.log", 1_000, 10), Ok(vec![]));
    }
}
