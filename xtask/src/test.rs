//! The one test command: everything that the tests need is built first, and the last lines are the runner's totals.

use xshell::{Shell, cmd};

use crate::{plugins, root, setup};

pub(crate) fn run(shell: &Shell, filter: &[String]) -> anyhow::Result<()> {
    setup::run(shell)?;
    // Tests start these programs and load the fake library; nextest alone would not build them all.
    cmd!(shell, "cargo build --workspace").run()?;
    plugins::build(shell)?;
    if filter.is_empty() {
        cmd!(shell, "cargo test --quiet --workspace --doc").run()?;
        {
            let _guests = shell.push_dir(root().join("plugins"));
            cmd!(shell, "cargo test --quiet --workspace --doc").run()?;
            cmd!(shell, "cargo nextest run --workspace").run()?;
        }
    }
    Ok(cmd!(shell, "cargo nextest run --workspace {filter...}").run()?)
}
