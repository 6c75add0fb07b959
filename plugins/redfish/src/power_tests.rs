use super::*;
use crate::scripted::{Scripted, answer};
use crate::{Answer, NoAnswer};

const PATH: &str = "/redfish/v1/Systems/1";

fn root() -> [Answer; 2] {
    [
        answer(200, json!({ "Systems": { "@odata.id": "/redfish/v1/Systems" } })),
        answer(200, json!({ "Members": [{ "@odata.id": PATH }] })),
    ]
}

fn system(state: &Value, more: &Value) -> Answer {
    let mut body = json!({
        "PowerState": state,
        "Actions": { "#ComputerSystem.Reset": {
            "target": format!("{PATH}/Actions/ComputerSystem.Reset"),
            "ResetType@Redfish.AllowableValues": ["ForceOn", "ForceOff", "ForceRestart", "GracefulShutdown"],
        } },
    });
    body.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    answer(200, body)
}

fn script(states: &[Value]) -> Vec<Result<Answer, NoAnswer>> {
    let mut answers: Vec<_> = root().into_iter().map(Ok).collect();
    answers.push(Ok(system(&states[0], &Value::Null)));
    answers.push(Ok(answer(204, Value::Null)));
    answers.extend(states[1..].iter().map(|state| Ok(system(state, &Value::Null))));
    answers
}

fn run(answers: Vec<Result<Answer, NoAnswer>>, action: Action) -> (Result<Done, Problem>, Vec<crate::Request>) {
    let mut bmc = Scripted::of(answers);
    let done = carry_out(&mut Client::new(&mut bmc), None, action);
    (done, bmc.asked)
}

#[test]
fn it_is_on_when_the_bmc_reports_it_and_not_when_it_accepted_it() {
    let (done, asked) = run(script(&[json!("Off"), json!("Off"), json!("PoweringOn"), json!("On")]), Action::On);
    let done = done.expect("it comes on");
    assert_eq!(
        (done.verified, done.before.as_deref(), done.after.as_deref()),
        (Verified::State, Some("Off"), Some("On"))
    );
    assert_eq!(asked[3].body, json!({ "ResetType": "ForceOn" }), "it offers no On");
}

#[test]
fn a_bmc_that_accepts_and_does_nothing_is_found_out() {
    let (done, _) = run(script(&[json!("Off"), json!("Off")]), Action::On);
    assert_eq!(done.expect_err("it stays off").code, "state-not-reached");
    let (done, _) = run(script(&[json!("Off"), Value::Null]), Action::On);
    assert_eq!(done.expect_err("it says nothing").code, "state-unknown");
}

#[test]
fn what_is_so_already_is_not_asked_for() {
    let (done, asked) = run(script(&[json!("Off"), json!("Off")]), Action::GracefulShutdown);
    assert_eq!(done.expect("it is off").verified, Verified::AlreadySo);
    assert!(asked.iter().all(|request| request.method == "GET"));
}

#[test]
fn of_a_restart_it_is_said_what_was_seen() {
    let (done, _) = run(script(&[json!("On"), json!("On"), json!("Off"), json!("On")]), Action::ForceRestart);
    assert_eq!(done.expect("it went off and on").verified, Verified::PowerCycle);
    let (done, _) = run(script(&[json!("On"), json!("On")]), Action::ForceRestart);
    assert_eq!(done.expect("nothing was seen").verified, Verified::AcceptedOnly);
    let mut answers: Vec<_> = root().into_iter().map(Ok).collect();
    answers.push(Ok(system(&json!("On"), &json!({ "LastResetTime": "2026-01-01T00:00:00Z" }))));
    answers.push(Ok(answer(204, Value::Null)));
    answers.push(Ok(system(&json!("On"), &json!({ "LastResetTime": "2026-01-01T00:05:00Z" }))));
    assert_eq!(run(answers, Action::ForceRestart).0.expect("another reset").verified, Verified::Reset);
}

#[test]
fn an_action_without_answer_is_not_repeated_and_its_effect_is_looked_for() {
    let lost = || Err(NoAnswer { code: "timeout".into(), message: "timed out".into() });
    let mut answers = script(&[json!("On"), json!("On"), json!("Off")]);
    answers[3] = lost();
    let (done, asked) = run(answers, Action::ForceOff);
    assert_eq!(done.expect("it went off").verified, Verified::State);
    assert_eq!(asked.iter().filter(|request| request.method == "POST").count(), 1);
    let mut answers = script(&[json!("On"), json!("On")]);
    answers[3] = lost();
    assert_eq!(run(answers, Action::ForceRestart).0.expect_err("nobody knows").code, "restart-unknown");
}

#[test]
fn a_passing_state_is_waited_for_before_anything_is_asked() {
    let mut answers: Vec<_> = root().into_iter().map(Ok).collect();
    answers.push(Ok(system(&json!("PoweringOff"), &Value::Null)));
    answers.push(Ok(system(&json!("Off"), &Value::Null)));
    answers.push(Ok(answer(204, Value::Null)));
    answers.push(Ok(system(&json!("On"), &Value::Null)));
    assert_eq!(run(answers, Action::On).0.expect("it comes on").before.as_deref(), Some("Off"));
}

#[test]
fn what_the_bmc_does_not_offer_is_not_sent() {
    let (done, asked) = run(script(&[json!("On"), json!("On")]), Action::PowerCycle);
    assert_eq!(done.expect_err("not offered").code, "not-supported");
    assert_eq!(asked.len(), 3);
    let (done, _) = run(script(&[json!("Off"), json!("Off")]), Action::ForceRestart);
    assert_eq!(done.expect_err("it is off").code, "system-off");
}
