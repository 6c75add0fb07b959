//! A stand-in for NVIDIA's management library and its `nvidia-smi`, played from a JSON state file.
//!
//! None of our machines has a GPU. The shared object of this crate is loaded by the real `nvml-wrapper` in place of
//! `libnvidia-ml.so.1` and answers from a [`State`]; the binary `nvidia-smi` prints what the real one prints and changes the
//! same state. The Rust half (this documentation) is what tests and the simulated node use to write that state.
//!
//! Where the state is: `$FAKE_NVML_STATE`, or else [`STATE_FILE`] beside the loaded library (for `nvidia-smi`: beside the
//! program or one folder up). The second way needs no environment, so one process can play several nodes, each with a copy
//! of the library of its own: see [`SimulatedNode`].
//!
//! **Invariant:** nothing here touches a real GPU or driver, and every GPU says "(simulated)" in its name.

#[expect(unsafe_code, reason = "a C library: exported symbols and the caller's pointers")]
mod abi;
pub mod dcgmi;
mod library;
mod node;
mod pci;
mod preset;
pub mod services;
pub mod smi;
mod state;

pub use library::{LIBRARY_VARIABLE, NotBuilt, library_path, nvidia_smi_path, write_library, write_library_without};
pub use node::SimulatedNode;
pub use pci::PciAddress;
pub use preset::Preset;
pub use state::{
    BusyText, Context, Dcgm, DcgmResult, Ecc, Event, Gpu, HangOn, Link, Mig, MigInstance, Process, RemappedRows,
    ResetAnswer, STATE_FILE, STATE_VARIABLE, Service, Smi, State, TRACE_VARIABLE, calls_file,
};
