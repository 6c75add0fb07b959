//! What the node trusts, as the gateway would like it to be.

use bc_proto::rules::trust::{SignedBundle, TrustBundle};
use bc_proto::wire::v1;
use bc_proto::wire::v1::to_node::Frame;

use super::control_plane::{by_root, key, publisher, quorum};
use super::{NOTHING, Scene, Table};
use crate::gateway::SERVER_TIME_MS as NOW;

/// The node's own, at version 5, of which the attacker has all versions.
fn current(version: u64) -> TrustBundle {
    TrustBundle { publishers: vec![publisher(key(6).public())], ..quorum(version, 0) }
}

fn attempts() -> Vec<(&'static str, SignedBundle)> {
    let genuine = by_root(current(5));
    let with = |change: &dyn Fn(&mut TrustBundle)| {
        let mut changed = SignedBundle { bundle: current(6), ..genuine.clone() };
        change(&mut changed.bundle);
        changed
    };
    let own = || TrustBundle { roots: vec![key(9).public()], ..current(6) };
    vec![
        ("the version before, as it was signed then", by_root(current(4))),
        ("the same version, saying something else", SignedBundle::sign(own(), &[&key(9)]).at(5)),
        ("a newer version that nobody signed", SignedBundle { bundle: own(), signatures: Vec::new() }),
        ("a newer version, signed by the attacker's own root", SignedBundle::sign(own(), &[&key(9)])),
        ("the same without its own name", SignedBundle::sign(current(6), &[&key(9)])),
        ("a newer version under the signatures of this one", with(&|_| ())),
        ("roots, taken away", with(&|it| it.roots.clear())),
        ("roots taken away, and signed by nobody", {
            let bundle = TrustBundle { roots: Vec::new(), ..current(6) };
            SignedBundle { bundle, signatures: Vec::new() }
        }),
        ("a root more, the attacker's", with(&|it| it.roots.push(key(9).public()))),
        ("approvers, taken away", with(&|it| it.approvers = None)),
        ("publishers, replaced", with(&|it| it.publishers = vec![publisher(key(9).public())])),
        ("a budget outside batches", with(&|it| it.unbatched_destructive_per_hour = 9)),
        ("the root's name over the attacker's signature", {
            let mut signed = SignedBundle::sign(own(), &[&key(9)]);
            signed.signatures[0].root = key(1).public();
            signed
        }),
    ]
}

trait At {
    fn at(self, version: u64) -> Self;
}

impl At for SignedBundle {
    fn at(self, version: u64) -> Self {
        Self { bundle: TrustBundle { version, ..self.bundle }, ..self }
    }
}

pub(super) async fn play() -> Table {
    let bundle = TrustBundle { publishers: Vec::new(), ..current(5) };
    // The plugin directory's kinds are unsigned here, so that the node can show that it works.
    let mut scene =
        Scene::new("The trust bundle, in TrustChanged, and every sixth attempt in Welcome too", bundle).await;
    let before = scene.trust.now();
    let garbage = ("no bundle at all", b"{}".to_vec(), String::new());
    let mut all = vec![garbage];
    for (attempt, offered) in attempts() {
        let error = offered.clone().accept(&before).expect_err(attempt).to_string();
        all.push((attempt, serde_json::to_vec(&offered).expect("JSON"), error));
    }
    for (attempt, trust_bundle, refused_by) in &all {
        scene.send(Frame::TrustChanged(v1::TrustChanged { trust_bundle: trust_bundle.clone() })).await;
        scene.works().await;
        assert_eq!(scene.trust.now(), before, "{attempt}");
        let refused_by = if refused_by.is_empty() { "it does not read as one" } else { refused_by };
        scene.table.row(attempt, refused_by, NOTHING);
    }
    // The same code reads it out of a Welcome; a few show that. The daemon takes its time between sessions.
    for (attempt, trust_bundle, _) in all.into_iter().skip(1).step_by(6) {
        scene.link = None;
        scene.enter(NOW, 1, trust_bundle).await;
        scene.works().await;
        assert_eq!(scene.trust.now(), before, "{attempt}, in Welcome");
    }
    // And it is what the node goes on with.
    scene.restart().await;
    scene.enter(NOW, 1, Vec::new()).await;
    assert_eq!(scene.trust.now(), before);
    scene.end().await
}
