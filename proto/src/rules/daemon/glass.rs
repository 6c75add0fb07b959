//! Destructive commands outside batches: how many there may be in an hour.
//!
//! **Invariant:** the hour is over only when it is over by both clocks: by server time, which a gateway says and can push ahead,
//! and by the times at which the control plane signed.

use std::collections::BTreeSet;

use super::Core;
use crate::manifest::Trait;
use crate::rules::trust::HOUR_MS;
use crate::wire::Deliver;

/// A command that counts against the hour. Times in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Glass {
    accepted_ms: u64,
    /// `None` where commands go unsigned.
    signed_ms: Option<u64>,
}

impl Glass {
    /// Of a command that was accepted at that time, if it counts.
    pub(super) fn of(deliver: &Deliver, traits: &BTreeSet<Trait>, accepted_ms: u64) -> Option<Self> {
        let signed_ms = deliver.signature.as_ref().map(|it| it.issued_at_ms);
        (deliver.batch.is_none() && traits.contains(&Trait::Destructive)).then_some(Self { accepted_ms, signed_ms })
    }

    /// Whether it counts still: against a command that was signed then, if it was, and comes now.
    pub(super) fn counts(self, signed_ms: Option<u64>, now_ms: u64) -> bool {
        let recent = |of: u64, now: u64| now < of.saturating_add(HOUR_MS);
        recent(self.accepted_ms, now_ms) || self.signed_ms.zip(signed_ms).is_some_and(|(of, now)| recent(of, now))
    }
}

impl Core {
    /// How many commands count against one that comes now.
    pub(super) fn broken_glass(&self, deliver: &Deliver, now_ms: u64) -> u32 {
        let signed_ms = deliver.signature.as_ref().map(|it| it.issued_at_ms);
        let counts = |held: &&super::Held| held.glass.is_some_and(|it| it.counts(signed_ms, now_ms));
        u32::try_from(self.held.values().filter(counts).count()).unwrap_or(u32::MAX)
    }

    /// When the newest of those that are known was signed: the only time that no gateway can push.
    pub(super) fn glass_signed_ms(&self) -> Option<u64> {
        self.held.values().filter_map(|held| held.glass?.signed_ms).max()
    }
}
