//! What every group needs: the kinds' files, how much to measure, and a tokio runtime as bcd has.

use std::path::PathBuf;

use anyhow::ensure;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::runtime::Runtime;

/// The set-up of one run of the benchmarks.
pub(crate) struct Bench {
    kinds: PathBuf,
    quick: bool,
    pub(crate) runtime: Runtime,
    recorder: PrometheusHandle,
}

impl Bench {
    /// Installs a metrics recorder for the process, so that what the runtime records costs what it costs on a node.
    pub(crate) fn new(kinds: PathBuf, quick: bool) -> anyhow::Result<Self> {
        let recorder = PrometheusBuilder::new().install_recorder()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self { kinds, quick, runtime, recorder })
    }

    /// The file of a kind.
    pub(crate) fn kind(&self, name: &str) -> anyhow::Result<PathBuf> {
        let file = self.kinds.join(name).with_added_extension("wasm");
        ensure!(file.exists(), "{} is missing; `cargo xtask plugins` builds it", file.display());
        Ok(file)
    }

    /// How many rounds of a measurement to do.
    pub(crate) fn rounds(&self, whole: usize) -> usize {
        if self.quick { whole.min(2) } else { whole }
    }

    /// How often to do something in one round.
    pub(crate) fn ops(&self, whole: usize) -> usize {
        if self.quick { whole.min(3) } else { whole }
    }

    /// Folds what was recorded, as a node does between two scrapes; without it the samples pile up.
    pub(crate) fn fold_metrics(&self) {
        self.recorder.run_upkeep();
    }
}
