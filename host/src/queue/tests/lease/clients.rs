//! Any client of Postgres will do: `psql`, with the calls of the seed, which know no tokens, and a program in Python.

use super::{Gateway, action_kind};
use crate::testing::test_server;

#[tokio::test]
async fn psql_runs_a_command_with_the_calls_of_the_seed() {
    let gateway = Gateway::new().await;
    action_kind(&gateway.fleet).await;
    let database: String =
        sqlx::query_scalar("select current_database()").fetch_one(&gateway.fleet.pool).await.expect("a name");
    let psql = |user: &str, sql: &str| {
        let server = test_server();
        let mut psql = server.program("psql");
        psql.arg("--host").arg(server.folder()).args([
            "--username",
            user,
            "--dbname",
            &database,
            "--no-psqlrc",
            "--tuples-only",
        ]);
        psql.args(["--no-align", "--set=ON_ERROR_STOP=1", "--set=VERBOSITY=verbose", "--command", sql]);
        let output = psql.output().expect("psql is there");
        server.keep_running();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text").trim().to_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    };
    let (slug, login) = (&gateway.slug, &gateway.login);
    let ui = format!(
        "insert into agent_commands (gateway_slug, action, payload) values ('{slug}', 'provision', '{{\"n\": 1}}') returning id"
    );
    let said = psql("postgres", &ui).expect("it is queued");
    let id = said.lines().next().expect("its id");
    let run = |sql: &str| psql(login, sql);
    let lease = format!("select id, action, payload, status from lease_command('{slug}', 120)");
    assert_eq!(run(&lease), Ok(format!("{id}|provision|{{\"n\":1}}|leased")));
    assert_eq!(run(&lease), Ok(String::new()));
    assert_eq!(run(&format!("select status from start_command('{id}')")), Ok("running".into()));
    let complete = format!("select status, exit_code, stdout from complete_command('{id}', 0, 'hello', '')");
    assert_eq!(run(&complete), Ok("done|0|hello".into()));
    let again = run(&complete).expect_err("it is over");
    assert!(again.starts_with("ERROR:  BC004: command "), "{again}");
    let stale =
        run(&format!("select * from complete_command('{id}', 0, 'hello', '', 999999)")).expect_err("no such lease");
    assert!(stale.starts_with("ERROR:  BC003: ") && stale.contains("HINT:"), "{stale}");
}

#[tokio::test]
async fn a_program_in_python_leases_starts_and_settles_as_the_contract_says() {
    let gateway = Gateway::new().await;
    action_kind(&gateway.fleet).await;
    let database: String =
        sqlx::query_scalar("select current_database()").fetch_one(&gateway.fleet.pool).await.expect("a name");
    let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let python = repository.join("target/clients/venv/bin/python");
    assert!(python.exists(), "{} is missing: `cargo xtask setup` makes it", python.display());
    let server = test_server();
    #[expect(clippy::disallowed_methods, reason = "the client is a program")]
    let mut client = std::process::Command::new(python);
    client.arg(repository.join("tests/clients/runner.py"));
    let output = client.arg(format!("host={} dbname={database}", server.folder().display())).output();
    server.keep_running();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.trim_end().ends_with("ok"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
