//! `gpu.reset` as a command: the real component on a simulated node.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use bc_daemon::capability::gpus::{Cured, Machine, MachineGpus, Tools};
use bc_daemon::capability::inventory::MachineInventory;
use bc_daemon::capability::nvml::NvmlLibrary;
use bc_daemon::capability::process::PATH;
use bc_proto::canonical;
use bc_proto::grants::{Gpus, Grants, Plain};
use bc_proto::id::AllocationId;
use bc_proto::spec::{Hold, NodeSpec};
use bc_proto::wire::{Deliver, Report, v1};
use bc_runtime::capability::Error;
use fake_nvml::{HangOn, SimulatedNode, State, calls_file};
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use crate::bench::{Bench, Daemon, component, digest, noop};
use crate::gateway::{PATIENCE, deliver};

const RESET: &str = "gpu.reset";

fn gpu(index: usize) -> String {
    State::eight_h100().gpus.swap_remove(index).uuid
}

fn reset(seq: u64, indexes: &[usize]) -> Deliver {
    let gpus: Vec<String> = indexes.iter().map(|index| gpu(*index)).collect();
    deliver(RESET, &digest(&component(RESET)), seq, json!({ "gpus": gpus }))
}

struct Node {
    folder: TempDir,
    machine: SimulatedNode,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let machine = SimulatedNode::create(folder.path(), &State::eight_h100()).expect("a simulated node");
        Self { folder, machine }
    }

    /// Starts the daemon on this machine.
    fn daemon(&self, bench: &Bench) -> Daemon {
        bench.plug(RESET);
        let no_xids = Box::new(|_: &dyn Fn(&str) -> Option<String>| Err(Error::new("test", "not asked here")));
        let nvml = Arc::new(NvmlLibrary::new(self.machine.library(), None, no_xids));
        let root = self.folder.path();
        let gpus = Arc::new(MachineGpus::new(Machine {
            nvml: nvml.clone(),
            inventory: Arc::new(MachineInventory::new(root.into(), Some(nvml.clone()), || 0)),
            cured: Arc::new(Cured::open(None, &bench.path("boot-id"))),
            tools: Tools {
                supervisor: env!("CARGO_BIN_EXE_bcd").into(),
                path: format!("{}:{PATH}", self.machine.programs().display()),
                nvidia_smi: "nvidia-smi".into(),
                systemctl: "systemctl".into(),
                reset_timeout: PATIENCE,
                switch_timeout: PATIENCE,
            },
            services: Vec::new(),
            root: root.into(),
            state_dir: Some(root.into()),
        }));
        bench.daemon_on(|node| {
            node.capabilities.nvml = Some(nvml);
            node.capabilities.gpus = Some(gpus.clone());
            node.gpus = Some(gpus);
            let grants = Grants { nvml: Some(Plain {}), gpus: Some(Gpus { reset: true }), ..Grants::default() };
            node.policy.grants.insert(RESET.into(), grants);
        })
    }

    /// Waits until a program was called so.
    async fn called(&self, words: &str) {
        let calls = calls_file(&self.machine.state_file());
        let was = || fs::read_to_string(&calls).unwrap_or_default().contains(words);
        let called = tokio::time::timeout(PATIENCE, async {
            while !was() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        called.await.expect("it is called");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_35_a_tool_that_hangs_costs_one_place_in_its_lane_and_nothing_else() {
    let (bench, node) = (Bench::new(), Node::new());
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let daemon = node.daemon(&bench);
    let mut link = gateway.link().await.welcome(1, 1).await;
    node.machine.update(|state| state.smi.hang_on = Some(HangOn::Reset)).expect("a state");
    link.deliver(&reset(1, &[1])).await;
    link.acked(1).await;
    assert_eq!(link.report(1).await.report, Report::Running);
    node.called("--gpu-reset").await;
    // Both kinds are of the control lane.
    for seq in 2..12 {
        link.deliver(&noop(seq)).await;
        assert_eq!(link.whole_run(seq).await.report, Report::Succeeded);
        link.ack(seq, 1).await;
    }
    node.machine.update(|state| state.smi.hang_on = None).expect("a state");
    let update = link.report(1).await;
    let result: Value = serde_json::from_slice(&update.result).expect("JSON");
    assert_eq!((update.report, &result["gpus"][0]["health"]), (Report::Succeeded, &json!("healthy")), "{result}");
    assert!(node.machine.state().expect("a state").gpus[1].persistence, "it is on again");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_of_the_applied_spec_refuses_the_whole_command() {
    let (bench, node) = (Bench::new(), Node::new());
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let daemon = node.daemon(&bench);
    let mut link = gateway.link().await.welcome(1, 1).await;
    let hold = Hold { allocation: AllocationId::from_uuid(Uuid::from_u128(9)), gpu: gpu(2), slot: Some(1) };
    let spec = NodeSpec { generation: 1, holds: vec![hold], ..NodeSpec::default() };
    let document = canonical::to_vec(&spec).expect("JSON");
    link.send(v1::to_node::Frame::Spec(v1::Spec { document, signature: None })).await;
    assert!(matches!(link.frame().await, v1::from_node::Frame::SpecApplied(_)));
    assert!(matches!(link.frame().await, v1::from_node::Frame::AllocationBound(_)));
    link.deliver(&reset(1, &[1, 2])).await;
    let update = link.whole_run(1).await;
    let result: Value = serde_json::from_slice(&update.result).expect("JSON");
    assert_eq!((update.report, update.reason.as_str()), (Report::Failed, "guest-failure"));
    assert_eq!((&result["code"], &result["effects"]), (&json!("gpu-busy"), &json!([])), "{result}");
    assert_eq!(result["message"], format!("{} has a live assignment", gpu(2)));
    assert_eq!(result["details"]["holders"][0]["held"], format!("{}/slot-1", gpu(2)));
    link.ack(1, 2).await;
    link.deliver(&reset(2, &[1])).await;
    assert_eq!(link.whole_run(2).await.report, Report::Succeeded, "the other one is free");
    daemon.stop().await;
}
