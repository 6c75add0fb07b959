//! Rules of the tree that no compiler checks. `cargo xtask tidy` runs them, and so do the tests.

pub(crate) mod wit;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::bail;
use xshell::{Shell, cmd};

use crate::say;

/// A file longer than this says why in its header.
const MAX_LINES: usize = 600;

/// Text that must not stand below a folder, and why.
const BANNED: [(&str, &[&str], &str); 3] = [
    (
        "proto/src",
        &["tokio::", "sqlx::", "tonic::", "wasmtime::", "std::fs", "std::net", "std::process", "SystemTime"],
        "proto does no I/O and knows no runtime",
    ),
    ("runtime/src", &["sqlx::", "tonic::", "nvml_wrapper"], "the runtime knows neither database, network nor driver"),
    ("daemon/src", &["sqlx::postgres", "bc_host"], "the daemon knows no control plane"),
];

/// Files to which a ban does not apply, and why.
const ALLOWED: [(&str, &str); 1] =
    // A runner is a client of the database's published functions; what else the daemon does knows no database of the control plane.
    [("daemon/src/runner/postgres.rs", "sqlx::postgres")];

/// Checks every rule; the error lists all that is broken.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let mut broken = Vec::new();
    for file in files(root, "rs")? {
        let text = fs::read_to_string(root.join(&file))?;
        let name = file.display();
        if text.lines().count() > MAX_LINES && !text.lines().take(20).any(|line| line.contains("This file is long")) {
            broken.push(format!(
                "{name}: more than {MAX_LINES} lines; split it, or say why in its header (\"This file is long …\")"
            ));
        }
        for (folder, banned, why) in BANNED.iter().filter(|(folder, ..)| file.starts_with(folder)) {
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for (line, word) in code.flat_map(|line| banned.iter().map(move |word| (line, word))) {
                let is_allowed = ALLOWED.iter().any(|(path, what)| file.as_path() == Path::new(path) && what == word);
                if line.contains(word) && !is_allowed {
                    broken.push(format!("{name}: `{word}` must not stand below {folder}: {why}"));
                }
            }
        }
        let is_source =
            file.components().any(|part| part.as_os_str() == "src") && !name.to_string().ends_with("tests.rs");
        if is_source && !text.trim_start().starts_with("//!") {
            broken.push(format!("{name}: a module opens with its purpose (`//! …`)"));
        }
    }
    broken.extend(wit::broken(root)?);
    let promises = crate::promises::numbered(&fs::read_to_string(root.join("docs/promises.md"))?);
    for (number, tests) in crate::promises::tests(root)? {
        if !promises.contains_key(&number) {
            broken.push(format!("{}: there is no promise {number} in docs/promises.md", tests[0]));
        }
    }
    if broken.is_empty() {
        say("the tree is tidy");
        return Ok(());
    }
    bail!("{} rule(s) broken:\n  {}", broken.len(), broken.join("\n  "))
}

/// Files with an extension that git tracks or would track, relative to the root.
pub(crate) fn files(root: &Path, extension: &str) -> anyhow::Result<Vec<PathBuf>> {
    let shell = Shell::new()?;
    shell.change_dir(root);
    let pattern = format!("*.{extension}");
    let listed = cmd!(shell, "git ls-files --cached --others --exclude-standard {pattern}").quiet().read()?;
    Ok(listed.lines().map(PathBuf::from).filter(|file| root.join(file).is_file()).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tree_is_tidy() {
        super::check(&crate::root()).expect("every rule holds");
    }
}
