//! The module on a real Postgres, at a time of the test's own. Each pass is that of a new process: the module has no state.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bc_proto::batch::Approval;
use bc_proto::canonical;
use bc_proto::id::{AllocationId, CommandId, NodeId, WorkflowId};
use bc_proto::manifest::Manifest;
use bc_proto::rules::attest;
use bc_proto::rules::state::Event;
use bc_proto::rules::workflow::{MAX_TRIES, Standing};
use bc_proto::sign::SecretKey;
use bc_proto::wire;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use super::*;
use crate::desired::{self, Author, NewReservation, Reserving};
use crate::pki::{Authority, Peer};
use crate::queue;
use crate::queue::enqueue::{NewCommand, Outcome};
use crate::queue::settle::Report;
use crate::store::kinds::Digest;
use crate::store::node_certificates::{self, Fingerprint, NewCertificate};
use crate::store::quarantines::{self, Quarantine};
use crate::store::workflows::{self, NewTry, Workflow};
use crate::store::{batches as stored_batches, commands, kinds, remediations, unix_ms};
use crate::testing::{Fleet, approver_key, at, greeting, two_of_a_and_one_of_b, uuid};

const STEPS: [&str; 3] = ["metal.disk.wipe", "metal.image.deploy", "diag.nvml"];

/// A fleet of one node with a session, its module and its clock.
struct Stage {
    fleet: Fleet,
    seconds: Arc<AtomicI64>,
    pki: trust::Settings,
    node: NodeId,
    epoch: u64,
    own: (SecretKey, Fingerprint),
    kinds: Vec<(&'static str, Digest)>,
}

impl Stage {
    async fn new() -> Self {
        let fleet = Fleet::new().await;
        let node = fleet.node().await;
        let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
        let own = certify(&fleet, node).await;
        let seconds = Arc::default();
        let mut stage = Self { fleet, seconds, pki: trust::Settings::default(), node, epoch, own, kinds: Vec::new() };
        for (name, traits) in [
            ("metal.disk.wipe", vec!["destructive", "attested"]),
            ("metal.image.deploy", vec!["destructive", "attested"]),
            ("diag.nvml", vec!["retry-safe"]),
        ] {
            let digest = stage.register(name, &traits).await;
            stage.kinds.push((name, digest));
        }
        stage
    }

    async fn register(&self, name: &str, traits: &[&str]) -> Digest {
        let mut digest = [9; 32];
        digest[..16].copy_from_slice(uuid().as_bytes());
        let text = format!(
            "name = '{name}'\nversion = '1.0.0'\nsummary = 'x'\nmodule = 'test'\nlane = 'control'\ntimeout = '1m'\n\
             roles = ['host']\ntraits = {traits:?}\npayload = {{ type = 'object' }}\nresult = {{}}"
        );
        let manifest = Manifest::from_toml(&text).expect("the test's manifest is right");
        let done = kinds::activate(&mut *self.fleet.db().await, digest, &manifest, b"\0asm", at(0)).await;
        done.expect("a new kind");
        digest
    }

    fn now(&self) -> OffsetDateTime {
        at(self.seconds.load(Ordering::Relaxed))
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
        }
    }

    async fn pass(&self) -> Passed {
        self.module().pass().await.expect("a database")
    }

    async fn tries_to_begin(&self, key: &str, kinds: &[&str]) -> Result<Begun, NotBegun> {
        let step = |kind: &&str| NewStep {
            kind: (*kind).to_owned(),
            digest: self.kinds.iter().find(|(name, _)| name == kind).expect("it is registered").1,
            payload: canonical::to_vec(&json!({ "of": kind })).expect("JSON"),
            deadline_seconds: 600,
            is_destructive: kind.starts_with("metal."),
        };
        let new = NewWorkflow {
            id: WorkflowId::from_uuid(uuid()),
            tenant: self.fleet.tenant,
            node: self.node,
            idempotency_key: key.to_owned(),
            request: Sha256::digest(kinds.join(" ")).into(),
            reason: "back from rent".into(),
            requested_by: "ann".into(),
            keeps_quarantine: false,
            steps: kinds.iter().map(step).collect(),
        };
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        let begun = begin(&mut tx, new, self.now()).await.expect("a database");
        tx.commit().await.expect("a commit");
        begun
    }

