//! `cargo xtask book`: the documentation as HTML.

use xshell::{Shell, cmd};

/// The book's builder, and where it is kept.
const MDBOOK: &str = "0.5.2";
const PLACE: &str = "target/mdbook";

/// Builds `docs` into `target/book`; installs the builder where this version is missing.
pub(crate) fn build(shell: &Shell) -> anyhow::Result<()> {
    let program = format!("{PLACE}/bin/mdbook");
    let found = cmd!(shell, "{program} --version").quiet().ignore_stderr().read().unwrap_or_default();
    if found != format!("mdbook v{MDBOOK}") {
        cmd!(shell, "cargo install mdbook --locked --no-default-features --version {MDBOOK} --root {PLACE}").run()?;
    }
    Ok(cmd!(shell, "{program} build docs").run()?)
}
