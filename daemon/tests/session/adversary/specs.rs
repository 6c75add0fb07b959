//! Specs that the control plane did not sign for this node, or not last.

use bc_proto::canonical;
use bc_proto::sign::WorkerSignature;
use bc_proto::sign::body::SpecBody;
use bc_proto::spec::NodeSpec;
use bc_proto::wire::v1;
use bc_proto::wire::v1::to_node::Frame;

use super::control_plane::{ControlPlane, bundle, other_node};
use super::{NOTHING, Scene, Table};
use crate::gateway::{SERVER_TIME_MS as NOW, node_id};

/// What the node says of it: the same check, on the same bytes.
fn refused_by(scene: &Scene, spec: &v1::Spec) -> String {
    let read: NodeSpec = serde_json::from_slice(&spec.document).expect("it reads");
    let signature = spec.signature.clone().map(WorkerSignature::try_from).transpose();
    let signature = match signature {
        Ok(signature) => signature,
        Err(invalid) => return invalid.to_string(),
    };
    let spec_sha256 = canonical::sha256_hex(&spec.document);
    let body = SpecBody { node: node_id(), generation: read.generation, spec_sha256: &spec_sha256 };
    match scene.trust.now().spec(&body, signature.as_ref(), NOW) {
        Ok(()) => "it is not newer than the one that counts".into(),
        Err(error) => error.to_string(),
    }
}

pub(super) async fn play() -> Table {
    let mut scene = Scene::new("Specs", bundle(1)).await;
    let honest = ControlPlane::honest();
    let spec = |generation| honest.spec(node_id(), generation);
    // The fourth generation is the newest that was signed, and the gateway held it back.
    scene.send(Frame::Spec(spec(3))).await;
    scene.works().await;
    assert_eq!(scene.applied, [3]);
    let attempt = "an older generation than the control plane's newest, on a node that has none (so on a new life too)";
    let why = "nothing: it was signed for this node. What presupposes a newer one does not run";
    scene.table.row(attempt, why, "delay: the spec of before");
    let mut cut = spec(4);
    cut.signature.as_mut().expect("it is signed").signature.pop();
    let attempts = [
        ("no signature", v1::Spec { signature: None, ..spec(4) }),
        ("another document under the signature", v1::Spec { document: spec(5).document, ..spec(4) }),
        ("an older generation", spec(2)),
        ("the same generation", spec(3)),
        ("an older one under the signature of the newest", v1::Spec { document: spec(2).document, ..spec(4) }),
        ("another node's", honest.spec(other_node(), 4)),
        ("a worker key of the attacker's own root", ControlPlane::attacker().spec(node_id(), 4)),
        ("a worker key that the attacker made", ControlPlane::self_made().spec(node_id(), 4)),
        ("a command's signature", v1::Spec { signature: honest.command(900).signature.map(Into::into), ..spec(4) }),
        ("a signature that is cut short", cut),
    ];
    for (attempt, spec) in attempts {
        let why = refused_by(&scene, &spec);
        scene.send(Frame::Spec(spec)).await;
        scene.works().await;
        assert_eq!(scene.applied, [3], "{attempt}");
        scene.table.row(attempt, &why, NOTHING);
    }
    scene.restart().await;
    scene.link = None;
    let link = scene.gateway.link().await;
    assert_eq!(link.hello.generation, 3, "what it goes on with");
    scene.epoch += 1;
    scene.link = Some(link.welcome(scene.epoch, 1).await);
    scene.send(Frame::Spec(spec(4))).await;
    scene.works().await;
    assert_eq!(scene.applied, [3, 4], "the true one is taken, late");
    scene.end().await
}
