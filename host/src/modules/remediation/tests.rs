//! The module on a real Postgres, at a time of the test's own. Each pass is that of a new process: the module has no state.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bc_proto::batch::Approval;
use bc_proto::id::{AllocationId, CommandId, NodeId};
use bc_proto::manifest::Manifest;
use bc_proto::rules::attest;
use bc_proto::rules::remediation::Limits;
use bc_proto::rules::state::{Event, State as Stands};
use bc_proto::sign::SecretKey;
use bc_proto::spec::{HostSettings, Instance};
use bc_proto::wire;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use super::*;
use crate::desired::{self, Author, NewReservation};
use crate::pki::{Authority, Peer};
use crate::queue;
use crate::queue::settle::Report;
use crate::store::batches::State as Batched;
use crate::store::conditions;
use crate::store::node_certificates::{self, Fingerprint, NewCertificate};
use crate::store::remediations::{Attempt, Standing};
use crate::store::{batches as stored_batches, commands, kinds, nodes, remediations, unix_ms};
use crate::testing::{Fleet, approver_key, at, greeting, two_of_a_and_one_of_b, uuid};

const GPU: &str = "GPU-a";
const OTHER: &str = "GPU-b";

/// A fleet, its module and its clock.
struct Stage {
    fleet: Fleet,
    seconds: Arc<AtomicI64>,
    limits: Limits,
    pki: trust::Settings,
}

/// A node with a session.
#[derive(Clone, Copy)]
struct Live {
    id: NodeId,
    epoch: u64,
}

impl Stage {
    /// With both kinds: the reset is attested, the boot ends the daemon.
    async fn new() -> Self {
        let stage = Self {
            fleet: Fleet::new().await,
            seconds: Arc::default(),
            limits: Limits { breaker_percent: 100, ..Limits::default() },
            pki: trust::Settings::default(),
        };
        stage.register("gpu.reset", &["destructive", "attested"]).await;
        stage.register("node.reboot", &["destructive", "self-terminating"]).await;
        stage
    }

    async fn register(&self, name: &str, traits: &[&str]) {
        let mut digest = [9; 32];
        digest[..16].copy_from_slice(uuid().as_bytes());
        let text = format!(
            "name = '{name}'\nversion = '1.0.0'\nsummary = 'x'\nmodule = 'test'\nlane = 'control'\ntimeout = '1m'\n\
             roles = ['host']\ntraits = {traits:?}\npayload = {{ type = 'object' }}\nresult = {{}}"
        );
        let manifest = Manifest::from_toml(&text).expect("the test's manifest is right");
        let done = kinds::activate(&mut *self.fleet.db().await, digest, &manifest, b"\0asm", at(0)).await;
        done.expect("a new kind");
    }

    fn now(&self) -> OffsetDateTime {
        at(self.seconds.load(Ordering::Relaxed))
    }

    fn later(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }

    /// The module of a process that has just begun.
    fn module(&self) -> Module {
        let seconds = self.seconds.clone();
        let clock = move || at(seconds.load(Ordering::Relaxed));
        Module {
            pool: self.fleet.pool.clone(),
            bus: Bus::local(),
            world: World::new(clock, |bytes| getrandom::fill(bytes).expect("random bytes")),
            signer: Signer::none(),
            pki: self.pki.clone(),
            limits: self.limits.clone(),
        }
    }

    async fn pass(&self) -> Passed {
        self.module().pass().await.expect("a database")
    }

    /// A node with a session at a gateway that lives as long as the test.
    async fn node(&self) -> Live {
        let id = self.fleet.node().await;
        let session = self.fleet.hello(&greeting(&id), at(0)).await;
        let alive = "insert into gateways (name, seen_at) values ('here', now() + interval '1 day')
                     on conflict (name) do nothing";
        sqlx::query(alive).execute(&self.fleet.pool).await.expect("a database");
        Live { id, epoch: session.epoch }
    }

    /// What a node says is the matter with it.
    async fn has(&self, node: Live, ailments: &[(&str, &str)]) {
        let condition = |(kind, subject): &(&str, &str)| wire::Condition {
            kind: (*kind).into(),
            subject: (*subject).into(),
            message: "so it is".into(),
            since_ms: 1,
        };
        let conditions = ailments.iter().map(condition).collect();
        let report = conditions::Report { node: node.id, epoch: node.epoch, conditions };
        conditions::replace(&mut *self.fleet.db().await, &[report], self.now()).await.expect("a database");
    }

