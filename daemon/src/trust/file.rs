//! The file of the trust bundle: one line of JSON, and its SHA-256 on the next.
//!
//! **Invariant:** the file is replaced as a whole. What does not read back as it was written is an error, never another bundle.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use bc_proto::id::NodeId;
use bc_proto::rules::trust::SignedBundle;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The file, below the state directory.
pub(super) const NAME: &str = "trust.json";

/// What is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Kept {
    /// Whose it is.
    pub(super) node: NodeId,
    /// Which life of it.
    pub(super) incarnation: u64,
    /// The bundle, as it came.
    pub(super) signed: SignedBundle,
    /// The newest that the control plane signed here, milliseconds since the Unix epoch.
    pub(super) signed_ms: u64,
    /// The latest server time that a gateway said and that counts.
    pub(super) told_ms: u64,
}

/// Reads it; `None` where there is none.
pub(super) fn read(state_dir: &Path) -> io::Result<Option<Kept>> {
    let text = match fs::read_to_string(state_dir.join(NAME)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{NAME}: {what}"));
    let (json, sum) = text.trim_end().split_once('\n').ok_or_else(|| damaged("its checksum is gone"))?;
    if hex::encode(Sha256::digest(json)) != sum {
        return Err(damaged("it is not as it was written, by its checksum"));
    }
    serde_json::from_str(json).map(Some).map_err(|error| damaged(&error.to_string()))
}

/// Writes it over the one that is there, for this user alone.
pub(super) fn write(state_dir: &Path, kept: &Kept) -> io::Result<()> {
    let json = serde_json::to_string(kept)?;
    let text = format!("{json}\n{}\n", hex::encode(Sha256::digest(&json)));
    let draft = state_dir.join(format!("{NAME}.new"));
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, state_dir.join(NAME))?;
    File::open(state_dir)?.sync_all()
}
