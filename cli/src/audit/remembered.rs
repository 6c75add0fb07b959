//! What this person saw of each server's log the last time, beside the contexts.
//!
//! **Invariant:** only what was verified is remembered, and a head never gives way to a smaller one.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bc_proto::audit::Head;
use bc_proto::sign::PublicKey;
use serde::{Deserialize, Serialize};

use crate::contexts;

/// What is known of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Seen {
    /// The head of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) head: Option<Head>,
    /// The roots that were given for it.
    #[serde(default)]
    pub(super) roots: Vec<PublicKey>,
}

/// By the API's base URL.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Remembered(BTreeMap<String, Seen>);

/// Where it is: `audit.json` beside the contexts.
pub(super) fn path() -> anyhow::Result<PathBuf> {
    Ok(contexts::path()?.with_file_name("audit.json"))
}

impl Remembered {
    /// Reads the file; one that does not exist is empty. A damaged one is an error: to go on without it would be to forget.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| {
                format!("{} does not fit; it remembers heads of transparency logs: restore it, or move it away to start anew", path.display())
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
        }
    }

    /// What is known of a server.
    pub(super) fn of(&self, url: &str) -> Seen {
        self.0.get(url).cloned().unwrap_or_default()
    }

    /// Remembers what was verified.
    pub(super) fn keep(mut self, path: &Path, url: &str, seen: Seen) -> anyhow::Result<()> {
        self.0.insert(url.to_owned(), seen);
        let text = serde_json::to_vec_pretty(&self).context("heads are JSON")?;
        contexts::write_private(path, &text).with_context(|| format!("{} cannot be written", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_a_damaged_file_is_not_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.json");
        let head = Head { size: 3, root: "ab".repeat(32), signature: None };
        let seen = Seen { head: Some(head), roots: vec![bc_proto::sign::SecretKey::from_seed([1; 32]).public()] };
        Remembered::read(&path).expect("none is empty").keep(&path, "http://a", seen.clone()).expect("written");
        let read = Remembered::read(&path).expect("it reads back");
        assert_eq!((read.of("http://a"), read.of("http://b")), (seen, Seen::default()));
        fs::write(&path, b"{").expect("written");
        let refused = Remembered::read(&path).expect_err("it is damaged").to_string();
        assert!(refused.contains("move it away"), "{refused}");
    }
}
