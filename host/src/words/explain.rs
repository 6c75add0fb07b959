//! Why a command waits, or what happened to it, in words: what `commands explain` prints and the page of a command shows.
//!
//! **Invariant:** a pure function of what the API says; every state has an answer.

use bc_proto::manifest::Lane;
use bc_proto::rules::lane::LIMITS;
use bc_proto::rules::state::State;
use time::OffsetDateTime;

use super::meaning::meaning;
use super::{distance, moment, state};
use crate::api::types::{Command, Node, RunnerGateway};

/// What stands around a command that is not over.
#[derive(Debug, Clone, Default)]
pub struct Around {
    /// Its node.
    pub node: Option<Node>,
    /// The node's commands that are in flight, of any lane.
    pub in_flight: Vec<Command>,
    /// Who leases for it, where the node is a gateway that holds no session.
    pub runner: Option<RunnerGateway>,
}

/// The reasons, the strongest first.
pub fn explain(command: &Command, around: &Around, now: OffsetDateTime) -> Vec<String> {
    let mut reasons = Vec::new();
    match state(&command.state) {
        None => reasons.push(format!("this program does not know the state {:?}; use a newer one", command.state)),
        Some(State::Pending) => waits(command, around, now, &mut reasons),
        Some(State::Dispatched | State::Acked | State::Running) if around.runner.is_some() => {
            leased(command, around, now, &mut reasons);
        }
        Some(state @ (State::Dispatched | State::Acked | State::Running)) => {
            reasons.push(match state {
                State::Dispatched => "it was sent to the node, which has not acknowledged it yet".to_owned(),
                State::Acked => {
                    "the node has it in its journal and starts it when a worker of its lane is free".to_owned()
                }
                _ => "it runs on the node".to_owned(),
            });
            connection(around, now, &mut reasons);
            if let Some(at) = command.cancel_requested_at {
                reasons.push(format!(
                    "it was asked to stop {}; the node stops it between two actions and then reports",
                    distance(at, now)
                ));
            }
            reasons.push(
                "if the node never reports, it is settled as failed (timeout) after its deadline and its kind's timeout"
                    .to_owned(),
            );
        }
        Some(state) => {
            let settled = moment(command.settled_at, now);
            let settled = if settled.is_empty() { String::new() } else { format!(" at {settled}") };
            let reason = if command.reason.is_empty() { String::new() } else { format!(", reason {}", command.reason) };
            reasons.push(format!("it is over: {state}{reason}{settled}"));
            if let Some(meaning) = meaning(&command.reason) {
                reasons.push(meaning.to_owned());
            } else if !command.reason.is_empty() {
                reasons.push("this program does not know that reason; its result may say more".to_owned());
            }
            if let Some(message) = command.result.as_ref().and_then(|result| result["message"].as_str()) {
                reasons.push(format!("the node says: {message}"));
            }
        }
    }
    reasons
}

fn waits(command: &Command, around: &Around, now: OffsetDateTime, reasons: &mut Vec<String>) {
    if command.awaiting_approval {
        let batch = command.batch_id.as_deref().unwrap_or("its batch");
        reasons.push(format!(
            "it is held until {batch} has its approvals; `better-compute batch show {batch}` says which are missing"
        ));
    }
    match around.runner.as_ref().and_then(|it| it.slug.as_deref()) {
        Some(slug) => reasons.push(format!(
            "no runner has leased it yet: is `bcd runner --gateway {slug}` up? `better-compute runner show` says who may lease, and what \
             is leased"
        )),
        None => connection(around, now, reasons),
    }
    if let Some(at) = command.not_before.filter(|at| *at > now) {
        reasons.push(format!(
            "it is not sent before {}; the node had no free worker when it was sent",
            moment(Some(at), now)
        ));
    }
    // Runners take as many as there are of them: lanes order what they lease, and bound nothing.
    if let Some((lane, limit)) = lane(&command.lane).filter(|_| around.runner.is_none()) {
        let outstanding = around.in_flight.iter().filter(|other| other.lane == command.lane);
        let outstanding: Vec<_> = outstanding.map(|other| other.id.as_str()).collect();
        if outstanding.len() >= usize::try_from(limit).unwrap_or(usize::MAX) {
            reasons.push(format!(
                "the lane {lane} is full ({} of {limit}): {}",
                outstanding.len(),
                outstanding.join(", ")
            ));
        }
    }
    if reasons.is_empty() && command.not_after > now {
        reasons.push("nothing holds it: it is about to be sent".to_owned());
    }
    reasons.push(if command.not_after > now {
        format!("its deadline passes {}; then it expires and never runs", distance(command.not_after, now))
    } else {
        format!("its deadline passed {}; it is about to expire", distance(command.not_after, now))
    });
}

