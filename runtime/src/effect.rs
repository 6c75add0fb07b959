//! What a run does to the node, written down before and after it is done.
//!
//! **Invariant:** an effect is performed only after its intent is durable. An intent without an outcome is ambiguous: it is
//! reported by name and never repeated silently.

use async_trait::async_trait;
use bc_proto::canonical;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One effect of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Its place among the run's effects, from 0.
    pub seq: u32,
    /// Interface and function, `gpus.reset`.
    pub name: String,
    /// The arguments, as JSON.
    pub args: Value,
    /// What became of it.
    pub state: State,
}

/// What became of an effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "reason")]
pub enum State {
    /// Not performed: the run was a plan.
    Planned,
    /// Begun, and nobody knows whether it finished.
    Ambiguous,
    /// The node says that it worked.
    Done,
    /// The node says that it did not, and why.
    Failed(String),
}

/// Where intents and outcomes go. The daemon's is its journal on disk.
#[async_trait]
pub trait EffectJournal: Send + Sync {
    /// Returns when the intent is durable. On an error the effect is not performed.
    async fn intent(&self, effect: &Effect) -> Result<(), String>;
    /// Returns when the outcome is durable.
    async fn outcome(&self, effect: &Effect) -> Result<(), String>;
}

/// Keeps nothing: for runs whose report is all that is wanted of their effects.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReportOnly;

#[async_trait]
impl EffectJournal for ReportOnly {
    async fn intent(&self, _: &Effect) -> Result<(), String> {
        Ok(())
    }

    async fn outcome(&self, _: &Effect) -> Result<(), String> {
        Ok(())
    }
}

/// The hash that approvers of a plan sign: SHA-256 over the canonical JSON of the names and arguments, in order.
pub fn plan_hash(effects: &[Effect]) -> String {
    let steps: Vec<_> = effects.iter().map(|effect| (&effect.name, &effect.args)).collect();
    canonical::sha256_hex(&canonical::to_vec(&steps).expect("names and JSON values are JSON"))
}
