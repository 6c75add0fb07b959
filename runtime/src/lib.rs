//! The WebAssembly embedding that control plane and node share: load, inspect, check and run command kinds.

pub mod capability;
pub mod v1;
