//! Runners that die, databases that go away, and many runners at once.

use std::fs;

use bc_tests::cluster::until;
use serde_json::json;

use super::ending;
use super::gateway::{Gateway, is_alive, pid};

#[tokio::test(flavor = "multi_thread")]
async fn promise_18_what_a_killed_runner_ran_ends_with_it_and_its_command_is_lost() {
    let mut gateway = Gateway::start().await;
    let mut runner = gateway.runner("one", &[]);
    let hangs = gateway.queue("hang", json!({ "file": gateway.word("hang.pid") })).await;
    gateway.output(&hangs, |text| text.contains("hangs")).await;
    let program = pid(&gateway.path("hang.pid")).expect("its id");
    let child = pid(&gateway.path("hang.pid.child")).expect("its child's id");
    runner.kill();
    until("its programs are gone", || !is_alive(&program) && !is_alive(&child)).await;
    gateway.run_out("one").await;
    let over = gateway.over(&hangs).await;
    assert_eq!(over.ending(), ending("failed", None, "lease-lost"));
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_18_a_runner_whose_lease_was_taken_back_kills_what_it_runs_and_tells_nothing() {
    let mut gateway = Gateway::start().await;
    // A short lease is renewed often.
    let mut runner = gateway.runner("one", &["--command-timeout", "1s", "--lease-margin", "2s"]);
    let hangs = gateway.queue("hang", json!({ "file": gateway.word("hang.pid") })).await;
    gateway.output(&hangs, |text| text.contains("hangs")).await;
    let program = pid(&gateway.path("hang.pid")).expect("its id");
    // A renewal may come between; the sweeper looks every five seconds, and stopped it cannot renew.
    runner.signal(rustix::process::Signal::STOP);
    let over = gateway.over(&hangs).await;
    assert_eq!(over.ending(), ending("failed", None, "lease-lost"));
    assert!(is_alive(&program), "nobody could have ended it");
    runner.signal(rustix::process::Signal::CONT);
    runner.has_said("the end was not taken").await;
    assert!(!is_alive(&program));
    assert_eq!(
        gateway.over(&hangs).await.ending(),
        ending("failed", None, "lease-lost"),
        "a stale token changes nothing"
    );
    let next = gateway.queue("exit", json!({ "code": 0 })).await;
    assert_eq!(gateway.over(&next).await.ending(), ending("done", Some(0), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_killed_when_its_lease_is_over_and_the_database_cannot_be_asked() {
    let mut gateway = Gateway::start().await;
    let mut runner = gateway.runner("one", &["--command-timeout", "1s", "--lease-margin", "3s"]);
    let hangs = gateway.queue("hang", json!({ "file": gateway.word("hang.pid") })).await;
    gateway.output(&hangs, |text| text.contains("hangs")).await;
    let program = pid(&gateway.path("hang.pid")).expect("its id");
    gateway.cluster.database.kill();
    until("it is gone", || !is_alive(&program)).await;
    runner.has_said("the end is told again").await;
    gateway.cluster.database.restart();
    let over = gateway.over(&hangs).await;
    // Whoever is first: the runner, or the sweeper.
    let (status, _, code) = over.ending();
    assert!(status == "failed" && (code == "lease-over" || code == "lease-lost"), "{code}");
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_03_a_database_that_restarts_in_the_middle_of_a_command_gets_its_end() {
    let mut gateway = Gateway::start().await;
    let mut runner = gateway.runner("one", &[]);
    let command = gateway.queue("gate", json!({ "file": gateway.word("gate.pid") })).await;
    until("it runs", || pid(&gateway.path("gate.pid")).is_some()).await;
    gateway.cluster.database.kill();
    fs::write(gateway.path("gate.pid.go"), "").expect("a file");
    // The program ends while nobody can be told.
    runner.has_said("the end is told again").await;
    gateway.cluster.database.restart();
    let over = gateway.over(&command).await;
    assert_eq!((over.ending(), over.text("stdout")), (ending("done", Some(0), ""), "through\n".into()));
    // And it is woken again.
    let next = gateway.queue("exit", json!({ "code": 0 })).await;
    assert_eq!(gateway.over(&next).await.ending(), ending("done", Some(0), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_18_of_twenty_commands_over_three_runners_that_are_killed_each_ends_once_and_none_runs_twice() {
    let mut gateway = Gateway::start().await;
    let arguments = ["--concurrency", "2"];
    let mut runners: Vec<_> = (0..3).map(|n| gateway.runner(&format!("r{n}"), &arguments)).collect();
    let lines = gateway.path("lines");
    let mut commands = Vec::new();
    for n in 0..20 {
        commands.push(gateway.queue("line", json!({ "file": gateway.word("lines"), "line": n })).await);
        if n % 6 == 5 {
            let victim = n / 6;
            // Some line is written, and the runner dies wherever it is.
            until("something ran", || fs::read_to_string(&lines).is_ok_and(|text| text.lines().count() > victim)).await;
            runners[victim].kill();
            gateway.run_out(&format!("r{victim}")).await;
            runners[victim] = gateway.runner(&format!("again{victim}"), &arguments);
        }
    }
    let mut lost = 0;
    for (n, command) in commands.iter().enumerate() {
        let over = gateway.over(command).await;
        let ran = fs::read_to_string(&lines).expect("lines").lines().filter(|line| *line == n.to_string()).count();
        match over.ending() {
            (status, Some(0), code) if status == "done" && code.is_empty() => assert_eq!(ran, 1, "{n}"),
            (status, None, code) if status == "failed" && code == "lease-lost" => {
                lost += 1;
                assert!(ran <= 1, "{n} ran {ran} times");
            }
            other => panic!("{n} ended as {other:?}"),
        }
        let times = "select count(*) from events where command_id = $1 and topic = 'command.settled'";
        let id: bc_proto::id::CommandId = command.id.parse().expect("an id");
        let times: i64 =
            sqlx::query_scalar(times).bind(id.uuid()).fetch_one(&mut gateway.admin).await.expect("a database");
        assert_eq!(times, 1, "{n} ends once");
    }
    assert!(lost <= 6, "three runners with two places each lost {lost}");
}
