//! The operator's side end to end: the real `better-compute` against a control plane and nodes that are processes of their own.
//!
//! **Invariant:** what is asserted is what a person or a script gets: exit codes, output, and what is queued in the end.

mod audit;
mod bad_input;
mod batches;
mod bundles;
mod dev;
mod doctor;
mod gone;
mod identities;
mod kinds;
mod nodes;
mod outcomes;
mod reading;
mod secrets;
mod shipped;
mod specs;
mod tail;
mod tls;
mod tokens;

use bc_tests::cluster::Cluster;
use bc_tests::cluster::operator::Operator;

/// A person who may do everything, at the first replica.
fn admin(cluster: &Cluster) -> Operator {
    Operator::new(&cluster.replicas[0].api_url(), cluster.api.token())
}

/// The payload of the counting kind as a word.
fn counted(gpu: u32, hold_ms: u32) -> String {
    bc_tests::cluster::node::Node::counted(gpu, hold_ms).to_string()
}