    /// A workflow of these kinds.
    async fn begins(&self, kinds: &[&str]) -> WorkflowId {
        match self.tries_to_begin("key", kinds).await {
            Ok(Begun::New(id)) => id,
            other => panic!("it is new: {other:?}"),
        }
    }

    async fn workflow(&self, id: WorkflowId) -> Workflow {
        let found = workflows::find(&mut *self.fleet.db().await, self.fleet.tenant, id).await;
        found.expect("a database").expect("it is there")
    }

    /// The state of the workflow, of each of its steps, and why it ended.
    async fn stands(&self, id: WorkflowId) -> String {
        let found = self.workflow(id).await;
        let steps: Vec<_> = found.steps.iter().map(|it| it.standing.to_string()).collect();
        format!("{}: {} [{}]", found.standing, steps.join(", "), found.why)
    }

    /// The open step's command.
    async fn open(&self, id: WorkflowId) -> commands::Command {
        let found = self.workflow(id).await;
        let open = found.steps.iter().filter_map(|it| it.newest).find(|it| it.ended_at.is_none()).expect("a command");
        let found = commands::find(&mut *self.fleet.db().await, self.fleet.tenant, open.command).await;
        found.expect("a database").expect("it is there")
    }

    async fn keys(&self) -> Vec<String> {
        let all = "select idempotency_key from commands where node_id = $1 order by seq";
        sqlx::query_scalar(all).bind(self.node.uuid()).fetch_all(&self.fleet.pool).await.expect("a database")
    }

    async fn reports(&self, command: CommandId, event: Event, reason: &str, result: &Value, by: Option<&SecretKey>) {
        let bytes = result.to_string().into_bytes();
        let update = wire::Update {
            command,
            report: wire::Report::Succeeded,
            reason: String::new(),
            result: bytes.clone(),
            at_ms: 1,
            node_sig: Vec::new(),
        };
        let signature = by.map(|key| attest::sign(key, &update).expect("it is an end").as_bytes().to_vec());
        let report = Report {
            node: self.node,
            epoch: self.epoch,
            command,
            event,
            reason: reason.into(),
            result: bytes,
            at: Some(self.now()),
            node_sig: signature.unwrap_or_default(),
            attested_by: by.map(|_| self.own.1),
        };
        let settled = queue::settle(&mut *self.fleet.db().await, &[report], self.now()).await.expect("a database");
        assert_eq!(settled.now.len(), 1);
    }

    /// The open step succeeds, by the node's own signature.
    async fn succeeds(&self, id: WorkflowId) {
        let command = self.open(id).await.id;
        self.reports(command, Event::ReportedSucceeded, "", &json!({ "status": "pass" }), Some(&self.own.0)).await;
    }

    async fn ends(&self, id: WorkflowId, event: Event, reason: &str) {
        self.reports(self.open(id).await.id, event, reason, &json!({}), None).await;
    }

    async fn quarantine(&self) -> Option<Quarantine> {
        quarantines::find(&mut *self.fleet.db().await, self.node).await.expect("a database")
    }

    async fn reserve(&self) -> Reserving {
        let (id, signer) = (AllocationId::from_uuid(uuid()), Signer::none());
        let author = Author { signer: &signer, name: "somebody", now: self.now() };
        let new = NewReservation { id, gpu: "GPU-a".into(), slot: None, idempotency_key: id.to_string() };
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        let done = desired::reserve(&mut tx, author, (self.fleet.tenant, self.node), new).await.expect("a database");
        tx.commit().await.expect("a commit");
        done
    }

    async fn retries(&self, id: WorkflowId) -> Result<(), NotRetried> {
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        let done = retry(&mut tx, (self.fleet.tenant, id), "bob", self.now()).await.expect("a database");
        tx.commit().await.expect("a commit");
        done
    }

