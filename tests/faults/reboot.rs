//! `node.reboot`, the component as it is shipped, on machines whose systemd is played.

use std::time::Duration;

use bc_host::api::types::Command;
use bc_proto::quantity::Span;
use bc_tests::cluster::node::Node;
use bc_tests::cluster::{COUNT, Cluster};
use serde_json::{Value, json};

const REBOOT: &str = "node.reboot";

/// What a crash at a point leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Nothing: the command is delivered once more, and runs.
    Nothing,
    /// A run that was cut off.
    Interrupted,
    /// The intent, which nobody carries out any more.
    Intent,
    /// The intent, and perhaps systemd has it.
    Either,
    /// A reboot that comes.
    Reboot,
}

/// Every point that one `node.reboot` passes, in its order.
const POINTS: [(&str, u32, Left); 17] = [
    ("journal.before-save", 1, Left::Nothing),
    ("journal.after-save", 1, Left::Interrupted),
    ("frame.before-send", 1, Left::Interrupted),
    ("frame.after-send", 1, Left::Interrupted),
    ("frame.before-send", 2, Left::Interrupted),
    ("frame.after-send", 2, Left::Interrupted),
    ("run.before-start", 1, Left::Interrupted),
    ("run.after-start", 1, Left::Interrupted),
    ("effect.before-intent", 1, Left::Interrupted),
    ("effect.after-intent", 1, Left::Interrupted),
    ("effect.before-outcome", 1, Left::Interrupted),
    ("effect.after-outcome", 1, Left::Interrupted),
    ("journal.before-save", 2, Left::Interrupted),
    ("journal.after-save", 2, Left::Intent),
    ("intent.before-carry-out", 1, Left::Intent),
    ("intent.after-carry-out", 1, Left::Either),
    ("intent.carried-out", 1, Left::Reboot),
];

async fn cluster() -> Cluster {
    let cluster = Cluster::start(1, 1).await;
    cluster.api.register(bc_tests::inspected(REBOOT).bytes).await;
    cluster
}

fn end(command: &Command) -> (&str, &str, Option<&Value>) {
    (&command.state, &command.reason, command.result.as_ref())
}

