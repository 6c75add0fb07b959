//! What the build needs beyond Rust itself.

use xshell::{Shell, cmd};

/// The guests' target.
const TARGET: &str = "wasm32-unknown-unknown";

/// The test runner's version, for machines that come without one.
const NEXTEST: &str = "0.9.143";

/// An emulator of a BMC, with which the kinds for BMCs are tested, and where it goes.
const SUSHY: &str = "tests/peers/sushy.txt";
const SUSHY_VENV: &str = "target/sushy/venv";

pub(crate) fn run(shell: &Shell) -> anyhow::Result<()> {
    let targets = cmd!(shell, "rustc --print target-libdir --target {TARGET}").quiet().read()?;
    if !shell.path_exists(&targets) {
        cmd!(shell, "rustup target add {TARGET}").run()?;
    }
    if cmd!(shell, "cargo nextest --version").quiet().ignore_stdout().ignore_stderr().run().is_err() {
        cmd!(shell, "cargo install cargo-nextest --locked --version {NEXTEST}").run()?;
    }
    if !shell.path_exists(format!("{SUSHY_VENV}/bin/sushy-emulator")) {
        cmd!(shell, "python3 -m venv {SUSHY_VENV}").run()?;
        cmd!(shell, "{SUSHY_VENV}/bin/pip install --quiet --disable-pip-version-check --requirement {SUSHY}").run()?;
    }
    Ok(())
}
