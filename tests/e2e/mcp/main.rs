//! Agents end to end: an independent MCP client, the real `better-compute mcp`, and a control plane and nodes that are processes.
//!
//! **Invariant:** what is asserted is what the agent is told, and what has happened on the node in the end.

mod agent;
mod batches;
mod http;
mod tools;

use bc_tests::cluster::Cluster;
use bc_tests::cluster::operator::Operator;

/// A person who may do everything, at the first replica.
fn admin(cluster: &Cluster) -> Operator {
    Operator::new(&cluster.replicas[0].api_url(), cluster.api.token())
}