    async fn cancels(&self, id: WorkflowId) {
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        cancel(&mut tx, self.fleet.tenant, id, "bob", self.now()).await.expect("a database").expect("it is there");
        tx.commit().await.expect("a commit");
    }

    async fn said(&self, topic: &str) -> Vec<Value> {
        let all = "select body from events where topic = $1 order by xid, id";
        sqlx::query_scalar(all).bind(topic).fetch_all(&self.fleet.pool).await.expect("a database")
    }
}

/// Gives a node an Ed25519 key with a certificate.
async fn certify(fleet: &Fleet, node: NodeId) -> (SecretKey, Fingerprint) {
    let (authority, _) = Authority::create([1; 16], at(0)).expect("an authority");
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let request = CertificateParams::new(Vec::new()).expect("params").serialize_request(&key).expect("a request");
    let peer = Peer { node, incarnation: 1 };
    let issued = authority.issue_node(request.der(), peer, None, [2; 16], at(0)).expect("it is right");
    let fingerprint: Fingerprint = Sha256::digest(&issued.der).into();
    let new = NewCertificate {
        fingerprint,
        node,
        incarnation: 1,
        der: &issued.der,
        key: issued.key,
        allowed_kinds: None,
        not_after: issued.not_after,
    };
    node_certificates::create(&mut *fleet.db().await, new, at(0)).await.expect("a database");
    (SecretKey::from_pem(&key.serialize_pem()).expect("an Ed25519 key"), fingerprint)
}

#[tokio::test]
async fn a_machine_is_set_apart_goes_through_its_steps_in_order_and_is_let_go() {
    let stage = Stage::new().await;
    let id = stage.begins(&STEPS).await;
    assert_eq!(stage.quarantine().await.map(|it| (it.by, it.workflow)), Some(("ann".into(), Some(id))));
    assert!(matches!(stage.reserve().await, Reserving::Quarantined(_)), "nothing of it is reserved");
    let module = stage.module();
    let mut signals = module.bus.subscribe();
    assert_eq!(module.pass().await.expect("a database"), Passed { begun: 1, ..Passed::default() });
    let told = [signals.try_recv(), signals.try_recv()].map(|it| it.expect("a signal"));
    assert_eq!(told, [Signal::Work { node: stage.node }, Signal::Events]);
    assert_eq!(stage.pass().await, Passed::default(), "the wipe is under way");
    assert_eq!(stage.stands(id).await, "running: open, waiting, waiting []");
    let wipe = stage.open(id).await;
    assert_eq!((wipe.kind.as_str(), &wipe.payload), ("metal.disk.wipe", &json!({ "of": "metal.disk.wipe" })));
    let batch = wipe.batch.expect("its own");
    let scope = stored_batches::scope(&mut *stage.fleet.db().await, batch).await.expect("a database");
    let bytes = canonical::to_vec(&wipe.payload).expect("JSON");
    assert_eq!((scope.len(), scope[0].subject.clone()), (1, stage.node.to_string()));
    assert_eq!(scope[0].payload_sha256, Some(canonical::sha256_hex(&bytes)));

    stage.succeeds(id).await;
    assert_eq!(stage.pass().await, Passed { concluded: 1, begun: 1, ..Passed::default() });
    assert_eq!(stage.stands(id).await, "running: succeeded, open, waiting []");
    assert_ne!(stage.open(id).await.batch, Some(batch), "each has one of its own");
    stage.succeeds(id).await;
    stage.pass().await;
    assert!(stage.quarantine().await.is_some());
    assert_eq!(stage.open(id).await.batch, None, "looking destroys nothing");
    stage.succeeds(id).await;
    assert_eq!(stage.pass().await, Passed { concluded: 1, ended: 1, ..Passed::default() });
    assert_eq!(stage.stands(id).await, "succeeded: succeeded, succeeded, succeeded []");
    let expected =
        [format!("wf:{id}:wipe"), format!("wf:{id}:deploy"), format!("acceptance:{}:1:diag.nvml", stage.node)];
    assert_eq!(stage.keys().await, expected);
    assert_eq!(stage.quarantine().await, None);
    assert!(matches!(stage.reserve().await, Reserving::Made(_)));
    assert_eq!(stage.said("workflow.ended").await.len(), 1);
    assert_eq!(stage.said("workflow.step").await.len(), 6);
    assert_eq!((stage.said("node.quarantined").await.len(), stage.said("node.released").await.len()), (1, 1));
}

