//! The control plane, at every write to the queue: a replica that is killed there, and a Postgres that is killed while a
//! replica stands there.

use bc_host::api::types::Command;
use bc_tests::cluster::api::Api;
use bc_tests::cluster::database::Database;
use bc_tests::cluster::operator::Operator;
use bc_tests::cluster::replica::Replica;
use bc_tests::cluster::{COUNT, COUNT_BULK, COUNT_DESTRUCTIVE, COUNT_SAFE, Cluster, PATIENCE, node::Node};
use rustix::process::Signal;
use serde_json::{Value, json};

/// The points that every command passes, as `host/src/faults.rs` names them.
const POINTS: [&str; 12] = [
    "enqueue.before-write",
    "enqueue.after-write",
    "claim.before-write",
    "claim.after-write",
    "deliver.before-send",
    "deliver.after-send",
    "mark.before-write",
    "mark.after-write",
    "settle.before-write",
    "settle.after-write",
    "update-ack.before-send",
    "update-ack.after-send",
];

/// Those of a new session.
const SESSION: [&str; 4] = ["hello.before-write", "hello.after-write", "welcome.before-send", "welcome.after-send"];

/// What happens at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    /// The replica is killed there.
    Replica,
    /// The replica stands there while Postgres is killed and comes back, and then goes on.
    Postgres,
}

impl Blow {
    async fn prepare(self, replica: &mut Replica, point: &str) {
        match self {
            Self::Replica => replica.start_to_crash(point).await,
            Self::Postgres => replica.start_to_stop(point).await,
        }
    }

    async fn fall(self, replica: &mut Replica, database: &mut Database) {
        match self {
            Self::Replica => {
                replica.process().crashed().await;
                replica.restart().await;
            }
            Self::Postgres => {
                replica.process().stopped().await;
                database.kill();
                database.restart();
                replica.process().signal(Signal::CONT);
            }
        }
    }
}

/// One outcome, one run, and the same command for the same key.
async fn succeeds_once(api: &Api, node: &Node, gpu: u32, before: usize, (command, key): (&Command, &str)) {
    let settled = api.settled(command).await;
    assert_eq!((settled.state.as_str(), settled.reason.as_str()), ("succeeded", ""), "{key}");
    let again = api.run(&node.id, &settled.kind, key, settled.payload.clone()).await;
    assert_eq!((&again.id, &again.state), (&command.id, &settled.state), "{key}");
    assert_eq!(node.count(gpu), before + 1, "{key}");
}

async fn at_every_write_of_a_command(blow: Blow) {
    let mut cluster = Cluster::start(1, 1).await;
    for (case, point) in POINTS.iter().enumerate() {
        let Cluster { api, replicas, nodes, database, .. } = &mut cluster;
        blow.prepare(&mut replicas[0], point).await;
        // A daemon that has failed to connect waits longer and longer, and a new one does not.
        nodes[0].start();
        let (gpu, kind) = (u32::try_from(case % 8).expect("few"), if case % 3 == 2 { COUNT_SAFE } else { COUNT });
        let before = nodes[0].count(gpu);
        // It stays long enough that its marks are written before its result.
        let payload = Node::counted(gpu, 300);
        let (command, ()) =
            tokio::join!(api.run(&nodes[0].id, kind.name, point, payload), blow.fall(&mut replicas[0], database));
        succeeds_once(api, &nodes[0], gpu, before, (&command, point)).await;
    }
}

async fn at_every_write_of_a_session(blow: Blow) {
    let mut cluster = Cluster::start(1, 1).await;
    for (gpu, point) in (0..).zip(SESSION) {
        let Cluster { api, replicas, nodes, database, .. } = &mut cluster;
        nodes[0].start();
        let command = api.run(&nodes[0].id, COUNT.name, point, Node::counted(gpu, 300)).await;
        nodes[0].has_counted(gpu, 1).await;
        // It ends while nobody listens, or is still under way.
        blow.prepare(&mut replicas[0], point).await;
        blow.fall(&mut replicas[0], database).await;
        succeeds_once(api, &nodes[0], gpu, 0, (&command, point)).await;
    }
}