    /// A node whose GPU waits for a reset.
    async fn sick(&self) -> Live {
        let node = self.node().await;
        self.has(node, &[("RowRemapPending", GPU)]).await;
        node
    }

    async fn label(&self, node: Live, name: &str, value: Option<&str>) {
        let labels = [(name.to_owned(), value.map(str::to_owned))].into();
        nodes::set_labels(&mut *self.fleet.db().await, self.fleet.tenant, node.id, &labels).await.expect("a database");
    }

    /// What was tried at a node, oldest first.
    async fn attempts(&self, node: Live) -> Vec<Attempt> {
        let db = &mut *self.fleet.db().await;
        let mut found = remediations::list(db, self.fleet.tenant, Some(node.id), None, 200).await.expect("a database");
        found.sort_by_key(|it| (it.ailment, it.number));
        found
    }

    async fn newest(&self, node: Live) -> Attempt {
        self.attempts(node).await.pop().expect("an attempt")
    }

    /// Why a node is left alone; empty where it is not.
    async fn hold(&self, node: Live) -> String {
        let found = remediations::holds(&mut *self.fleet.db().await, self.fleet.tenant, Some(node.id), 1).await;
        found.expect("a database").pop().map(|it| it.why).unwrap_or_default()
    }

    async fn command(&self, id: CommandId) -> commands::Command {
        let found = commands::find(&mut *self.fleet.db().await, self.fleet.tenant, id).await;
        found.expect("a database").expect("it is there")
    }

    /// The newest attempt's command ends so.
    async fn ends(&self, node: Live, event: Event, reason: &str, attestation: Option<(Vec<u8>, Fingerprint)>) {
        let (node_sig, attested_by) = attestation.map_or((Vec::new(), None), |(sig, by)| (sig, Some(by)));
        let report = Report {
            node: node.id,
            epoch: node.epoch,
            command: self.newest(node).await.command,
            event,
            reason: reason.into(),
            result: b"{}".to_vec(),
            at: Some(self.now()),
            node_sig,
            attested_by,
        };
        let settled = queue::settle(&mut *self.fleet.db().await, &[report], self.now()).await.expect("a database");
        assert_eq!(settled.now.len(), 1);
    }

    /// Nothing was done: the node refused.
    async fn refuses(&self, node: Live) {
        self.ends(node, Event::ReportedRejected, "BATCH_UNAPPROVED", None).await;
    }

    /// Gives a node an Ed25519 key with a certificate.
    async fn certify(&self, node: Live) -> (SecretKey, Fingerprint) {
        let (authority, _) = Authority::create([1; 16], at(0)).expect("an authority");
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let request = CertificateParams::new(Vec::new()).expect("params").serialize_request(&key).expect("a request");
        let peer = Peer { node: node.id, incarnation: 1 };
        let issued = authority.issue_node(request.der(), peer, None, [2; 16], at(0)).expect("it is right");
        let fingerprint: Fingerprint = Sha256::digest(&issued.der).into();
        let new = NewCertificate {
            fingerprint,
            node: node.id,
            incarnation: 1,
            der: &issued.der,
            key: issued.key,
            allowed_kinds: None,
            not_after: issued.not_after,
        };
        node_certificates::create(&mut *self.fleet.db().await, new, at(0)).await.expect("a database");
        (SecretKey::from_pem(&key.serialize_pem()).expect("an Ed25519 key"), fingerprint)
    }

    /// The newest attempt's command succeeds, as a key signs it.
    async fn succeeds(&self, node: Live, (key, fingerprint): &(SecretKey, Fingerprint)) {
        let update = wire::Update {
            command: self.newest(node).await.command,
            report: wire::Report::Succeeded,
            reason: String::new(),
            result: b"{}".to_vec(),
            at_ms: 1,
            node_sig: Vec::new(),
        };
        let signature = attest::sign(key, &update).expect("it is an end").as_bytes().to_vec();
        self.ends(node, Event::ReportedSucceeded, "", Some((signature, *fingerprint))).await;
    }

    async fn reserve(&self, node: Live, gpu: &str) -> AllocationId {
        let (id, signer) = (AllocationId::from_uuid(uuid()), Signer::none());
        let author = Author { signer: &signer, name: "somebody", now: self.now() };
        let new = NewReservation { id, gpu: gpu.into(), slot: None, idempotency_key: id.to_string() };
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        desired::reserve(&mut tx, author, (self.fleet.tenant, node.id), new).await.expect("a database");
        tx.commit().await.expect("a commit");
        id
    }

