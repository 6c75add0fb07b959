//! What a run does to the node, written down before and after it is done.
//!
//! **Invariant:** an effect is performed only after its intent is durable. An intent without an outcome is ambiguous: it is
//! reported by name and never repeated silently.

use async_trait::async_trait;
use bc_proto::canonical;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most bytes that the names and arguments of all effects of a run may have, each effect counted with [`EFFECT_BYTES`]
/// more. Wiping every disk of a node takes a few kilobytes; the host keeps them all until the run ends.
const MAX_BYTES: usize = 1024 * 1024;
const EFFECT_BYTES: usize = 128;

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

/// The effects of a run, in order.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    list: Vec<Effect>,
    bytes: usize,
}

impl Effects {
    /// Adds one. Errors, in words, when the run has had its share.
    pub(crate) fn begin(&mut self, name: String, args: Value, state: State) -> Result<&mut Effect, String> {
        self.bytes = self.bytes.saturating_add(EFFECT_BYTES + name.len() + args.to_string().len());
        if self.bytes > MAX_BYTES {
            return Err(format!(
                "with {name}, the effects of this run take more than the {MAX_BYTES} bytes that one run may have"
            ));
        }
        let seq = u32::try_from(self.list.len()).expect("their bytes are bounded");
        Ok(self.list.push_mut(Effect { seq, name, args, state }))
    }

    /// Takes the last one back: nothing was done.
    pub(crate) fn take_back(&mut self) {
        self.list.pop();
    }

    /// What became of the one that was begun last.
    pub(crate) fn settle(&mut self, state: State) -> &Effect {
        let last = self.list.last_mut().expect("an effect is settled after it was begun");
        last.state = state;
        last
    }

    pub(crate) fn into_list(self) -> Vec<Effect> {
        self.list
    }
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
