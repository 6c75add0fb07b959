//! Our side: bcd's own node, as a command would find it.
//!
//! **Invariant:** a run is made by the node itself, from its policy, its capabilities and its watcher; the benchmark leaves
//! nothing out and prepares nothing but the payload.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use bc_daemon::config::Config;
use bc_daemon::node::Node;
use bc_runtime::{Inspected, Kind, Outcome, Run};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::bench::Bench;

/// A kind on a node.
pub(crate) struct Loaded {
    node: Node,
    kind: Kind,
}

impl Loaded {
    /// Sets a node up and loads the kind.
    pub(crate) fn new(file: &Path) -> anyhow::Result<Self> {
        let node = Node::new(&Config::default())?;
        let kind = node.engine.load(&Inspected::read(file)?)?;
        Ok(Self { node, kind })
    }

    /// From the command to its report and the drop of everything, `ops` times.
    pub(crate) async fn run(&self, bench: &Bench, payload: &Value, ops: usize) -> anyhow::Result<Vec<Duration>> {
        let mut took = Vec::with_capacity(ops);
        for _ in 0..ops {
            // On the wire it came as bytes: parsing is the link's cost.
            let payload = payload.clone();
            let started = Instant::now();
            let run: Run = self.node.run_of(&self.kind, payload, CancellationToken::new());
            let report = self.kind.run(run).await;
            let succeeded = matches!(report.outcome, Outcome::Succeeded { .. });
            if !succeeded {
                bail!("{}", report.outcome);
            }
            drop(report);
            took.push(started.elapsed());
        }
        bench.fold_metrics();
        Ok(took)
    }
}
