//! `metal.bmc.power`, `metal.bmc.sensors` and `metal.boot.set` against a BMC with the quirks of real ones.

use std::time::Duration;

use bc_runtime::effect::State;
use bc_runtime::{Mode, Outcome, Run};
use bc_tests::bmc::{Bmc, Quirks};
use bc_tests::programs;
use serde_json::{Value, json};

use super::remote::{CREDENTIALS, code, plan, result, run, run_of};

fn power(bmc: &Bmc, action: &str) -> Value {
    json!({ "bmc": bmc.origin(), "action": action, "secretRefs": { "credentials": "bmc" } })
}

fn boot(bmc: &Bmc, more: &Value) -> Value {
    let mut payload = json!({ "bmc": bmc.origin(), "target": "Pxe" });
    payload.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    payload
}

#[tokio::test]
async fn a_machine_is_switched_on_when_its_bmc_reports_it() {
    let quirks = Quirks {
        transition_looks: 2,
        tasks: true,
        refuses_version_on_actions: true,
        credentials: Some(CREDENTIALS.into()),
        ..Quirks::default()
    };
    let bmc = Bmc::start("Off", quirks).await;
    let report = run("metal.bmc.power", &[bmc.origin()], power(&bmc, "On")).await;
    let result = result(&report);
    assert_eq!((result["verified"].as_str(), result["after"].as_str()), (Some("state"), Some("On")));
    assert_eq!((bmc.power(), bmc.count("POST")), ("On", 1));
    let effects: Vec<_> = report.effects.iter().map(|effect| effect.name.as_str()).collect();
    assert_eq!(effects, ["http.request"]);
}

#[tokio::test]
async fn a_restart_is_seen_and_a_state_that_is_there_is_not_asked_for() {
    let bmc = Bmc::start("On", Quirks::default()).await;
    let report = run("metal.bmc.power", &[bmc.origin()], power(&bmc, "ForceRestart")).await;
    assert_eq!(result(&report)["verified"], "power-cycle");
    let report = run("metal.bmc.power", &[bmc.origin()], power(&bmc, "On")).await;
    assert_eq!(result(&report)["verified"], "already-so");
    assert_eq!(bmc.count("POST"), 1);
}

#[tokio::test]
async fn a_bmc_that_says_yes_and_does_nothing_is_found_out() {
    let bmc = Bmc::start("Off", Quirks { lies: true, ..Quirks::default() }).await;
    let (kind, run) = run_of("metal.bmc.power", &[bmc.origin()], power(&bmc, "On"));
    let report = kind.run(Run { timeout: Some(Duration::from_secs(8)), ..run }).await;
    assert_eq!(code(&report), "state-not-reached");
    let report = super::remote::run("metal.boot.set", &[bmc.origin()], boot(&bmc, &json!({}))).await;
    assert_eq!(code(&report), "not-kept");
}

#[tokio::test]
async fn a_bmc_that_never_answers_an_action_leaves_it_ambiguous_and_it_is_not_sent_twice() {
    let bmc = Bmc::start("Off", Quirks { hangs_on_actions: true, lies: true, ..Quirks::default() }).await;
    let (kind, run) = run_of("metal.bmc.power", &[bmc.origin()], power(&bmc, "On"));
    let report = kind.run(Run { timeout: Some(Duration::from_secs(3)), ..run }).await;
    assert!(matches!(report.outcome, Outcome::Deadline { .. }), "{}", report.outcome);
    assert_eq!(report.effects[0].state, State::Ambiguous);
    assert_eq!(bmc.count("POST"), 1);
}

#[tokio::test]
async fn bodies_that_are_cut_or_endless_end_in_a_failure_and_not_in_memory() {
    let bmc = Bmc::start("On", Quirks { cuts_bodies: true, ..Quirks::default() }).await;
    let report = run("metal.bmc.sensors", &[bmc.origin()], json!({ "bmc": bmc.origin() })).await;
    assert_eq!(code(&report), "bmc-no-answer");
    let bmc = Bmc::start("On", Quirks { endless: true, ..Quirks::default() }).await;
    let report = run("metal.bmc.sensors", &[bmc.origin()], json!({ "bmc": bmc.origin() })).await;
    assert_eq!(code(&report), "not-redfish");
    let report = run("metal.bmc.sensors", &["http://127.0.0.1:1"], json!({ "bmc": "http://127.0.0.1:1" })).await;
    assert_eq!(code(&report), "bmc-unreachable");
}

#[tokio::test]
async fn promise_22_a_bmc_that_the_policy_does_not_name_is_not_asked() {
    let bmc = Bmc::start("On", Quirks::default()).await;
    let report = run("metal.bmc.power", &["https://bmc-*.example"], power(&bmc, "ForceOff")).await;
    let Outcome::Denied { message } = &report.outcome else { panic!("{}", report.outcome) };
    assert!(message.contains(bmc.origin()) && message.contains("this node's policy does not allow"), "{message}");
    assert_eq!(bmc.seen().len(), 0);
    let other = json!({ "bmc": bmc.origin(), "action": "ForceOff", "secretRefs": { "credentials": "vault-root" } });
    let report = run("metal.bmc.power", &[bmc.origin()], other).await;
    assert!(matches!(report.outcome, Outcome::Denied { .. }), "{}", report.outcome);
    assert_eq!(bmc.seen().len(), 0);
}

