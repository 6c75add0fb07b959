//! A node's word that it holds a GPU, as somebody else would like it to be.
//!
//! **Invariant:** after each attempt the reservation is still only asked for.

use bc_proto::canonical;
use bc_proto::id::AllocationId;
use bc_proto::sign::body::AllocationBoundBody;

use super::super::attest::signed;
use super::super::desired::body;
use super::*;
use crate::store::reservations;

const GPU: &str = "GPU-51d00000-0000-4000-8000-000000000000";
const OTHER_GPU: &str = "GPU-51d00000-0000-4000-8000-000000000001";

pub(super) async fn play() -> Table {
    let mut table = Table::new("Bindings: `AllocationBound`");
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let lives = Lives::new(&site, &replica).await;
    let other = site.machine(&replica).await;
    let (node, key) = (lives.present.node(), &lives.present.key);
    let reservation = site.reserve(node, GPU).await;
    let second = site.reserve(node, OTHER_GPU).await;
    let foreign = site.reserve(other.node(), GPU).await;
    let mut link = lives.present.open(&site.authority, &replica).await.expect("it may enter");
    link.spec().await;
    let mut stranger = other.open(&site.authority, &replica).await.expect("it may enter");
    stranger.spec().await;
    let good = body(&lives.present, &reservation);
    let attacker = SecretKey::from_seed([9; 32]);
    let unknown = AllocationId::from_uuid(uuid());
    let bytes = canonical::to_vec(&good).expect("JSON");
    let genuine = key.sign(&good).as_bytes().to_vec();
    let frame = |said: &AllocationBoundBody, node_sig: Vec<u8>| v1::AllocationBound {
        body: canonical::to_vec(said).expect("JSON"),
        node_sig,
    };
    let by = |said: AllocationBoundBody, key: &SecretKey| frame(&said, key.sign(&said).as_bytes().to_vec());
    let result = signed(key, CommandId::from_uuid(uuid()), v1::Report::Succeeded).node_sig;
    let attempts = [
        ("no signature", frame(&good, Vec::new())),
        ("a signature that is cut short", frame(&good, genuine[..63].to_vec())),
        ("the attacker's key", by(good.clone(), &attacker)),
        ("another node's key", by(good.clone(), &other.key)),
        ("the key of a revoked certificate", by(good.clone(), &lives.revoked.key)),
        ("the key of the node's earlier life", by(good.clone(), &lives.earlier.key)),
        ("the node's signature under a result", frame(&good, result)),
        ("another reservation under the signature", frame(&body(&lives.present, &second), genuine.clone())),
        (
            "another time under the signature",
            frame(&AllocationBoundBody { bound_at_ms: 8, ..good.clone() }, genuine.clone()),
        ),
        ("a newer generation under the signature", {
            frame(&AllocationBoundBody { generation: good.generation + 1, ..good.clone() }, genuine.clone())
        }),
        ("a reservation that nobody made", by(AllocationBoundBody { allocation: unknown, ..good.clone() }, key)),
        ("another GPU", by(AllocationBoundBody { gpu: OTHER_GPU.into(), ..good.clone() }, key)),
        ("another node's reservation", by(AllocationBoundBody { allocation: foreign.id, ..good.clone() }, key)),
        ("another node's name", by(AllocationBoundBody { node: other.node(), ..good.clone() }, key)),
        ("the node's earlier life", by(AllocationBoundBody { incarnation: 1, ..good.clone() }, key)),
        ("the node's earlier life, under its key", {
            by(AllocationBoundBody { incarnation: 1, ..good.clone() }, &lives.earlier.key)
        }),
        ("the node's next life", by(AllocationBoundBody { incarnation: 3, ..good.clone() }, key)),
        ("a generation from before it was asked for", by(AllocationBoundBody { generation: 0, ..good.clone() }, key)),
        ("no binding at all", v1::AllocationBound { body: b"{}".to_vec(), node_sig: genuine.clone() }),
    ];
    let mut count = 0;
    let before = site.rows().await;
    let true_one = || v1::AllocationBound { body: bytes.clone(), node_sig: genuine.clone() };
    let own = attempts.into_iter().map(|(attempt, bound)| (attempt, bound, &link));
    let foreign = [("the true binding, on another node's session", true_one(), &stranger)];
    for (attempt, bound, on) in own.chain(foreign) {
        on.say(from_node::Frame::AllocationBound(bound)).await;
        count += 1;
        let refused = site.events("reservation.binding-refused", count).await;
        assert_eq!(refused.len(), count, "{attempt}");
        assert_eq!(site.rows().await, before, "IT COUNTED: {attempt}");
        table.row(attempt, refused[count - 1]["reason"].as_str().expect("a reason"), TOLD);
    }
    assert_eq!(site.reservation(reservation.id).await.state, reservations::State::Requested);
    link.bind(good.clone(), key).await;
    site.events("reservation.active", 1).await;
    let active = site.rows().await;
    assert_ne!(active, before, "the true one counts");
    // What is known already changes nothing; the refusal after it shows that it was read.
    link.bind(good.clone(), key).await;
    link.bind(good, &attacker).await;
    site.events("reservation.binding-refused", count + 1).await;
    assert_eq!(site.rows().await, active);
    table.row("a true binding, told again", "nothing: it is known, and stays as it was", NOTHING);
    table
}
