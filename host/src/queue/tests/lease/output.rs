//! Output of runners: whatever it is, it is bounded, and a cut says so.

use bc_proto::canonical::sha256_hex;
use bc_proto::manifest::Lane;
use bc_proto::rules::lease::OUTPUT_KEPT;
use serde_json::Value;
use sqlx::Row as _;
use sqlx::types::Uuid;

use super::{Gateway, Runner};

async fn running(gateway: &Gateway, runner: &mut Runner) -> (Uuid, i64) {
    gateway.enqueue(gateway.fleet.kind(Lane::Control, &[]).await).await;
    let (id, token) = runner.lease().await.expect("one waits");
    runner.start(id, Some(token)).await.expect("it may start");
    (id, token)
}

/// Fails a command with output, and returns what is kept of it.
async fn kept(gateway: &Gateway, runner: &mut Runner, stdout: &[u8]) -> Value {
    let (id, token) = running(gateway, runner).await;
    let call =
        sqlx::query("select * from fail_command_bytes($1, 1, $2, '', 'no', $3)").bind(id).bind(stdout).bind(token);
    let row = call.fetch_one(&mut runner.db).await.expect("any bytes will do");
    assert_eq!(row.get::<i64, _>("stdout_bytes"), i64::try_from(stdout.len()).expect("a size"));
    let result =
        sqlx::query_scalar("select result from settled join commands using (node_id, seq) where id = $1").bind(id);
    let result: Vec<u8> = result.fetch_one(&gateway.fleet.pool).await.expect("it is over");
    let result: Value = serde_json::from_slice(&result).expect("JSON");
    let output = result["stdout"].clone();
    assert_eq!(output["sha256"], sha256_hex(stdout));
    assert_eq!(output["totalBytes"], stdout.len());
    output
}

#[tokio::test]
async fn promise_05_output_that_is_no_text_is_kept_as_text_and_says_so() {
    let gateway = Gateway::new().await;
    let mut runner = gateway.runner().await;
    let half = OUTPUT_KEPT / 2;
    for bytes in [
        b"plain\n\xc3\xa9\xf0\x9f\x98\x80".to_vec(),
        b"a\0b".to_vec(),
        b"\xff\xfe\x80".to_vec(),
        b"x\xc3".to_vec(),
        b"\xe0\x80\x80\xed\xa0\x80\xf4\x90\x80\x80\xc0\xaf\xf5".to_vec(),
        b"\xf0\x9f\x98x\xe2\x82".to_vec(),
        (0..=255).collect(),
        vec![b'x'; OUTPUT_KEPT],
        vec![0x80; OUTPUT_KEPT],
    ] {
        let output = kept(&gateway, &mut runner, &bytes).await;
        // Each byte that is no text is one U+FFFD here; Rust takes some together.
        let text: String =
            bytes.utf8_chunks().map(|it| it.valid().to_owned() + &"\u{fffd}".repeat(it.invalid().len())).collect();
        let text = text.replace('\0', "\u{fffd}");
        assert_eq!(output["head"], text);
        assert_eq!(output["lossy"], text.contains('\u{fffd}'));
        assert_eq!((&output["truncated"], &output["tail"]), (&false.into(), &"".into()));
    }
    for (unit, count) in [("é", half + 1), ("x", OUTPUT_KEPT + 1), ("a😀", half), ("€", half)] {
        let text = unit.repeat(count);
        for shift in 0..4 {
            let text = "y".repeat(shift) + &text;
            let output = kept(&gateway, &mut runner, text.as_bytes()).await;
            let head = &text[..text.floor_char_boundary(half)];
            let tail = &text[text.ceil_char_boundary(text.len() - half)..];
            assert_eq!((&output["head"], &output["tail"]), (&head.into(), &tail.into()), "{unit} {shift}");
            assert_eq!((&output["truncated"], &output["lossy"]), (&true.into(), &false.into()));
        }
    }
}

#[tokio::test]
async fn promise_05_of_200_mb_both_ends_are_kept_with_the_total_and_the_hash_of_all() {
    let gateway = Gateway::new().await;
    let mut runner = gateway.runner().await;
    let (id, token) = running(&gateway, &mut runner).await;
    let sql = "select * from complete_command($1, 0, repeat('0123456789', 20000000), '', $2)";
    let row = sqlx::query(sql).bind(id).bind(token).fetch_one(&mut runner.db).await.expect("any size will do");
    assert_eq!(row.get::<i64, _>("stdout_bytes"), 200_000_000);
    assert!(row.get::<bool, _>("stdout_truncated"));
    let expected: String = sqlx::query_scalar("select encode(sha256(repeat('0123456789', 20000000)::bytea), 'hex')")
        .fetch_one(&gateway.fleet.pool)
        .await
        .expect("a hash");
    assert_eq!(row.get::<String, _>("stdout_sha256"), expected);
    let shown: String = row.get("stdout");
    let cut = format!("\n[... cut: 200000000 bytes in all, SHA-256 {expected} ...]\n");
    let (head, tail) = shown.split_once(&cut).expect("the cut says so");
    assert_eq!((head.len(), tail.len()), (OUTPUT_KEPT / 2, OUTPUT_KEPT / 2));
    assert!(head.starts_with("0123") && tail.ends_with("6789"));
}

#[tokio::test]
async fn text_that_cannot_be_text_is_refused_by_the_database_and_the_lease_stays() {
    let gateway = Gateway::new().await;
    let mut runner = gateway.runner().await;
    let (id, token) = running(&gateway, &mut runner).await;
    let sql = "select * from complete_command($1, 0, $2, '', $3)";
    let error =
        sqlx::query(sql).bind(id).bind("a\0b").bind(token).fetch_one(&mut runner.db).await.expect_err("a zero byte");
    assert_eq!(error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref(), Some("22021"));
    assert_eq!(runner.status(id).await, "running");
    let sql = "select * from complete_command_bytes($1, 0, $2, '', $3)";
    let row = sqlx::query(sql).bind(id).bind(&b"a\0b"[..]).bind(token).fetch_one(&mut runner.db).await.expect("bytes");
    assert!(row.get::<bool, _>("stdout_lossy"));
}
