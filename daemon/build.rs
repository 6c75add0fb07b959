//! Generates the client side of the session protocol, and its server side for tests that play a gateway; the messages are
//! bc-proto's.

use std::fs;
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=../proto/node.proto");
    let files = protox::compile(["node.proto"], ["../proto"]).expect("node.proto parses");
    let out = std::env::var_os("OUT_DIR").expect("cargo names a folder for output");
    for side in ["client", "server"] {
        let folder = Path::new(&out).join(side);
        fs::create_dir_all(&folder).expect("cargo's own folder can be written");
        tonic_prost_build::configure()
            .build_client(side == "client")
            .build_server(side == "server")
            .out_dir(folder)
            .extern_path(".better_compute.node.v1", "::bc_proto::wire::v1")
            .compile_fds(files.clone())
            .expect("Rust code can be written for it");
    }
}
