//! What `wit-bindgen` generates from `wit/`: every capability and the kind's export, once for all kinds.
//!
//! **Invariant:** nothing is written by hand here. The linker and the component encoder drop the imports that a kind does
//! not call, so that its import list is its capability list.

#![allow(missing_docs, unsafe_code, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]

wit_bindgen::generate!({
    path: ["../../wit/host/1.0.0", "../../wit/kind/1.0.0", "../../wit/host/1.1.0"],
    inline: "
        package better-compute:sdk;
        world guest {
            include better-compute:host/capabilities@1.0.0;
            include better-compute:host/additions@1.1.0;
            include better-compute:kind/kind@1.0.0;
        }
    ",
    world: "better-compute:sdk/guest",
    generate_all,
    additional_derives: [PartialEq, Eq],
    pub_export_macro: true,
    export_macro_name: "export_command",
    default_bindings_module: "better_compute_sdk::bindings",
});
