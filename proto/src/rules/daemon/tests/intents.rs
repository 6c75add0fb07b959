//! What a run asks for that ends the daemon.

use super::super::intent::HOLD_MS;
use super::*;

const RUN: &[u8] = br#"{"asked":true}"#;

fn reboots() -> Intent {
    Intent::Reboot { reason: "a test".into() }
}

fn switches() -> Intent {
    Intent::Switch { version: "2.0.0".into() }
}

fn intends(seq: u64, intent: Intent) -> Input {
    Input::RunIntends { command: id(seq), intent, result: RUN.to_vec() }
}

fn refused(seq: u64, code: &str) -> Input {
    let result = br#"{"outcome":"inhibited"}"#.to_vec();
    Input::RunFinished { command: id(seq), report: Report::Failed, reason: code.into(), result }
}

fn calls_off(seq: u64) -> Input {
    Input::CancelReceived { epoch: 1, command: id(seq), signature: None }
}

/// A core in which command 1 runs and has asked for this, and its journal.
fn asked(intent: Intent) -> (Core, Vec<Record>, Step) {
    let (mut core, mut journal) = open();
    journal.extend(core.on(delivered(1, deliver(1, "reboot")), &WORLD).save);
    let step = core.on(intends(1, intent), &WORLD);
    journal.extend(step.save.clone());
    (core, journal, step)
}

fn restarted(identity: Identity, journal: &[Record]) -> (Core, Step) {
    Core::restart(identity, 5, Book::read(journal.to_vec()).expect("in order"), 2_000)
}

fn ended(step: &Step) -> &Update {
    let [Record::Finished { update }] = &step.save[..] else { panic!("it has an end: {step:?}") };
    update
}

#[test]
fn promise_01_a_reboot_is_saved_before_it_is_carried_out_and_nothing_is_reported_before_the_next_boot() {
    let (mut core, journal, step) = asked(reboots());
    assert!(matches!(&step.save[..], [Record::Intended { .. }]), "{step:?}");
    assert_eq!(step.intend, [(id(1), reboots())]);
    assert_eq!((step.send, step.start), (vec![], vec![]));
    assert_eq!(core.outstanding(), 0, "a daemon that is told to stop has nothing to wait for");
    assert_eq!(core.on(intends(1, reboots()), &WORLD), Step::default(), "once");
    assert_eq!(reports(&core.on(delivered(1, deliver(1, "reboot")), &WORLD)), [(Report::Running, "")]);
    for boot in [1, 2] {
        let (mut core, step) = restarted(identity(boot), &journal);
        assert_eq!(step, Step::default(), "nobody repeats it, and the control plane settles it");
        let opened = core.on(Input::SessionOpened { epoch: 2, settled_below_seq: 1 }, &WORLD);
        assert_eq!(opened, Step::default());
        let again = core.on(delivered(2, deliver(1, "reboot")), &WORLD);
        assert_eq!(again, Step { send: vec![Frame::Ack(id(1))], ..Step::default() }, "boot {boot}");
        assert_eq!(core.on(delivered(2, deliver(2, "plain")), &WORLD).start.len(), 1, "the node serves");
    }
}

