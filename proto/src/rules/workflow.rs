//! What comes next in the workflow of one machine: wipe, deploy, reboot, acceptance. Which step is begun, what the end of a
//! step's command means, and when people have to look.
//!
//! **Invariant:** a step is begun only after every step before it is known to have succeeded, one at a time; a step of which
//! nobody can say what it did is never begun again by itself.

use serde::{Deserialize, Serialize};

use super::state::State;

/// How often a step is tried where it is known that nothing was done. A person's retry begins to count anew.
pub const MAX_TRIES: u32 = 3;

/// What a step is for. Steps stand in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Everything on the disks is made unreadable.
    Wipe,
    /// An image is written.
    Deploy,
    /// The machine boots what was written.
    Reboot,
    /// Diagnostics say whether it is fit.
    Acceptance,
}

impl Phase {
    /// The phase of a kind: three have their own kind, and all others are diagnostics.
    pub fn of(kind: &str) -> Self {
        match kind {
            "metal.disk.wipe" => Self::Wipe,
            "metal.image.deploy" => Self::Deploy,
            "node.reboot" => Self::Reboot,
            _ => Self::Acceptance,
        }
    }

    /// What a step of this phase is called; an acceptance step is called as its kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wipe => "wipe",
            Self::Deploy => "deploy",
            Self::Reboot => "reboot",
            Self::Acceptance => "acceptance",
        }
    }
}

/// Where a workflow stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Standing {
    /// It goes on by itself.
    Running,
    /// Each step is known to have succeeded.
    Succeeded,
    /// A step is known not to have succeeded.
    Failed,
    /// Nobody can say what a step did.
    Ambiguous,
    /// Somebody called it off.
    Cancelled,
}

/// Where a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum StepStanding {
    /// It was not begun, or is to be begun again.
    Waiting,
    /// Its command is not over.
    Open,
    /// It is known to have succeeded.
    Succeeded,
    /// It is known not to have.
    Failed,
    /// Nobody can say.
    Ambiguous,
    /// It was called off.
    Cancelled,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What it is for.
    pub phase: Phase,
    /// Where it stands.
    pub standing: StepStanding,
    /// How often it was begun since a person last had it begin.
    pub tries: u32,
}

/// A workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workflow {
    /// Where it stands.
    pub standing: Standing,
    /// Whether somebody wants it called off.
    pub is_cancelling: bool,
    /// Its steps, in order.
    pub steps: Vec<Step>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing: it is over.
    Rest,
    /// Begin this step.
    Begin(usize),
    /// This step's command is not over.
    Wait(usize),
    /// Call this step's command off, and wait for what became of it.
    CallOff(usize),
    /// It is over.
    End(Standing),
}

/// How a step's command ended, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended<'a> {
    /// The command's state.
    pub state: State,
    /// Why, as a stable code.
    pub reason: &'a str,
    /// Whether the node said so, and not the control plane by itself.
    pub is_reported: bool,
    /// Whether the node's word counts: its signature holds where the kind is attested; else it reported, or its next hello
    /// proved it.
    pub is_proven: bool,
    /// Whether the kind is destructive.
    pub is_destructive: bool,
    /// What a diagnostic says of the machine: `pass`, `fail` or `unknown`; `None` for kinds that judge nothing.
    pub verdict: Option<&'a str>,
}

/// What it means for the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// The command is not over.
    Open,
    /// It did what it should.
    Succeeded,
    /// It did not, and trying again would not help.
    Failed,
    /// Nobody can say.
    Ambiguous,
    /// Nothing was done, for a reason that may pass.
    NothingDone,
    /// It was called off before anything was done.
    CalledOff,
}