    async fn release(&self, node: Live, id: AllocationId) {
        let signer = Signer::none();
        let author = Author { signer: &signer, name: "somebody", now: self.now() };
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        desired::release(&mut tx, author, (self.fleet.tenant, node.id), id).await.expect("a database");
        tx.commit().await.expect("a commit");
    }

    async fn clear(&self, node: Live) -> u64 {
        let of = (self.fleet.tenant, node.id);
        remediations::clear(&mut *self.fleet.db().await, of, "ann", self.now()).await.expect("a database")
    }

    async fn batch(&self, attempt: &Attempt) -> stored_batches::Batch {
        let found = stored_batches::find(&mut *self.fleet.db().await, self.fleet.tenant, attempt.batch).await;
        found.expect("a database").expect("it is there")
    }

    /// The bodies of the events of a topic, oldest first.
    async fn said(&self, topic: &str) -> Vec<Value> {
        let all = "select body from events where topic = $1 order by xid, id";
        sqlx::query_scalar(all).bind(topic).fetch_all(&self.fleet.pool).await.expect("a database")
    }
}

#[tokio::test]
async fn an_attempt_is_a_row_a_batch_of_one_leaf_and_a_command_that_presupposes_the_newest_spec() {
    let stage = Stage::new().await;
    let node = stage.node().await;
    stage.has(node, &[("RebootRequired", ""), ("RowRemapPending", GPU), ("RowRemapPending", OTHER)]).await;
    stage.reserve(node, "GPU-elsewhere").await;
    let module = stage.module();
    let mut signals = module.bus.subscribe();
    let passed = module.pass().await.expect("a database");
    assert_eq!(passed, Passed { begun: 1, ..Passed::default() });
    let told = [signals.try_recv(), signals.try_recv()].map(|it| it.expect("a signal"));
    assert_eq!(told, [Signal::Work { node: node.id }, Signal::Events]);

    let attempt = stage.newest(node).await;
    assert_eq!(
        (attempt.number, attempt.standing, &attempt.gpus[..]),
        (1, Standing::Pending, &[GPU.to_owned(), OTHER.into()][..])
    );
    let command = stage.command(attempt.command).await;
    assert_eq!((command.kind.as_str(), &command.payload), ("gpu.reset", &json!({ "gpus": [GPU, OTHER] })));
    assert_eq!((command.state, command.is_held, command.batch), (Stands::Pending, false, Some(attempt.batch)));
    assert_eq!(command.idempotency_key, format!("remediation:{}:RowRemapPending:1", node.id));
    let generation: Option<i64> = sqlx::query_scalar("select min_generation from commands where id = $1")
        .bind(attempt.command.uuid())
        .fetch_one(&stage.fleet.pool)
        .await
        .expect("a database");
    assert_eq!(generation, Some(1));
    let document = stage.batch(&attempt).await.document;
    assert_eq!((document.requested_by.as_str(), document.size), (NAME, 1));
    let scope = stored_batches::scope(&mut *stage.fleet.db().await, attempt.batch).await.expect("a database");
    let bytes = bc_proto::canonical::to_vec(&command.payload).expect("JSON");
    assert_eq!((scope[0].subject.as_str(), scope[0].kind.as_str()), (node.id.to_string().as_str(), "gpu.reset"));
    assert_eq!(scope[0].payload_sha256, Some(bc_proto::canonical::sha256_hex(&bytes)));
    assert_eq!(stage.said("remediation.started").await.len(), 1);
    assert_eq!(stage.pass().await, Passed::default(), "it is under way");
    assert_eq!(stage.hold(node).await, "");
}

#[tokio::test]
async fn promise_16_the_budget_of_attempts_outlives_restarts() {
    let stage = Stage::new().await;
    let node = stage.sick().await;
    for number in 1..=3 {
        assert_eq!(stage.pass().await.begun, 1, "attempt {number}");
        stage.refuses(node).await;
        assert_eq!(stage.pass().await, Passed { ended: 1, ..Passed::default() }, "what it has is not known yet");
        stage.later(300);
    }
    let passed = stage.pass().await;
    assert_eq!((passed.begun, passed.held), (0, 1));
    assert_eq!(stage.hold(node).await, "out-of-attempts");
    assert_eq!(stage.pass().await, Passed::default(), "a reason is noted once");
    assert_eq!(
        stage.said("remediation.held").await,
        [json!({ "ailment": "RowRemapPending", "why": "out-of-attempts" })]
    );
    // The first attempt is a day ago.
    stage.later(24 * 3_600 - 900);
    assert_eq!(stage.pass().await.begun, 1);
    let standings: Vec<_> = stage.attempts(node).await.iter().map(|it| (it.number, it.standing)).collect();
    let failed = Standing::Failed;
    assert_eq!(standings, [(1, failed), (2, failed), (3, failed), (4, Standing::Pending)]);
    assert_eq!(stage.hold(node).await, "", "it is not held any more");
}

