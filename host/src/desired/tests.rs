//! Desired state on a real Postgres.

use bc_proto::sign::{SecretKey, WorkerSignature};
use bc_proto::spec::Hold;
use serde_json::{Value, json};

use super::*;
use crate::queue::life;
use crate::store::specs::Applied;
use crate::store::{conditions, unix_ms};
use crate::testing::{Fleet, at, greeting, uuid};
use crate::world::World;

fn root() -> SecretKey {
    SecretKey::from_seed([1; 32])
}

fn signer() -> Signer {
    Signer::new(root(), World::new(|| at(0), |bytes| bytes.fill(7)))
}

fn author(signer: &Signer) -> Author<'_> {
    Author { signer, name: "somebody", now: at(10) }
}

fn new(gpu: &str, slot: Option<u32>, key: &str) -> NewReservation {
    NewReservation { id: AllocationId::from_uuid(uuid()), gpu: gpu.into(), slot, idempotency_key: key.into() }
}

async fn reserve(fleet: &Fleet, node: NodeId, new: NewReservation) -> Reserving {
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    let done = super::reserve(&mut tx, author(&signer()), (fleet.tenant, node), new).await.expect("a database");
    tx.commit().await.expect("a commit");
    done
}

async fn made(fleet: &Fleet, node: NodeId, new: NewReservation) -> Reservation {
    match reserve(fleet, node, new).await {
        Reserving::Made(reservation) => reservation,
        other => panic!("not reserved: {other:?}"),
    }
}

async fn set(fleet: &Fleet, node: NodeId, expected: Option<u64>, instances: Vec<Instance>) -> Change {
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    let wanted = (instances, HostSettings::default());
    let done = super::set(&mut tx, author(&signer()), (fleet.tenant, node), expected, wanted).await;
    tx.commit().await.expect("a commit");
    done.expect("a database")
}

async fn stored(fleet: &Fleet, node: NodeId) -> (Spec, NodeSpec) {
    let stored = specs::newest(&mut *fleet.db().await, node).await.expect("a database").expect("a spec");
    let spec = parse(&stored).expect("it reads");
    (stored, spec)
}

/// The events of a topic, oldest first.
async fn events(fleet: &Fleet, topic: &str) -> Vec<Value> {
    let all = "select body from events where topic = $1 order by xid, id";
    sqlx::query_scalar(all).bind(topic).fetch_all(&fleet.pool).await.expect("a database")
}

#[tokio::test]
async fn each_change_makes_one_more_generation_signed_over_the_stored_bytes() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let reservation = made(&fleet, node, new("GPU-a", None, "k")).await;
    assert_eq!((reservation.generation, reservation.state), (1, State::Requested));
    let instance = Instance { id: "vm".into(), pass_through: vec!["GPU-b".into()] };
    assert!(matches!(set(&fleet, node, Some(1), vec![instance.clone()]).await, Change::Made(_)));
    let (spec, read) = stored(&fleet, node).await;
    let hold = Hold { allocation: reservation.id, gpu: "GPU-a".into(), slot: None };
    assert_eq!(read, NodeSpec { generation: 2, holds: vec![hold], instances: vec![instance], ..NodeSpec::default() });
    let signature = v1::WorkerSignature::decode(spec.signature.as_deref().expect("signed")).expect("a signature");
    let signature = WorkerSignature::try_from(signature).expect("it reads");
    let sha256 = canonical::sha256_hex(&spec.document);
    let body = SpecBody { node, generation: 2, spec_sha256: &sha256 };
    signature.verify(&body, &[root().public()], unix_ms(at(10))).expect("it is over the stored bytes");
    assert_eq!(spec.created_by, "somebody");

    let mut tx = fleet.pool.begin().await.expect("a transaction");
    let nobody = Signer::none();
    let release = super::release(&mut tx, author(&nobody), (fleet.tenant, node), reservation.id);
    let (released, is_new) = release.await.expect("a database").expect("it is there");
    tx.commit().await.expect("a commit");
    assert_eq!((released.state, is_new), (State::Released, true));
    let (spec, read) = stored(&fleet, node).await;
    assert_eq!((read.generation, read.holds.len(), read.instances.len()), (3, 0, 1));
    assert_eq!(spec.signature, None, "nothing signs where nothing is configured");
    let generations: Vec<_> = events(&fleet, "node.spec-changed").await;
    assert_eq!(generations, [1, 2, 3].map(|generation| json!({ "generation": generation })));
}

