//! What the build needs beyond Rust itself.

use xshell::{Shell, cmd};

/// The guests' target.
const TARGET: &str = "wasm32-unknown-unknown";

/// The test runner's version, for machines that come without one.
const NEXTEST: &str = "0.9.143";

pub(crate) fn run(shell: &Shell) -> anyhow::Result<()> {
    let targets = cmd!(shell, "rustc --print target-libdir --target {TARGET}").quiet().read()?;
    if !shell.path_exists(&targets) {
        cmd!(shell, "rustup target add {TARGET}").run()?;
    }
    if cmd!(shell, "cargo nextest --version").quiet().ignore_stdout().ignore_stderr().run().is_err() {
        cmd!(shell, "cargo install cargo-nextest --locked --version {NEXTEST}").run()?;
    }
    Ok(())
}
