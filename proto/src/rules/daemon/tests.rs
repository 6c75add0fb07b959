mod batches;
mod intents;
mod switch;

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::rules::lane::LIMITS;

const NODE: Uuid = Uuid::from_u128(7);

fn identity(boot: u32) -> Identity {
    Identity {
        node: NodeId::from_uuid(NODE),
        incarnation: 1,
        role: Role::Host,
        boot: format!("boot-{boot}"),
        version: "1.0.0".into(),
    }
}

fn id(seq: u64) -> CommandId {
    CommandId::from_uuid(Uuid::from_u128(u128::from(seq)))
}

fn deliver(seq: u64, kind: &str) -> Deliver {
    Deliver {
        command: id(seq),
        seq,
        node: NodeId::from_uuid(NODE),
        incarnation: 1,
        kind: kind.into(),
        kind_digest: "ab".repeat(32),
        payload: json!({ "n": seq }),
        not_after_ms: 1_000_000,
        timeout_ms: 60_000,
        min_generation: None,
        signature: None,
        batch: None,
        approved: None,
        upload: None,
    }
}

/// `safe` is retry-safe, `reboot` self-terminating, `plain` neither; `gone` is not to be had.
fn kind(name: &str, _: &str) -> Availability {
    let traits = match name {
        "safe" => BTreeSet::from([Trait::RetrySafe]),
        "reboot" => BTreeSet::from([Trait::SelfTerminating, Trait::Destructive]),
        "plain" => BTreeSet::new(),
        _ => return Availability::Unavailable,
    };
    Availability::Loaded { lane: Lane::Bulk, traits, roles: vec![Role::Host], timeout_ms: 60_000 }
}

const WORLD: World<'static> = World { now_ms: 1_000, free: LIMITS, has_room: true, kind: &kind, trust: &TRUST };
static TRUST: TrustBundle = TrustBundle::NONE;

fn delivered(epoch: u64, deliver: Deliver) -> Input {
    Input::Delivered { epoch, deliver: Box::new(deliver) }
}

fn succeeded(command: CommandId) -> Input {
    Input::RunFinished { command, report: Report::Succeeded, reason: String::new(), result: b"{\"a\":1}".to_vec() }
}

/// A core with session 1 open, and its journal.
fn open() -> (Core, Vec<Record>) {
    let (mut core, nothing) = Core::restart(identity(1), 5, Book::default(), 1_000);
    assert_eq!(nothing, Step::default());
    let nothing = core.on(Input::SessionOpened { epoch: 1, settled_below_seq: 1 }, &WORLD);
    assert_eq!(nothing, Step::default());
    (core, Vec::new())
}

fn reports(step: &Step) -> Vec<(Report, &str)> {
    let mut found = Vec::new();
    for frame in &step.send {
        if let Frame::Update(update) | Frame::Denied(update) = frame {
            found.push((update.report, update.reason.as_str()));
        }
    }
    found
}

#[test]
fn a_command_is_saved_then_acknowledged_then_started_and_a_duplicate_is_answered() {
    let (mut core, _) = open();
    let first = core.on(delivered(1, deliver(1, "plain")), &WORLD);
    assert!(matches!(&first.save[..], [Record::Accepted { .. }, Record::Started { attempt: 1, .. }]), "{first:?}");
    assert_eq!(first.send[0], Frame::Ack(id(1)));
    assert_eq!(first.start.len(), 1);

    let again = core.on(delivered(1, deliver(1, "plain")), &WORLD);
    assert_eq!(reports(&again), [(Report::Running, "")], "it is re-attached");
    assert!(again.save.is_empty() && again.start.is_empty());

    let done = core.on(succeeded(id(1)), &WORLD);
    assert_eq!(reports(&done), [(Report::Succeeded, "")]);
    let late = World { now_ms: 9_000, ..WORLD };
    let third = core.on(delivered(1, deliver(1, "plain")), &late);
    assert_eq!(third.send, done.send, "the stored result, to the byte and the millisecond");
}

#[test]
fn a_refusal_is_saved_and_busy_is_not() {
    let (mut core, _) = open();
    let gone = core.on(delivered(1, deliver(1, "gone")), &WORLD);
    assert!(matches!(&gone.save[..], [Record::Refused { .. }]), "{gone:?}");
    assert_eq!(reports(&gone), [(Report::Rejected, "KIND_UNAVAILABLE")]);
    assert_eq!(core.on(delivered(1, deliver(1, "safe")), &WORLD).send, gone.send, "a duplicate gets the same answer");

    let busy = World { free: PerLane::default(), ..WORLD };
    let refused = core.on(delivered(1, deliver(2, "safe")), &busy);
    assert_eq!((reports(&refused), refused.save.len()), (vec![(Report::Busy, "BUSY")], 0));
    assert_eq!(core.on(delivered(1, deliver(2, "safe")), &WORLD).start.len(), 1, "later there is a worker");
}

