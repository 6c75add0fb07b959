//! What the build needs beyond Rust itself.

use xshell::{Shell, cmd};

/// The guests' target.
const TARGET: &str = "wasm32-unknown-unknown";

/// The test runner's version, for machines that come without one.
const NEXTEST: &str = "0.9.143";

/// Python programs that the tests run: what they require, and where that goes.
const VENVS: [(&str, &str); 2] = [
    // An emulator of a BMC, with which the kinds for BMCs are tested.
    ("tests/peers/sushy.txt", "target/sushy/venv"),
    // A client of the SQL contract for runners.
    ("tests/clients/runner.txt", "target/clients/venv"),
];

/// Where Debian's package `chromium` puts the browser.
const CHROMIUM: &str = "/usr/bin/chromium";

/// Where programs for Node.js stand that the tests run, each with a `package-lock.json`.
const NODE_FOLDERS: &[&str] = &["clients/typescript", "tests/browser", "tests/clients/mcp"];

pub(crate) fn run(shell: &Shell) -> anyhow::Result<()> {
    let targets = cmd!(shell, "rustc --print target-libdir --target {TARGET}").quiet().read()?;
    if !shell.path_exists(&targets) {
        cmd!(shell, "rustup target add {TARGET}").run()?;
    }
    if cmd!(shell, "cargo nextest --version").quiet().ignore_stdout().ignore_stderr().run().is_err() {
        cmd!(shell, "cargo install cargo-nextest --locked --version {NEXTEST}").run()?;
    }
    for (requirements, venv) in VENVS {
        if !shell.path_exists(format!("{venv}/installed")) {
            cmd!(shell, "python3 -m venv {venv}").run()?;
            cmd!(shell, "{venv}/bin/pip install --quiet --disable-pip-version-check --requirement {requirements}")
                .run()?;
            shell.write_file(format!("{venv}/installed"), "")?;
        }
    }
    for folder in NODE_FOLDERS.iter().filter(|folder| shell.path_exists(format!("{folder}/package-lock.json"))) {
        // npm writes this file last.
        if !shell.path_exists(format!("{folder}/node_modules/.package-lock.json")) {
            cmd!(shell, "npm ci --no-audit --no-fund --prefix {folder}").run()?;
        }
    }
    chromium(shell)
}

/// The browser of the tests in `tests/browser`: Debian's package.
fn chromium(shell: &Shell) -> anyhow::Result<()> {
    let is_named = std::env::var_os("CHROMIUM").is_some();
    if is_named || shell.path_exists(CHROMIUM) {
        return Ok(());
    }
    if cmd!(shell, "id -u").quiet().read()? != "0" {
        anyhow::bail!(
            "the tests of the pages need a browser: as root `apt-get install chromium`, or name one in CHROMIUM"
        );
    }
    cmd!(shell, "apt-get update --quiet").run()?;
    cmd!(shell, "apt-get install --yes --no-install-recommends chromium")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .run()?;
    Ok(())
}
