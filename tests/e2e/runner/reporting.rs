//! Programs that report by themselves.

use serde_json::json;

use super::ending;
use super::gateway::Gateway;

#[tokio::test(flavor = "multi_thread")]
async fn a_device_code_is_shown_before_the_end_and_the_reported_end_counts() {
    let mut gateway = Gateway::start().await;
    let _runner = gateway.runner("one", &["--concurrency", "4"]);
    for (way, expected) in [
        ("good", ending("done", Some(0), "")),
        ("bad", ending("failed", Some(4), "access denied")),
        ("twice", ending("done", Some(0), "")),
    ] {
        let go = gateway.word(way);
        let command = gateway.queue("auth_device", json!({ "file": go, "way": way })).await;
        let shown = gateway.output(&command, |text| text.contains("code ABCD-1234")).await;
        assert_eq!(shown, "code ABCD-1234\n");
        assert_eq!(gateway.cluster.api.get(&command).await.state, "running", "{way}");
        std::fs::write(&go, "").expect("a file");
        let over = gateway.over(&command).await;
        assert_eq!(over.ending(), expected, "{way}");
        assert!(over.text("stdout").starts_with("code ABCD-1234\n"), "the result has it too: {}", over.text("stdout"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_say_how_it_ended_has_failed() {
    let mut gateway = Gateway::start().await;
    let _runner = gateway.runner("one", &[]);
    let command = gateway.queue("auth_device", json!({ "file": "x", "way": "silent" })).await;
    assert_eq!(gateway.over(&command).await.ending(), ending("failed", Some(0), "no-report"));
}
