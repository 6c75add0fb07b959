//! A thousand commands, ten runners, and whoever gives up on the way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bc_proto::manifest::Lane;
use bc_proto::rules::lease::Refusal;
use sqlx::types::Uuid;

use super::{Gateway, far};
use crate::queue::enqueue::NewCommand;
use crate::queue::enqueue_many;
use crate::testing::{at, command};
use crate::trust::Signer;

const COMMANDS: usize = 1_000;
const RUNNERS: u64 = 10;

/// Numbers that look random and are the same in every run (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

/// How often each command was started, and how many calls came too late.
#[derive(Default)]
struct Seen {
    runs: HashMap<Uuid, u32>,
    stale: u32,
}

/// Runs until nothing is left. What it abandons runs out at once; often it comes back to it later, with the old token.
async fn work(gateway: Arc<Gateway>, seen: Arc<Mutex<Seen>>, number: u64) {
    let mut dice = Dice(number);
    let mut runner = gateway.runner().await;
    let mut abandoned = Vec::new();
    loop {
        let Some((id, token)) = runner.lease().await else {
            gateway.sweep().await;
            let left = "select (select count(*) from ready) + (select count(*) from in_flight)";
            let left: i64 = sqlx::query_scalar(left).fetch_one(&gateway.fleet.pool).await.expect("a database");
            if left == 0 {
                break;
            }
            tokio::task::yield_now().await;
            continue;
        };
        let fate = dice.roll(10);
        if fate != 0 {
            runner.start(id, Some(token)).await.expect("nobody else has it");
            *seen.lock().expect("no panic").runs.entry(id).or_default() += 1;
        }
        match fate {
            0 | 1 => {
                gateway.run_out(token).await;
                abandoned.push((id, token));
            }
            2 => drop(runner.fail(id, Some(token)).await.expect("it is the runner's")),
            _ => drop(runner.complete(id, Some(token)).await.expect("it is the runner's")),
        }
        if dice.roll(4) == 0 {
            gateway.sweep().await;
            if let Some((id, token)) = abandoned.pop() {
                late(&gateway, &mut runner, &seen, id, token).await;
            }
        }
    }
    while let Some((id, token)) = abandoned.pop() {
        late(&gateway, &mut runner, &seen, id, token).await;
    }
}

/// A runner that was given up on reports all the same. Until the sweeper was there its lease counts, after it nothing does.
async fn late(gateway: &Gateway, runner: &mut super::Runner, seen: &Mutex<Seen>, id: Uuid, token: i64) {
    let ended: bool = sqlx::query_scalar("select ended_at is not null from runner_leases where token = $1")
        .bind(token)
        .fetch_one(&gateway.fleet.pool)
        .await
        .expect("it is kept");
    if ended {
        assert_eq!(runner.complete(id, Some(token)).await.err(), Some(Refusal::Stale));
        seen.lock().expect("no panic").stale += 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promise_18_of_a_thousand_commands_over_ten_runners_each_ends_once_and_starts_once_unless_it_is_retry_safe() {
    let gateway = Arc::new(Gateway::new().await);
    let plain = gateway.fleet.kind(Lane::Control, &[]).await;
    let safe = gateway.fleet.kind(Lane::Control, &["retry-safe"]).await;
    let commands: Vec<NewCommand> = (0..COMMANDS)
        .map(|n| NewCommand { not_after: far(), ..command(&gateway.node, if n % 2 == 0 { plain } else { safe }) })
        .collect();
    enqueue_many(&mut *gateway.fleet.db().await, &Signer::none(), &commands, at(0)).await.expect("a database");

    let seen = Arc::new(Mutex::new(Seen::default()));
    let runners: Vec<_> =
        (0..RUNNERS).map(|number| tokio::spawn(work(gateway.clone(), seen.clone(), number))).collect();
    for runner in runners {
        runner.await.expect("no runner fails");
    }

    let query = "select id, status, reason, (select count(*) from settled s where s.node_id = a.node_id and s.seq = a.seq) as times,
                        (select count(*) from events e where e.command_id = a.id and e.topic = 'command.settled') as told
                 from (select c.node_id, v.* from agent_commands v join commands c using (id)) a";
    let rows: Vec<(Uuid, String, String, i64, i64)> =
        sqlx::query_as(query).fetch_all(&gateway.fleet.pool).await.expect("a database");
    assert_eq!(rows.len(), COMMANDS);
    let seen = seen.lock().expect("no panic");
    let is_safe: HashMap<Uuid, bool> = commands.iter().map(|it| (it.id.uuid(), it.kind_digest == safe)).collect();
    let mut lost = 0;
    for (id, status, reason, times, told) in rows {
        let runs = seen.runs.get(&id).copied().unwrap_or(0);
        assert!(status == "done" || status == "failed", "{id} is {status}");
        assert_eq!((times, told), (1, 1), "{id} ends once");
        assert!(runs >= 1, "{id} ends without having run");
        if reason == "lease-lost" {
            assert!(!is_safe[&id], "{id} could have run again");
            lost += 1;
        }
        assert!(runs == 1 || is_safe[&id], "{id} ran {runs} times");
    }
    assert!(lost > 0 && seen.stale > 0, "nobody gave up: the test shows nothing");
    assert!(seen.runs.values().any(|&runs| runs > 1), "no retry-safe command ran again");
}