#[tokio::test]
async fn a_spec_that_follows_another_than_the_newest_is_a_conflict() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    assert!(matches!(set(&fleet, node, Some(0), vec![]).await, Change::Made(_)));
    assert_eq!(set(&fleet, node, Some(0), vec![]).await, Change::Conflict(1));
    assert!(matches!(set(&fleet, node, None, vec![]).await, Change::Made(_)));
    assert_eq!(stored(&fleet, node).await.1.generation, 2);
    let unknown = NodeId::from_uuid(uuid());
    assert_eq!(set(&fleet, unknown, None, vec![]).await, Change::UnknownNode);
}

#[tokio::test]
async fn a_gpu_is_reserved_once_and_its_slots_stand_beside_each_other() {
    let fleet = Fleet::new().await;
    let (node, other) = (fleet.node().await, fleet.node().await);
    let whole = made(&fleet, node, new("GPU-a", None, "1")).await;
    assert_eq!(reserve(&fleet, node, new("GPU-a", None, "2")).await, Reserving::Taken(whole.id));
    assert_eq!(reserve(&fleet, node, new("GPU-a", Some(0), "3")).await, Reserving::Taken(whole.id));
    let slot = made(&fleet, node, new("GPU-b", Some(0), "4")).await;
    made(&fleet, node, new("GPU-b", Some(1), "5")).await;
    assert_eq!(reserve(&fleet, node, new("GPU-b", Some(0), "6")).await, Reserving::Taken(slot.id));
    assert_eq!(reserve(&fleet, node, new("GPU-b", None, "7")).await, Reserving::Taken(slot.id));
    made(&fleet, other, new("GPU-a", None, "1")).await;

    let again = reserve(&fleet, node, new("GPU-a", None, "1")).await;
    assert_eq!(again, Reserving::Existing(whole.clone()), "a retry finds it");
    assert_eq!(reserve(&fleet, node, new("GPU-c", None, "1")).await, Reserving::Conflict(whole.clone()));
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    super::release(&mut tx, author(&signer()), (fleet.tenant, node), whole.id).await.expect("a database");
    tx.commit().await.expect("a commit");
    made(&fleet, node, new("GPU-a", None, "8")).await;
    assert_eq!(stored(&fleet, node).await.1.holds.len(), 3);
}

#[tokio::test]
async fn reservations_at_the_same_time_are_one_generation_each_and_one_wins_a_gpu() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let tries =
        (0..6).map(|n| reserve(&fleet, node, new(if n % 2 == 0 { "GPU-a" } else { "GPU-b" }, None, &n.to_string())));
    let done = futures_util::future::join_all(tries).await;
    assert_eq!(done.iter().filter(|it| matches!(it, Reserving::Made(_))).count(), 2);
    assert_eq!(done.iter().filter(|it| matches!(it, Reserving::Taken(_))).count(), 4);
    assert_eq!(stored(&fleet, node).await.1.generation, 2);
}

#[tokio::test]
async fn what_is_applied_never_goes_back_within_a_session() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let epoch = fleet.hello(&greeting(&node), at(1)).await.epoch;
    let said = |epoch, generation| Applied { node, epoch, generation };
    let apply = async |said: &[Applied]| {
        specs::applied(&mut *fleet.db().await, said, at(2)).await.expect("a database");
        specs::find_applied(&mut *fleet.db().await, fleet.tenant, node).await.expect("a database")
    };
    assert_eq!(apply(&[said(epoch, 3), said(epoch, 2)]).await, Some(3));
    assert_eq!(apply(&[said(epoch, 1)]).await, Some(3));
    assert_eq!(apply(&[said(epoch - 1, 9)]).await, Some(3), "another session's");
    assert_eq!(apply(&[said(epoch, 4)]).await, Some(4));
    assert_eq!(events(&fleet, "node.spec-applied").await, [json!({ "generation": 3 }), json!({ "generation": 4 })]);
    let than = [(node, 0), (fleet.node().await, 0)];
    assert_eq!(specs::newer(&mut *fleet.db().await, &than).await.expect("a database"), []);
}

