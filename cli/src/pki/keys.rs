//! Keys in files.
//!
//! **Invariant:** a private key is written for its owner alone, never over another one, and is not read from a file that others
//! can read.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use bc_proto::sign::SecretKey;

/// The bits of a file's mode that let others than its owner do something.
const OTHERS: u32 = 0o077;

/// Reads a private key, PEM.
pub fn secret(path: &Path) -> anyhow::Result<SecretKey> {
    let name = path.display();
    let read = || -> std::io::Result<(u32, String)> { Ok((fs::metadata(path)?.mode(), fs::read_to_string(path)?)) };
    let (mode, pem) = read().with_context(|| format!("{name} cannot be read"))?;
    ensure!(
        mode & OTHERS == 0,
        "{name} can be read by others than its owner (mode {:04o}), and whoever has it commands every node\n  → chmod 600 {name}",
        mode & 0o7777
    );
    SecretKey::from_pem(&pem).with_context(|| format!("{name} is of no use"))
}

/// Writes a private key, PEM. Errors where the file is there.
pub fn write(path: &Path, key: &SecretKey) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(key.to_pem().as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}

/// Where a worker key's certificate lies.
pub fn certificate_of(path: &Path) -> PathBuf {
    path.with_added_extension("certificate.json")
}