impl Ended<'_> {
    /// What the end of a command means, and the code to note where it is not the command's own.
    pub fn meaning(self) -> (Meaning, Option<&'static str>) {
        match self.state {
            State::Pending | State::Dispatched | State::Acked | State::Running => (Meaning::Open, None),
            State::Succeeded if !self.is_proven => (Meaning::Ambiguous, Some("unsigned")),
            State::Succeeded => match self.verdict {
                None | Some("pass") => (Meaning::Succeeded, None),
                Some("fail") => (Meaning::Failed, Some("diagnostic-fail")),
                // What could not be asked is never a pass.
                Some(_) => (Meaning::Ambiguous, Some("diagnostic-unknown")),
            },
            // The control plane's own word for what it lost sight of; and a node that gave up on a run that may go on below it.
            State::Failed if !self.is_reported || matches!(self.reason, "timeout" | "deadline" | "interrupted") => {
                (Meaning::Ambiguous, None)
            }
            // Of the refusals these are about a moment; the others would come again.
            State::Rejected
                if matches!(self.reason, "EXPIRED" | "NO_SPACE" | "STALE_GENERATION" | "KIND_UNAVAILABLE") =>
            {
                (Meaning::NothingDone, None)
            }
            State::Expired if self.reason == "not_after" => (Meaning::NothingDone, None),
            // A node that stops a destructive command says itself how far it was.
            State::Cancelled if self.is_reported && self.is_destructive => (Meaning::Ambiguous, None),
            State::Cancelled if self.is_reported || self.reason == "cancelled" => (Meaning::CalledOff, None),
            // A command that was cancelled otherwise went with its batch, or with its node.
            State::Failed | State::Rejected | State::Expired | State::Cancelled => (Meaning::Failed, None),
        }
    }
}

/// What keeps steps from being a workflow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misshapen {
    /// It has none.
    #[error("there must be at least one")]
    Empty,
    /// A step stands behind a later one.
    #[error("{kind} must stand before {before}: the order is wipe, deploy, reboot, diagnostics")]
    Order {
        /// The step's place.
        at: usize,
        /// Its kind.
        kind: String,
        /// The kind that it stands behind.
        before: String,
    },
    /// A kind stands twice.
    #[error("{kind} stands twice")]
    Twice {
        /// The second one's place.
        at: usize,
        /// The kind.
        kind: String,
    },
}

impl Misshapen {
    /// The step that is wrong; `None` for all of them.
    pub const fn at(&self) -> Option<usize> {
        match self {
            Self::Empty => None,
            Self::Order { at, .. } | Self::Twice { at, .. } => Some(*at),
        }
    }
}

/// Whether kinds, in this order, are a workflow.
pub fn check(kinds: &[&str]) -> Result<(), Misshapen> {
    if kinds.is_empty() {
        return Err(Misshapen::Empty);
    }
    for (at, kind) in kinds.iter().enumerate() {
        if kinds[..at].contains(kind) {
            return Err(Misshapen::Twice { at, kind: (*kind).to_owned() });
        }
        if let Some(before) = kinds[..at].iter().find(|before| Phase::of(before) > Phase::of(kind)) {
            return Err(Misshapen::Order { at, kind: (*kind).to_owned(), before: (*before).to_owned() });
        }
    }
    Ok(())
}

/// Whether the machine is let back into service when all steps have succeeded: only where diagnostics have passed it.
pub fn releases(steps: &[Step], keeps_quarantine: bool) -> bool {
    !keeps_quarantine && steps.iter().any(|step| step.phase == Phase::Acceptance)
}

impl Workflow {
    /// What is to be done now.
    pub fn next(&self) -> Next {
        if self.standing != Standing::Running {
            return Next::Rest;
        }
        let Some(at) = self.steps.iter().position(|step| step.standing != StepStanding::Succeeded) else {
            return Next::End(Standing::Succeeded);
        };
        match self.steps[at].standing {
            StepStanding::Open if self.is_cancelling => Next::CallOff(at),
            StepStanding::Open => Next::Wait(at),
            StepStanding::Failed => Next::End(Standing::Failed),
            StepStanding::Ambiguous => Next::End(Standing::Ambiguous),
            StepStanding::Cancelled => Next::End(Standing::Cancelled),
            _ if self.is_cancelling => Next::End(Standing::Cancelled),
            StepStanding::Waiting | StepStanding::Succeeded => Next::Begin(at),
        }
    }

