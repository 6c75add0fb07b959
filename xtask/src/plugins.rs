//! Building the kinds of this repository, the way every author does: with `better-compute kind build`.

use std::path::PathBuf;

use xshell::{Shell, cmd};

use crate::root;

/// Folders with a kind.toml. Those outside `plugins` are guests for tests and benchmarks.
const FOLDERS: [&str; 4] = ["plugins", "tests/hostile", "tests/kinds", "bench/kinds"];

/// Builds them; answers where they are.
pub(crate) fn build(shell: &Shell) -> anyhow::Result<PathBuf> {
    let out = root().join("plugins/dist");
    let mut kinds = Vec::new();
    for folder in FOLDERS {
        let below = shell.read_dir(folder)?;
        kinds.extend(below.into_iter().filter(|folder| folder.join("kind.toml").is_file()));
    }
    kinds.sort();
    cmd!(shell, "cargo run --quiet --package better-compute -- kind build {kinds...} --out {out}").run()?;
    Ok(out)
}
