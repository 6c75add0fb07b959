//! The way to NVML, which a reset closes: whoever has NVML open holds every GPU.
//!
//! **Invariant:** while it is closed nobody is inside, and nobody waits at it for ever.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(super) struct Door {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    inside: usize,
    is_closed: bool,
}

/// Somebody who asks NVML.
pub(super) struct Inside<'a>(&'a Door);

/// The door is closed until this is dropped.
pub struct Closed<'a>(&'a Door);

impl Door {
    /// Goes in; `None` when it stayed closed for so long.
    pub(super) fn enter(&self, within: Duration) -> Option<Inside<'_>> {
        let mut state = self.wait(within, |state| !state.is_closed)?;
        state.inside += 1;
        Some(Inside(self))
    }

    /// Closes it and waits until nobody is inside any more; `None`, and open again, when somebody stays for so long.
    pub(super) fn close(&self, within: Duration) -> Option<Closed<'_>> {
        let until = Instant::now() + within;
        self.wait(within, |state| !state.is_closed)?.is_closed = true;
        let closed = Closed(self);
        drop(self.wait(until.saturating_duration_since(Instant::now()), |state| state.inside == 0)?);
        Some(closed)
    }

    fn wait(&self, within: Duration, holds: impl Fn(&State) -> bool) -> Option<MutexGuard<'_, State>> {
        let until = Instant::now() + within;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !holds(&state) {
            let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(state)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.inside -= 1);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.is_closed = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn it_closes_when_nobody_is_inside_and_opens_again_by_itself() {
        let door = Door::default();
        let inside = door.enter(NOW).expect("open");
        assert!(door.close(NOW).is_none(), "somebody is inside");
        let second = door.enter(NOW).expect("it opened again");
        drop((inside, second));
        let closed = door.close(NOW).expect("nobody is inside");
        assert!(door.enter(NOW).is_none() && door.close(NOW).is_none());
        drop(closed);
        assert!(door.enter(NOW).is_some());
    }

    #[test]
    fn who_waits_goes_in_when_it_opens() {
        let door = Door::default();
        let closed = door.close(NOW).expect("nobody is inside");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| door.enter(Duration::from_mins(1)).is_some());
            drop(closed);
            assert!(waits.join().expect("no panic"));
        });
    }
}