#[tokio::test]
async fn promise_34_a_wipe_that_its_node_did_not_sign_stops_the_workflow_and_is_not_repeated() {
    let stage = Stage::new().await;
    let id = stage.begins(&STEPS).await;
    stage.pass().await;
    // A gateway says so, with a signature of somebody else.
    let command = stage.open(id).await.id;
    let forger = SecretKey::from_seed([5; 32]);
    stage.reports(command, Event::ReportedSucceeded, "", &json!({}), Some(&forger)).await;
    assert_eq!(stage.pass().await, Passed { concluded: 1, ended: 1, ..Passed::default() });
    assert_eq!(stage.stands(id).await, "ambiguous: ambiguous, waiting, waiting [wipe: unsigned]");
    stage.seconds.fetch_add(365 * 24 * 3_600, Ordering::Relaxed);
    assert_eq!(stage.pass().await, Passed::default());
    assert!(stage.quarantine().await.is_some());
    // Somebody has looked.
    assert_eq!(stage.retries(id).await, Ok(()));
    assert_eq!(stage.retries(id).await, Err(NotRetried::Stands(Standing::Running)));
    stage.pass().await;
    assert_eq!(stage.keys().await, [format!("wf:{id}:wipe"), format!("wf:{id}:wipe.2")]);
    assert_eq!(stage.workflow(id).await.attempt, 2);
}

#[tokio::test]
async fn a_failed_wipe_and_an_interrupted_one_stop_the_workflow_and_the_node_stays_set_apart() {
    for (event, reason, stands) in [
        (Event::ReportedFailed, "wipe-refused", "failed: failed, waiting, waiting [wipe: wipe-refused]"),
        (Event::ReportedFailed, "interrupted", "ambiguous: ambiguous, waiting, waiting [wipe: interrupted]"),
        (Event::ReportedRejected, "UNSUPPORTED", "failed: failed, waiting, waiting [wipe: UNSUPPORTED]"),
    ] {
        let stage = Stage::new().await;
        let id = stage.begins(&STEPS).await;
        stage.pass().await;
        stage.ends(id, event, reason).await;
        stage.pass().await;
        assert_eq!(stage.stands(id).await, stands);
        assert_eq!((stage.keys().await.len(), stage.quarantine().await.is_some()), (1, true));
    }
}

#[tokio::test]
async fn promise_16_a_step_that_did_nothing_is_tried_again_within_its_budget() {
    let stage = Stage::new().await;
    let id = stage.begins(&STEPS).await;
    for _ in 0..MAX_TRIES {
        stage.pass().await;
        stage.ends(id, Event::ReportedRejected, "NO_SPACE").await;
    }
    assert_eq!(stage.pass().await, Passed { concluded: 1, ended: 1, ..Passed::default() });
    assert_eq!(stage.stands(id).await, "failed: failed, waiting, waiting [wipe: NO_SPACE]");
    assert_eq!(stage.keys().await.len(), MAX_TRIES as usize);
}

#[tokio::test]
async fn promise_32_a_diagnostic_that_could_not_ask_accepts_nothing() {
    for (result, stands) in [
        (json!({ "status": "fail" }), "failed: failed [diag.nvml: diagnostic-fail]"),
        (json!({ "status": "unknown" }), "ambiguous: ambiguous [diag.nvml: diagnostic-unknown]"),
        (json!({}), "ambiguous: ambiguous [diag.nvml: diagnostic-unknown]"),
    ] {
        let stage = Stage::new().await;
        let id = stage.begins(&["diag.nvml"]).await;
        stage.pass().await;
        stage.reports(stage.open(id).await.id, Event::ReportedSucceeded, "", &result, None).await;
        stage.pass().await;
        assert_eq!(stage.stands(id).await, stands);
        assert!(stage.quarantine().await.is_some());
        stage.retries(id).await.expect("it goes on");
        stage.pass().await;
        assert_eq!(stage.keys().await[1], format!("acceptance:{}:2:diag.nvml", stage.node));
    }
}