    /// The step that is to be begun is begun. False, and nothing changes, where none is to be.
    pub fn begin(&mut self) -> bool {
        let Next::Begin(at) = self.next() else { return false };
        let step = &mut self.steps[at];
        step.standing = StepStanding::Open;
        step.tries += 1;
        true
    }

    /// The open step's command ended. False, and nothing changes, where no step is open, or the command is not over.
    pub fn conclude(&mut self, meaning: Meaning) -> bool {
        let open = self.steps.iter().position(|step| step.standing == StepStanding::Open);
        let Some(at) = open.filter(|_| self.standing == Standing::Running) else { return false };
        let step = &mut self.steps[at];
        step.standing = match meaning {
            Meaning::Open => return false,
            Meaning::Succeeded => StepStanding::Succeeded,
            Meaning::Ambiguous => StepStanding::Ambiguous,
            Meaning::CalledOff => StepStanding::Cancelled,
            Meaning::NothingDone if self.is_cancelling => StepStanding::Cancelled,
            Meaning::NothingDone if step.tries < MAX_TRIES => StepStanding::Waiting,
            Meaning::Failed | Meaning::NothingDone => StepStanding::Failed,
        };
        true
    }

    /// It ends where [`next`](Self::next) says so. False where it does not.
    pub fn end(&mut self) -> bool {
        let Next::End(standing) = self.next() else { return false };
        self.standing = standing;
        true
    }

    /// Somebody calls it off. False where it is over.
    pub fn cancel(&mut self) -> bool {
        let is_running = self.standing == Standing::Running;
        self.is_cancelling |= is_running;
        is_running
    }

    /// A person has it go on from the step that did not succeed. Diagnostics are one judgement: all of them are asked again.
    /// False where it runs, or has succeeded.
    pub fn retry(&mut self) -> bool {
        if matches!(self.standing, Standing::Running | Standing::Succeeded) {
            return false;
        }
        let stopped = self.steps.iter().position(|step| step.standing != StepStanding::Succeeded);
        let is_judged = stopped.is_some_and(|at| self.steps[at].phase == Phase::Acceptance);
        for step in &mut self.steps {
            if step.standing != StepStanding::Succeeded || (is_judged && step.phase == Phase::Acceptance) {
                step.standing = StepStanding::Waiting;
                step.tries = 0;
            }
        }
        self.standing = Standing::Running;
        self.is_cancelling = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MEANINGS: [Meaning; 6] = [
        Meaning::Open,
        Meaning::Succeeded,
        Meaning::Failed,
        Meaning::Ambiguous,
        Meaning::NothingDone,
        Meaning::CalledOff,
    ];

    fn workflow(kinds: &[&str]) -> Workflow {
        let step = |kind: &&str| Step { phase: Phase::of(kind), standing: StepStanding::Waiting, tries: 0 };
        Workflow { standing: Standing::Running, is_cancelling: false, steps: kinds.iter().map(step).collect() }
    }

    fn whole() -> Workflow {
        workflow(&["metal.disk.wipe", "metal.image.deploy", "node.reboot", "diag.nvml", "diag.dcgm"])
    }

    fn ended(state: State, reason: &str) -> Ended<'_> {
        Ended { state, reason, is_reported: true, is_proven: true, is_destructive: true, verdict: None }
    }

