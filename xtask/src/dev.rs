//! The main job, from nothing: build the programs and the kinds, then start everything on this machine.

use xshell::{Shell, cmd};

use crate::{plugins, root, setup};

/// Becomes `better-compute dev` in the end, so that signals and exit codes are its own.
pub(crate) fn run(shell: &Shell, args: &[String]) -> anyhow::Result<()> {
    setup::run(shell)?;
    // The node's daemon and what simulates GPUs are programs of their own, which `dev` looks for beside itself.
    cmd!(shell, "cargo build --quiet --package better-compute --package bc-daemon --package fake-nvml").run()?;
    let kinds = plugins::build(shell)?;
    let program = root().join("target/debug/better-compute");
    let error = become_program(program, |command| {
        command.arg("dev").arg("--kinds").arg(kinds).args(args);
    });
    Err(error.into())
}

/// Replaces this process. Returns only when that fails.
#[expect(clippy::disallowed_methods, reason = "this task becomes the program")]
fn become_program(program: std::path::PathBuf, arguments: impl FnOnce(&mut std::process::Command)) -> std::io::Error {
    use std::os::unix::process::CommandExt;

    let mut command = std::process::Command::new(program);
    command.current_dir(root());
    arguments(&mut command);
    command.exec()
}
