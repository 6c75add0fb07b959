//! What lies where in the folder of `dev`.
//!
//! ```text
//! config.toml     a context for the command line: BETTER_COMPUTE_CONFIG names it
//! admin.token     the token, for its owner alone
//! postgres/       the database
//! control-plane/  certificate authority, compiled kinds
//! node/bcd.toml   the node's configuration, written anew at each start
//! node/plugins/   the kinds that it serves
//! node/machine/   the simulated driver, where there is no real one
//! node/state/     identity and journal
//! node/bcd.log    what the daemon says
//! ```
//!
//! **Invariant:** paths that are handed on are absolute, so that they mean the same from every working directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bc_runtime::Inspected;
use tokio::process::Command;

use crate::contexts::write_private;
use crate::{output, sibling};

/// NVIDIA's library, as the loader looks it up.
const NVML: &str = "libnvidia-ml.so.1";

/// Modules whose kinds are for tests and benchmarks: some of them misbehave on purpose.
const NOT_SHIPPED: [&str; 2] = ["test", "bench"];

/// The kinds that this machine serves, and what is granted to them: they only read. A developer's machine is not rebooted, wiped or
/// upgraded because somebody tries this out; the other kinds are registered, and a node that grants them runs them.
const GRANTED: [&str; 2] = ["diag.nvml", "inventory.refresh"];
const GRANTS: &str = "[grants.\"diag.nvml\"]\nnvml = {}\n\n[grants.\"inventory.refresh\"]\ninventory = {}\n";

/// The folder.
#[derive(Debug)]
pub(super) struct Layout {
    folder: PathBuf,
}

/// A built kind.
#[derive(Debug)]
pub(super) struct KindFile {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

/// What stands behind the node's GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gpus {
    /// This machine's own driver.
    Real,
    /// A stand-in for the driver.
    Simulated,
}

impl Gpus {
    /// The value of the node's label `gpus`.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Simulated => "simulated",
        }
    }

    /// What people are told beside a result.
    pub(super) const fn remark(self) -> &'static str {
        match self {
            Self::Real => "",
            Self::Simulated => ": its eight GPUs are SIMULATED, there is no NVIDIA driver here",
        }
    }
}

impl Layout {
    /// Makes the folder.
    pub(super) fn new(folder: &Path) -> anyhow::Result<Self> {
        let failed = || format!("{} cannot be made", folder.display());
        fs::create_dir_all(folder.join("node/plugins")).with_context(failed)?;
        Ok(Self { folder: folder.canonicalize().with_context(failed)? })
    }

    /// Held by the one `dev` that runs here.
    pub(super) fn lock(&self) -> PathBuf {
        self.folder.join("lock")
    }

    /// The database.
    pub(super) fn postgres(&self) -> PathBuf {
        self.folder.join("postgres")
    }

    /// The control plane's own files.
    pub(super) fn control_plane(&self) -> PathBuf {
        self.folder.join("control-plane")
    }

    /// The administrator's token.
    pub(super) fn token(&self) -> PathBuf {
        self.folder.join("admin.token")
    }

    /// The context file.
    pub(super) fn context(&self) -> PathBuf {
        self.folder.join("config.toml")
    }

    /// A path of the node.
    pub(super) fn node(&self, name: &str) -> PathBuf {
        self.folder.join("node").join(name)
    }

    /// The node's configuration.
    pub(super) fn node_config(&self) -> PathBuf {
        self.node("bcd.toml")
    }

    /// Who the node is, once it has joined.
    pub(super) fn identity(&self) -> PathBuf {
        self.node("state/identity/node.json")
    }

    /// The shipped kinds among those that were built.
    pub(super) fn kinds(folder: Option<&Path>) -> anyhow::Result<Vec<KindFile>> {
        let folder = folder.map_or_else(built, |folder| Ok(folder.to_owned()))?;
        let name = folder.display();
        let entries = fs::read_dir(&folder).with_context(|| format!("{name} cannot be read"))?;
        let mut kinds = Vec::new();
        for entry in entries {
            let path = entry.with_context(|| format!("{name} cannot be read"))?.path();
            if path.extension().is_none_or(|extension| extension != "wasm") {
                continue;
            }
            let component = Inspected::read(&path)?;
            if !NOT_SHIPPED.contains(&component.manifest.module.as_str()) {
                kinds.push(KindFile { name: component.manifest.name.clone(), bytes: component.bytes.clone() });
            }
        }
        kinds.sort_by(|one, other| one.name.cmp(&other.name));
        if kinds.is_empty() {
            bail!("there are no kinds in {name}; `cargo xtask plugins` builds them");
        }
        Ok(kinds)
    }

