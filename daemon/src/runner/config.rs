//! What a runner's operator decides: which programs its actions are. Read from `runner.toml`.
//!
//! **Invariant:** a file that does not fit is refused whole, with the line and the rule; no key is silently ignored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use bc_proto::rules::action::{Action, Actions};
use serde::Deserialize;

/// Where the kind lies unless the file says otherwise.
const KIND_FILE: &str = "/usr/lib/bcd/kinds/runner.action.wasm";

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default = "kind_file")]
    kind: PathBuf,
    #[serde(default)]
    cache_dir: Option<PathBuf>,
    #[serde(default)]
    actions: BTreeMap<String, Action>,
}

/// What it says.
#[derive(Debug)]
pub(super) struct Config {
    /// The component of `runner.action`.
    pub(super) kind: PathBuf,
    /// Where its compiled code is kept; none compiles it at every start.
    pub(super) cache_dir: Option<PathBuf>,
    /// What may be run.
    pub(super) actions: Actions,
}

fn kind_file() -> PathBuf {
    KIND_FILE.into()
}

impl Config {
    /// Reads it.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} does not fit", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let File { kind, cache_dir, actions } = toml::from_str(text)?;
        if actions.is_empty() {
            bail!("it allows no action; add one: [actions.NAME] with program and argv");
        }
        let actions = Actions::new(actions).map_err(|violations| {
            let said: Vec<_> = violations.iter().map(ToString::to_string).collect();
            anyhow::anyhow!("{}", said.join("\n  "))
        })?;
        Ok(Self { kind, cache_dir, actions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_what_it_does_not_understand() {
        let text = "kind = '/k.wasm'\n[actions.a]\nprogram = '/bin/a'\nargv = ['{x}']\ntimeout = '5s'\nstdin = 'payload'\nself-reporting = true";
        let config = Config::parse(text).expect("every key is known");
        assert_eq!((config.kind, config.actions.names().collect::<Vec<_>>()), ("/k.wasm".into(), vec!["a"]));
        for (wrong, words) in [
            ("", "no action"),
            ("[actions.a]\nprogram = 'a'", "actions.a.program: an absolute path"),
            ("[actions.a]\nprogram = '/a'\nshell = true", "unknown field `shell`"),
            ("[actions.a]\nprogram = '/a'\nargv = ['{x']", "a placeholder is `{name}`"),
            ("[actions.a]\nprogram = '/a'\nstdin = 'all'", "unknown variant `all`"),
            ("plugins = []", "unknown field `plugins`"),
        ] {
            let error = format!("{:#}", Config::parse(wrong).expect_err(wrong));
            assert!(error.contains(words), "{wrong}: {error}");
        }
    }
}
