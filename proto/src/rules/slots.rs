//! Which of its binaries a node runs: the installed one, or a release that was put beside it.
//!
//! A release is *staged*, then on *trial*, then *confirmed*. A trial ends by itself: after [`MAX_STARTS`] starts, or at its deadline,
//! the next start takes what was confirmed before.
//!
//! **Invariant:** whatever happens, what was confirmed is a binary that worked once, and it is chosen whenever a trial is over
//! without having been confirmed. The installed binary counts as one: it is what decides.

use serde::{Deserialize, Serialize};

/// How often a release is started that was not confirmed.
pub const MAX_STARTS: u32 = 3;

/// A binary beside the installed one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Its version, semver.
    pub version: String,
    /// SHA-256 of the file, 64 hexadecimal digits.
    pub sha256: String,
}

/// A binary of the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Binary {
    /// The one that the machine's packages installed.
    Installed,
    /// One beside it.
    Release(Release),
}

/// A release that has to show that it works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// Which.
    pub release: Release,
    /// How often it was started.
    pub starts: u32,
    /// Until when it has to be confirmed, milliseconds since the Unix epoch by the node's own clock; none before its first start.
    pub deadline_ms: Option<u64>,
}

/// What a node remembers of its binaries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slots {
    /// The version of the installed binary beside which this was written. When packages bring another one, they win.
    pub installed: String,
    /// What worked last.
    pub confirmed: Binary,
    /// What worked before that; none where nothing is known of it.
    pub before: Option<Binary>,
    /// Fetched and checked, and not tried yet.
    pub staged: Option<Release>,
    /// Being tried.
    pub trial: Option<Trial>,
}

/// Why a release is not tried any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum GivenUp {
    /// It was started [`MAX_STARTS`] times and never confirmed.
    Starts,
    /// It was not confirmed in time.
    Deadline,
    /// Its file is not what was checked when it was staged.
    Damaged,
    /// Somebody asked for the binary before.
    Asked,
}

/// Why there is nothing to go to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Nowhere {
    /// Nothing is staged.
    #[error("no release is staged: stage one first")]
    NothingStaged,
    /// Nothing worked before.
    #[error("no binary is known that worked before this one")]
    NothingBefore,
    /// A trial is under way.
    #[error("version {0} is still on probation: wait until it is confirmed, or roll it back")]
    OnTrial(String),
}

/// What a start came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// What to write down before anything is executed.
    pub slots: Slots,
    /// What to run.
    pub run: Binary,
    /// What was given up, and why.
    pub given_up: Option<(Release, GivenUp)>,
}

impl Slots {
    /// Of a node that never had another binary than the installed one.
    pub fn of(installed: impl Into<String>) -> Self {
        Self { installed: installed.into(), confirmed: Binary::Installed, before: None, staged: None, trial: None }
    }

    /// Decides what a start of the installed binary, of this version, runs. A trial gets `within_ms` from its first start on.
    pub fn start(self, installed: &str, now_ms: u64, within_ms: u64) -> Start {
        let mut slots = if self.installed == installed { self } else { Self::of(installed) };
        let mut given_up = None;
        if let Some(mut trial) = slots.trial.take() {
            let why = match trial.deadline_ms {
                _ if trial.starts >= MAX_STARTS => Some(GivenUp::Starts),
                Some(deadline_ms) if now_ms >= deadline_ms => Some(GivenUp::Deadline),
                _ => None,
            };
            if let Some(why) = why {
                given_up = Some((trial.release, why));
            } else {
                trial.starts += 1;
                trial.deadline_ms.get_or_insert(now_ms.saturating_add(within_ms));
                slots.trial = Some(trial);
            }
        }
        let run = match &slots.trial {
            Some(trial) => Binary::Release(trial.release.clone()),
            None => slots.confirmed.clone(),
        };
        Start { slots, run, given_up }
    }

    /// A file is not what it should be: it is never chosen again.
    #[must_use]
    pub fn damaged(mut self, release: &Release) -> Self {
        let is_it = |binary: &Binary| *binary == Binary::Release(release.clone());
        self.trial.take_if(|trial| trial.release == *release);
        self.staged.take_if(|staged| staged == release);
        self.before.take_if(|before| is_it(before));
        if is_it(&self.confirmed) {
            self.confirmed = self.before.take().unwrap_or(Binary::Installed);
        }
        self
    }

