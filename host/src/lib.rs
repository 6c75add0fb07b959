//! The control plane.
//!
//! **Invariant:** no state lives in a replica's memory alone: any replica can cancel, settle and take over any node.

pub mod api;
pub mod attestation;
pub mod audit;
pub mod batches;
pub mod bundles;
pub mod bus;
pub mod desired;
pub mod faults;
pub mod gateway;
pub mod loops;
mod metrics;
pub mod modules;
pub mod pki;
pub mod postgres;
pub mod queue;
pub mod registry;
pub mod server;
pub mod store;
#[cfg(test)]
mod testing;
pub mod tls;
pub mod trust;
pub mod vault;
pub mod web;
pub mod webhooks;
pub mod words;
pub mod world;

/// Both sides of the session protocol, generated from `proto/node.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    clippy::large_enum_variant,
    reason = "generated, and none of it may lint later; node.proto holds the documentation"
)]
mod grpc {
    tonic::include_proto!("better_compute.node.v1");
}
