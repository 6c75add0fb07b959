//! Every byte of every signed frame, flipped as it arrives.

use bc_proto::manifest::{Lane, Role};
use bc_proto::rules::daemon::{Availability, Book, Core, Identity, Input, World};
use bc_proto::rules::lane::LIMITS;
use bc_proto::rules::trust::{SignedBundle, TrustBundle};
use bc_proto::sign::WorkerSignature;
use bc_proto::sign::body::SpecBody;
use bc_proto::spec::NodeSpec;
use bc_proto::wire::{Deliver, v1};
use prost::Message;

use super::control_plane::{Batch, ControlPlane, by_root, quorum, traits};
use crate::gateway::{SERVER_TIME_MS as NOW, id, node_id};

/// The frame as it arrives when a bit of each of its bytes is flipped; those that still are frames.
fn flipped<M: Message + Default>(frame: &M) -> impl Iterator<Item = (usize, M)> {
    let bytes = frame.encode_to_vec();
    (0..bytes.len()).filter_map(move |at| {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        M::decode(flipped.as_slice()).ok().map(|frame| (at, frame))
    })
}

fn core() -> Core {
    let identity =
        Identity { node: node_id(), incarnation: 1, role: Role::Host, boot: "boot-1".into(), version: "1.0.0".into() };
    let mut core = Core::restart(identity, 0, Book::read([]).expect("an empty one"), NOW).0;
    let _ = core.on(Input::SessionOpened { epoch: 1, settled_below_seq: 1 }, &world(&TrustBundle::NONE));
    core
}

fn world(trust: &TrustBundle) -> World<'_> {
    let kind = &|_: &str, _: &str| Availability::Loaded {
        lane: Lane::Control,
        traits: traits(),
        roles: vec![Role::Host],
        timeout_ms: 30_000,
    };
    World { now_ms: NOW, free: LIMITS, has_room: true, kind, trust }
}

#[test]
fn a_flipped_bit_in_a_command_of_a_batch_leaves_nothing_to_start_but_the_very_command() {
    let trust = quorum(1, 0);
    let genuine = Batch::new(1, true).command(1);
    let mut started = 0;
    for (at, frame) in flipped(&v1::Deliver::from(genuine.clone())) {
        let Ok(deliver) = Deliver::try_from(frame) else { continue };
        let step = core().on(Input::Delivered { epoch: 1, deliver: Box::new(deliver) }, &world(&trust));
        for start in step.start {
            started += 1;
            // What nobody signs: its place in the order. The timeout is the manifest's.
            let Deliver { seq, timeout_ms, .. } = genuine.clone();
            let approved = genuine.approved.clone();
            let same = Deliver { seq, timeout_ms, approved, ..start.deliver.clone() };
            assert_eq!((same, start.deliver.timeout_ms), (genuine.clone(), 30_000), "byte {at}");
        }
    }
    assert!(started > 0, "the order and the timeout are not signed");
}

#[test]
fn a_flipped_bit_in_a_cancel_calls_nothing_off() {
    let trust = quorum(1, 0);
    let genuine =
        v1::Cancel { command_id: id(1).to_string(), signature: Some(ControlPlane::honest().cancel(1).into()) };
    for (at, frame) in flipped(&genuine) {
        let signature = frame.signature.clone().map(WorkerSignature::try_from).transpose();
        let (Ok(command), Ok(signature)) = (frame.command_id.parse(), signature) else { continue };
        let mut core = core();
        let deliver = Box::new(Batch::new(1, false).command(1));
        assert_eq!(core.on(Input::Delivered { epoch: 1, deliver }, &world(&trust)).start.len(), 1);
        let signature = signature.map(Box::new);
        let step = core.on(Input::CancelReceived { epoch: 1, command, signature }, &world(&trust));
        assert!(step.cancel.is_empty(), "byte {at}: {frame:?}");
    }
}

#[test]
fn a_flipped_bit_in_a_spec_or_a_bundle_changes_nothing() {
    let trust = quorum(1, 0);
    let genuine = ControlPlane::honest().spec(node_id(), 4);
    for (at, frame) in flipped(&genuine) {
        let signature = frame.signature.clone().map(WorkerSignature::try_from).transpose();
        let read = serde_json::from_slice::<NodeSpec>(&frame.document);
        let (Ok(read), Ok(signature)) = (read, signature) else { continue };
        let spec_sha256 = bc_proto::canonical::sha256_hex(&frame.document);
        let body = SpecBody { node: node_id(), generation: read.generation, spec_sha256: &spec_sha256 };
        assert!(trust.spec(&body, signature.as_ref(), NOW).is_err(), "byte {at}: {frame:?}");
    }
    let signed = by_root(quorum(2, 3));
    let genuine = v1::TrustChanged { trust_bundle: serde_json::to_vec(&signed).expect("JSON") };
    for (at, frame) in flipped(&genuine) {
        let Ok(offered) = serde_json::from_slice::<SignedBundle>(&frame.trust_bundle) else { continue };
        let taken = offered.clone().accept(&trust);
        assert!(offered == signed || taken.is_err(), "byte {at}: {offered:?}");
    }
}
