//! Switches of the daemon's version.

use super::*;

/// A journal in which a run asked for version 2.0.0, and what followed from that.
fn intended() -> Vec<Record> {
    let (mut core, _) = open();
    let mut journal = core.on(delivered(1, deliver(1, "reboot")), &WORLD).save;
    let intent = Intent::Switch { version: "2.0.0".into() };
    let step = core.on(Input::RunIntends { command: id(1), intent, result: b"{\"to\":2}".to_vec() }, &WORLD);
    assert_eq!((reports(&step), step.intend.len()), (vec![], 1), "nothing is said before it is done");
    journal.extend(step.save);
    journal
}

/// The process that comes after, as that version, with session 2 open; and what it said.
fn after(version: &str, on_trial: bool, journal: Vec<Record>) -> (Core, Vec<Record>, Vec<(Report, String)>) {
    let book = Book::read(journal.clone()).expect("in order");
    let who = Identity { version: version.into(), ..identity(1) };
    let (mut core, step) = Core::restart_as(who, on_trial, 5, book, 2_000);
    let mut journal = journal;
    journal.extend(step.save);
    let step = core.on(Input::SessionOpened { epoch: 2, settled_below_seq: 1 }, &WORLD);
    let said = reports(&step).into_iter().map(|(report, reason)| (report, reason.to_owned())).collect();
    (core, journal, said)
}

#[test]
fn a_switch_on_trial_is_settled_by_its_confirmation_and_not_before() {
    let (mut core, journal, said) = after("2.0.0", true, intended());
    assert_eq!(said, [], "it may be rolled back");
    let again = core.on(delivered(2, deliver(1, "reboot")), &WORLD);
    assert_eq!((again.send, again.start.len()), (vec![Frame::Ack(id(1))], 0), "it does not run again");
    // It dies, and is rolled back: nothing of a success was written down.
    let (_, _, said) = after("1.0.0", false, journal);
    assert_eq!(said, [(Report::Failed, "rolled-back".to_owned())]);

    let step = core.on(Input::Confirmed, &WORLD);
    assert_eq!(reports(&step), [(Report::Succeeded, "")]);
    let Frame::Update(update) = &step.send[0] else { panic!("{step:?}") };
    assert_eq!(update.result, b"{\"to\":2}", "the run's own result");
    assert!(matches!(&step.save[..], [Record::Finished { .. }]));
    assert_eq!(core.on(Input::Confirmed, &WORLD), Step::default(), "once");
}

#[test]
fn a_crash_between_the_confirmation_and_its_record_loses_nothing() {
    // The disk says that the version stays, and the journal does not know.
    let (_, _, said) = after("2.0.0", false, intended());
    assert_eq!(said, [(Report::Succeeded, String::new())]);
}

#[test]
fn a_confirmation_settles_nothing_else() {
    let (mut core, _) = open();
    core.on(delivered(1, deliver(1, "plain")), &WORLD).save.clear();
    assert_eq!(core.on(Input::Confirmed, &WORLD), Step::default());
}