#[test]
fn promise_01_what_could_not_be_carried_out_fails_and_stays_failed() {
    let (mut core, mut journal, _) = asked(reboots());
    let step = core.on(refused(1, "inhibited"), &WORLD);
    assert_eq!((reports(&step), step.intend.len()), (vec![(Report::Failed, "inhibited")], 0));
    assert_eq!(ended(&step).result, br#"{"outcome":"inhibited"}"#);
    journal.extend(step.save.clone());
    assert_eq!(core.on(delivered(1, deliver(2, "plain")), &WORLD).start.len(), 1, "the node serves");
    let (mut core, nothing) = restarted(identity(1), &journal);
    assert_eq!(nothing, Step::default());
    assert_eq!(core.on(Input::SessionOpened { epoch: 2, settled_below_seq: 1 }, &WORLD).send, step.send);
}

#[test]
fn promise_13_a_cancel_before_the_intent_wins_and_after_it_has_no_effect() {
    let (mut core, mut journal) = open();
    journal.extend(core.on(delivered(1, deliver(1, "reboot")), &WORLD).save);
    journal.extend(core.on(calls_off(1), &WORLD).save);
    let step = core.on(intends(1, reboots()), &WORLD);
    assert_eq!((reports(&step), step.intend.len()), (vec![(Report::Cancelled, "cancelled")], 0));
    let result: serde_json::Value = serde_json::from_slice(&ended(&step).result).expect("JSON");
    assert_eq!(result["result"], json!({ "asked": true }), "what the run had done by then is not hidden");

    let (mut core, journal, _) = asked(reboots());
    let step = core.on(calls_off(1), &WORLD);
    assert_eq!((reports(&step), step.save.len(), step.cancel.len()), (vec![(Report::Running, "")], 0, 0));
    let (mut core, step) = restarted(identity(1), &journal);
    assert_eq!(step, Step::default());
    let _ = core.on(Input::SessionOpened { epoch: 1, settled_below_seq: 1 }, &WORLD);
    assert_eq!(core.on(calls_off(1), &WORLD).save, [], "it may still come");
}

#[test]
fn nothing_starts_while_the_daemon_is_about_to_end_and_not_for_ever() {
    let (mut core, journal) = open();
    let mut journal = journal;
    journal.extend(core.on(delivered(1, deliver(3, "safe")), &WORLD).save);
    // The one that a restart cut off does not begin again either.
    let (mut core, _) = restarted(identity(1), &journal);
    let _ = core.on(Input::SessionOpened { epoch: 1, settled_below_seq: 1 }, &WORLD);
    let _ = core.on(delivered(1, deliver(1, "reboot")), &WORLD);
    let waits = Deliver { min_generation: Some(6), ..deliver(4, "safe") };
    assert_eq!(core.on(delivered(1, waits), &WORLD).send, [Frame::SpecWanted(6)]);
    assert_eq!(core.on(intends(1, reboots()), &WORLD).intend.len(), 1);

    let busy = core.on(delivered(1, deliver(2, "plain")), &WORLD);
    assert_eq!((reports(&busy), busy.save.len(), busy.start.len()), (vec![(Report::Busy, "BUSY")], 0, 0));
    let again = core.on(delivered(1, deliver(3, "safe")), &WORLD);
    assert_eq!((again.send, again.start), (vec![Frame::Ack(id(3))], vec![]));
    let applied = core.on(Input::SpecApplied { generation: 6 }, &WORLD);
    assert_eq!((reports(&applied), applied.start.len()), (vec![(Report::Busy, "BUSY")], 0));

    let last = World { now_ms: WORLD.now_ms + HOLD_MS - 1, ..WORLD };
    assert_eq!(core.on(delivered(1, deliver(2, "plain")), &last).start, []);
    let late = World { now_ms: WORLD.now_ms + HOLD_MS, ..WORLD };
    for (seq, kind) in [(2, "plain"), (3, "safe"), (4, "safe")] {
        assert_eq!(core.on(delivered(1, deliver(seq, kind)), &late).start.len(), 1, "it did not come: {seq}");
    }
    // That a new session says it is settled for good ends it as well.
    let (mut core, _, _) = asked(reboots());
    assert_eq!(core.on(delivered(1, deliver(2, "plain")), &WORLD).start, []);
    let _ = core.on(Input::SessionOpened { epoch: 2, settled_below_seq: 2 }, &WORLD);
    assert_eq!(core.on(delivered(2, deliver(2, "plain")), &WORLD).start.len(), 1);
    assert_eq!(core.on(refused(1, "inhibited"), &WORLD), Step::default(), "too late for an end of its own");
}

#[test]
fn promise_01_of_two_that_ask_one_is_carried_out() {
    let (mut core, _) = open();
    for seq in [1, 2, 3] {
        let kind = if seq == 3 { "plain" } else { "reboot" };
        assert_eq!(core.on(delivered(1, deliver(seq, kind)), &WORLD).start.len(), 1);
    }
    let step = core.on(intends(3, reboots()), &WORLD);
    assert_eq!((reports(&step), step.intend.len()), (vec![(Report::Failed, "not-self-terminating")], 0));
    assert_eq!(core.on(intends(1, reboots()), &WORLD).intend.len(), 1);
    let step = core.on(intends(2, reboots()), &WORLD);
    assert_eq!((reports(&step), step.intend.len()), (vec![(Report::Failed, "already-ending")], 0));
    assert!(String::from_utf8_lossy(&ended(&step).result).contains(&id(1).to_string()), "it names the first: {step:?}");
}

#[test]
fn promise_03_the_version_that_was_asked_for_says_the_result_and_any_other_that_it_is_not_the_one() {
    let (_, journal, step) = asked(switches());
    assert_eq!(step.intend, [(id(1), switches())]);
    // In whichever boot: the machine may have been rebooted meanwhile.
    for boot in [1, 2] {
        let (mut core, step) = restarted(Identity { version: "2.0.0".into(), ..identity(boot) }, &journal);
        let update = ended(&step);
        assert_eq!((update.report, update.reason.as_str(), update.result.as_slice()), (Report::Succeeded, "", RUN));
        let opened = core.on(Input::SessionOpened { epoch: 2, settled_below_seq: 1 }, &WORLD);
        assert_eq!(opened.send, [Frame::Update(update.clone())]);
        let (_, step) = restarted(identity(boot), &journal);
        assert_eq!((ended(&step).report, ended(&step).reason.as_str()), (Report::Failed, "rolled-back"));
    }
}
