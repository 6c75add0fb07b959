//! The table `[webhooks]` of a server's settings: the key that seals their secrets, and what is reached beside the public internet.
//!
//! **Invariant:** the key is in a file that only its owner can read, never in the table and never in the database; no message holds it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use bc_host::webhooks::{SealingKey, Settings, TIMEOUT};
use bc_proto::rules::webhook::Allow;
use serde::Deserialize;

use crate::shell;

/// What `dev` lets webhooks reach: programs on this machine.
const HERE: [&str; 3] = ["localhost", "127.0.0.0/8", "::1"];

/// The table.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Webhooks {
    /// A file with the key; `better-compute webhook new-key` makes it.
    key_file: Option<PathBuf>,
    /// Hosts by name, addresses and networks that are reached though they are not of the public internet, and over http.
    allow: Vec<String>,
    /// Certificates of the only authorities that receivers' may come from, PEM.
    ca_file: Option<PathBuf>,
}

impl Webhooks {
    /// Reads the key, and checks all of it.
    pub(crate) fn checked(self) -> anyhow::Result<Settings> {
        let path = self.key_file.context(
            "webhooks.key-file: is missing; `better-compute webhook new-key FILE` makes a key, the same for all replicas",
        )?;
        let key = read(&path).context("webhooks.key-file")?;
        let allow = Allow::parse(self.allow.iter().map(String::as_str)).context("webhooks.allow")?;
        let pem = |path: &PathBuf| {
            fs::read(path).with_context(|| format!("webhooks.ca-file: {} cannot be read", path.display()))
        };
        let settings = Settings { key, allow, ca_pem: self.ca_file.as_ref().map(pem).transpose()?, timeout: TIMEOUT };
        // Whatever is wrong is said before anything starts.
        settings.check()?;
        Ok(settings)
    }
}

/// The settings of `dev`: a key in this file, which is made if there is none, and programs on this machine are reached.
pub(crate) fn local(key_file: &Path) -> anyhow::Result<Settings> {
    if !key_file.exists() {
        write_new(key_file)?;
    }
    let allow = Allow::parse(HERE).context("webhooks.allow")?;
    Ok(Settings { key: read(key_file)?, allow, ca_pem: None, timeout: TIMEOUT })
}

/// Writes a new key, for its owner alone. Errors where the file is there.
pub(crate) fn write_new(path: &Path) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{}", hex::encode(shell::random::<32>()))?;
        file.sync_all()
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}

/// The bits of a file's mode that let others than its owner do something.
const OTHERS: u32 = 0o077;

fn read(path: &Path) -> anyhow::Result<SealingKey> {
    let name = path.display();
    let mode = fs::metadata(path).with_context(|| format!("{name} cannot be read"))?.mode();
    ensure!(
        mode & OTHERS == 0,
        "{name} can be read by others than its owner (mode {:04o}), and whoever has it and the database forges events\n  → \
         chmod 600 {name}",
        mode & 0o7777
    );
    let text = fs::read_to_string(path).with_context(|| format!("{name} cannot be read as text"))?;
    SealingKey::parse(&text).with_context(|| {
        format!("{name} is no key: it must hold 64 hexadecimal digits, as `webhook new-key` writes them")
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn checked(text: &str) -> anyhow::Result<Settings> {
        toml::from_str::<Webhooks>(text)?.checked()
    }

    #[test]
    fn a_key_is_made_once_for_its_owner_and_read_from_nobody_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("webhooks.key");
        write_new(&path).expect("a new key");
        assert!(write_new(&path).is_err(), "never over another one");
        let text = format!("key-file = '{}'\nallow = ['hooks.internal', '10.0.0.0/8']", path.display());
        let settings = checked(&text).expect("it fits");
        assert_eq!(settings.key, local(&path).expect("it is there").key);
        assert!(!format!("{settings:?}").contains(fs::read_to_string(&path).expect("text").trim()));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("its owner may");
        let refused = format!("{:#}", checked(&text).expect_err("others can read it"));
        assert!(refused.contains("chmod 600"), "{refused}");
    }

    #[test]
    fn what_is_wrong_names_its_key_and_rule() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        let with = |more: &str| format!("key-file = '{}'\n{more}", path.display());
        write_new(&path).expect("a new key");
        for (text, words) in [
            (String::new(), "webhooks.key-file: is missing"),
            ("key-file = '/nowhere/key'".into(), "webhooks.key-file: /nowhere/key cannot be read"),
            (with("allow = ['https://hooks.internal']"), "webhooks.allow"),
            (with("ca-file = '/nowhere/ca'"), "webhooks.ca-file: /nowhere/ca"),
            (with(&format!("ca-file = '{}'", path.display())), "webhooks.ca-file: must hold certificates"),
            (with("allowed = []"), "unknown field"),
        ] {
            let refused = format!("{:#}", checked(&text).expect_err(words));
            assert!(refused.contains(words), "{refused}");
        }
    }
}