#[tokio::test]
async fn promise_16_replicas_that_look_at_once_queue_a_step_once() {
    let stage = Stage::new().await;
    let id = stage.begins(&STEPS).await;
    let (one, two, three) = (stage.module(), stage.module(), stage.module());
    let (one, two, three) = tokio::join!(one.pass(), two.pass(), three.pass());
    let begun: u64 = [one, two, three].map(|it| it.expect("a database").begun).iter().sum();
    assert_eq!(begun + stage.pass().await.begun, 1);
    assert_eq!(stage.keys().await, [format!("wf:{id}:wipe")]);
    // And the table holds it, whatever is forgotten.
    let workflow = stage.workflow(id).await;
    let second = NewTry { command: CommandId::from_uuid(uuid()), number: 9, batch: None };
    let mut tx = stage.fleet.pool.begin().await.expect("a transaction");
    let refused = workflows::insert_try(&mut tx, &workflow, 1, second, stage.now()).await.expect_err("one is open");
    assert!(format!("{refused:?}").contains("workflow_tries_open_key"), "{refused:?}");
}

#[tokio::test]
async fn with_approvers_a_step_waits_for_people_and_whoever_began_it_is_none_of_them() {
    let mut stage = Stage::new().await;
    stage.pki = two_of_a_and_one_of_b();
    let id = stage.begins(&STEPS).await;
    stage.pass().await;
    let command = stage.open(id).await;
    assert!(command.is_held);
    let batch = command.batch.expect("its own");
    let document = stored_batches::find(&mut *stage.fleet.db().await, stage.fleet.tenant, batch).await;
    let document = document.expect("a database").expect("it is there").document;
    assert_eq!(document.requested_by, "ann");
    let approve = async |number| {
        let now = unix_ms(stage.now());
        let approval = Approval::sign(&approver_key(number), &document, now, now + 3_600_000);
        let mut tx = stage.fleet.pool.begin().await.expect("a transaction");
        let done = batches::approve(&mut tx, &stage.pki, stage.fleet.tenant, batch, &approval, stage.now()).await;
        tx.commit().await.expect("a commit");
        done.is_ok()
    };
    assert!(!approve(1).await, "ann began it");
    for number in [2, 3, 4] {
        assert!(approve(number).await, "{number}");
    }
    assert!(!stage.open(id).await.is_held);
    assert_eq!(stage.pass().await, Passed::default());
}

#[tokio::test]
async fn what_is_called_off_ends_and_takes_its_batch_along() {
    let mut stage = Stage::new().await;
    stage.pki = two_of_a_and_one_of_b();
    let id = stage.begins(&STEPS).await;
    stage.pass().await;
    let command = stage.open(id).await;
    stage.cancels(id).await;
    assert_eq!(stage.pass().await, Passed { called_off: 1, concluded: 1, ended: 1, ..Passed::default() });
    assert_eq!(stage.stands(id).await, "cancelled: cancelled, waiting, waiting []");
    let batch = command.batch.expect("its own");
    let batch = stored_batches::find(&mut *stage.fleet.db().await, stage.fleet.tenant, batch).await;
    assert_eq!(batch.expect("a database").expect("it is there").state, stored_batches::State::Rejected);
    assert!(stage.quarantine().await.is_some(), "nobody knows what state it is in");
}

#[tokio::test]
async fn a_wipe_that_its_node_stops_half_way_is_ambiguous() {
    let stage = Stage::new().await;
    let id = stage.begins(&STEPS).await;
    stage.pass().await;
    assert_eq!(stage.fleet.claim(&stage.node, stage.epoch, stage.now()).await.len(), 1);
    stage.cancels(id).await;
    assert_eq!(stage.pass().await, Passed { called_off: 1, ..Passed::default() });
    assert_eq!(stage.pass().await, Passed::default(), "it was asked once");
    stage.ends(id, Event::ReportedCancelled, "cancelled").await;
    stage.pass().await;
    assert_eq!(stage.stands(id).await, "ambiguous: ambiguous, waiting, waiting [wipe: cancelled]");
}