    /// Writes the node's plugins and configuration, and a simulated driver where there is no real one.
    pub(super) async fn prepare_node(
        &self,
        gateway_url: &str,
        kinds: &[KindFile],
        simulated_nvml: Option<&Path>,
    ) -> anyhow::Result<Gpus> {
        let gpus = if nvml_loads() { Gpus::Real } else { Gpus::Simulated };
        if gpus == Gpus::Simulated {
            self.simulate(simulated_nvml).await?;
        }
        for kind in kinds.iter().filter(|kind| GRANTED.contains(&kind.name.as_str())) {
            let path = self.node("plugins").join(&kind.name).with_added_extension("wasm");
            if fs::read(&path).ok().as_ref() != Some(&kind.bytes) {
                write_private(&path, &kind.bytes).with_context(|| format!("{} cannot be written", path.display()))?;
            }
        }
        let path = self.node_config();
        write_private(&path, self.configuration(gateway_url, gpus).as_bytes())
            .with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(gpus)
    }

    fn configuration(&self, gateway_url: &str, gpus: Gpus) -> String {
        let path = |name: &str| toml::Value::from(self.node(name).display().to_string()).to_string();
        let machine = match gpus {
            Gpus::Real => String::new(),
            Gpus::Simulated => format!(
                "root = {}\nkernel-log = {{ file = {} }}\nboot-id-file = \"/proc/sys/kernel/random/boot_id\"\n",
                path("machine"),
                path("machine/kernel.log")
            ),
        };
        let library = match gpus {
            Gpus::Real => String::new(),
            Gpus::Simulated => format!("[nvml]\nlibrary = {}\n\n", path(&format!("machine/{NVML}"))),
        };
        format!(
            "# Written by `better-compute dev` at each start.\ngateways = [{}]\nstate-dir = {}\nplugin-dir = {}\n\
             cache-dir = {}\n{machine}\n{library}{GRANTS}",
            toml::Value::from(gateway_url),
            path("state"),
            path("plugins"),
            path("cache"),
        )
    }

    /// Plays a GPU node, once: its state is kept.
    async fn simulate(&self, library: Option<&Path>) -> anyhow::Result<()> {
        let machine = self.node("machine");
        if machine.join(NVML).is_file() {
            return Ok(());
        }
        let mut program = Command::new(sibling::path("simulated-node")?);
        program.arg(&machine).args(["--preset", "eight-h100"]);
        if let Some(library) = library {
            let library = library.canonicalize().with_context(|| format!("{} is not there", library.display()))?;
            program.env("FAKE_NVML_LIBRARY", library);
        }
        let status = program.status().await.context("simulated-node cannot be started")?;
        if !status.success() {
            bail!("simulated-node failed; `cargo build -p fake-nvml` builds what it needs");
        }
        Ok(())
    }

    /// What to do next.
    pub(super) fn summary(&self, url: &str, gateway_url: &str, node: &str) -> String {
        let (token, context) = (self.token(), self.context());
        format!(
            "\nThe control plane serves until Ctrl-C.\n  pages     {url}/ (log in with the token in the file below)\n  \
             API       {url}\n  gateway   {gateway_url}\n  token     {}\n  database  {}\n  node      {node}, log {}\n\n\
             In another terminal:\n  export BETTER_COMPUTE_CONFIG={}\n  better-compute node list\n  \
             better-compute run diag.nvml --node {node}\n  better-compute commands list --node {node}\n  \
             better-compute events watch --after 0\n  better-compute api commands.list nodeId={node} limit=2",
            token.display(),
            self.postgres().display(),
            self.node("bcd.log").display(),
            context.display(),
        )
    }
}

/// Where `cargo xtask plugins` puts kinds: below the working directory, or in the checkout that this program was built in.
fn built() -> anyhow::Result<PathBuf> {
    let here = PathBuf::from("plugins/dist");
    let this = std::env::current_exe().context("this program has no path")?;
    let above = this.ancestors().skip(1).map(|folder| folder.join("plugins/dist"));
    match std::iter::once(here).chain(above).find(|folder| folder.is_dir()) {
        Some(folder) => Ok(folder),
        None => bail!("there is no plugins/dist here; name a folder of built kinds with --kinds"),
    }
}

/// Whether this machine has NVIDIA's library. What the driver then answers is the diagnosis' business.
fn nvml_loads() -> bool {
    use nvml_wrapper::error::NvmlError;
    let loaded = nvml_wrapper::Nvml::builder().lib_path(NVML.as_ref()).init();
    match loaded {
        Err(NvmlError::LibloadingError(error)) => {
            tracing::info!(%error, "no NVIDIA driver here; its GPUs are simulated");
            output::complain("no NVIDIA driver here: the node's eight GPUs are simulated");
            false
        }
        Ok(_) | Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_configuration_is_one_that_bcd_reads() {
        let folder = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(&folder.path().join("a \"quoted\" name")).expect("a layout");
        for gpus in [Gpus::Real, Gpus::Simulated] {
            let text = layout.configuration("https://127.0.0.1:7071", gpus);
            let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(table["state-dir"].as_str().map(PathBuf::from), Some(layout.node("state")));
            assert_eq!(table.contains_key("root"), gpus == Gpus::Simulated);
            assert!(table["grants"]["diag.nvml"]["nvml"].is_table());
        }
    }

    #[test]
    fn kinds_that_are_not_there_are_said_with_what_builds_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let empty = Layout::kinds(Some(folder.path())).expect_err("no kinds").to_string();
        assert!(empty.contains("cargo xtask plugins"), "{empty}");
    }
}
