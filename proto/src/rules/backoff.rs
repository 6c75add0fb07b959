//! How long to wait before trying again.
//!
//! **Invariant:** waits are bounded on both sides, and the random part is an argument.

use std::time::Duration;

/// Exponential waits with full jitter between two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The shortest wait.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

/// After BUSY: 1 to 30 s.
pub const BUSY: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_secs(30) };

/// Between attempts to reach a gateway: 0.25 to 30 s. Ten thousand nodes that lose one replica spread over the wait instead
/// of arriving together.
pub const RECONNECT: Backoff = Backoff { min: Duration::from_millis(250), max: Duration::from_secs(30) };

impl Backoff {
    /// The wait before attempt `attempt` (0 is the first repetition). `random` is uniform over 0..1: the wait lies between
    /// the minimum and the doubled-up ceiling of this attempt.
    pub fn wait(self, attempt: u32, random: f64) -> Duration {
        let ceiling = self.min.saturating_mul(2_u32.saturating_pow(attempt.saturating_add(1))).min(self.max);
        self.min + ceiling.saturating_sub(self.min).mul_f64(random.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn waits_stay_within_their_bounds(attempt: u32, random in 0.0..1.0_f64) {
            for backoff in [BUSY, RECONNECT] {
                let wait = backoff.wait(attempt, random);
                prop_assert!((backoff.min..=backoff.max).contains(&wait), "{wait:?}");
            }
        }
    }

    #[test]
    fn the_ceiling_doubles_up_to_the_maximum() {
        let ceilings: Vec<_> = (0..6).map(|attempt| BUSY.wait(attempt, 1.0).as_secs()).collect();
        assert_eq!(ceilings, [2, 4, 8, 16, 30, 30]);
    }
}
