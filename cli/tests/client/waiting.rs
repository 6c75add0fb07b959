//! Waiting for commands.

use std::time::Duration;

use bc_host::api::types::CommandRef;
use bc_proto::rules::state::State;
use better_compute::client::CallError;
use better_compute::commands::follow::{Followed, Pace, follow};
use better_compute::commands::progress::Progress;
use better_compute::exit::{Ending, code};
use serde_json::{Value, json};

use crate::fake::{COMMAND, Fake, NODE, Stream, command, refusal};

const PACE: Pace = Pace { poll: Duration::from_millis(10), lost_after: Duration::from_millis(50), wait: None };

async fn wait(fake: &Fake, pace: Pace, interrupt: impl Future<Output = ()>) -> Followed {
    let reference = CommandRef { tenant_id: "tenant_1".into(), node_id: NODE.into(), command_id: COMMAND.into() };
    follow(fake.client(), &reference, None, pace, &mut Progress::silent(), interrupt).await
}

/// Goes through the states, one at each look, and stays at the last.
fn looks(states: &'static [&'static str]) -> impl Fn(&str, &Value, usize) -> (u16, Value) + Send + Sync + 'static {
    move |_, _, before| (200, command(states[before.min(states.len() - 1)], json!({})))
}

#[tokio::test]
async fn promise_20_a_wait_ends_although_every_event_is_lost() {
    for stream in [Stream::Silent, Stream::Refused, Stream::Cut] {
        let fake = Fake::start(stream, looks(&["pending", "acked", "running", "succeeded"])).await;
        let followed = wait(&fake, PACE, std::future::pending()).await;
        assert_eq!(followed.ending, Ending::Stands(State::Succeeded), "{stream:?}");
        assert_eq!(fake.calls("commands.get").len(), 4, "{stream:?}");
    }
}

#[tokio::test]
async fn contact_that_is_lost_for_a_moment_is_waited_for() {
    let fake = Fake::start(Stream::Silent, |_, _, before| match before {
        0 => (200, command("running", json!({}))),
        1 => (503, refusal("UNAVAILABLE", Value::Null)),
        _ => (200, command("failed", json!({ "reason": "trap" }))),
    });
    let pace = Pace { lost_after: Duration::from_mins(1), ..PACE };
    let followed = wait(&fake.await, pace, std::future::pending()).await;
    assert_eq!(followed.ending, Ending::Stands(State::Failed));
}

#[tokio::test]
async fn promise_10_contact_that_is_lost_for_good_is_an_unknown_outcome() {
    let fake = Fake::start(Stream::Cut, |_, _, before| match before {
        0 => (200, command("running", json!({}))),
        _ => (503, refusal("UNAVAILABLE", Value::Null)),
    });
    let followed = wait(&fake.await, PACE, std::future::pending()).await;
    assert_eq!((followed.ending, code(followed.ending)), (Ending::Unknown, 8));
    assert_eq!(followed.error.as_ref().and_then(CallError::code), Some("UNAVAILABLE"));
    assert_eq!(followed.seen.expect("it was seen").command.state, "running");
}

#[tokio::test]
async fn promise_10_a_refusal_while_waiting_and_a_state_from_the_future_are_unknown_outcomes() {
    let revoked = Fake::start(Stream::Silent, |_, _, _| (401, refusal("UNAUTHENTICATED", Value::Null))).await;
    assert_eq!(wait(&revoked, PACE, std::future::pending()).await.ending, Ending::Unknown);
    let newer = Fake::start(Stream::Silent, looks(&["running", "paused"])).await;
    assert_eq!(wait(&newer, PACE, std::future::pending()).await.ending, Ending::Unknown);
}

#[tokio::test]
async fn a_wait_lasts_no_longer_than_it_is_to() {
    let fake = Fake::start(Stream::Silent, looks(&["running"])).await;
    let pace = Pace { wait: Some(Duration::from_millis(50)), ..PACE };
    assert_eq!(wait(&fake, pace, std::future::pending()).await.ending, Ending::TimedOut);
}

#[tokio::test]
async fn a_command_that_awaits_approval_is_not_waited_for() {
    let held = json!({ "awaitingApproval": true, "batchId": "batch_1" });
    let fake = Fake::start(Stream::Silent, move |_, _, _| (200, command("pending", held.clone()))).await;
    assert_eq!(wait(&fake, PACE, std::future::pending()).await.ending, Ending::AwaitsApproval);
}

#[tokio::test]
async fn whoever_goes_away_cancels_nothing() {
    let fake = Fake::start(Stream::Silent, looks(&["running"])).await;
    let followed = wait(&fake, PACE, fake.called("commands.get")).await;
    assert_eq!(followed.ending, Ending::Interrupted);
    assert_eq!(fake.calls("commands.cancel"), []);
}

#[tokio::test]
async fn only_what_can_be_repeated_is_repeated() {
    for (method, times) in
        [("commands.run", 3), ("commands.get", 3), ("tokens.create", 1), ("nodes.createJoinToken", 1)]
    {
        let fake = Fake::start(Stream::Silent, |_, _, before| {
            if before < 2 { (503, refusal("UNAVAILABLE", Value::Null)) } else { (200, json!({})) }
        })
        .await;
        let answer = fake.patient(3).call::<Value>(method, &json!({})).await;
        assert_eq!((answer.is_ok(), fake.calls(method).len()), (times == 3, times), "{method}");
    }
    let fake = Fake::start(Stream::Silent, |_, _, _| (400, refusal("INVALID_INPUT", Value::Null))).await;
    fake.patient(3).call::<Value>("commands.run", &json!({})).await.expect_err("refused");
    assert_eq!(fake.calls("commands.run").len(), 1, "what is refused is not repeated");
}

#[tokio::test]
async fn what_never_left_this_machine_did_not_happen() {
    let fake = Fake::start(Stream::Silent, |_, _, _| (200, json!({}))).await;
    let client = fake.client();
    drop(fake);
    // The listener closes when its task has ended.
    let error = loop {
        if let Err(error) = client.call::<Value>("commands.run", &json!({})).await
            && matches!(error, CallError::Unreachable { sent: false, .. })
        {
            break error;
        }
        tokio::task::yield_now().await;
    };
    assert!(!error.may_have_happened() && error.is_transient());
    assert!(error.to_string().contains("is the server running?"), "{error}");
}