async fn at_the_write_of_a_cancel(blow: Blow) {
    let mut cluster = Cluster::start(1, 1).await;
    for (gpu, point) in (0..).zip(["cancel.before-write", "cancel.after-write"]) {
        let Cluster { api, replicas, nodes, database, .. } = &mut cluster;
        let command = api.run(&nodes[0].id, COUNT.name, point, Node::counted(gpu, 600_000)).await;
        nodes[0].has_counted(gpu, 1).await;
        blow.prepare(&mut replicas[0], point).await;
        let (asked, ()) = tokio::join!(api.cancel(&command), blow.fall(&mut replicas[0], database));
        assert!(asked.cancel_requested_at.is_some() || asked.settled_at.is_some(), "{point}: {asked:?}");
        let settled = api.settled(&command).await;
        assert_eq!((settled.state.as_str(), nodes[0].count(gpu)), ("cancelled", 1), "{point}");
    }
}

async fn at_the_write_of_a_sweep(blow: Blow) {
    let mut cluster = Cluster::start(1, 1).await;
    cluster.nodes[0].kill();
    for (gpu, point) in (0..).zip(["sweep.before-write", "sweep.after-write"]) {
        let Cluster { api, replicas, nodes, database, .. } = &mut cluster;
        blow.prepare(&mut replicas[0], point).await;
        let command = api.run_for(&nodes[0].id, COUNT.name, point, Node::counted(gpu, 0), 10).await;
        blow.fall(&mut replicas[0], database).await;
        let settled = api.settled(&command).await;
        assert_eq!(settled.state, "expired", "{point}");
    }
    // Nothing of it comes to the node afterwards.
    cluster.nodes[0].start();
    let last = cluster.api.run(&cluster.nodes[0].id, COUNT.name, "last", Node::counted(2, 0)).await;
    assert_eq!(cluster.api.settled(&last).await.state, "succeeded");
    assert_eq!([0, 1, 2].map(|gpu| cluster.nodes[0].count(gpu)), [0, 0, 1]);
}

async fn at_the_write_of_a_join(blow: Blow) {
    let mut cluster = Cluster::start(1, 1).await;
    for point in ["join.before-write", "join.after-write"] {
        let Cluster { api, replicas, nodes, database, .. } = &mut cluster;
        nodes[0].kill();
        let before = api.node(&nodes[0].id).await.incarnation;
        blow.prepare(&mut replicas[0], point).await;
        let token = api.join_token(Some(&nodes[0].id)).await;
        let gateways = [replicas[0].gateway_url()];
        let said = std::thread::scope(|scope| {
            let joining = scope.spawn(|| nodes[0].ask_to_join(&gateways, &token, true));
            let falls = blow.fall(&mut replicas[0], database);
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(falls));
            joining.join().expect("it was asked")
        });
        // Token and life are one: it is spent if and only if the next life began.
        let after = api.node(&nodes[0].id).await.incarnation;
        let again = nodes[0].ask_to_join(&gateways, &token, true);
        if said.code == Some(0) || after > before {
            assert!(again.err.contains("used already"), "{point}: {again:?}");
        } else {
            assert_eq!(again.code, Some(0), "{point}: {again:?}");
        }
        if said.code != Some(0) && after > before {
            // The answer was lost on the way: whoever has the machine asks for another token.
            let token = api.join_token(Some(&nodes[0].id)).await;
            nodes[0].enrol(&gateways, &token, true);
        }
        nodes[0].start();
        let command = api.run(&nodes[0].id, COUNT.name, point, Node::counted(0, 0)).await;
        assert_eq!(api.settled(&command).await.state, "succeeded", "{point}");
    }
    assert_eq!(cluster.nodes[0].count(0), 2);
}

async fn at_the_write_of_a_requeue(blow: Blow) {
    let mut cluster = Cluster::start(1, 1).await;
    let Cluster { api, replicas, nodes, database, .. } = &mut cluster;
    let node = nodes[0].id.clone();
    nodes[0].hang_driver(true);
    let mut hung = Vec::new();
    for gpu in [0, 1] {
        hung.push(api.run(&node, COUNT_BULK.name, &format!("hang-{gpu}"), Node::counted(gpu, 0)).await);
    }
    nodes[0].hangs(2).await;
    for command in &hung {
        api.cancel(command).await;
        // The control plane counts its worker as free, and the node does not.
        let settled = api.settled(command).await;
        assert_eq!(settled.state, "cancelled", "{settled:?}");
    }
    nodes[0].hang_driver(false);
    let mut command = None;
    for point in ["requeue.before-write", "requeue.after-write"] {
        blow.prepare(&mut replicas[0], point).await;
        let ask = api.run(&node, COUNT_BULK.name, "busy", Node::counted(2, 0));
        let (asked, ()) = tokio::join!(ask, blow.fall(&mut replicas[0], database));
        command = Some(asked);
    }
    assert_eq!(nodes[0].count(2), 0);
    let _pipe = nodes[0].release();
    succeeds_once(api, &nodes[0], 2, 0, (&command.expect("it was asked"), "busy")).await;
}

