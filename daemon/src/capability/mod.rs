//! The powers a node has, free of WebAssembly: each implements one trait of [`bc_runtime::capability`].

pub mod block_devices;
pub mod commanded;
pub mod files;
pub mod gpus;
pub mod http;
pub mod inventory;
pub mod kernel_log;
pub mod nvml;
pub mod process;
pub mod secrets;
pub mod system;
pub mod upgrade;
pub mod upload;