#[tokio::test]
async fn a_plan_asks_and_changes_nothing_and_lists_the_whole_request() {
    let bmc = Bmc::start("On", Quirks::default()).await;
    let report = plan("metal.bmc.power", &[bmc.origin()], power(&bmc, "ForceOff")).await;
    assert_eq!(result(&report)["verified"], "planned");
    assert_eq!((bmc.power(), bmc.count("POST")), ("On", 0));
    let args = &report.effects[0].args;
    assert_eq!(args["method"], "POST");
    assert_eq!(args["url"], format!("{}/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", bmc.origin()));
    assert_eq!((&args["body"]["text"], &args["credentials"]), (&json!("{\"ResetType\":\"ForceOff\"}"), &json!("bmc")));
}

#[tokio::test]
async fn credentials_and_cookies_are_in_no_transcript_and_the_run_replays_without_the_bmc() {
    let quirks = Quirks { credentials: Some(CREDENTIALS.into()), echoes_credentials: true, ..Quirks::default() };
    let bmc = Bmc::start("Off", quirks).await;
    let report = run("metal.bmc.power", &[bmc.origin()], power(&bmc, "On")).await;
    let first = result(&report).clone();
    assert_eq!(first["verified"], "state");
    let transcript = report.transcript.expect("it was recorded");
    let text = serde_json::to_string(&transcript).expect("JSON");
    assert!(text.contains("you are [secret bmc]"), "the echo was seen and taken out");
    for secret in ["correct-horse", "b3BlcmF0b3I6Y29ycmVjd", "very-secret"] {
        assert!(!text.contains(secret), "{secret}");
    }
    let asked = bmc.seen().len();
    let (kind, run) = run_of("metal.bmc.power", &[bmc.origin()], power(&bmc, "On"));
    let replayed = kind.run(Run { mode: Mode::Replay(transcript), ..run }).await;
    assert_eq!(result(&replayed), &first);
    assert_eq!(bmc.seen().len(), asked, "nothing was asked again");
}

#[tokio::test]
async fn a_boot_override_is_set_whatever_the_bmc_wants_to_hear() {
    for (quirks, more, notes) in [
        (Quirks::default(), json!({}), 0),
        (Quirks { wants_version: true, ..Quirks::default() }, json!({}), 0),
        (Quirks { wants_mode: true, ..Quirks::default() }, json!({}), 1),
        (Quirks { refuses_mode: true, ..Quirks::default() }, json!({ "mode": "UEFI" }), 1),
    ] {
        let bmc = Bmc::start("On", quirks.clone()).await;
        let report = run("metal.boot.set", &[bmc.origin()], boot(&bmc, &more)).await;
        let result = result(&report);
        assert_eq!((&result["target"], &result["enabled"]), (&json!("Pxe"), &json!("Once")), "{quirks:?}");
        assert_eq!(result["notes"].as_array().map(Vec::len), Some(notes), "{quirks:?}: {result}");
    }
    let bmc = Bmc::start("On", Quirks { consumes_once: true, ..Quirks::default() }).await;
    let report = run("metal.boot.set", &[bmc.origin()], boot(&bmc, &json!({}))).await;
    assert_eq!(code(&report), "not-kept");
    let report = run("metal.boot.set", &[bmc.origin()], boot(&bmc, &json!({ "target": "UefiHttp" }))).await;
    assert_eq!(code(&report), "not-supported");
}

#[tokio::test]
async fn a_reading_that_is_missing_could_not_be_known() {
    let bmc = Bmc::start("On", Quirks::default()).await;
    let report = run("metal.bmc.sensors", &[bmc.origin()], json!({ "bmc": bmc.origin() })).await;
    let readings = result(&report)["readings"].as_array().expect("a list").clone();
    let seen: Vec<_> =
        readings.iter().map(|it| (it["name"].clone(), it["value"].clone(), it["standing"].clone())).collect();
    assert_eq!(
        seen,
        [
            (json!("Inlet"), json!(24.0), json!("ok")),
            (json!("CPU 1"), Value::Null, json!("unknown")),
            (json!("Fan 1"), json!(9000.0), json!("critical")),
        ]
    );
    assert!(report.effects.is_empty(), "it changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_22_a_site_node_loads_them_where_its_policy_names_the_bmcs() {
    let bmc = Bmc::start("Off", Quirks::default()).await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("bcd.toml");
    let payload = json!({ "bmc": bmc.origin(), "action": "On" }).to_string();
    let run = || {
        let mut bcd = programs::command("bcd");
        bcd.args(["kind", "run", "--payload", &payload, "--config"])
            .arg(&config)
            .arg(programs::kind("metal.bmc.power"));
        let said = programs::run(&mut bcd);
        let report = serde_json::from_str::<Value>(&said.out);
        (report.unwrap_or_else(|error| panic!("no report: {error}: {said:?}")), said.code)
    };
    let site = |more: &str| std::fs::write(&config, format!("role = 'site'\n{more}")).expect("a file");
    site("");
    assert_eq!(run().1, Some(3), "nothing is granted");
    site("[grants.'metal.bmc.power'.http]\norigins = ['https://bmc-*.example']\nwrite = true\n");
    assert_eq!(run().0["outcome"], "denied");
    assert_eq!((bmc.power(), bmc.seen().len()), ("Off", 0));
    site(&format!("[grants.'metal.bmc.power'.http]\norigins = ['{}']\nwrite = true\n", bmc.origin()));
    assert_eq!((run().0["outcome"].clone(), bmc.power()), (json!("succeeded"), "On"));
}
