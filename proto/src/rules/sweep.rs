//! Deadlines on the control plane's side: nothing stays in progress for ever.
//!
//! **Invariant:** every command that is not terminal has a time at which the sweeper ends it, whatever its node does.

use crate::rules::state::State;

/// The timeout of a kind that is not registered any more: 15 minutes, in milliseconds.
pub const UNREGISTERED_TIMEOUT_MS: u64 = 15 * 60 * 1000;

/// How often the sweeper looks, in milliseconds.
pub const PERIOD_MS: u64 = 5_000;

/// When the sweeper ends a command: at `not_after` while it waits, the kind's timeout later once it is in flight. All times
/// are milliseconds since the Unix epoch, server time. `None` for what is over already.
pub fn due_ms(state: State, not_after_ms: u64, timeout_ms: Option<u64>) -> Option<u64> {
    if state.is_terminal() {
        return None;
    }
    if !state.is_in_flight() {
        return Some(not_after_ms);
    }
    Some(not_after_ms.saturating_add(timeout_ms.unwrap_or(UNREGISTERED_TIMEOUT_MS)))
}

/// The reason that a swept command carries.
pub const fn reason(state: State) -> &'static str {
    if state.is_in_flight() { "timeout" } else { "not_after" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promise_04_every_command_that_is_not_over_has_an_end() {
        for state in State::ALL {
            let due = due_ms(state, 1_000, Some(60_000));
            let expected = match state {
                State::Pending => Some(1_000),
                State::Dispatched | State::Acked | State::Running => Some(61_000),
                _ => None,
            };
            assert_eq!(due, expected, "{state}");
        }
        assert_eq!(due_ms(State::Running, 1_000, None), Some(901_000), "a kind that is gone gets 15 minutes");
    }
}