/// That a command is over, as the boot that it asked for shows.
async fn is_rebooted(cluster: &Cluster, command: &Command) {
    let settled = cluster.api.settled(command).await;
    assert_eq!(end(&settled), ("succeeded", "", Some(&json!({ "rebooted": true }))), "{settled:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_01_over_all_crash_points_around_node_reboot_the_machine_boots_at_most_once() {
    let mut cluster = cluster().await;
    let node = cluster.nodes[0].id.clone();
    for (point, n, left) in POINTS {
        let key = format!("{point}:{n}");
        let before = cluster.nodes[0].systemd().asked().len();
        cluster.nodes[0].start_to_crash(point, n);
        let command = cluster.api.run(&node, REBOOT, &key, json!({})).await;
        cluster.nodes[0].process().crashed().await;
        // The next daemon begins before the boot does, if one comes at all.
        cluster.nodes[0].start();
        if left == Left::Nothing {
            cluster.nodes[0].is_to_reboot(before + 1).await;
        } else {
            let next = cluster.api.run(&node, COUNT.name, &format!("after {key}"), Node::counted(0, 0)).await;
            assert_eq!(cluster.api.settled(&next).await.state, "succeeded", "{key}: the node serves");
        }
        let asked = cluster.nodes[0].systemd().asked().len() - before;
        match left {
            Left::Interrupted | Left::Intent => assert_eq!(asked, 0, "{key}"),
            Left::Nothing | Left::Reboot => assert_eq!(asked, 1, "{key}"),
            Left::Either => assert!(asked <= 1, "{key}: {asked}"),
        }
        if left == Left::Interrupted {
            let settled = cluster.api.settled(&command).await;
            assert_eq!((settled.state.as_str(), settled.reason.as_str()), ("failed", "interrupted"), "{key}");
        } else {
            assert_eq!(cluster.api.get(&command).await.settled_at, None, "{key}: nothing is said before the boot");
            // What systemd was asked for, or somebody who wonders: one boot it is.
            cluster.nodes[0].reboot();
            cluster.nodes[0].start();
            is_rebooted(&cluster, &command).await;
        }
        let again = cluster.api.run(&node, REBOOT, &key, json!({})).await;
        assert_eq!(again.id, command.id, "{key}");
        assert!(cluster.nodes[0].systemd().asked().len() - before <= 1, "{key}: it boots again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_01_a_reboot_that_is_under_way_is_neither_called_off_nor_disturbed() {
    let mut cluster = cluster().await;
    let node = cluster.nodes[0].id.clone();
    let command = cluster.api.run(&node, REBOOT, "reboot", json!({ "reason": "a new kernel" })).await;
    cluster.nodes[0].is_to_reboot(1).await;
    let asked = cluster.nodes[0].systemd().asked();
    let words = format!(
        "--on-active=100ms --timer-property=AccuracySec=100ms --unit=bcd-reboot-{id} --description=Reboot for {id}: a new kernel \
         --no-ask-password systemctl reboot",
        id = command.id
    );
    assert_eq!(asked, [words]);
    // Nothing begins now, and it is too late for a cancel.
    let next = cluster.api.run(&node, COUNT.name, "next", Node::counted(0, 0)).await;
    assert_eq!(cluster.api.cancel(&command).await.settled_at, None);
    cluster.nodes[0].process().has_said("carrying out what ends the daemon").await;
    assert_eq!((cluster.api.get(&next).await.settled_at, cluster.nodes[0].count(0)), (None, 0));
    // The gateway is away while it boots.
    cluster.replicas[0].kill();
    cluster.nodes[0].reboot();
    cluster.nodes[0].start();
    cluster.replicas[0].restart().await;
    is_rebooted(&cluster, &command).await;
    assert_eq!(cluster.api.settled(&next).await.state, "succeeded", "it was put back");
    assert_eq!((cluster.nodes[0].systemd().asked().len(), cluster.nodes[0].count(0)), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_01_a_reboot_that_is_inhibited_or_refused_fails_and_says_by_whom() {
    let cluster = cluster().await;
    let node = cluster.nodes[0].id.clone();
    let systemd = cluster.nodes[0].systemd();
    let delays = ["shutdown", "NetworkManager", "it turns networks off", "delay"];
    systemd.inhibit(&[delays, ["sleep:shutdown", "Unattended Upgrades", "packages are being installed", "block"]]);
    let inhibited = "a reboot is inhibited by Unattended Upgrades (pid 812): packages are being installed";
    let settled = cluster.api.settled(&cluster.api.run(&node, REBOOT, "inhibited", json!({})).await).await;
    let result = settled.result.as_ref().expect("it says why");
    assert_eq!((settled.state.as_str(), &result["code"]), ("failed", &json!("inhibited")), "{settled:?}");
    assert!(result["message"].as_str().is_some_and(|it| it.starts_with(inhibited)), "{result}");

    systemd.inhibit(&[delays]);
    systemd.refuse("Failed to start transient timer unit: Access denied");
    let settled = cluster.api.settled(&cluster.api.run(&node, REBOOT, "refused", json!({})).await).await;
    let message = "systemd-run ended with exit code 1: Failed to start transient timer unit: Access denied";
    let expected = json!({ "outcome": "reboot-refused", "message": message });
    assert_eq!(end(&settled), ("failed", "reboot-refused", Some(&expected)), "{settled:?}");
    assert_eq!(systemd.asked(), [""; 0]);

    // It comes when the timer is set already, and systemd heeds it.
    systemd.refuse("");
    let command = cluster.api.run(&node, REBOOT, "late", json!({})).await;
    cluster.nodes[0].is_to_reboot(1).await;
    systemd.inhibit(&[["shutdown", "Unattended Upgrades", "packages are being installed", "block"]]);
    systemd.unit("failed");
    let settled = cluster.api.settled(&command).await;
    let expected = json!({ "outcome": "inhibited", "message": inhibited });
    assert_eq!(end(&settled), ("failed", "inhibited", Some(&expected)), "{settled:?}");
    // And the node serves.
    let next = cluster.api.run(&node, COUNT.name, "next", Node::counted(0, 0)).await;
    assert_eq!(cluster.api.settled(&next).await.state, "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_04_a_reboot_that_never_comes_ends_by_its_timeout() {
    let mut cluster = Cluster::start(1, 1).await;
    let quick = bc_tests::repacked(REBOOT, |manifest| manifest.timeout = Span(Duration::from_secs(3)));
    cluster.api.register(quick.bytes).await;
    let node = cluster.nodes[0].id.clone();
    let command = cluster.api.run_for(&node, REBOOT, "never", json!({}), 10).await;
    cluster.nodes[0].is_to_reboot(1).await;
    let settled = cluster.api.settled(&command).await;
    assert_eq!((settled.state.as_str(), settled.reason.as_str()), ("failed", "timeout"), "{settled:?}");
    // One that comes after all changes nothing of that.
    cluster.nodes[0].reboot();
    cluster.nodes[0].start();
    let next = cluster.api.run(&node, COUNT.name, "next", Node::counted(0, 0)).await;
    assert_eq!(cluster.api.settled(&next).await.state, "succeeded");
    assert_eq!(cluster.api.get(&command).await.state, "failed");
    assert_eq!(cluster.nodes[0].systemd().asked().len(), 1);
}
