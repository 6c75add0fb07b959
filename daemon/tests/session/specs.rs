//! Specs that come on sessions.

use std::fs;
use std::sync::Arc;

use bc_daemon::capability::nvml::NvmlLibrary;
use bc_proto::canonical;
use bc_proto::id::AllocationId;
use bc_proto::spec::{Hold, HostSettings, NodeSpec};
use bc_proto::wire::{Bound, Deliver, Report, v1};
use bc_runtime::capability::Error;
use fake_nvml::{RemappedRows, SimulatedNode, State};
use uuid::Uuid;

use crate::bench::{Bench, noop};
use crate::gateway::{Link, SERVER_TIME_MS, node_id};

/// More huge pages than any machine has that runs tests.
const PAGES: u32 = 60_000;

fn spec(generation: u64, gpus: &[&str]) -> v1::Spec {
    let hold = |gpu: &&str| Hold {
        allocation: AllocationId::from_uuid(Uuid::from_u128(9)),
        gpu: (*gpu).to_owned(),
        slot: None,
    };
    let spec = NodeSpec { generation, holds: gpus.iter().map(hold).collect(), ..NodeSpec::default() };
    v1::Spec { document: canonical::to_vec(&spec).expect("JSON"), signature: None }
}

impl Link {
    async fn gives(&self, spec: v1::Spec) {
        self.send(v1::to_node::Frame::Spec(spec)).await;
    }

    async fn applied(&mut self) -> u64 {
        match self.frame().await {
            v1::from_node::Frame::SpecApplied(applied) => applied.generation,
            other => panic!("nothing is applied: {other:?}"),
        }
    }

    async fn bound(&mut self) -> Bound {
        match self.frame().await {
            v1::from_node::Frame::AllocationBound(bound) => Bound::try_from(bound).expect("it reads"),
            other => panic!("nothing is bound: {other:?}"),
        }
    }

    /// The next conditions: types, subjects and messages.
    async fn conditions(&mut self) -> Vec<(String, String, String)> {
        loop {
            if let v1::from_node::Frame::Conditions(said) = self.any_frame().await.expect("the session is open") {
                let said = said.checked().expect("they fit");
                return said.into_iter().map(|it| (it.kind, it.subject, it.message)).collect();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_is_applied_signed_for_and_outlives_a_restart_and_an_older_one_changes_nothing() {
    let bench = Bench::new();
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let daemon = bench.daemon();
    let mut link = gateway.link().await.welcome(1, 1).await;
    link.gives(spec(2, &["GPU-a"])).await;
    assert_eq!(link.applied().await, 2);
    let bound = link.bound().await;
    assert_eq!((bound.body.node, bound.body.incarnation, bound.body.generation), (node_id(), 1, 2));
    assert!((SERVER_TIME_MS..SERVER_TIME_MS + 60_000).contains(&bound.body.bound_at_ms), "server time");
    let key = fs::read_to_string(bench.state_dir().join("identity/key.pem")).expect("it has a key");
    let key = bc_proto::sign::SecretKey::from_pem(&key).expect("an Ed25519 key").public();
    key.verify(&bound.body, &bound.signature).expect("the node's own signature");

    // Neither an older one nor the same one again is answered: the next frame is of the command.
    link.gives(spec(1, &[])).await;
    link.gives(spec(2, &[])).await;
    link.deliver(&noop(1)).await;
    assert_eq!(link.whole_run(1).await.report, Report::Succeeded);
    daemon.stop().await;
    link.over().await;

    let daemon = bench.daemon();
    let link = gateway.link().await;
    assert_eq!(link.hello.generation, 2);
    let mut link = link.welcome(2, 2).await;
    assert_eq!(link.bound().await.body.gpu, "GPU-a", "said again on every session");
    link.gives(spec(3, &[])).await;
    assert_eq!(link.applied().await, 3);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_presupposes_a_spec_asks_for_it_and_runs_after_it() {
    let bench = Bench::new();
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let daemon = bench.daemon();
    let mut link = gateway.link().await.welcome(1, 1).await;
    link.deliver(&Deliver { min_generation: Some(4), ..noop(1) }).await;
    match link.frame().await {
        v1::from_node::Frame::SpecWanted(wanted) => assert_eq!(wanted.min_generation, 4),
        other => panic!("no spec is asked for: {other:?}"),
    }
    link.gives(spec(3, &[])).await;
    assert_eq!(link.applied().await, 3);
    link.gives(spec(4, &[])).await;
    assert_eq!(link.applied().await, 4, "the first one was not enough");
    assert_eq!(link.whole_run(1).await.report, Report::Succeeded);
    let past = Deliver { min_generation: Some(9), not_after_ms: SERVER_TIME_MS, ..noop(2) };
    link.deliver(&past).await;
    assert_eq!(link.report(2).await.reason, "STALE_GENERATION");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_the_matter_is_said_on_a_new_session_and_when_it_changes() {
    let bench = Bench::new();
    let folder = tempfile::tempdir().expect("a folder");
    let machine = SimulatedNode::create(folder.path(), &State::eight_h100()).expect("a simulated node");
    let remap = |pending| {
        let rows = RemappedRows { pending, ..RemappedRows::default() };
        machine.update(|state| state.gpus[1].remapped_rows = Some(rows)).expect("the state is written");
    };
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let no_xids = Box::new(|_: &dyn Fn(&str) -> Option<String>| Err(Error::new("test", "not asked here")));
    let nvml = Arc::new(NvmlLibrary::new(machine.library(), None, no_xids));
    let daemon = bench.daemon_offering(|capabilities| capabilities.nvml = Some(nvml));
    let mut link = gateway.link().await.welcome(1, 1).await;
    assert_eq!(link.conditions().await, []);

    // After a run.
    remap(true);
    link.deliver(&noop(1)).await;
    let uuid = State::eight_h100().gpus.swap_remove(1).uuid;
    let rows = || {
        ("RowRemapPending".to_owned(), uuid.clone(), "rows of its memory wait for a reset to be remapped".to_owned())
    };
    assert_eq!(link.conditions().await, [rows()]);

    // After a spec came, whether it was applied or not.
    link.gives(v1::Spec { document: b"{}".to_vec(), signature: None }).await;
    let said = link.conditions().await;
    assert_eq!((&said[0], said[1].0.as_str(), said.len()), (&rows(), "SpecRejected", 2));
    let host = HostSettings { huge_pages_1g: Some(PAGES), ..HostSettings::default() };
    let document = canonical::to_vec(&NodeSpec { generation: 1, host, ..NodeSpec::default() }).expect("JSON");
    link.gives(v1::Spec { document, signature: None }).await;
    let said = link.conditions().await;
    assert_eq!((said[0].0.as_str(), &said[1], said.len()), ("RebootRequired", &rows(), 2));

    // A new session does not know them; the GPU was reset meanwhile.
    remap(false);
    drop(link);
    let mut link = gateway.link().await.welcome(2, 1).await;
    let said = link.conditions().await;
    assert_eq!((said[0].0.as_str(), said.len()), ("RebootRequired", 1));
    daemon.stop().await;
}