#[tokio::test]
async fn promise_16_an_ambiguous_outcome_is_not_retried_until_somebody_has_looked() {
    let stage = Stage::new().await;
    let node = stage.sick().await;
    stage.pass().await;
    stage.ends(node, Event::ReportedFailed, "interrupted", None).await;
    assert_eq!(stage.pass().await, Passed { ended: 1, ..Passed::default() });
    assert_eq!(stage.newest(node).await.standing, Standing::Ambiguous);
    stage.later(300);
    assert_eq!(stage.pass().await, Passed { held: 1, ..Passed::default() });
    stage.later(365 * 24 * 3_600);
    assert_eq!(stage.pass().await, Passed::default());
    assert_eq!(stage.hold(node).await, "ambiguous");
    assert_eq!((stage.clear(node).await, stage.clear(node).await), (1, 0));
    assert_eq!(stage.pass().await.begun, 1);
    let cleared = stage.attempts(node).await[0].cleared.clone();
    assert_eq!(cleared, Some((stage.now(), "ann".to_owned())));
}

#[tokio::test]
async fn promise_16_a_success_that_the_node_did_not_sign_counts_as_ambiguous() {
    let stage = Stage::new().await;
    let [forged, swapped, honest] = [stage.sick().await, stage.sick().await, stage.sick().await];
    assert_eq!(stage.pass().await.begun, 3);
    stage.ends(forged, Event::ReportedSucceeded, "", None).await;
    let (_, fingerprint) = stage.certify(swapped).await;
    stage.succeeds(swapped, &(SecretKey::from_seed([5; 32]), fingerprint)).await;
    let own = stage.certify(honest).await;
    stage.succeeds(honest, &own).await;
    stage.has(honest, &[]).await;
    assert_eq!(stage.pass().await.ended, 3);
    stage.later(300);
    stage.pass().await;
    for (node, standing, hold) in [
        (forged, Standing::Ambiguous, "ambiguous"),
        (swapped, Standing::Ambiguous, "ambiguous"),
        (honest, Standing::Succeeded, ""),
    ] {
        assert_eq!((stage.newest(node).await.standing, stage.hold(node).await.as_str()), (standing, hold));
    }
}

#[tokio::test]
async fn a_boot_that_the_next_hello_proves_is_a_success() {
    let stage = Stage::new().await;
    let node = stage.node().await;
    stage.has(node, &[("RebootRequired", "")]).await;
    assert_eq!(stage.pass().await.begun, 1);
    let sent = stage.fleet.claim(&node.id, node.epoch, stage.now()).await;
    assert_eq!(sent.len(), 1);
    let told = queue::mark(
        &mut *stage.fleet.db().await,
        &[queue::mark::Mark {
            node: node.id,
            epoch: node.epoch,
            command: stage.newest(node).await.command,
            event: Event::Started,
        }],
    )
    .await;
    told.expect("a database");
    stage.fleet.hello(&queue::hello::Greeting { boot: "boot 2".into(), ..greeting(&node.id) }, stage.now()).await;
    // Its condition still stands as it was before the boot.
    assert_eq!(stage.pass().await, Passed { ended: 1, ..Passed::default() });
    assert_eq!(stage.newest(node).await.standing, Standing::Succeeded);
    stage.later(300);
    assert_eq!(stage.pass().await.begun, 1, "the boot did not help, by the node's own word");
}

