//! Components that a gateway gives for a digest.

use bc_proto::rules::publishing::{self, KindSignature};
use bc_proto::sign::body::KindBody;
use bc_proto::wire::Report;

use super::control_plane::{key, publishing as trusted};
use super::{DROP, Scene, Table};
use crate::bench::{HOSTILE, NOOP, component, digest};

pub(super) async fn play() -> Table {
    let mut scene = Scene::on("Components of kinds, where publishers are trusted", trusted(1), |_| ()).await;
    let (bytes, other) = (component(HOSTILE), component(NOOP));
    let wanted = digest(&bytes);
    let at = hex::decode(&wanted).expect("hex");
    let by = |seed| KindSignature::sign(&wanted, &key(seed));
    let publisher = key(6).public();
    let of_other = key(6).sign(&KindBody { digest: &digest(&other) });
    let attempts = [
        (
            "other bytes under the digest, and their own signature",
            &other,
            Some(KindSignature { signature: of_other, ..by(6) }),
        ),
        ("other bytes under the true signature", &other, Some(by(6))),
        ("a component that nobody signed", &bytes, None),
        ("a component that the attacker signed", &bytes, Some(by(9))),
        ("the publisher's name over the attacker's signature", &bytes, Some(KindSignature { publisher, ..by(9) })),
        (
            "the attacker's name over the publisher's signature",
            &bytes,
            Some(KindSignature { publisher: key(9).public(), ..by(6) }),
        ),
        (
            "the publisher's signature of another component",
            &bytes,
            Some(KindSignature { signature: of_other, ..by(6) }),
        ),
    ];
    for (attempt, given, signature) in attempts {
        let refused_by = if digest(given) == wanted {
            publishing::check(&scene.trust.now().publishers, &wanted, signature.as_ref())
                .expect_err(attempt)
                .to_string()
        } else {
            "the digest of what came".to_owned()
        };
        give(&scene, &at, given.clone(), signature);
        refused(&mut scene, attempt, &refused_by).await;
    }
    give(&scene, &at, vec![0; (64 << 20) + 1], Some(by(6)));
    refused(
        &mut scene,
        "more bytes than a component may have",
        "it is larger than a component may be: it is not read on",
    )
    .await;
    assert!(!scene.bench.state_dir().join("kinds").exists(), "nothing is kept of it");

    give(&scene, &at, bytes, Some(by(6)));
    scene.works().await;
    scene.end().await
}

fn give(scene: &Scene, at: &[u8], bytes: Vec<u8>, signature: Option<KindSignature>) {
    let mut desk = scene.gateway.desk();
    desk.components.insert(at.to_owned(), bytes);
    let pair = signature.map(|it| (it.publisher.as_bytes().to_vec(), it.signature.as_bytes().to_vec()));
    desk.signatures.insert(at.to_owned(), pair.unwrap_or_default());
}

/// A true command that needs the component is refused.
async fn refused(scene: &mut Scene, attempt: &str, refused_by: &str) {
    let seq = scene.next();
    let command = scene.honest.command(seq);
    let answer = scene.deliver(&command).await;
    assert_eq!((answer.report, answer.reason.as_str()), (Report::Rejected, "KIND_UNAVAILABLE"), "{attempt}");
    assert_eq!(scene.runs(), 0, "IT RAN: {attempt}");
    scene.table.row(attempt, &format!("`KIND_UNAVAILABLE`: {refused_by}"), DROP);
}