    /// A release was fetched and checked.
    #[must_use]
    pub fn stage(mut self, release: Release) -> Self {
        self.staged = Some(release);
        self
    }

    /// The staged release is tried from the next start on.
    pub fn switch(mut self) -> Result<Self, Nowhere> {
        if let Some(trial) = &self.trial {
            return Err(Nowhere::OnTrial(trial.release.version.clone()));
        }
        let release = self.staged.take().ok_or(Nowhere::NothingStaged)?;
        self.trial = Some(Trial { release, starts: 0, deadline_ms: None });
        Ok(self)
    }

    /// The release on trial works. Nothing changes where none is tried, or another one.
    #[must_use]
    pub fn confirm(mut self, running: &str) -> Self {
        if let Some(trial) = self.trial.take_if(|trial| trial.release.sha256 == running) {
            let release = Binary::Release(trial.release);
            if self.confirmed != release {
                self.before = Some(std::mem::replace(&mut self.confirmed, release));
            }
        }
        self
    }

    /// Back to what worked before: the trial is over, or what was confirmed last gives way to what was before it.
    pub fn roll_back(mut self) -> Result<Self, Nowhere> {
        if self.trial.take().is_none() {
            self.confirmed = self.before.take().ok_or(Nowhere::NothingBefore)?;
        }
        Ok(self)
    }

    /// The version that [`Slots::roll_back`] goes back to.
    pub fn back(&self) -> Result<&str, Nowhere> {
        let binary = match &self.trial {
            Some(_) => &self.confirmed,
            None => self.before.as_ref().ok_or(Nowhere::NothingBefore)?,
        };
        Ok(self.version_of(binary))
    }

    /// The version of a binary of this node.
    pub fn version_of<'a>(&'a self, binary: &'a Binary) -> &'a str {
        match binary {
            Binary::Installed => &self.installed,
            Binary::Release(release) => &release.version,
        }
    }

