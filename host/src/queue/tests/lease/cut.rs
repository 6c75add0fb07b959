//! Ends by runners that kept no more than both ends of the output, and word of cancels and of what is let go.

use bc_proto::canonical::sha256_hex;
use bc_proto::manifest::Lane;
use bc_proto::rules::lease::{CANCEL_CHANNEL, CHANNEL, OUTPUT_KEPT, Refusal};
use serde_json::{Value, json};
use sqlx::Row as _;
use sqlx::postgres::{PgListener, PgRow};
use sqlx::types::Uuid;

use super::{Gateway, Runner, far, refusal};
use crate::queue::cancel;
use crate::queue::enqueue::NewCommand;
use crate::testing::{at, command};
use crate::trust::Signer;

async fn running(gateway: &Gateway, runner: &mut Runner) -> (Uuid, i64) {
    gateway.enqueue(gateway.fleet.kind(Lane::Control, &[]).await).await;
    let (id, token) = runner.lease().await.expect("one waits");
    runner.start(id, Some(token)).await.expect("it may start");
    (id, token)
}

async fn complete(runner: &mut Runner, id: Uuid, stdout: Option<&Value>, token: i64) -> Result<PgRow, sqlx::Error> {
    let call = sqlx::query("select * from complete_command_cut($1, 0, $2, null, $3)").bind(id).bind(stdout).bind(token);
    call.fetch_one(&mut runner.db).await
}

fn whole(text: &str) -> Value {
    let sha256 = sha256_hex(text.as_bytes());
    json!({ "totalBytes": text.len(), "sha256": sha256, "truncated": false, "lossy": false, "head": text, "tail": "" })
}

fn cut(head: &str, tail: &str, total: u64) -> Value {
    let sha256 = sha256_hex(b"whatever it was");
    json!({ "totalBytes": total, "sha256": sha256, "truncated": true, "lossy": false, "head": head, "tail": tail })
}

#[tokio::test]
async fn promise_05_a_runner_tells_both_ends_and_the_true_totals_of_what_it_never_sent() {
    let gateway = Gateway::new().await;
    let mut runner = gateway.runner().await;
    let (id, token) = running(&gateway, &mut runner).await;
    let told = cut("head é", "tail", 200_000_000);
    for _ in 0..2 {
        let row = complete(&mut runner, id, Some(&told), token).await.expect("the same again changes nothing");
        assert_eq!(row.get::<i64, _>("stdout_bytes"), 200_000_000);
        assert!(row.get::<bool, _>("stdout_truncated") && !row.get::<bool, _>("stdout_lossy"));
        let sha256 = sha256_hex(b"whatever it was");
        let shown = format!("head é\n[... cut: 200000000 bytes in all, SHA-256 {sha256} ...]\ntail");
        assert_eq!((row.get::<String, _>("stdout"), row.get::<String, _>("stderr")), (shown, String::new()));
        assert_eq!(row.get::<String, _>("status"), "done");
    }
    let (id, token) = running(&gateway, &mut runner).await;
    let call = sqlx::query("select * from fail_command_cut($1, 3, $2, $3, 'no', $4)");
    let call = call.bind(id).bind(whole("out")).bind(whole("")).bind(token);
    let row = call.fetch_one(&mut runner.db).await.expect("it is taken");
    assert_eq!((row.get("stdout"), row.get("exit_code"), row.get("error")), ("out", 3, "no"));
    assert_eq!(row.get::<i64, _>("stdout_bytes"), 3);
}

