//! What the role can do: its own commands, by the functions; nothing else.

use bc_proto::manifest::Lane;
use bc_proto::rules::lease::Refusal;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use super::{Gateway, action_kind, connect, gateway, login};
use crate::queue::enqueue::NewCommand;
use crate::testing::{at, command};
use crate::trust::Signer;

/// The functions that a runner may call, besides the two that the view is made of.
const FUNCTIONS: [&str; 12] = [
    "append_output",
    "complete_command",
    "complete_command_bytes",
    "complete_command_cut",
    "fail_command",
    "fail_command_bytes",
    "fail_command_cut",
    "lease_command",
    "renew_lease",
    "runner_result",
    "runner_shown",
    "start_command",
];

#[tokio::test]
async fn a_runner_may_select_from_one_view_and_call_its_functions_and_nothing_else() {
    let gateway = Gateway::new().await;
    let mut db = connect(&gateway.fleet, &gateway.login).await;
    let relations =
        "select c.relname || ' ' || p from pg_class c, unnest(array['select', 'insert', 'update', 'delete', 'truncate',
                        'references', 'trigger']) p
                     where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'm')
                       and has_table_privilege(c.oid, p)";
    let allowed: Vec<String> = sqlx::query_scalar(relations).fetch_all(&mut db).await.expect("a catalogue");
    assert_eq!(allowed, ["agent_commands select"]);
    for sql in ["update agent_commands set status = 'done'", "delete from agent_commands"] {
        sqlx::raw_sql(sql).execute(&mut db).await.expect_err("nobody changes or deletes in the view");
    }
    let columns = "select count(*) from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v')
                     and c.relname <> 'agent_commands' and has_any_column_privilege(c.oid, 'select, insert, update, references')";
    assert_eq!(sqlx::query_scalar::<_, i64>(columns).fetch_one(&mut db).await.expect("a catalogue"), 0);
    let sequences = "select count(*) from pg_class c where c.relnamespace = 'public'::regnamespace and case c.relkind
                       when 'S' then has_sequence_privilege(c.oid, 'usage, select, update') else false end";
    assert_eq!(sqlx::query_scalar::<_, i64>(sequences).fetch_one(&mut db).await.expect("a catalogue"), 0);
    let functions = "select p.proname::text from pg_proc p where p.pronamespace = 'public'::regnamespace
                       and p.prorettype <> 'trigger'::regtype and has_function_privilege(p.oid, 'execute') order by 1";
    let allowed: Vec<String> = sqlx::query_scalar(functions).fetch_all(&mut db).await.expect("a catalogue");
    assert_eq!(allowed, FUNCTIONS);
    let attributes = "select rolsuper or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls
                        or has_schema_privilege('public', 'create') from pg_roles where rolname = session_user";
    assert!(!sqlx::query_scalar::<_, bool>(attributes).fetch_one(&mut db).await.expect("a catalogue"));

    for sql in [
        "select * from commands",
        "select * from settled",
        "select * from api_tokens",
        "select * from runner_leases",
        "insert into runner_logins select session_user, id from nodes",
        "update in_flight set epoch = 0",
        "delete from ready",
        "truncate events",
        "insert into agent_commands (gateway_slug, action) values ('x', 'y')",
        "select runner_settle(null, null, 'done', 0, '', '', '')",
        "select runner_settle_kept(null, null, 'done', 0, '{}', '{}', '')",
        "select runner_held(null, null)",
        "create table public.t ()",
        "set session authorization postgres",
        "set role postgres",
        "create role r",
        "copy (select 1) to '/dev/null'",
    ] {
        let error = sqlx::raw_sql(sql).execute(&mut db).await.expect_err(sql);
        let code =
            error.as_database_error().and_then(sqlx::error::DatabaseError::code).map(std::borrow::Cow::into_owned);
        assert_eq!(code.as_deref(), Some("42501"), "{sql}: {error}");
    }
}

#[tokio::test]
async fn a_runner_neither_sees_nor_touches_another_gateways_commands() {
    let mine = Gateway::new().await;
    let (other, other_slug) = gateway(&mine.fleet).await;
    let other_login = login(&mine.fleet, other).await;
    let kind = mine.fleet.kind(Lane::Control, &[]).await;
    let new = NewCommand { not_after: super::far(), ..command(&other, kind) };
    let id = new.id.uuid();
    crate::queue::enqueue(&mut *mine.fleet.db().await, &Signer::none(), new, at(0)).await.expect("a database");
    let mut theirs = super::Runner { db: connect(&mine.fleet, &other_login).await, slug: other_slug.clone() };
    let mut runner = super::Runner { db: connect(&mine.fleet, &mine.login).await, slug: other_slug };

    let refused = sqlx::query("select * from lease_command($1, 60)").bind(&runner.slug).fetch_all(&mut runner.db).await;
    assert_eq!(refused.err().map(|error| super::refusal(&error)), Some(Refusal::UnknownGateway));
    let (leased, token) = theirs.lease().await.expect("it is theirs");
    assert_eq!(leased, id);
    // Everything is in the caller's hand but the right to use it: the id and the token.
    for answer in [
        runner.start(id, Some(token)).await,
        runner.renew(id, Some(token)).await,
        runner.complete(id, Some(token)).await,
        runner.fail(id, None).await,
    ] {
        assert_eq!(answer.err(), Some(Refusal::UnknownCommand));
    }
    let count = |sql| sqlx::query_scalar::<_, i64>(sql);
    let all = "select count(*) from agent_commands";
    assert_eq!(count(all).fetch_one(&mut runner.db).await.expect("its own"), 0);
    assert_eq!(count(all).fetch_one(&mut theirs.db).await.expect("its own"), 1);
    // A condition that would tell is not asked about rows of others.
    let peek =
        "select count(*) from agent_commands where 1 / (case when action = 'test.control' then 0 else 1 end) = 1";
    assert_eq!(count(peek).fetch_one(&mut runner.db).await.expect("its own"), 0);
    // With SET ROLE it is still who it is.
    sqlx::raw_sql("set role better_compute_runner").execute(&mut theirs.db).await.expect("it is a member");
    theirs.start(id, Some(token)).await.expect("it is theirs");
    assert_eq!(theirs.status(id).await, "running");
}

#[tokio::test]
async fn a_program_that_may_insert_and_nothing_more_can_queue() {
    let gateway = Gateway::new().await;
    action_kind(&gateway.fleet).await;
    let ui = gateway.login.replace("runner_", "ui_");
    let sql = format!("drop role if exists {ui}; create role {ui} login; grant insert on agent_commands to {ui}");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&gateway.fleet.pool).await.expect("a new user");
    let mut db = connect(&gateway.fleet, &ui).await;
    let sql = "insert into agent_commands (gateway_slug, action, payload, requested_by) values ($1, 'add-agent', '{}', 'ann')";
    sqlx::query(sql).bind(&gateway.slug).execute(&mut db).await.expect("it is queued");
    db.close().await.expect("an end");
    let mut runner = gateway.runner().await;
    let (id, _) = runner.lease().await.expect("one waits");
    assert_eq!(runner.show(id).await.get::<String, _>("requested_by"), "ann");
    let clean = format!("revoke all on agent_commands from {ui}; drop role {ui}");
    sqlx::raw_sql(AssertSqlSafe(clean)).execute(&gateway.fleet.pool).await.expect("it is gone");
}