#[test]
fn promise_06_without_room_for_its_result_a_command_is_refused_before_any_effect() {
    let (mut core, _) = open();
    let full = World { has_room: false, ..WORLD };
    let step = core.on(delivered(1, deliver(1, "safe")), &full);
    assert_eq!((reports(&step), step.start.len()), (vec![(Report::Rejected, "NO_SPACE")], 0));
}

#[test]
fn promise_09_frames_of_an_older_session_have_no_effect() {
    let (mut core, _) = open();
    let newer = core.on(Input::SessionOpened { epoch: 3, settled_below_seq: 1 }, &WORLD);
    assert_eq!(newer, Step::default());
    for input in [
        delivered(1, deliver(1, "plain")),
        Input::CancelReceived { epoch: 1, command: id(1), signature: None },
        Input::UpdateAcked { epoch: 2, commands: vec![id(1)], settled_below_seq: 9 },
        Input::SessionOpened { epoch: 2, settled_below_seq: 9 },
        Input::SessionClosed { epoch: 1 },
    ] {
        assert_eq!(core.on(input.clone(), &WORLD), Step::default(), "{input:?}");
    }
    assert_eq!(core.on(delivered(3, deliver(1, "plain")), &WORLD).start.len(), 1);
}

#[test]
fn promise_13_what_is_called_off_before_it_starts_never_starts() {
    // Before it came.
    let (mut core, _) = open();
    assert_eq!(core.on(Input::CancelReceived { epoch: 1, command: id(1), signature: None }, &WORLD), Step::default());
    let step = core.on(delivered(1, deliver(1, "safe")), &WORLD);
    assert_eq!((reports(&step), step.start.len()), (vec![(Report::Cancelled, "cancelled")], 0));

    // While it waits for a spec.
    let waits = Deliver { min_generation: Some(6), ..deliver(2, "safe") };
    assert_eq!(core.on(delivered(1, waits), &WORLD).send, [Frame::SpecWanted(6)]);
    let step = core.on(Input::CancelReceived { epoch: 1, command: id(2), signature: None }, &WORLD);
    assert_eq!(reports(&step), [(Report::Cancelled, "cancelled")]);
    assert!(core.on(Input::SpecApplied { generation: 6 }, &WORLD).start.is_empty());

    // After the crash that came between its start and its end.
    let mut journal = core.on(delivered(1, deliver(3, "safe")), &WORLD).save;
    journal.extend(core.on(Input::CancelReceived { epoch: 1, command: id(3), signature: None }, &WORLD).save);
    let (mut core, step) = Core::restart(identity(1), 5, Book::read(journal).expect("in order"), 2_000);
    assert!(step.start.is_empty(), "{step:?}");
    let step = core.on(Input::SessionOpened { epoch: 2, settled_below_seq: 1 }, &WORLD);
    assert_eq!(reports(&step), [(Report::Cancelled, "cancelled")]);
}

#[test]
fn a_spec_that_is_behind_is_waited_for_and_then_it_is_too_late() {
    let (mut core, _) = open();
    let waits = |seq| delivered(1, Deliver { min_generation: Some(6), ..deliver(seq, "safe") });
    let asks = Step { send: vec![Frame::SpecWanted(6)], ..Step::default() };
    assert_eq!(core.on(waits(1), &WORLD), asks);
    assert_eq!(core.on(Input::Tick, &WORLD), Step::default(), "it asks once a delivery");
    assert_eq!(core.on(Input::SpecApplied { generation: 6 }, &WORLD).start.len(), 1);
    assert_eq!(core.on(Input::SpecApplied { generation: 5 }, &WORLD), Step::default());
    assert_eq!(core.on(waits(2), &WORLD).start.len(), 1, "what was applied stays applied");
    let waits = delivered(1, Deliver { min_generation: Some(7), ..deliver(3, "safe") });
    assert_eq!(core.on(waits, &WORLD).send, [Frame::SpecWanted(7)]);
    let late = World { now_ms: 1_000_000, ..WORLD };
    assert_eq!(reports(&core.on(Input::Tick, &late)), [(Report::Rejected, "STALE_GENERATION")]);
}