#[tokio::test]
async fn conditions_are_replaced_as_a_whole_and_only_changes_leave_events() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let epoch = fleet.hello(&greeting(&node), at(1)).await.epoch;
    let condition = |kind: &str, message: &str| bc_proto::wire::Condition {
        kind: kind.into(),
        subject: String::new(),
        message: message.into(),
        since_ms: unix_ms(at(1)),
    };
    let say = async |epoch, said: &[bc_proto::wire::Condition]| {
        let report = conditions::Report { node, epoch, conditions: said.to_vec() };
        let changed = conditions::replace(&mut *fleet.db().await, &[report], at(5)).await.expect("a database");
        let now = conditions::of(&mut *fleet.db().await, node).await.expect("a database");
        (changed, now.into_iter().map(|it| (it.kind, it.message, it.since)).collect::<Vec<_>>())
    };
    let (a, b) = (condition("RebootRequired", "pages"), condition("RowRemapPending", "rows"));
    let stands = |kind: &str, message: &str| (kind.to_owned(), message.to_owned(), at(1));
    let both = vec![stands("RebootRequired", "pages"), stands("RowRemapPending", "rows")];
    assert_eq!(say(epoch, &[b.clone(), a.clone()]).await, (2, both.clone()));
    assert_eq!(say(epoch, &[a.clone(), b]).await, (0, both.clone()), "said again");
    assert_eq!(say(epoch - 1, &[]).await, (0, both), "another session's");
    let later = bc_proto::wire::Condition { since_ms: unix_ms(at(4)), ..condition("RebootRequired", "cpus") };
    assert_eq!(say(epoch, &[later]).await, (1, vec![stands("RebootRequired", "cpus")]), "since when stays");
    assert_eq!(say(epoch, &[]).await, (1, vec![]));
    let said = events(&fleet, "node.condition-changed").await;
    let words: Vec<_> = said.iter().map(|it| format!("{} {}", it["change"], it["type"])).collect();
    let added = [r#""added" "RebootRequired""#, r#""added" "RowRemapPending""#];
    assert!(words[..2].iter().all(|word| added.contains(&word.as_str())), "{words:?}");
    assert_eq!(words[2..], [r#""removed" "RowRemapPending""#, r#""removed" "RebootRequired""#]);
}

#[tokio::test]
async fn a_node_that_begins_another_life_holds_nothing_yet() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let epoch = fleet.hello(&greeting(&node), at(1)).await.epoch;
    let reservation = made(&fleet, node, new("GPU-a", None, "k")).await;
    let binding = reservations::Binding {
        id: reservation.id,
        node,
        incarnation: 1,
        epoch,
        body: b"{}".to_vec(),
        signature: vec![1; 64],
    };
    let activate = async |binding: reservations::Binding| {
        reservations::activate(&mut *fleet.db().await, &[binding], at(2)).await.expect("a database")
    };
    assert_eq!(activate(reservations::Binding { epoch: epoch - 1, ..binding.clone() }).await, 0);
    assert_eq!(activate(reservations::Binding { incarnation: 2, ..binding.clone() }).await, 0);
    assert_eq!(activate(binding.clone()).await, 1);
    assert_eq!(activate(binding).await, 0, "it is active");
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    life::replace(&mut tx, node, at(3)).await.expect("a database");
    tx.commit().await.expect("a commit");
    let found = reservations::find(&mut *fleet.db().await, fleet.tenant, reservation.id).await;
    let found = found.expect("a database").expect("it is there");
    assert_eq!((found.state, found.bound, found.active_at), (State::Requested, None, None));
}

#[tokio::test]
async fn a_restored_control_plane_goes_on_above_what_the_node_has() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    set(&fleet, node, None, vec![]).await;
    let hello = |generation| crate::queue::hello::Greeting { generation, ..greeting(&node) };
    fleet.hello(&hello(40), at(1)).await;
    set(&fleet, node, Some(1), vec![]).await;
    assert_eq!(stored(&fleet, node).await.1.generation, 41);
    fleet.hello(&hello(u64::MAX), at(2)).await;
    made(&fleet, node, new("GPU-a", None, "k")).await;
    assert_eq!(stored(&fleet, node).await.1.generation, 42, "a node cannot use generations up");
}