#[tokio::test]
async fn promise_16_the_breaker_bounds_the_fleet_within_its_window() {
    let mut stage = Stage::new().await;
    stage.limits.breaker_percent = 50;
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(stage.sick().await);
    }
    let passed = stage.pass().await;
    assert_eq!((passed.begun, passed.held), (2, 2));
    let mut held = Vec::new();
    for node in &nodes {
        held.push(stage.hold(*node).await);
    }
    held.sort();
    assert_eq!(held, ["", "", "breaker", "breaker"]);
    // It counts nodes: one that was attempted already may be again.
    let first = nodes[0];
    stage.refuses(first).await;
    assert_eq!(stage.pass().await.ended, 1);
    stage.later(300);
    assert_eq!(stage.pass().await.begun, 1);
    stage.later(3_300);
    assert_eq!(stage.pass().await.begun, 1, "the second attempt at the first still counts");
    stage.later(300);
    assert_eq!(stage.pass().await.begun, 1, "its window is over");
}

#[tokio::test]
async fn promise_16_no_more_nodes_of_a_pool_are_away_than_allowed() {
    let mut stage = Stage::new().await;
    stage.limits.max_away = [("train".to_owned(), 2)].into();
    let mut pool = Vec::new();
    for _ in 0..3 {
        let node = stage.node().await;
        stage.label(node, "pool", Some("train")).await;
        stage.has(node, &[("RebootRequired", "")]).await;
        pool.push(node);
    }
    assert_eq!(stage.pass().await.begun, 2);
    assert_eq!(stage.hold(pool[2]).await, "pool-away");
    stage.refuses(pool[0]).await;
    assert_eq!(stage.pass().await.begun, 1, "one of them is back");
    // One whose session is gone counts as well.
    let away = stage.node().await;
    let lone = stage.node().await;
    stage.has(lone, &[("RebootRequired", "")]).await;
    crate::store::gateways::close(&mut *stage.fleet.db().await, &[(away.id, away.epoch)]).await.expect("a database");
    assert_eq!((stage.pass().await.begun, stage.hold(lone).await.as_str()), (0, "pool-away"));
}

#[tokio::test]
async fn what_is_protected_in_use_away_or_has_no_kind_is_left_alone() {
    let stage = Stage::new().await;
    let [protected, reserved, passed_through, away, boots] =
        [stage.sick().await, stage.sick().await, stage.sick().await, stage.sick().await, stage.node().await];
    stage.label(protected, "protected", Some("true")).await;
    let allocation = stage.reserve(reserved, GPU).await;
    // Which GPU a MIG instance is of, the control plane cannot know.
    let mig = stage.sick().await;
    stage.reserve(mig, "MIG-1").await;
    let (signer, instance) = (Signer::none(), Instance { id: "vm".into(), pass_through: vec![GPU.into()] });
    let mut tx = stage.fleet.pool.begin().await.expect("a transaction");
    let author = Author { signer: &signer, name: "somebody", now: stage.now() };
    let wanted = (vec![instance], HostSettings::default());
    desired::set(&mut tx, author, (stage.fleet.tenant, passed_through.id), None, wanted).await.expect("a database");
    tx.commit().await.expect("a commit");
    crate::store::gateways::close(&mut *stage.fleet.db().await, &[(away.id, away.epoch)]).await.expect("a database");
    stage.has(boots, &[("RebootRequired", "")]).await;
    sqlx::query("update kinds set status = 'retired' where name = 'node.reboot'")
        .execute(&stage.fleet.pool)
        .await
        .expect("a database");
    stage.label(boots, "pool", Some("boots")).await;
    let passed = stage.pass().await;
    assert_eq!((passed.begun, passed.held), (0, 6));
    for (node, why) in [
        (protected, "protected"),
        (reserved, "in-use"),
        (passed_through, "in-use"),
        (mig, "in-use"),
        (away, "disconnected"),
        (boots, "kind-not-registered"),
    ] {
        assert_eq!(stage.hold(node).await, why);
    }
    stage.release(reserved, allocation).await;
    stage.label(protected, "protected", None).await;
    stage.has(passed_through, &[]).await;
    assert_eq!(stage.pass().await.begun, 2);
    assert_eq!(stage.hold(passed_through).await, "", "it is well");
}

#[tokio::test]
async fn promise_16_two_replicas_that_look_at_once_act_once() {
    let stage = Stage::new().await;
    let mut nodes = Vec::new();
    for _ in 0..5 {
        nodes.push(stage.sick().await);
    }
    let (one, two, three) = (stage.module(), stage.module(), stage.module());
    let (one, two, three) = tokio::join!(one.pass(), two.pass(), three.pass());
    let begun: u64 = [one, two, three].map(|it| it.expect("a database").begun).iter().sum();
    // A node that one of them passes over because another acts, is the next pass's.
    let late = stage.pass().await.begun;
    assert_eq!(begun + late, 5);
    for node in nodes {
        assert_eq!(stage.attempts(node).await.len(), 1);
    }
}