fn leased(command: &Command, around: &Around, now: OffsetDateTime, reasons: &mut Vec<String>) {
    let leases = around.runner.iter().flat_map(|it| &it.leases);
    let Some(lease) = leases.into_iter().find(|it| it.command_id == command.id) else {
        reasons
            .push("its lease has ended; the sweeper settles it, or makes it pending again, within seconds".to_owned());
        return;
    };
    let since = distance(lease.started_at.unwrap_or(lease.leased_at), now);
    reasons.push(match lease.started_at {
        Some(_) => format!("{} started it {since}", lease.leased_by),
        None => format!("{} leased it {since} and has not started it yet", lease.leased_by),
    });
    if lease.earlier_leases > 0 {
        reasons.push(format!("{} lease(s) of it ran out before", lease.earlier_leases));
    }
    if let Some(at) = command.cancel_requested_at {
        reasons.push(format!(
            "it was asked to stop {}; its runner is told, and at its next heartbeat at the latest",
            distance(at, now)
        ));
    }
    reasons.push(format!(
        "unless it is renewed, the lease runs out {}; then it settles by itself",
        distance(lease.expires_at, now)
    ));
}

fn connection(around: &Around, now: OffsetDateTime, reasons: &mut Vec<String>) {
    let Some(node) = around.node.as_ref().filter(|node| !node.connected) else {
        return;
    };
    reasons.push(match node.last_hello_at {
        Some(at) => format!("the node {} is not connected; its last session began {}", node.name, distance(at, now)),
        None => format!("the node {} is not connected and never was since it was enrolled", node.name),
    });
}

