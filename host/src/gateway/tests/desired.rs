//! Specs on sessions, and what nodes say of them.

use bc_proto::canonical;
use bc_proto::id::AllocationId;
use bc_proto::sign::SecretKey;
use bc_proto::sign::body::AllocationBoundBody;
use bc_proto::spec::{HostSettings, NodeSpec};
use bc_proto::wire::Bound;
use rcgen::PKCS_ED25519;
use serde_json::Value;

use super::*;
use crate::desired::{self, Author, Change, NewReservation, Reserving};
use crate::store::reservations::{self, Reservation};
use crate::store::{conditions, specs};
use crate::trust::Signer;

const GPU: &str = "GPU-51d00000-0000-4000-8000-000000000000";

/// A machine whose key signs.
async fn signing(site: &Site, replica: &Replica) -> (Machine, SecretKey) {
    let key = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
    let token = site.token(None, None).await;
    let answer = replica.client(&site.authority, None).join(request(&token, &key)).await.expect("it may join");
    let answer = answer.into_inner();
    let peer = Peer { node: answer.node_id.parse().expect("an id"), incarnation: answer.incarnation };
    let machine = Machine::with(peer, &answer.certificate_chain[0], &key);
    (machine, SecretKey::from_pem(&key.serialize_pem()).expect("an Ed25519 key"))
}

impl Site {
    fn author<'a>(&self, signer: &'a Signer) -> Author<'a> {
        Author { signer, name: "test", now: self.world().now() }
    }

    async fn set_spec(&self, node: NodeId) -> specs::Spec {
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        let signer = Signer::new(SecretKey::from_seed([1; 32]), self.world());
        let wanted = (Vec::new(), HostSettings::default());
        let set = desired::set(&mut tx, self.author(&signer), (self.fleet.tenant, node), None, wanted).await;
        tx.commit().await.expect("a commit");
        match set.expect("a database") {
            Change::Made(spec) => spec,
            other => panic!("no spec: {other:?}"),
        }
    }

    pub(super) async fn reserve(&self, node: NodeId, gpu: &str) -> Reservation {
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        let id = AllocationId::from_uuid(uuid());
        let new = NewReservation { id, gpu: gpu.into(), slot: None, idempotency_key: id.to_string() };
        let made = desired::reserve(&mut tx, self.author(&Signer::none()), (self.fleet.tenant, node), new).await;
        tx.commit().await.expect("a commit");
        match made.expect("a database") {
            Reserving::Made(reservation) => reservation,
            other => panic!("not reserved: {other:?}"),
        }
    }

    pub(super) async fn reservation(&self, id: AllocationId) -> Reservation {
        let found = reservations::find(&mut *self.fleet.db().await, self.fleet.tenant, id).await;
        found.expect("a database").expect("it is there")
    }

    /// Waits for so many events of a topic.
    pub(super) async fn events(&self, topic: &str, count: usize) -> Vec<Value> {
        loop {
            let all = "select body from events where topic = $1 order by xid, id";
            let found: Vec<Value> =
                sqlx::query_scalar(all).bind(topic).fetch_all(&self.fleet.pool).await.expect("a database");
            if found.len() >= count {
                return found;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Link {
    pub(super) async fn spec(&mut self) -> v1::Spec {
        match self.next().await {
            to_node::Frame::Spec(spec) => spec,
            other => panic!("no spec: {other:?}"),
        }
    }

    pub(super) async fn bind(&self, body: AllocationBoundBody, key: &SecretKey) {
        let signature = key.sign(&body);
        let bound = Bound { bytes: canonical::to_vec(&body).expect("JSON"), body, signature };
        self.say(from_node::Frame::AllocationBound(bound.into())).await;
    }
}

pub(super) fn body(machine: &Machine, reservation: &Reservation) -> AllocationBoundBody {
    AllocationBoundBody {
        allocation: reservation.id,
        node: machine.node(),
        incarnation: machine.peer.incarnation,
        gpu: reservation.gpu.clone(),
        generation: reservation.generation,
        bound_at_ms: 7,
    }
}

#[tokio::test]
async fn a_spec_is_relayed_to_the_byte_at_the_welcome_when_it_changes_and_when_it_is_asked_for() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let machine = site.machine(&replica).await;
    let first = site.set_spec(machine.node()).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let relayed = link.spec().await;
    assert_eq!(relayed.document, first.document);
    let signature = relayed.signature.expect("it was signed");
    assert_eq!(Some(prost::Message::encode_to_vec(&signature)), first.signature, "the stored signature");

    let second = site.set_spec(machine.node()).await;
    replica.bus.tell(Signal::Spec { node: machine.node() });
    assert_eq!(link.spec().await.document, second.document);
    link.say(from_node::Frame::SpecApplied(v1::SpecApplied { generation: 2 })).await;
    site.events("node.spec-applied", 1).await;

    // What it has is not sent again, until it asks for it.
    replica.gateway.reconcile().await.expect("a database");
    link.say(from_node::Frame::SpecWanted(v1::SpecWanted { min_generation: 3 })).await;
    link.say(from_node::Frame::SpecWanted(v1::SpecWanted { min_generation: 2 })).await;
    assert_eq!(link.spec().await.document, second.document);
    let third = site.set_spec(machine.node()).await;
    replica.gateway.reconcile().await.expect("a database");
    assert_eq!(link.spec().await.document, third.document, "nobody told, and it was found");
}

#[tokio::test]
async fn a_spec_comes_before_the_commands_that_presuppose_it() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let machine = site.machine(&replica).await;
    let kind = site.fleet.kind(bc_proto::manifest::Lane::Control, &[]).await;
    site.set_spec(machine.node()).await;
    let id = site.queue(NewCommand { min_generation: Some(1), ..command(&machine.node(), kind) }).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let read: NodeSpec = serde_json::from_slice(&link.spec().await.document).expect("a spec");
    assert_eq!(read.generation, 1);
    let delivered = link.delivered().await;
    assert_eq!((delivered.command_id, delivered.min_generation), (id.to_string(), Some(1)));
}

#[tokio::test]
async fn a_reservation_is_active_once_the_node_s_own_signature_verifies() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let (machine, key) = signing(&site, &replica).await;
    let reservation = site.reserve(machine.node(), GPU).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    link.spec().await;
    let body = body(&machine, &reservation);
    link.bind(body.clone(), &key).await;
    link.bind(body.clone(), &key).await;
    let active = site.events("reservation.active", 1).await;
    assert_eq!(active, [serde_json::json!({ "reservationId": reservation.id.to_string(), "gpu": GPU })]);
    let found = site.reservation(reservation.id).await;
    assert_eq!(found.state, reservations::State::Active);
    let (stored, signature) = found.bound.expect("it is kept");
    assert_eq!(stored, canonical::to_vec(&body).expect("JSON"), "as it came");
    assert_eq!(signature, key.sign(&body).as_bytes());
}

