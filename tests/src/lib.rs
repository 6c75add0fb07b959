//! The harness of the tests that need more than one crate: the built kinds, kinds made by hand, runs with a scripted node, and
//! clusters of real processes.
//!
//! **Invariant:** nothing here waits for time to pass or decides by a clock: a test says what happens and awaits it.

pub mod bmc;
pub mod cluster;
pub mod hand_made;
pub mod journal;
pub mod machine;
pub mod node;
pub mod programs;
pub mod watcher;

use std::sync::Arc;

use arc_swap::ArcSwap;
use bc_proto::manifest::{self, Manifest};
use bc_runtime::{Config, Engine, Inspected, Kind, Mode, Run};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::journal::Journal;
use crate::node::Node;
use crate::watcher::Recorder;

/// A built kind.
pub fn inspected(name: &str) -> Inspected {
    Inspected::read(&programs::kind(name)).expect("what was built is a kind")
}

/// A built kind with another manifest, packed as its author would have.
pub fn repacked(name: &str, change: impl FnOnce(&mut Manifest)) -> Inspected {
    let Inspected { bytes, mut manifest, .. } = inspected(name);
    change(&mut manifest);
    Inspected::from_bytes(better_compute::kind::pack::embed(without_manifest(&bytes), &manifest))
        .expect("the changed manifest keeps the rules")
}

/// A component without its manifest. The packer appends it, so the section is the file's end.
pub fn without_manifest(component: &[u8]) -> Vec<u8> {
    let name = manifest::SECTION.as_bytes();
    let start = component.windows(name.len()).rposition(|window| window == name).expect("it was packed");
    // Before the name: its length in one byte, the section's in up to five (LEB128), and the section's id, 0.
    let id = component[..start - 1].iter().rposition(|byte| *byte == 0).expect("sections have an id");
    component[..id].to_vec()
}

/// Compiles a component with a new engine without a cache.
pub fn load(inspected: &Inspected) -> Kind {
    Engine::new(&Config::default()).expect("an engine").load(inspected).expect("it loads")
}

/// A live run that records: everything that the manifest declares is granted, and a quiet [`Node`] answers.
pub fn run(kind: &Kind, payload: Value) -> Run {
    Run {
        command_id: "cmd_1".into(),
        node_id: "node_1".into(),
        attempt: 1,
        payload,
        timeout: None,
        mode: Mode::Live,
        record: true,
        capabilities: Node::quiet().capabilities(),
        grants: Arc::new(ArcSwap::from_pointee(kind.manifest().capabilities.clone())),
        journal: Arc::new(Journal::default()),
        cancel: CancellationToken::new(),
        slot: None,
        watcher: Arc::new(Recorder::default()),
    }
}