fn lane(word: &str) -> Option<(&str, u32)> {
    let lane = match word {
        "control" => Lane::Control,
        "provision" => Lane::Provision,
        "bulk" => Lane::Bulk,
        _ => return None,
    };
    Some((word, LIMITS.get(lane)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH.saturating_add(time::Duration::days(20_000));

    fn seen(id: u8, change: &Value) -> Command {
        let mut document = json!({
            "id": format!("cmd_{id}"), "tenantId": "tenant_1", "nodeId": "node_1", "seq": id, "kind": "logs.collect",
            "kindDigest": "ab", "lane": "bulk", "state": "pending", "reason": "", "payload": {}, "idempotencyKey": "api:1",
            "retrySafe": true, "destructive": false, "notAfter": "2024-10-04T00:09:30Z",
            "createdAt": "2024-10-03T23:59:30Z",
        });
        for (key, value) in change.as_object().expect("an object") {
            document[key] = value.clone();
        }
        serde_json::from_value(document).expect("a command")
    }

    fn node(change: &Value) -> Node {
        let mut document = json!({
            "id": "node_1", "tenantId": "tenant_1", "name": "gpu-17", "labels": {}, "role": "host", "incarnation": 1,
            "connected": true, "sessionEpoch": 4, "createdAt": "2024-10-01T00:00:00Z",
        });
        for (key, value) in change.as_object().expect("an object") {
            document[key] = value.clone();
        }
        serde_json::from_value(document).expect("a node")
    }

    fn runner(leases: &Value) -> Around {
        let gateway = json!({ "nodeId": "node_1", "slug": "berlin-1", "logins": ["runner_berlin"], "pending": 1, "leases": leases });
        Around { runner: serde_json::from_value(gateway).expect("a gateway"), ..Around::default() }
    }

    #[test]
    fn every_way_to_wait_and_to_end_is_said_in_words() {
        let connected = || Around { node: Some(node(&json!({}))), ..Around::default() };
        let away = Around {
            node: Some(node(&json!({ "connected": false, "lastHelloAt": "2024-10-03T21:00:00Z" }))),
            ..Around::default()
        };
        let never = Around { node: Some(node(&json!({ "connected": false }))), ..Around::default() };
        let flying = |id| seen(id, &json!({ "state": "running" }));
        let other_lane = seen(3, &json!({ "state": "running", "lane": "control" }));
        let full = Around { in_flight: vec![flying(1), flying(2), other_lane.clone()], ..connected() };
        let not_full = Around { in_flight: vec![flying(1), other_lane], ..connected() };
        let result = json!({ "message": "GPU 3 is used by 4242" });
        let cases = vec![
            ("about to be sent", seen(9, &json!({})), not_full),
            ("node away", seen(9, &json!({})), away.clone()),
            ("node never there", seen(9, &json!({})), never),
            ("lane full", seen(9, &json!({})), full),
            ("not before", seen(9, &json!({ "notBefore": "2024-10-04T00:00:12Z" })), connected()),
            ("no runner", seen(9, &json!({})), runner(&json!([]))),
            (
                "leased",
                seen(9, &json!({ "state": "dispatched" })),
                runner(&json!([{
                "commandId": "cmd_9", "leasedBy": "runner_berlin (one)", "leasedAt": "2024-10-03T23:59:50Z",
                "expiresAt": "2024-10-04T00:09:50Z", "earlierLeases": 1 }])),
            ),
            (
                "run by a runner",
                seen(9, &json!({ "state": "running", "cancelRequestedAt": "2024-10-03T23:59:55Z" })),
                runner(&json!([{
                "commandId": "cmd_9", "leasedBy": "runner_berlin", "leasedAt": "2024-10-03T23:59:50Z",
                "startedAt": "2024-10-03T23:59:51Z", "expiresAt": "2024-10-04T00:09:50Z", "earlierLeases": 0 }])),
            ),
            ("lease over", seen(9, &json!({ "state": "running" })), runner(&json!([]))),
            ("approval", seen(9, &json!({ "awaitingApproval": true, "batchId": "batch_7" })), connected()),
            ("deadline over", seen(9, &json!({ "notAfter": "2024-10-03T23:59:58Z" })), connected()),
            ("sent", seen(9, &json!({ "state": "dispatched" })), away),
            ("acked", seen(9, &json!({ "state": "acked" })), connected()),
            (
                "to stop",
                seen(9, &json!({ "state": "running", "cancelRequestedAt": "2024-10-03T23:59:55Z" })),
                connected(),
            ),
            ("rejected", seen(9, &json!({ "state": "rejected", "reason": "NO_SPACE" })), Around::default()),
            (
                "failed",
                seen(
                    9,
                    &json!({ "state": "failed", "reason": "guest-failure", "result": result,
                            "settledAt": "2024-10-03T23:59:59Z" }),
                ),
                Around::default(),
            ),
            ("expired", seen(9, &json!({ "state": "expired", "reason": "not_after" })), Around::default()),
            ("succeeded", seen(9, &json!({ "state": "succeeded" })), Around::default()),
            ("newer reason", seen(9, &json!({ "state": "failed", "reason": "sunspots" })), Around::default()),
            ("newer state", seen(9, &json!({ "state": "paused" })), Around::default()),
        ];
        let said = cases.into_iter().map(|(title, seen, around)| {
            let reasons = explain(&seen, &around, NOW);
            format!("{title}:\n  {}", reasons.join("\n  "))
        });
        insta::assert_snapshot!(said.collect::<Vec<_>>().join("\n"));
    }
}