#[test]
fn promise_03_a_result_is_said_until_it_is_acknowledged() {
    let (mut core, mut journal) = open();
    journal.extend(core.on(delivered(1, deliver(1, "plain")), &WORLD).save);
    let done = core.on(succeeded(id(1)), &WORLD);
    journal.extend(done.save.clone());
    let later = World { now_ms: 1_000 + RESEND_MS, ..WORLD };
    assert_eq!(core.on(Input::Tick, &later).send, done.send, "no acknowledgement came");

    // The daemon is replaced; the journal speaks.
    let (mut core, step) = Core::restart(identity(2), 5, Book::read(journal).expect("in order"), 5);
    assert_eq!(step, Step::default());
    assert_eq!(core.on(Input::SessionOpened { epoch: 2, settled_below_seq: 1 }, &WORLD).send, done.send);
    let acked = core.on(Input::UpdateAcked { epoch: 2, commands: vec![id(1)], settled_below_seq: 1 }, &WORLD);
    assert_eq!(acked.save, [Record::Acknowledged { command: id(1) }]);
    assert!(core.on(Input::SessionOpened { epoch: 3, settled_below_seq: 1 }, &WORLD).send.is_empty());
    let settled = core.on(Input::UpdateAcked { epoch: 3, commands: vec![], settled_below_seq: 2 }, &WORLD);
    assert_eq!(settled, Step::default(), "it could come again until its time is over");
    let late = World { now_ms: 1_000_000, ..WORLD };
    let forgotten = core.on(Input::Tick, &late);
    let floor = Record::ReplayFloor { not_after_ms: 1_000_000 };
    assert_eq!(forgotten.save, [Record::Forgotten { command: id(1) }, floor]);
    let echo = core.on(delivered(3, deliver(1, "plain")), &WORLD);
    assert_eq!(echo, Step::default(), "an echo of something settled for good does not run");
}

#[test]
fn an_interrupted_command_names_the_effects_that_it_began() {
    let (mut core, _) = open();
    let mut journal = core.on(delivered(1, deliver(1, "plain")), &WORLD).save;
    let effect = |state| json!({ "seq": 0, "name": "gpus.reset", "state": { "state": state } });
    for state in ["ambiguous", "done"] {
        journal.push(Record::Effect { command: id(1), attempt: 1, seq: 0, effect: effect(state) });
    }
    let (_, step) = Core::restart(identity(1), 5, Book::read(journal).expect("in order"), 2_000);
    let [Record::Finished { update }] = &step.save[..] else { panic!("{step:?}") };
    assert_eq!((update.report, update.reason.as_str()), (Report::Failed, "interrupted"));
    let result: serde_json::Value = serde_json::from_slice(&update.result).expect("JSON");
    assert_eq!(result["effects"], json!([effect("done")]));
}

#[test]
fn a_run_that_takes_the_daemon_down_is_not_repeated_for_ever() {
    let (mut core, _) = open();
    let mut journal = core.on(delivered(1, deliver(1, "safe")), &WORLD).save;
    for attempt in 2..=MAX_ATTEMPTS {
        let (mut core, step) = Core::restart(identity(1), 5, Book::read(journal.clone()).expect("in order"), 2_000);
        assert_eq!(step, Step::default());
        let _ = core.on(Input::SessionOpened { epoch: 2, settled_below_seq: 1 }, &WORLD);
        let step = core.on(delivered(2, deliver(1, "safe")), &WORLD);
        assert_eq!(step.start[0].attempt, attempt);
        journal.extend(step.save);
    }
    let (_, step) = Core::restart(identity(1), 5, Book::read(journal).expect("in order"), 2_000);
    assert!(step.start.is_empty());
    assert!(matches!(&step.save[..], [Record::Finished { update }] if update.reason == "interrupted"), "{step:?}");
}

/// A core that was restarted while a retry-safe command ran, with session 2 open.
fn cut_off(identity: Identity, settled_below_seq: u64) -> (Core, Step) {
    let (mut core, _) = open();
    let journal = core.on(delivered(1, deliver(1, "safe")), &WORLD).save;
    let (mut core, step) = Core::restart(identity, 5, Book::read(journal).expect("in order"), 2_000);
    assert_eq!(step, Step::default(), "nothing starts before the control plane says that it is still wanted");
    let opened = core.on(Input::SessionOpened { epoch: 2, settled_below_seq }, &WORLD);
    (core, opened)
}

