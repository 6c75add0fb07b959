//! The main job, from nothing: build the kinds, then run them on this machine and on a simulated one.

use xshell::{Shell, cmd};

use crate::{plugins, root, say, setup};

/// What the operator of a node would put into its configuration for the kinds that only read.
const CONFIG: &str =
    "cache-dir = \"cache\"\n[grants.\"diag.nvml\"]\nnvml = {}\n[grants.\"inventory.refresh\"]\ninventory = {}\n";

pub(crate) fn run(shell: &Shell) -> anyhow::Result<()> {
    setup::run(shell)?;
    cmd!(shell, "cargo build --quiet --package better-compute --package bc-daemon --package fake-nvml").run()?;
    let kinds = plugins::build(shell)?;
    let bin = root().join("target/debug");
    let dev = root().join(".dev");

    let here = dev.join("this-machine");
    shell.create_dir(&here)?;
    let simulated = dev.join("simulated-node");
    shell.write_file(here.join("bcd.toml"), CONFIG)?;
    cmd!(shell, "{bin}/simulated-node {simulated} --preset faulty").quiet().run()?;

    for (title, node) in [
        ("this machine", &here),
        ("a simulated node: eight H100, some with faults (a fake NVML library behind the real bindings)", &simulated),
    ] {
        for kind in ["diag.nvml", "inventory.refresh"] {
            say(&format!("\n=== {kind} on {title}\n"));
            let file = kinds.join(kind).with_added_extension("wasm");
            shell.change_dir(node);
            cmd!(shell, "{bin}/better-compute kind run {file} --config bcd.toml").quiet().run()?;
        }
    }
    say(&format!(
        "\nTry next, in {}:\n  better-compute kind run {}/diag.nvml.wasm --config bcd.toml --json\n  bin/nvidia-smi -pm 0 && \
         bin/nvidia-smi --gpu-reset -i 1   (the simulated one: the pending remap of GPU 1 is gone afterwards)\nThe programs are in {}.",
        simulated.display(),
        kinds.display(),
        bin.display()
    ));
    Ok(())
}
