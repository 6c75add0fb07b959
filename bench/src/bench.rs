//! What every group needs: the kinds' files, how much to measure, and a tokio runtime as bcd has.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::runtime::Runtime;

use crate::group::queue::Setting;

/// How much to measure, and of what.
pub(crate) struct Extent {
    /// The folder of the kinds.
    pub(crate) kinds: PathBuf,
    /// The folder of the peers' programs; without it there are none.
    pub(crate) peers: Option<PathBuf>,
    /// A few iterations.
    pub(crate) quick: bool,
    /// The sizes that take long, whole.
    pub(crate) full: bool,
}

/// The set-up of one run of the benchmarks.
pub(crate) struct Bench {
    extent: Extent,
    // Before the runtime: what it holds may need it to end.
    setting: OnceCell<Setting>,
    pub(crate) runtime: Runtime,
    recorder: PrometheusHandle,
}

impl Bench {
    /// Installs a metrics recorder for the process, so that what the runtime records costs what it costs on a node.
    pub(crate) fn new(extent: Extent) -> anyhow::Result<Self> {
        let recorder = PrometheusBuilder::new().install_recorder()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self { extent, setting: OnceCell::new(), runtime, recorder })
    }

    /// The file of a kind.
    pub(crate) fn kind(&self, name: &str) -> anyhow::Result<PathBuf> {
        let file = self.extent.kinds.join(name).with_added_extension("wasm");
        ensure!(file.exists(), "{} is missing; `cargo xtask plugins` builds it", file.display());
        Ok(file)
    }

    /// Whether nothing is to be measured, only run.
    pub(crate) fn is_quick(&self) -> bool {
        self.extent.quick
    }

    /// Whether the sizes that take long are to be whole.
    pub(crate) fn is_full(&self) -> bool {
        self.extent.full
    }

    /// The folder of the peers' programs, if they are to be measured.
    pub(crate) fn peers(&self) -> Option<&Path> {
        self.extent.peers.as_deref().filter(|_| !self.extent.quick)
    }

    /// What group A shares, set up when it is first asked for.
    pub(crate) fn setting(&self) -> anyhow::Result<&Setting> {
        if self.setting.get().is_none() {
            let setting = Setting::new(self)?;
            return Ok(self.setting.get_or_init(|| setting));
        }
        Ok(self.setting.get().expect("it was there"))
    }

    /// What was measured of the peers of group A; empty for nothing.
    pub(crate) fn peers_in_words(&self) -> String {
        self.setting.get().map(Setting::peers_in_words).unwrap_or_default()
    }

    /// How many rounds of a measurement to do.
    pub(crate) fn rounds(&self, whole: usize) -> usize {
        if self.extent.quick { whole.min(2) } else { whole }
    }

    /// How often to do something in one round.
    pub(crate) fn ops(&self, whole: usize) -> usize {
        if self.extent.quick { whole.min(3) } else { whole }
    }

    /// Folds what was recorded, as a node does between two scrapes; without it the samples pile up.
    pub(crate) fn fold_metrics(&self) {
        self.recorder.run_upkeep();
    }
}
