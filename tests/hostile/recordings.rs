//! Transcripts and replays.

use bc_runtime::transcript::Transcript;
use bc_runtime::{Mode, Outcome, Run};
use bc_tests::node::{Node, SECRET};
use serde_json::json;

use crate::{HOSTILE, report, run};

async fn recorded(mode: &str) -> (Outcome, Transcript) {
    let report = report(mode).await;
    (report.outcome, report.transcript.expect("it was to be recorded"))
}

/// Replays it on a node that counts what reaches it: nothing may.
async fn replayed(mode: &str, transcript: Transcript) -> Outcome {
    let node = Node::quiet();
    let run = Run { mode: Mode::Replay(transcript), capabilities: node.capabilities(), ..run(mode) };
    let report = HOSTILE.run(run).await;
    assert_eq!(node.calls(), [""; 0], "a replay touches nothing");
    report.outcome
}

#[tokio::test]
async fn a_replay_gives_the_same_result_and_touches_nothing() {
    for mode in ["nvml", "effects", "fail", "secret"] {
        let (outcome, transcript) = recorded(mode).await;
        let stored = serde_json::to_string(&transcript).expect("it is JSON");
        let transcript = serde_json::from_str(&stored).expect("it is what was written");
        let again = replayed(mode, transcript).await;
        match mode {
            // The length of what stands for the secret.
            "secret" => assert_eq!(again, Outcome::Succeeded { result: json!({ "bytes": "[redacted]".len() }) }),
            _ => assert_eq!(again, outcome),
        }
    }
}

#[tokio::test]
async fn a_run_that_does_something_else_than_the_recorded_one_diverges() {
    let (_, transcript) = recorded("effects").await;
    let Outcome::Diverged { message } = replayed("nvml", transcript.clone()).await else { panic!("another call") };
    assert_eq!(message, "it calls nvml.driver where the recorded run called gpus.reset");

    let mut other = transcript.clone();
    other.calls[1].args["reason"] = json!("another");
    let Outcome::Diverged { message } = replayed("effects", other).await else { panic!("another argument") };
    assert!(message.starts_with("it calls system.reboot with {\"reason\":\"hostile guest was told to\"}"), "{message}");

    let mut short = transcript.clone();
    short.calls.pop();
    let Outcome::Diverged { message } = replayed("effects", short).await else { panic!("a call more") };
    assert_eq!(message, "it calls system.reboot where the recorded run had ended");

    let mut strange = transcript;
    strange.calls[0].answer = json!("nonsense");
    let Outcome::Diverged { message } = replayed("effects", strange).await else { panic!("no such answer") };
    assert!(message.starts_with("gpus.reset's recorded answer: "), "{message}");
}

#[tokio::test]
async fn a_transcript_holds_no_secret() {
    let (outcome, transcript) = recorded("secret").await;
    assert_eq!(outcome, Outcome::Succeeded { result: json!({ "bytes": SECRET.len() }) }, "the guest did see it");
    assert_eq!(transcript.calls[0].call, "secrets.get");
    assert_eq!(transcript.calls[0].answer, json!({ "Ok": "[redacted]" }));
    assert!(!serde_json::to_string(&transcript).expect("it is JSON").contains(SECRET));
}

#[tokio::test]
async fn a_flood_of_calls_fills_the_recording_and_the_rest_is_counted() {
    let flood = HOSTILE.run(run("flood-calls")).await;
    assert_eq!(flood.outcome, Outcome::Cpu { limit_ms: 1000 });
    let transcript = flood.transcript.expect("it was to be recorded");
    let recorded = transcript.calls.len() as u64;
    // All but the call that the CPU budget ended, if it ended in one.
    let counted = transcript.unrecorded_calls + recorded;
    assert!((counted..=counted + 1).contains(&flood.host_calls), "{counted} of {}", flood.host_calls);
    assert!(transcript.unrecorded_calls > 0);
    let bytes = serde_json::to_string(&transcript).expect("it is JSON").len();
    assert!(bytes <= 4 << 20, "{bytes} bytes for {recorded} calls");

    let Outcome::Diverged { message } = replayed("flood-calls", transcript).await else { panic!("it has an end") };
    assert!(message.ends_with("calls were not recorded, clock.now-ms is the first"), "{message}");
}