#[tokio::test]
async fn output_that_cannot_have_been_kept_so_is_refused_and_nothing_changes() {
    let gateway = Gateway::new().await;
    let mut runner = gateway.runner().await;
    let (id, token) = running(&gateway, &mut runner).await;
    let with = |base: &Value, name: &str, value: Value| {
        let mut changed = base.clone();
        changed[name] = value;
        changed
    };
    let (good, long) = (whole("abc"), "x".repeat(OUTPUT_KEPT / 2 + 1));
    for (wrong, words) in [
        (json!([]), "an object with totalBytes"),
        (json!({}), "an object with totalBytes"),
        (with(&good, "lossy", Value::Null), "an object with totalBytes"),
        (with(&good, "totalBytes", json!("3")), "an object with totalBytes"),
        (with(&good, "totalBytes", json!(-1)), "p_stdout.totalBytes"),
        (with(&good, "totalBytes", json!(1.5)), "p_stdout.totalBytes"),
        (with(&good, "totalBytes", json!(1e30)), "p_stdout.totalBytes"),
        (with(&good, "totalBytes", json!(4)), "not those of head"),
        (with(&good, "head", json!("abd")), "not those of head"),
        (with(&good, "sha256", json!("AB")), "p_stdout.sha256"),
        (with(&good, "tail", json!("x")), "p_stdout.tail"),
        (cut("abc", "def", 6), "more than what is kept"),
        (cut(&long, "", 1_000_000), "at most 64 KiB"),
        (cut("", &long, 1_000_000), "at most 64 KiB"),
        (whole(&"x".repeat(OUTPUT_KEPT + 1)), "at most 64 KiB"),
    ] {
        let error = complete(&mut runner, id, Some(&wrong), token).await.expect_err(words);
        assert_eq!(refusal(&error), Refusal::Argument, "{error}");
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    assert_eq!(runner.status(id).await, "running");
    // Written as a fraction it is the same number, and everybody can still read the view.
    let fraction = with(&good, "totalBytes", json!(3.0));
    complete(&mut runner, id, Some(&fraction), token).await.expect("three bytes");
    assert_eq!(runner.show(id).await.get::<i64, _>("stdout_bytes"), 3);
    let (id, token) = running(&gateway, &mut runner).await;
    complete(&mut runner, id, None, token).await.expect("no output at all");
    let error = complete(&mut runner, id, None, token + 1).await.expect_err("a token that nobody has");
    assert_eq!(refusal(&error), Refusal::Stale);
}

#[tokio::test]
async fn a_runner_is_told_at_once_that_what_it_has_was_called_off() {
    let gateway = Gateway::new().await;
    let mut runner = gateway.runner().await;
    let mut listener = PgListener::connect_with(&gateway.fleet.pool).await.expect("a database");
    listener.listen(CANCEL_CHANNEL).await.expect("anybody may");
    let (id, token) = running(&gateway, &mut runner).await;
    let command = bc_proto::id::CommandId::from_uuid(id);
    for _ in 0..2 {
        let mut db = gateway.fleet.db().await;
        cancel(&mut db, &Signer::none(), gateway.fleet.tenant, command, at(1)).await.expect("a database");
    }
    let told = listener.recv().await.expect("a database");
    assert_eq!((told.payload(), listener.next_buffered().is_none()), (id.to_string().as_str(), true));
    let call =
        sqlx::query("select * from fail_command_cut($1, null, null, null, 'called off', $2)").bind(id).bind(token);
    let row = call.fetch_one(&mut runner.db).await.expect("it is taken");
    assert_eq!((row.get("reason"), row.get("error")), ("cancelled", "called off"));
}

#[tokio::test]
async fn a_runner_is_woken_when_what_was_held_is_let_go() {
    let gateway = Gateway::new().await;
    let kind = gateway.fleet.kind(Lane::Control, &[]).await;
    let held = NewCommand { not_after: far(), is_held: true, ..command(&gateway.node, kind) };
    let outcome = crate::queue::enqueue(&mut *gateway.fleet.db().await, &Signer::none(), held, at(0)).await;
    outcome.expect("a database");
    let mut runner = gateway.runner().await;
    assert_eq!(runner.lease().await, None, "it is held");
    let mut listener = PgListener::connect_with(&gateway.fleet.pool).await.expect("a database");
    listener.listen(CHANNEL).await.expect("anybody may");
    // As queue::held does for an approved batch.
    let sql = "update ready set not_before = now() where node_id = $1 and not_before = 'infinity'";
    sqlx::query(sql).bind(gateway.node.uuid()).execute(&gateway.fleet.pool).await.expect("a database");
    assert_eq!(listener.recv().await.expect("a database").payload(), gateway.slug);
    assert!(runner.lease().await.is_some());
}
