//! What cannot be is refused, each with a SQLSTATE of its own, and nothing is changed.

use bc_proto::manifest::Lane;
use bc_proto::rules::lease::{MAX_SECONDS, Refusal};
use sqlx::AssertSqlSafe;
use sqlx::types::Uuid;

use super::{Gateway, action_kind, lines, refusal};
use crate::queue::cancel;
use crate::testing::at;
use crate::trust::Signer;

#[tokio::test]
async fn leases_and_calls_that_cannot_be_are_refused() {
    let gateway = Gateway::new().await;
    let mut runner = gateway.runner().await;
    let id = gateway.enqueue(gateway.fleet.kind(Lane::Control, &[]).await).await.uuid();
    let slug = gateway.slug.clone();
    let none = Uuid::from_u128(77);
    let day = MAX_SECONDS;
    for (call, expected) in [
        ("lease_command('nobody', 60)".to_owned(), Refusal::UnknownGateway),
        ("lease_command(null, 60)".into(), Refusal::UnknownGateway),
        (format!("lease_command('{slug}', 0)"), Refusal::Argument),
        (format!("lease_command('{slug}', -1)"), Refusal::Argument),
        (format!("lease_command('{slug}', null)"), Refusal::Argument),
        (format!("lease_command('{slug}', {})", day + 1), Refusal::Argument),
        (format!("lease_command('{slug}', {})", 365 * day), Refusal::Argument),
        (format!("start_command('{none}')"), Refusal::UnknownCommand),
        ("start_command(null)".into(), Refusal::UnknownCommand),
        (format!("start_command('{id}')"), Refusal::NotLeased),
        (format!("start_command('{id}', 12345)"), Refusal::Stale),
        (format!("renew_lease('{id}', 60)"), Refusal::NotLeased),
        (format!("renew_lease('{id}', 0)"), Refusal::Argument),
        (format!("complete_command('{id}', 0, '', '')"), Refusal::NotLeased),
        (format!("complete_command('{id}', 1, '', '')"), Refusal::Argument),
        (format!("complete_command('{id}', null, '', '')"), Refusal::Argument),
        (format!("fail_command('{id}', 1, '', '', 'no')"), Refusal::NotLeased),
        (format!("fail_command('{id}', 0, '', '', '')"), Refusal::Argument),
        (format!("fail_command('{id}', null, '', '', null)"), Refusal::Argument),
    ] {
        let said = sqlx::raw_sql(AssertSqlSafe(format!("select * from {call}"))).execute(&mut runner.db).await;
        let error = said.expect_err(&call);
        assert_eq!(refusal(&error), expected, "{call}: {error}");
    }
    assert_eq!(runner.status(id).await, "pending");
    let sql = format!("select * from lease_command('{slug}', {day})");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut runner.db).await.expect("a day is allowed");
}

#[tokio::test]
async fn each_step_out_of_order_is_refused_and_a_retry_is_not() {
    let gateway = Gateway::new().await;
    let mut runner = gateway.runner().await;
    let kind = gateway.fleet.kind(Lane::Control, &[]).await;
    let id = gateway.enqueue(kind).await.uuid();
    let (_, token) = runner.lease().await.expect("one waits");
    assert_eq!(runner.complete(id, Some(token)).await.err(), Some(Refusal::NotStarted));
    assert_eq!(runner.complete(id, Some(token + 1)).await.err(), Some(Refusal::Stale));
    runner.start(id, Some(token)).await.expect("it may start");
    runner.start(id, Some(token)).await.expect("it got no answer and asks again");
    assert_eq!(runner.start(id, None).await.err(), Some(Refusal::StartedBefore));
    runner.complete(id, Some(token)).await.expect("it is done");
    let before = lines(&gateway).await;
    runner.complete(id, Some(token)).await.expect("it got no answer and asks again");
    assert_eq!(runner.complete(id, None).await.err(), Some(Refusal::Over));
    assert_eq!(runner.fail(id, Some(token)).await.err(), Some(Refusal::Over));
    assert_eq!(runner.start(id, Some(token)).await.err(), Some(Refusal::Over));
    assert_eq!(lines(&gateway).await, before);

    let id = gateway.enqueue(kind).await.uuid();
    let (_, token) = runner.lease().await.expect("one waits");
    gateway.run_out(token).await;
    assert_eq!(runner.start(id, Some(token)).await.err(), Some(Refusal::RanOut));
    runner.fail(id, Some(token)).await.expect("what it refused to run failed");
}

#[tokio::test]
async fn promise_13_a_command_that_is_called_off_does_not_start() {
    let gateway = Gateway::new().await;
    let mut runner = gateway.runner().await;
    let id = gateway.enqueue(gateway.fleet.kind(Lane::Control, &[]).await).await;
    let (leased, token) = runner.lease().await.expect("one waits");
    cancel(&mut *gateway.fleet.db().await, &Signer::none(), gateway.fleet.tenant, id, at(1)).await.expect("a database");
    assert_eq!(runner.start(leased, Some(token)).await.err(), Some(Refusal::CalledOff));
    runner.fail(leased, Some(token)).await.expect("the runner gives it up");
    assert_eq!(gateway.fleet.state(&id).await, ("cancelled".into(), "cancelled".into()));
}

#[tokio::test]
async fn inserts_that_cannot_be_are_refused() {
    let gateway = Gateway::new().await;
    let slug = gateway.slug.clone();
    let insert = async |columns: &str, values: &str| {
        let sql = format!("insert into agent_commands (gateway_slug, {columns}) values ('{slug}', {values})");
        let said = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&gateway.fleet.pool).await;
        said.map(drop).map_err(|error| refusal(&error))
    };
    assert_eq!(insert("action", "'a'").await, Err(Refusal::NoKind));
    action_kind(&gateway.fleet).await;
    for (columns, values) in [
        ("action", "null"),
        ("action", "'rm -rf /'"),
        ("action, payload", "'a', '[1]'"),
        ("action, payload", "'a', json_build_object('x', repeat('x', 300000))"),
        ("action, not_after", "'a', now() - interval '1 second'"),
        ("action, idempotency_key", "'a', ''"),
        ("action, status", "'a', 'done'"),
    ] {
        assert_eq!(insert(columns, values).await, Err(Refusal::Argument), "{columns}: {values}");
    }
    let sql = "insert into agent_commands (gateway_slug, action) values ('nobody', 'a')";
    let error = sqlx::raw_sql(sql).execute(&gateway.fleet.pool).await.expect_err(sql);
    assert_eq!(refusal(&error), Refusal::UnknownGateway);
    for (payload, expected) in [("{\"a\":1}", Ok(())), ("{\"a\": 1.0}", Ok(())), ("{\"a\":2}", Err(Refusal::Conflict))]
    {
        let values = format!("'a', 'k', '{payload}'");
        assert_eq!(insert("action, idempotency_key, payload", &values).await, expected, "{payload}");
    }
    assert_eq!(lines(&gateway).await.len(), 1, "the same key is the same command");
}
