//! Reading single facts from files, and noting those that cannot be read.
//!
//! **Invariant:** every method that answers `None` has noted why, except those that say otherwise.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
};

/// The most bytes read of one file. Ours: `/proc/cpuinfo` of a machine with a thousand threads is about 2 MiB.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Where the machine's file systems lie.
pub(super) struct Root(PathBuf);

impl Root {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }
}

/// Reads facts for one section. Paths are given without the leading `/`.
pub(super) struct Facts<'a> {
    root: &'a Root,
    problems: Vec<String>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(root: &'a Root) -> Self {
        Self { root, problems: Vec::new() }
    }

    pub(super) fn into_problems(self) -> Vec<String> {
        self.problems
    }

    /// Notes what could not be read.
    pub(super) fn problem(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }

    /// Whether the path exists, as far as can be told.
    pub(super) fn exists(&self, path: &str) -> bool {
        self.root.path(path).exists()
    }

    /// A file's bytes, noting nothing.
    pub(super) fn try_bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.root.path(path))?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// A file's text without the space around it, noting nothing. An empty one is an error.
    pub(super) fn try_text(&self, path: &str) -> io::Result<String> {
        let bytes = self.try_bytes(path)?;
        let text = String::from_utf8_lossy(&bytes);
        match text.trim_matches(|c: char| c.is_whitespace() || c == '\0') {
            "" => Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty")),
            text => Ok(text.to_owned()),
        }
    }

    /// A file's text.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        self.try_text(path).map_err(|error| self.unreadable(path, &error)).ok()
    }

    /// A file that holds a number.
    pub(super) fn number<T: FromStr>(&mut self, path: &str) -> Option<T> {
        let text = self.text(path)?;
        let number = text.parse().ok();
        if number.is_none() {
            self.problem(format!("/{path}: `{text}` is not the number expected"));
        }
        number
    }

    /// A file that holds 0 or 1.
    pub(super) fn flag(&mut self, path: &str) -> Option<bool> {
        self.number::<u8>(path).map(|number| number != 0)
    }

    /// The first of several files that can be read; `what` is told to be unknown where none can.
    pub(super) fn first_text(&mut self, what: &str, paths: &[String]) -> Option<String> {
        let text = paths.iter().find_map(|path| self.try_text(path).ok());
        if text.is_none() {
            self.problem(format!("{what}: the kernel does not tell it"));
        }
        text
    }

    /// The names in a directory, sorted.
    pub(super) fn names(&mut self, path: &str) -> Option<Vec<String>> {
        let read = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in fs::read_dir(self.root.path(path))? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
            names.sort();
            Ok(names)
        };
        read().map_err(|error| self.unreadable(path, &error)).ok()
    }

    /// The last name that a link points to, noting nothing.
    pub(super) fn try_link(&self, path: &str) -> io::Result<String> {
        let target = fs::read_link(self.root.path(path))?;
        let name = target.file_name().ok_or(io::ErrorKind::InvalidData)?;
        Ok(name.to_string_lossy().into_owned())
    }

    /// The last name that a link points to.
    pub(super) fn link(&mut self, path: &str) -> Option<String> {
        self.try_link(path).map_err(|error| self.unreadable(path, &error)).ok()
    }

    /// Where a path leads once all links are followed.
    pub(super) fn resolved(&mut self, path: &str) -> Option<PathBuf> {
        let resolved = self.root.path(path).canonicalize();
        resolved.map_err(|error| self.unreadable(path, &error)).ok()
    }

    fn unreadable(&mut self, path: &str, error: &io::Error) {
        self.problem(format!("/{path}: {error}"));
    }
}

/// The last part of a sysfs path that is the address of a PCI function (`dddd:bb:dd.f`).
pub(super) fn pci_function(path: &Path) -> Option<String> {
    let is_function = |name: &str| name.contains('.') && name.parse::<bc_proto::xid::PciAddress>().is_ok();
    path.iter().rev().filter_map(|part| part.to_str()).find(|name| is_function(name)).map(str::to_ascii_lowercase)
}