#[test]
fn what_a_restart_cut_off_runs_again_when_it_is_delivered_again() {
    let (mut core, opened) = cut_off(identity(1), 1);
    assert_eq!((opened, core.outstanding()), (Step::default(), 1));
    let busy = World { free: PerLane::default(), ..WORLD };
    let step = core.on(delivered(2, deliver(1, "safe")), &busy);
    assert_eq!((step.send, step.start.len()), (vec![Frame::Ack(id(1))], 0), "it waits for a worker");
    let step = core.on(delivered(2, deliver(1, "safe")), &WORLD);
    assert_eq!((reports(&step), step.start[0].attempt), (vec![(Report::Running, "")], 2));
    assert!(matches!(&step.save[..], [Record::Started { attempt: 2, .. }]), "{step:?}");
    assert_eq!(core.on(delivered(2, deliver(1, "safe")), &WORLD).start, [], "once");
}

#[test]
fn promise_13_what_a_restart_cut_off_does_not_run_again_once_it_is_over() {
    // It ran out of time, or was settled otherwise, while the daemon was away.
    let (mut core, opened) = cut_off(identity(1), 2);
    assert_eq!(opened, Step::default());
    let again = core.on(delivered(2, deliver(1, "safe")), &WORLD);
    assert_eq!((reports(&again), again.start.len()), (vec![], 0), "{again:?}");

    // It would run past the time at which the control plane gives it up.
    let (mut core, _) = cut_off(identity(1), 1);
    let late = World { now_ms: 1_000_000, ..WORLD };
    let step = core.on(delivered(2, deliver(1, "safe")), &late);
    assert_eq!((reports(&step), step.start.len()), (vec![(Report::Failed, "interrupted")], 0));

    // It was called off while the daemon was away, and the cancel comes first or last.
    let (mut core, _) = cut_off(identity(1), 1);
    let step = core.on(Input::CancelReceived { epoch: 2, command: id(1), signature: None }, &WORLD);
    assert_eq!((reports(&step), step.save.len()), (vec![(Report::Cancelled, "cancelled")], 1));
    assert_eq!(core.on(delivered(2, deliver(1, "safe")), &WORLD).start, []);
}

#[test]
fn promise_15_what_an_earlier_life_of_the_node_left_in_the_journal_does_not_run_by_itself() {
    let reborn = Identity { incarnation: 2, ..identity(1) };
    let (mut core, opened) = cut_off(reborn, 1);
    assert_eq!(opened, Step::default());
    assert_eq!(core.on(Input::Tick, &WORLD), Step::default());
}

/// One thing that happens in the simulation, to the command with this number where it is about one.
#[derive(Debug, Clone, Copy)]
enum Happening {
    Deliver(u64),
    Cancel(u64),
    Finish(u64),
    /// Its run asks for a reboot.
    Intend(u64),
    /// What was to reboot the machine refuses.
    NotDone(u64),
    Acknowledge(u64),
    SettleBelow(u64),
    Reconnect,
    Disconnect,
    Restart {
        new_boot: bool,
    },
}

/// Where a crash cuts a step off.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum CrashBefore {
    Save,
    Send,
    Start,
    Intend,
}

const COMMANDS: u64 = 6;

fn happenings() -> impl Strategy<Value = Vec<(Happening, Option<CrashBefore>)>> {
    let command = 1..=COMMANDS;
    let happening = prop_oneof![
        4 => command.clone().prop_map(Happening::Deliver),
        2 => command.clone().prop_map(Happening::Cancel),
        3 => command.clone().prop_map(Happening::Finish),
        3 => command.clone().prop_map(Happening::Intend),
        1 => command.clone().prop_map(Happening::NotDone),
        2 => command.clone().prop_map(Happening::Acknowledge),
        1 => command.prop_map(Happening::SettleBelow),
        2 => Just(Happening::Reconnect),
        1 => Just(Happening::Disconnect),
        2 => any::<bool>().prop_map(|new_boot| Happening::Restart { new_boot }),
    ];
    let crash = prop_oneof![
        Just(CrashBefore::Save),
        Just(CrashBefore::Send),
        Just(CrashBefore::Start),
        Just(CrashBefore::Intend)
    ];
    prop::collection::vec((happening, prop::option::weighted(0.15, crash)), 0..60)
}

fn kind_of(command: u64) -> &'static str {
    ["safe", "plain", "reboot"][usize::try_from(command % 3).expect("small")]
}