#[tokio::test]
async fn a_forged_or_foreign_binding_is_refused_and_leaves_an_event() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let (machine, key) = signing(&site, &replica).await;
    let (other, other_key) = signing(&site, &replica).await;
    let reservation = site.reserve(machine.node(), GPU).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    link.spec().await;
    let good = body(&machine, &reservation);
    let unknown = AllocationId::from_uuid(uuid());
    let mut count = 0;
    for (claim, by, why) in [
        (good.clone(), SecretKey::from_seed([9; 32]), "not the node's"),
        (good.clone(), other_key, "not the node's"),
        (AllocationBoundBody { gpu: "GPU-b".into(), ..good.clone() }, key.clone(), "another GPU"),
        (AllocationBoundBody { incarnation: 2, ..good.clone() }, key.clone(), "life 2"),
        (AllocationBoundBody { generation: 0, ..good.clone() }, key.clone(), "did not ask"),
        (AllocationBoundBody { node: other.node(), ..good.clone() }, key.clone(), "another node than the one"),
        (AllocationBoundBody { allocation: unknown, ..good.clone() }, key.clone(), "no such reservation"),
    ] {
        let named = claim.allocation.to_string();
        link.bind(claim, &by).await;
        count += 1;
        let refused = site.events("reservation.binding-refused", count).await.pop().expect("one more");
        assert_eq!(refused["reservationId"], named);
        assert!(refused["reason"].as_str().is_some_and(|it| it.contains(why)), "{why}: {refused}");
    }
    link.say(from_node::Frame::AllocationBound(v1::AllocationBound { body: b"{}".to_vec(), node_sig: vec![0; 64] }))
        .await;
    let refused = site.events("reservation.binding-refused", count + 1).await.pop().expect("one more");
    assert!(refused["reason"].as_str().is_some_and(|it| it.contains("AllocationBound.body")), "{refused}");
    // The right one, on the session of another node.
    let stranger = other.open(&site.authority, &replica).await.expect("it may enter");
    stranger.bind(good.clone(), &key).await;
    site.events("reservation.binding-refused", count + 2).await;
    assert_eq!(site.reservation(reservation.id).await.state, reservations::State::Requested);
    link.bind(good, &key).await;
    site.events("reservation.active", 1).await;
}

#[tokio::test]
async fn what_a_node_says_is_the_matter_is_kept_and_nonsense_is_not() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let machine = site.machine(&replica).await;
    let link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let condition = |kind: &str| v1::Condition {
        r#type: kind.into(),
        subject: GPU.into(),
        message: "rows wait".into(),
        since_ms: 1_700_000_000_000,
    };
    let say = async |conditions| link.say(from_node::Frame::Conditions(v1::Conditions { conditions })).await;
    say(vec![condition("not a word")]).await;
    say(vec![condition("RowRemapPending")]).await;
    let said = site.events("node.condition-changed", 1).await;
    assert_eq!((&said[0]["change"], &said[0]["subject"]), (&"added".into(), &GPU.into()));
    let of = async || conditions::of(&mut *site.fleet.db().await, machine.node()).await.expect("a database");
    assert_eq!(of().await.len(), 1);
    say(vec![]).await;
    site.events("node.condition-changed", 2).await;
    assert_eq!(of().await, []);
}
