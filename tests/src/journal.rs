//! An effect journal that a test reads, and that fails where the test wants.

use std::sync::Mutex;

use async_trait::async_trait;
use bc_runtime::effect::{Effect, EffectJournal, State};

/// Which of an effect's two writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// Before the effect.
    Intent,
    /// After it.
    Outcome,
}

/// Keeps what was written, in order.
#[derive(Debug, Default)]
pub struct Journal {
    entries: Mutex<Vec<(Write, Effect)>>,
    fails_at: Option<(Write, u32)>,
}

impl Journal {
    /// A journal whose disk fails at this write of the effect with this number.
    pub fn failing_at(write: Write, seq: u32) -> Self {
        Self { entries: Mutex::default(), fails_at: Some((write, seq)) }
    }

    /// What was written, a line each: `intent gpus.reset`, `outcome gpus.reset: Done`.
    pub fn lines(&self) -> Vec<String> {
        let entries = self.entries.lock().expect("no writer panics");
        let line = |(write, effect): &(Write, Effect)| match write {
            Write::Intent => format!("intent {}", effect.name),
            Write::Outcome => format!("outcome {}: {:?}", effect.name, effect.state),
        };
        entries.iter().map(line).collect()
    }

    fn write(&self, write: Write, effect: &Effect) -> Result<(), String> {
        if self.fails_at == Some((write, effect.seq)) {
            return Err("no space left on device".into());
        }
        self.entries.lock().expect("no writer panics").push((write, effect.clone()));
        Ok(())
    }
}

#[async_trait]
impl EffectJournal for Journal {
    async fn intent(&self, effect: &Effect) -> Result<(), String> {
        assert_eq!(effect.state, State::Ambiguous, "nobody knows yet what becomes of {}", effect.name);
        self.write(Write::Intent, effect)
    }

    async fn outcome(&self, effect: &Effect) -> Result<(), String> {
        self.write(Write::Outcome, effect)
    }
}