#[tokio::test]
async fn with_approvers_an_attempt_waits_for_people_and_its_batch_ends_with_it() {
    let mut stage = Stage::new().await;
    stage.pki = two_of_a_and_one_of_b();
    let node = stage.sick().await;
    let module = stage.module();
    let mut signals = module.bus.subscribe();
    assert_eq!(module.pass().await.expect("a database").begun, 1);
    assert_eq!(signals.try_recv().expect("a signal"), Signal::Events, "there is no work before it is approved");
    let attempt = stage.newest(node).await;
    assert!(stage.command(attempt.command).await.is_held);
    let batch = stage.batch(&attempt).await;
    for number in [1, 2, 3] {
        let approval = Approval::sign(
            &approver_key(number),
            &batch.document,
            unix_ms(stage.now()),
            unix_ms(stage.now()) + 3_600_000,
        );
        let mut tx = stage.fleet.pool.begin().await.expect("a transaction");
        batches::approve(&mut tx, &stage.pki, stage.fleet.tenant, attempt.batch, &approval, stage.now())
            .await
            .expect("it counts");
        tx.commit().await.expect("a commit");
    }
    assert!(!stage.command(attempt.command).await.is_held);
    assert_eq!(stage.pass().await, Passed::default());
}

#[tokio::test]
async fn an_attempt_that_would_not_be_begun_any_more_is_withdrawn_while_it_waits() {
    let mut stage = Stage::new().await;
    stage.pki = two_of_a_and_one_of_b();
    let [reserved, protected, well, away, sent] =
        [stage.sick().await, stage.sick().await, stage.sick().await, stage.sick().await, stage.sick().await];
    assert_eq!(stage.pass().await.begun, 5);
    let allocation = stage.reserve(reserved, GPU).await;
    stage.label(protected, "protected", Some("true")).await;
    stage.has(well, &[]).await;
    crate::store::gateways::close(&mut *stage.fleet.db().await, &[(away.id, away.epoch)]).await.expect("a database");
    // Somebody let this one go, and its node has it.
    let let_go = "update ready set not_before = '-infinity' where node_id = $1";
    sqlx::query(let_go).bind(sent.id.uuid()).execute(&stage.fleet.pool).await.expect("a database");
    assert_eq!(stage.fleet.claim(&sent.id, sent.epoch, stage.now()).await.len(), 1);
    stage.label(sent, "protected", Some("true")).await;

    assert_eq!(stage.pass().await.withdrawn, 3);
    for (node, why) in [(reserved, "in-use"), (protected, "protected"), (well, "no-longer-needed")] {
        let attempt = stage.newest(node).await;
        assert_eq!((attempt.standing, attempt.reason.as_str()), (Standing::Withdrawn, why));
        let command = stage.command(attempt.command).await;
        assert_eq!((command.state, command.reason.as_str()), (Stands::Cancelled, "cancelled"));
        assert_eq!(stage.batch(&attempt).await.state, Batched::Rejected, "nobody approves it any more");
    }
    for node in [away, sent] {
        assert_eq!(stage.newest(node).await.standing, Standing::Pending);
    }
    assert_eq!(stage.pass().await.withdrawn, 0);
    assert_eq!(stage.hold(reserved).await, "in-use");
    // It counts as no attempt: there are three more.
    stage.release(reserved, allocation).await;
    for number in 2..=4 {
        assert_eq!(stage.pass().await.begun, 1, "attempt {number}");
        assert_eq!(stage.newest(reserved).await.number, number);
        stage.refuses(reserved).await;
        stage.pass().await;
        stage.later(300);
    }
    assert_eq!(stage.pass().await.begun, 0);
    assert_eq!(stage.hold(reserved).await, "out-of-attempts");
}

#[tokio::test]
async fn one_attempt_at_a_time_is_the_tables_own_rule() {
    let stage = Stage::new().await;
    let node = stage.sick().await;
    stage.pass().await;
    let second = Attempt { command: CommandId::from_uuid(uuid()), number: 2, ..stage.newest(node).await };
    let mut tx = stage.fleet.pool.begin().await.expect("a transaction");
    let refused = remediations::insert(&mut tx, &second).await.expect_err("one is pending");
    assert!(format!("{refused:?}").contains("remediations_pending_key"), "{refused:?}");
}