#[tokio::test]
async fn a_machine_that_is_in_use_is_not_wiped_and_other_destructive_commands_end_first() {
    let stage = Stage::new().await;
    let Reserving::Made(made) = stage.reserve().await else { panic!("nothing speaks against it") };
    assert_eq!(stage.tries_to_begin("a", &STEPS).await, Err(NotBegun::InUse(InUse::Reserved(vec![made.id]))));
    let signer = Signer::none();
    let author = Author { signer: &signer, name: "somebody", now: stage.now() };
    let mut tx = stage.fleet.pool.begin().await.expect("a transaction");
    desired::release(&mut tx, author, (stage.fleet.tenant, stage.node), made.id).await.expect("a database");
    tx.commit().await.expect("a commit");
    let other = NewCommand {
        id: CommandId::from_uuid(uuid()),
        node: stage.node,
        idempotency_key: "api:other".into(),
        kind_digest: stage.kinds[1].1,
        payload: json!({}),
        min_generation: None,
        not_after: at(10_000),
        is_held: false,
        batch: None,
        upload: None,
        requested_by: "somebody".into(),
    };
    let queued = queue::enqueue(&mut *stage.fleet.db().await, &signer, other.clone(), stage.now()).await;
    assert!(matches!(queued, Ok(Outcome::Queued(_))), "{queued:?}");
    let id = stage.begins(&STEPS).await;
    assert_eq!(stage.tries_to_begin("key", &STEPS).await, Ok(Begun::Existing(id)));
    assert_eq!(stage.tries_to_begin("key", &STEPS[..1]).await, Err(NotBegun::Conflict(id)));
    assert_eq!(stage.tries_to_begin("b", &STEPS).await, Err(NotBegun::Running(id)));
    assert_eq!(stage.pass().await, Passed::default());
    stage.reports(other.id, Event::ReportedFailed, "x", &json!({}), None).await;
    assert_eq!(stage.pass().await.begun, 1);
}

#[tokio::test]
async fn promise_15_what_was_begun_for_one_life_of_a_node_destroys_nothing_in_the_next() {
    let stage = Stage::new().await;
    let id = stage.begins(&STEPS).await;
    stage.pass().await;
    stage.succeeds(id).await;
    let mut tx = stage.fleet.pool.begin().await.expect("a transaction");
    queue::life::replace(&mut tx, stage.node, stage.now()).await.expect("a database");
    tx.commit().await.expect("a commit");
    stage.pass().await;
    assert_eq!(stage.stands(id).await, "failed: succeeded, failed, waiting [deploy: node-replaced]");
    // Somebody who has looked lets it go on in this life.
    assert_eq!(stage.retries(id).await, Ok(()));
    assert_eq!(stage.pass().await.begun, 1);
    let mut tx = stage.fleet.pool.begin().await.expect("a transaction");
    queue::life::delete(&mut tx, stage.node, stage.now()).await.expect("a database");
    tx.commit().await.expect("a commit");
    stage.pass().await;
    assert_eq!(stage.stands(id).await, "failed: succeeded, failed, waiting [deploy: node-deleted]");
}

#[tokio::test]
async fn a_node_that_is_set_apart_is_not_mended_by_itself() {
    let stage = Stage::new().await;
    let say = "insert into node_conditions (node_id, type, subject, message, since, reported_at)
               values ($1, 'RebootRequired', '', '', $2, $2)";
    sqlx::query(say).bind(stage.node.uuid()).bind(at(0)).execute(&stage.fleet.pool).await.expect("a database");
    let is_protected = async || {
        let found = remediations::patients(&mut *stage.fleet.db().await, Some(stage.node), None, 1).await;
        found.expect("a database")[0].is_protected
    };
    assert!(!is_protected().await);
    stage.begins(&STEPS).await;
    assert!(is_protected().await);
}
