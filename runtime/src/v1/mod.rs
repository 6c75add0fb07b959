//! Version 1 of the ABI: the bindings that wasmtime generates from `wit/`, and one thin adapter per interface.
//!
//! **Invariant:** an adapter only converts; every call goes through [`crate::gate::Gate`].

mod bindings {
    #![allow(missing_docs, clippy::pedantic, unreachable_pub)]
    wasmtime::component::bindgen!({
        path: ["../wit/host/1.0.0", "../wit/kind/1.0.0"],
        inline: "
            package better-compute:runtime;
            world runtime {
                include better-compute:host/capabilities@1.0.0;
                include better-compute:kind/kind@1.0.0;
            }
        ",
        world: "better-compute:runtime/runtime",
        imports: { default: async | trappable },
        exports: { default: async },
        additional_derives: [Clone, PartialEq, serde::Serialize, serde::Deserialize],
    });
}

pub use bindings::Runtime;
pub use bindings::better_compute::host::{
    block_devices, clock, gpus, inventory, log, nvml, process, progress, secrets, system, types::Error, upgrade, upload,
};
pub use bindings::exports::better_compute::kind::command;