/// A node and what the world saw of it.
struct Simulation {
    disk: Vec<Record>,
    core: Core,
    boot: u32,
    epoch: u64,
    running: BTreeSet<CommandId>,
    starts: BTreeMap<CommandId, u32>,
    /// Those whose reboot this process carries out.
    ending: BTreeSet<CommandId>,
    /// Those whose reboot was ever carried out.
    carried_out: BTreeSet<CommandId>,
    /// What was said of each command when it was over.
    ends: BTreeMap<CommandId, Update>,
    /// What was said to be over on this session.
    said: BTreeSet<CommandId>,
    /// Results that the control plane has durably.
    settled: BTreeSet<CommandId>,
    settled_below: u64,
}

impl Simulation {
    fn new() -> Self {
        let (core, _) = Core::restart(identity(0), 5, Book::default(), 0);
        Self {
            disk: Vec::new(),
            core,
            boot: 0,
            epoch: 0,
            running: BTreeSet::new(),
            starts: BTreeMap::new(),
            ending: BTreeSet::new(),
            carried_out: BTreeSet::new(),
            ends: BTreeMap::new(),
            said: BTreeSet::new(),
            settled: BTreeSet::new(),
            settled_below: 1,
        }
    }

    fn book(&self) -> Book {
        Book::read(self.disk.clone()).expect("the disk is in order")
    }

    fn carry_out(&mut self, step: Step, crash: Option<CrashBefore>) {
        if crash == Some(CrashBefore::Save) {
            return self.restart(false);
        }
        self.disk.extend(step.save);
        let book = self.book();
        if crash == Some(CrashBefore::Send) {
            return self.restart(false);
        }
        for frame in step.send {
            match frame {
                Frame::Ack(command) => assert!(book.find(command).is_some(), "acknowledged and not saved"),
                Frame::Update(update) if update.report.is_terminal() => {
                    let saved = book.find(update.command).and_then(|entry| entry.update.clone());
                    assert_eq!(saved.as_ref(), Some(&update), "said and not saved");
                    let first = self.ends.entry(update.command).or_insert_with(|| update.clone());
                    assert_eq!(*first, update, "two answers");
                    let entry = book.find(update.command).expect("it was just read");
                    let is_asked = entry.intended.is_some() && update.report == Report::Succeeded;
                    assert!(!is_asked, "promise 1: {update:?} is said before the boot");
                    self.said.insert(update.command);
                }
                Frame::Update(_) | Frame::Denied(_) | Frame::SpecWanted(_) => {}
            }
        }
        if crash == Some(CrashBefore::Start) {
            return self.restart(false);
        }
        for start in step.start {
            let command = start.deliver.command;
            let entry = book.find(command).expect("started and not saved");
            assert_eq!(entry.attempt, start.attempt);
            assert!(!entry.cancel_requested && entry.update.is_none(), "started after it was called off or over");
            assert!(!self.ends.contains_key(&command), "started after its end was said");
            assert!(self.running.insert(command), "two runs at once");
            assert!(self.ending.is_empty(), "a run starts that the reboot would cut off");
            let starts = self.starts.entry(command).or_default();
            *starts += 1;
            assert!(*starts == 1 || start.deliver.kind == "safe", "promise 2: {command} starts again");
        }
        for command in step.cancel {
            assert!(self.running.contains(&command));
        }
        if crash == Some(CrashBefore::Intend) {
            return self.restart(false);
        }
        for (command, _) in step.intend {
            let entry = book.find(command).expect("carried out and not saved");
            assert!(entry.intended.is_some() && entry.update.is_none() && !entry.cancel_requested, "{entry:?}");
            assert!(!self.ends.contains_key(&command), "carried out after its end was said");
            assert!(self.ending.is_empty(), "the process ends twice");
            assert!(self.carried_out.insert(command), "promise 1: {command} is carried out again");
            self.ending.insert(command);
        }
    }

    /// The process ends, with everything that it had not saved.
    fn restart(&mut self, new_boot: bool) {
        self.running.clear();
        self.ending.clear();
        self.boot += u32::from(new_boot);
        let (core, step) = Core::restart(identity(self.boot), 5, self.book(), 1_000);
        self.core = core;
        self.carry_out(step, None);
    }

    fn input(&mut self, input: Input, crash: Option<CrashBefore>) {
        let step = self.core.on(input, &WORLD);
        self.carry_out(step, crash);
    }