    /// The releases whose files are needed.
    pub fn needed(&self) -> impl Iterator<Item = &Release> {
        let binaries = [Some(&self.confirmed), self.before.as_ref()].into_iter().flatten();
        let releases = binaries.filter_map(|binary| match binary {
            Binary::Installed => None,
            Binary::Release(release) => Some(release),
        });
        releases.chain(self.staged.as_ref()).chain(self.trial.as_ref().map(|trial| &trial.release))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn release(n: u8) -> Release {
        Release { version: format!("1.0.{n}"), sha256: hex::encode([n; 32]) }
    }

    fn on_trial(n: u8) -> Slots {
        Slots::of("1.0.0").stage(release(n)).switch().expect("it is staged")
    }

    fn chosen(n: u8) -> Binary {
        Binary::Release(release(n))
    }

    #[test]
    fn a_release_that_never_comes_up_is_given_up_after_three_starts() {
        let mut slots = on_trial(1);
        for starts in 1..=MAX_STARTS {
            let start = slots.start("1.0.0", 10, 100);
            assert_eq!((&start.run, start.slots.trial.as_ref().map(|it| it.starts)), (&chosen(1), Some(starts)));
            slots = start.slots;
        }
        let start = slots.start("1.0.0", 10, 100);
        assert_eq!((start.run, start.given_up), (Binary::Installed, Some((release(1), GivenUp::Starts))));
        assert_eq!(start.slots.trial, None);
    }

    #[test]
    fn the_time_of_a_trial_begins_with_its_first_start() {
        let first = on_trial(1).start("1.0.0", 1_000_000, 100);
        assert_eq!(first.slots.trial.as_ref().and_then(|it| it.deadline_ms), Some(1_000_100));
        assert_eq!(first.slots.clone().start("1.0.0", 1_000_099, 100).run, chosen(1));
        let late = first.slots.start("1.0.0", 1_000_100, 100);
        assert_eq!((late.run, late.given_up), (Binary::Installed, Some((release(1), GivenUp::Deadline))));
    }

    #[test]
    fn a_confirmed_release_is_started_for_good_and_gives_way_to_the_one_before() {
        let slots = on_trial(1).start("1.0.0", 0, 100).slots.confirm(&release(1).sha256);
        assert_eq!(slots.clone().start("1.0.0", u64::MAX, 100).run, chosen(1));
        assert_eq!(slots.back(), Ok("1.0.0"));
        let second = slots.stage(release(2)).switch().expect("staged");
        assert_eq!(second.back(), Ok("1.0.1"), "a trial goes back to what was confirmed");
        assert_eq!(second.clone().switch(), Err(Nowhere::OnTrial("1.0.2".into())));
        let second = second.confirm(&release(2).sha256);
        let back = second.roll_back().expect("there is one before");
        assert_eq!((&back.confirmed, back.back()), (&chosen(1), Err(Nowhere::NothingBefore)));
        assert_eq!(Slots::of("1.0.0").switch(), Err(Nowhere::NothingStaged));
        assert_eq!(Slots::of("1.0.0").roll_back(), Err(Nowhere::NothingBefore));
    }

    #[test]
    fn the_word_of_another_process_confirms_nothing() {
        let slots = on_trial(1);
        assert_eq!(slots.clone().confirm(&release(2).sha256), slots);
    }

    #[test]
    fn another_installed_version_wins_over_every_release() {
        let slots = on_trial(1).confirm(&release(1).sha256);
        let start = slots.start("1.1.0", 0, 100);
        assert_eq!((start.run, start.slots), (Binary::Installed, Slots::of("1.1.0")));
    }

    #[test]
    fn a_damaged_file_is_never_chosen_again() {
        let slots = on_trial(1).confirm(&release(1).sha256).stage(release(2)).switch().expect("staged");
        assert_eq!(slots.clone().damaged(&release(2)).start("1.0.0", 0, 9).run, chosen(1));
        let both = slots.confirm(&release(2).sha256).damaged(&release(2));
        assert_eq!(both.clone().start("1.0.0", 0, 9).run, chosen(1));
        assert_eq!(both.damaged(&release(1)).start("1.0.0", 0, 9).run, Binary::Installed);
    }

    #[derive(Debug, Clone)]
    enum Happens {
        Stage(u8),
        Switch,
        Start(u64),
        Confirm,
        RollBack,
        Damaged(u8),
    }

    fn happens() -> impl Strategy<Value = Happens> {
        prop_oneof![
            (1..4_u8).prop_map(Happens::Stage),
            Just(Happens::Switch),
            (0..50_u64).prop_map(Happens::Start),
            Just(Happens::Confirm),
            Just(Happens::RollBack),
            (1..4_u8).prop_map(Happens::Damaged),
        ]
    }

    proptest! {
        #[test]
        fn a_node_always_comes_back_to_a_binary_that_worked(all in prop::collection::vec(happens(), 0..60)) {
            let mut slots = Slots::of("1.0.0");
            let mut worked = BTreeSet::from([Binary::Installed]);
            let (mut running, mut now_ms) = (Binary::Installed, 0);
            for it in all {
                slots = match it {
                    Happens::Stage(n) => slots.stage(release(n)),
                    Happens::Switch => slots.clone().switch().unwrap_or(slots),
                    Happens::RollBack => slots.clone().roll_back().unwrap_or(slots),
                    Happens::Damaged(n) => {
                        worked.remove(&chosen(n));
                        slots.damaged(&release(n))
                    }
                    Happens::Start(later_ms) => {
                        now_ms += later_ms;
                        let start = slots.start("1.0.0", now_ms, 60);
                        running = start.run;
                        start.slots
                    }
                    Happens::Confirm => {
                        if let Binary::Release(release) = &running {
                            // Only what runs, and is tried, can be said to work.
                            if slots.trial.as_ref().is_some_and(|trial| trial.release == *release) {
                                worked.insert(running.clone());
                            }
                            slots.confirm(&release.sha256)
                        } else {
                            slots
                        }
                    }
                };
                prop_assert!(worked.contains(&slots.confirmed), "{:?}", slots);
                prop_assert!(slots.before.as_ref().is_none_or(|before| worked.contains(before)), "{:?}", slots);
                // Without a word of it, every trial is over after its starts.
                let mut later = slots.clone();
                for _ in 0..=MAX_STARTS {
                    later = later.start("1.0.0", now_ms, 60).slots;
                }
                prop_assert!(worked.contains(&later.start("1.0.0", now_ms, 60).run));
            }
        }
    }
}
