//! The configuration file of the command line: contexts, each a server with what is needed to talk to it.
//!
//! ```toml
//! current = "lab"
//!
//! [contexts.lab]
//! url = "https://compute.lab.example:7070"
//! token-file = "/home/me/.config/better-compute/lab.token"
//! tenant = "tenant_…"
//! ```
//!
//! **Invariant:** a file that holds a token and that others can read is not used; what this program writes, only its owner can
//! read.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

/// Names another file than `~/.config/better-compute/config.toml`.
pub const VARIABLE: &str = "BETTER_COMPUTE_CONFIG";

/// The file's content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Contexts {
    /// The context that is used when none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// By name.
    pub contexts: BTreeMap<String, Context>,
}

/// A server, and who is asking.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Context {
    /// The API's base URL.
    pub url: String,
    /// The token itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The file that holds the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// `tenant_…`; without it, the token's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Certificates that are trusted in place of the system's, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// Without the token.
impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("url", &self.url).field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// Where the file is: `$BETTER_COMPUTE_CONFIG`, else below `$XDG_CONFIG_HOME`, else below `~/.config`.
pub fn path() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let base = std::env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".config")));
    let base = base.with_context(|| format!("there is no home folder; name the file in {VARIABLE}"))?;
    Ok(base.join("better-compute/config.toml"))
}

impl Contexts {
    /// Reads the file; one that does not exist is empty.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("{name} cannot be read")),
        };
        let contexts: Self = toml::from_str(&text).with_context(|| format!("{name} does not fit"))?;
        let holds_token = contexts.contexts.values().any(|context| context.token.is_some());
        let mode = fs::metadata(path).with_context(|| format!("{name} cannot be read"))?.permissions().mode();
        if holds_token && mode & 0o077 != 0 {
            bail!("{name} holds a token and others can read it (mode {:03o}); run `chmod 600 {name}`", mode & 0o777);
        }
        Ok(contexts)
    }

    /// Writes the file, for its owner alone.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = toml::to_string(self).context("the contexts are no TOML")?;
        write_private(path, text.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))
    }

    /// The context of that name, or the current one; `None` when none is named and there is no current one.
    pub fn find(&self, name: Option<&str>) -> anyhow::Result<Option<(&str, &Context)>> {
        let Some(name) = name.or(self.current.as_deref()) else {
            return Ok(None);
        };
        match self.contexts.get_key_value(name) {
            Some((name, context)) => Ok(Some((name, context))),
            None => bail!("there is no context {name:?}; `better-compute context list` shows those that are"),
        }
    }
}

/// Writes a file that only its owner can read, whole or not at all. The folder is made if need be.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // Temporary files are made with mode 0600.
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    draft.write_all(bytes)?;
    draft.as_file().sync_all()?;
    draft.persist(path)?;
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_private_and_reads_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("below/config.toml");
        assert_eq!(Contexts::read(&path).expect("no file is empty"), Contexts::default());
        let lab = Context { url: "http://127.0.0.1:1".into(), token: Some("bct_x".into()), ..Context::default() };
        let written = Contexts { current: Some("lab".into()), contexts: BTreeMap::from([("lab".into(), lab)]) };
        written.write(&path).expect("written");
        assert_eq!(Contexts::read(&path).expect("it reads back"), written);
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        assert!(!format!("{written:?}").contains("bct_x"));

        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("changed");
        let refused = Contexts::read(&path).expect_err("others can read it").to_string();
        assert!(refused.contains("mode 644") && refused.contains("chmod 600"), "{refused}");
    }

    #[test]
    fn a_context_that_is_not_there_is_said() {
        let contexts = Contexts { current: Some("gone".into()), ..Contexts::default() };
        assert!(contexts.find(None).is_err() && contexts.find(Some("x")).is_err());
        assert!(Contexts::default().find(None).expect("none is fine").is_none());
    }
}