async fn at_a_step_of_the_log(blow: Blow) {
    let mut cluster = Cluster::start(1, 1).await;
    let mut expected = Vec::new();
    for (gpu, point) in (0..).zip(["log.before-write", "log.after-write"]) {
        let Cluster { api, replicas, nodes, database, .. } = &mut cluster;
        blow.prepare(&mut replicas[0], point).await;
        nodes[0].start();
        let ask = api.run(&nodes[0].id, COUNT_DESTRUCTIVE.name, point, Node::counted(gpu, 300));
        let (command, ()) = tokio::join!(ask, blow.fall(&mut replicas[0], database));
        succeeds_once(api, &nodes[0], gpu, 0, (&command, point)).await;
        for entry in ["command-queued", "command-settled"] {
            expected.push((entry.to_owned(), command.id.clone()));
        }
        // Otherwise the next round begins in the middle.
        let logged = tokio::time::timeout(PATIENCE, async {
            while api.call::<Value>("audit.head", json!({})).await["size"].as_u64() < Some(expected.len() as u64) {
                tokio::task::yield_now().await;
            }
        });
        logged.await.unwrap_or_else(|_| panic!("the log does not grow after {point}"));
    }
    let api = &cluster.api;
    let entries: Value = api.call("audit.entries", json!({ "from": 0, "limit": 100 })).await;
    let read = |it: &Value| {
        let body: Value = serde_json::from_str(it["body"].as_str().expect("one's own")).expect("JSON");
        let text = |name: &str| body[name].as_str().expect("text").to_owned();
        (text("entry"), text("command"))
    };
    let logged: Vec<_> = entries["items"].as_array().expect("a page").iter().map(read).collect();
    assert_eq!(logged, expected, "each once, in order");
    let admin = Operator::new(&cluster.replicas[0].api_url(), api.token());
    assert!(admin.say(&["audit", "verify"]).await.contains("4 entries"));
}

macro_rules! blows {
    ($($over:ident: $replica:ident, $postgres:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $replica() {
            $over(Blow::Replica).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn $postgres() {
            $over(Blow::Postgres).await;
        }
    )*};
}

blows! {
    at_every_write_of_a_command:
        promise_11_a_replica_killed_at_any_write_of_a_command_repeats_and_loses_nothing,
        promise_02_a_postgres_killed_at_any_write_of_a_command_repeats_and_loses_nothing;
    at_every_write_of_a_session:
        promise_11_a_replica_killed_while_a_node_says_hello_repeats_and_loses_nothing,
        promise_02_a_postgres_killed_while_a_node_says_hello_repeats_and_loses_nothing;
    at_the_write_of_a_cancel:
        promise_11_a_replica_killed_while_it_cancels_still_cancels,
        promise_13_a_postgres_killed_during_a_cancel_still_cancels;
    at_the_write_of_a_sweep:
        promise_04_a_replica_killed_while_it_sweeps_leaves_nothing_in_progress,
        promise_04_a_postgres_killed_during_a_sweep_leaves_nothing_in_progress;
    at_the_write_of_a_join:
        a_replica_killed_during_a_join_leaves_token_and_life_together,
        a_postgres_killed_during_a_join_leaves_token_and_life_together;
    at_the_write_of_a_requeue:
        promise_11_a_replica_killed_while_it_puts_back_repeats_and_loses_nothing,
        promise_02_a_postgres_killed_while_a_command_is_put_back_repeats_and_loses_nothing;
    at_a_step_of_the_log:
        a_replica_killed_while_it_logs_logs_each_event_once,
        a_postgres_killed_while_it_is_logged_has_each_event_once;
}