    #[test]
    fn the_whole_table() {
        let mut table = String::new();
        for standing in [
            StepStanding::Waiting,
            StepStanding::Open,
            StepStanding::Succeeded,
            StepStanding::Failed,
            StepStanding::Ambiguous,
            StepStanding::Cancelled,
        ] {
            for is_cancelling in [false, true] {
                let mut before = workflow(&["metal.disk.wipe"]);
                before.is_cancelling = is_cancelling;
                before.steps[0].standing = standing;
                before.steps[0].tries = u32::from(standing != StepStanding::Waiting);
                let called = if is_cancelling { ", called off" } else { "" };
                table += &format!("{standing}{called}: next {:?}\n", before.next());
                for meaning in MEANINGS {
                    let mut after = before.clone();
                    if after.conclude(meaning) {
                        let (step, next) = (after.steps[0].standing, after.next());
                        table += &format!("  its command: {:<11} {step}, next {next:?}\n", format!("{meaning:?}"));
                    }
                }
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn promise_16_what_nobody_can_tell_is_not_taken_for_an_end() {
        let unreported = |state, reason| Ended { is_reported: false, is_proven: false, ..ended(state, reason) };
        for (it, meaning) in [
            (ended(State::Succeeded, ""), Meaning::Succeeded),
            (Ended { is_proven: false, ..ended(State::Succeeded, "") }, Meaning::Ambiguous),
            (unreported(State::Succeeded, ""), Meaning::Ambiguous),
            (ended(State::Failed, "wipe-refused"), Meaning::Failed),
            (ended(State::Failed, "interrupted"), Meaning::Ambiguous),
            (ended(State::Failed, "deadline"), Meaning::Ambiguous),
            (unreported(State::Failed, "timeout"), Meaning::Ambiguous),
            (unreported(State::Failed, "journal-lost"), Meaning::Ambiguous),
            (ended(State::Rejected, "NO_SPACE"), Meaning::NothingDone),
            (ended(State::Rejected, "UNSUPPORTED"), Meaning::Failed),
            (ended(State::Rejected, "BATCH_UNAPPROVED"), Meaning::Failed),
            (unreported(State::Expired, "not_after"), Meaning::NothingDone),
            (unreported(State::Expired, "node-replaced"), Meaning::Failed),
            (unreported(State::Cancelled, "cancelled"), Meaning::CalledOff),
            (unreported(State::Cancelled, "batch-rejected"), Meaning::Failed),
            (unreported(State::Cancelled, "node-deleted"), Meaning::Failed),
            (ended(State::Cancelled, "cancelled"), Meaning::Ambiguous),
            (Ended { is_destructive: false, ..ended(State::Cancelled, "cancelled") }, Meaning::CalledOff),
            (ended(State::Running, ""), Meaning::Open),
        ] {
            assert_eq!(it.meaning().0, meaning, "{it:?}");
        }
    }

    #[test]
    fn promise_32_a_diagnostic_that_could_not_ask_lets_nothing_pass() {
        let says = |verdict| Ended { verdict: Some(verdict), ..ended(State::Succeeded, "") }.meaning();
        assert_eq!(says("pass"), (Meaning::Succeeded, None));
        assert_eq!(says("fail"), (Meaning::Failed, Some("diagnostic-fail")));
        for other in ["unknown", "", "PASS", "skipped"] {
            assert_eq!(says(other), (Meaning::Ambiguous, Some("diagnostic-unknown")), "{other}");
        }
    }

    #[test]
    fn steps_have_one_order() {
        assert_eq!(check(&["metal.disk.wipe", "metal.image.deploy", "node.reboot", "diag.nvml", "diag.dcgm"]), Ok(()));
        assert_eq!(check(&["diag.dcgm", "diag.nvml"]), Ok(()));
        assert_eq!(check(&[]), Err(Misshapen::Empty));
        let late = check(&["metal.disk.wipe", "diag.nvml", "metal.image.deploy"]).expect_err("too late");
        assert_eq!(late.at(), Some(2));
        assert_eq!(
            late.to_string(),
            "metal.image.deploy must stand before diag.nvml: the order is wipe, deploy, reboot, diagnostics"
        );
        assert_eq!(check(&["diag.nvml", "diag.nvml"]).expect_err("twice").at(), Some(1));
    }

    #[test]
    fn nothing_done_is_tried_again_within_a_budget_and_by_a_person_anew() {
        let mut workflow = whole();
        for number in 1..=MAX_TRIES {
            assert!(workflow.begin(), "{number}");
            assert!(workflow.conclude(Meaning::NothingDone));
        }
        assert_eq!(workflow.next(), Next::End(Standing::Failed));
        assert!(!workflow.begin() && workflow.end() && workflow.retry());
        assert_eq!(workflow.next(), Next::Begin(0));
        assert_eq!(workflow.steps[0].tries, 0);
    }

    #[test]
    fn a_retry_goes_on_from_the_step_that_stopped_and_asks_all_diagnostics_again() {
        let mut workflow = whole();
        for step in &mut workflow.steps[..4] {
            step.standing = StepStanding::Succeeded;
        }
        workflow.steps[4].standing = StepStanding::Failed;
        assert!(workflow.end() && workflow.retry());
        assert_eq!(workflow.next(), Next::Begin(3), "the first diagnostic");
        workflow = whole();
        workflow.steps[0].standing = StepStanding::Succeeded;
        workflow.steps[1].standing = StepStanding::Ambiguous;
        assert!(workflow.end() && workflow.retry());
        assert_eq!(workflow.next(), Next::Begin(1), "what is wiped is not wiped again");
    }

    #[test]
    fn only_what_diagnostics_passed_is_let_back_into_service() {
        assert!(releases(&whole().steps, false));
        assert!(!releases(&whole().steps, true));
        assert!(!releases(&workflow(&["metal.disk.wipe", "metal.image.deploy"]).steps, false));
    }

    #[derive(Debug, Clone, Copy)]
    enum Act {
        Go,
        Conclude(Meaning),
        Cancel,
        Retry,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let meaning = (0..MEANINGS.len()).prop_map(|at| Act::Conclude(MEANINGS[at]));
        let well = Just(Act::Conclude(Meaning::Succeeded));
        prop::collection::vec(
            prop_oneof![6 => Just(Act::Go), 3 => well, 3 => meaning, 1 => Just(Act::Cancel), 1 => Just(Act::Retry)],
            1..80,
        )
    }

    proptest! {
        /// Whatever happens, no step is skipped, one is open at a time, and what nobody can tell waits for a person.
        #[test]
        fn promise_16_steps_are_begun_in_order_one_at_a_time(acts in acts()) {
            let mut workflow = whole();
            for act in acts {
                let before = workflow.clone();
                match act {
                    Act::Go => {
                        if workflow.begin() {
                            let at = workflow.steps.iter().position(|it| it.standing == StepStanding::Open).expect("it");
                            prop_assert!(before.steps[..at].iter().all(|it| it.standing == StepStanding::Succeeded));
                            prop_assert_eq!(before.steps[at].standing, StepStanding::Waiting);
                            prop_assert!(!before.is_cancelling);
                            prop_assert!(before.steps[at].tries < MAX_TRIES);
                        } else {
                            workflow.end();
                        }
                    }
                    Act::Conclude(meaning) => { workflow.conclude(meaning); }
                    Act::Cancel => { workflow.cancel(); }
                    Act::Retry => { workflow.retry(); }
                }
                let open = workflow.steps.iter().filter(|it| it.standing == StepStanding::Open).count();
                prop_assert!(open <= 1);
                prop_assert!(open == 0 || workflow.standing == Standing::Running);
                let is_stuck = |it: &Step| matches!(it.standing, StepStanding::Ambiguous | StepStanding::Failed);
                for (was, is) in before.steps.iter().zip(&workflow.steps) {
                    // Only a person lets it go on.
                    prop_assert!(!is_stuck(was) || is_stuck(is) || matches!(act, Act::Retry));
                    prop_assert!(was.standing != StepStanding::Succeeded
                        || is.standing == StepStanding::Succeeded
                        || (matches!(act, Act::Retry) && is.phase == Phase::Acceptance));
                }
                if workflow.standing == Standing::Succeeded {
                    prop_assert!(workflow.steps.iter().all(|it| it.standing == StepStanding::Succeeded));
                }
            }
        }
    }
}
