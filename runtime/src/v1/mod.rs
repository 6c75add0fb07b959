//! Version 1 of the ABI: the bindings that wasmtime generates from `wit/`, and one thin adapter per interface.
//!
//! **Invariant:** an adapter only names the call, what it needs and its dry answer; every call goes through
//! [`crate::gate::Gate`].

#![expect(clippy::redundant_closure_for_method_calls, reason = "calls with and without arguments keep one shape")]

mod block_devices;
mod clock;
mod files;
mod gpus;
pub mod http;
mod inventory;
mod log;
mod nvml;
mod process;
mod progress;
mod secrets;
mod system;
mod upgrade;
mod upload;
mod wasi;

use std::collections::BTreeSet;

use bc_proto::grants::Capability;
use wasmtime::component::{HasSelf, Linker};

pub(crate) use self::log::LogBudget;
use crate::store::RunState;

#[expect(missing_docs, reason = "generated; the WIT files hold the documentation")]
mod bindings {
    wasmtime::component::bindgen!({
        path: ["../wit/host/1.0.0", "../wit/kind/1.0.0", "../wit/host/1.1.0"],
        inline: "
            package better-compute:runtime;
            world guest {
                include better-compute:host/capabilities@1.0.0;
                include better-compute:host/additions@1.1.0;
                include better-compute:kind/kind@1.0.0;
            }
        ",
        world: "better-compute:runtime/guest",
        imports: { default: async | trappable },
        exports: { default: async },
        additional_derives: [Clone, PartialEq, serde::Serialize, serde::Deserialize],
    });
}

/// The generated types, one module per WIT interface.
pub mod wit {
    pub use super::bindings::better_compute::host1_0_0::{
        block_devices, clock, gpus, inventory, log, nvml, process, progress, secrets, system, types, upgrade, upload,
    };
    pub use super::bindings::better_compute::host1_1_0::files;
    pub use super::bindings::exports::better_compute::kind::command;
}

pub(crate) use self::bindings::GuestPre;
pub(crate) use self::wasi::Wasi;
pub use self::wit::types::Error;

impl Error {
    /// For people: the message, the code and the native number. The generated `Display` is for debugging.
    pub fn in_words(&self) -> String {
        match self.native {
            Some(native) => format!("{} ({}, {native})", self.message, self.code),
            None => format!("{} ({})", self.message, self.code),
        }
    }
}

impl wit::types::Host for RunState {}

/// Links the ambient interfaces and those of the given capabilities, and nothing else. Of WASI only what is imported is linked:
/// most kinds import nothing of it, and linking takes time.
pub(crate) fn link(
    linker: &mut Linker<RunState>,
    capabilities: &BTreeSet<Capability>,
    imports: &BTreeSet<String>,
) -> wasmtime::Result<()> {
    type Own = HasSelf<RunState>;
    wit::types::add_to_linker::<_, Own>(linker, |state| state)?;
    wit::log::add_to_linker::<_, Own>(linker, |state| state)?;
    wit::progress::add_to_linker::<_, Own>(linker, |state| state)?;
    wit::clock::add_to_linker::<_, Own>(linker, |state| state)?;
    for capability in capabilities {
        match capability {
            Capability::Inventory => wit::inventory::add_to_linker::<_, Own>(linker, |state| state)?,
            Capability::Nvml => wit::nvml::add_to_linker::<_, Own>(linker, |state| state)?,
            Capability::Gpus => wit::gpus::add_to_linker::<_, Own>(linker, |state| state)?,
            Capability::System => wit::system::add_to_linker::<_, Own>(linker, |state| state)?,
            Capability::Process => wit::process::add_to_linker::<_, Own>(linker, |state| state)?,
            Capability::Upload => wit::upload::add_to_linker::<_, Own>(linker, |state| state)?,
            Capability::BlockDevices => wit::block_devices::add_to_linker::<_, Own>(linker, |state| state)?,
            Capability::Secrets => wit::secrets::add_to_linker::<_, Own>(linker, |state| state)?,
            Capability::Upgrade => wit::upgrade::add_to_linker::<_, Own>(linker, |state| state)?,
            Capability::Files => wit::files::add_to_linker::<_, Own>(linker, |state| state)?,
            Capability::Http => wasi::link_outgoing(linker)?,
        }
    }
    if imports.iter().any(|import| import.starts_with("wasi:")) {
        wasi::link_ambient(linker)?;
    }
    Ok(())
}