    fn happen(&mut self, happening: Happening, crash: Option<CrashBefore>) {
        let epoch = self.epoch;
        match happening {
            Happening::Deliver(command) => self.input(delivered(epoch, deliver(command, kind_of(command))), crash),
            Happening::Cancel(command) => {
                self.input(Input::CancelReceived { epoch, command: id(command), signature: None }, crash);
            }
            Happening::Finish(command) => {
                if self.running.remove(&id(command)) {
                    self.input(succeeded(id(command)), crash);
                }
            }
            Happening::Intend(command) => {
                if self.running.remove(&id(command)) {
                    let intent = Intent::Reboot { reason: String::new() };
                    let result = b"{}".to_vec();
                    self.input(Input::RunIntends { command: id(command), intent, result }, crash);
                }
            }
            Happening::NotDone(command) => {
                if self.ending.remove(&id(command)) {
                    let (report, reason) = (Report::Failed, "reboot-refused".into());
                    self.input(Input::RunFinished { command: id(command), report, reason, result: vec![] }, crash);
                }
            }
            Happening::Acknowledge(command) if self.ends.contains_key(&id(command)) => {
                self.settled.insert(id(command));
                let settled_below_seq = self.settled_below;
                self.input(Input::UpdateAcked { epoch, commands: vec![id(command)], settled_below_seq }, crash);
            }
            Happening::Acknowledge(_) => {}
            Happening::SettleBelow(seq) => {
                let settled = (1..seq).all(|command| self.settled.contains(&id(command)));
                if settled && seq > self.settled_below {
                    self.settled_below = seq;
                    self.input(Input::UpdateAcked { epoch, commands: vec![], settled_below_seq: seq }, crash);
                }
            }
            Happening::Reconnect => {
                self.epoch += 1;
                let opened = Input::SessionOpened { epoch: self.epoch, settled_below_seq: self.settled_below };
                self.input(opened, crash);
            }
            Happening::Disconnect => self.input(Input::SessionClosed { epoch }, crash),
            Happening::Restart { new_boot } => self.restart(new_boot),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn promise_02_over_all_crash_points_nothing_runs_or_reboots_twice_and_no_result_is_lost(story in happenings()) {
        let mut simulation = Simulation::new();
        for (happening, crash) in story {
            simulation.happen(happening, crash);
        }
        // A reboot that is under way comes.
        if !simulation.ending.is_empty() {
            simulation.happen(Happening::Restart { new_boot: true }, None);
        }
        // In the end all is delivered again, the runs end, and a session comes up: every result that is not acknowledged is
        // said on it.
        simulation.happen(Happening::Reconnect, None);
        for command in 1..=COMMANDS {
            simulation.happen(Happening::Deliver(command), None);
            simulation.happen(Happening::Finish(command), None);
        }
        simulation.said.clear();
        simulation.happen(Happening::Reconnect, None);
        for entry in simulation.book().into_entries() {
            // A reboot that came is settled by the control plane.
            let rebooted = entry.deliver.kind == "reboot" && entry.update.is_none();
            // What is settled for good needs no further word, and is kept until it can come no more.
            let settled = entry.acknowledged || entry.deliver.seq < simulation.settled_below;
            let said = settled || simulation.said.contains(&entry.deliver.command);
            prop_assert!(rebooted || said, "no end is said of {entry:?}");
        }
    }
}

/// A gateway says that a command is settled for good, and delivers it once more: with the same words, at the same time, or with
/// its clock turned back.
#[test]
fn promise_02_a_replayed_command_does_not_run_again() {
    let (mut core, mut journal) = open();
    journal.extend(core.on(delivered(1, deliver(1, "plain")), &WORLD).save);
    journal.extend(core.on(succeeded(id(1)), &WORLD).save);
    let settled = || Input::UpdateAcked { epoch: 1, commands: vec![id(1)], settled_below_seq: 9 };
    journal.extend(core.on(settled(), &WORLD).save);
    let replay = |epoch| delivered(epoch, Deliver { seq: 20, ..deliver(1, "plain") });
    assert_eq!(core.on(replay(1), &WORLD).start, [], "its time is not over, so it is known");
    let late = World { now_ms: 1_000_000, ..WORLD };
    journal.extend(core.on(Input::Tick, &late).save);
    let step = core.on(replay(1), &WORLD);
    assert_eq!((reports(&step), step.start.len()), (vec![(Report::Rejected, "EXPIRED")], 0));
    // A restart takes nothing of that away.
    let (mut core, _) = Core::restart(identity(1), 5, Book::read(journal).expect("in order"), 1_000);
    let _ = core.on(Input::SessionOpened { epoch: 2, settled_below_seq: 1 }, &WORLD);
    assert_eq!(core.on(replay(2), &WORLD).start, []);
}
