//! Generates the server side of the session protocol; its messages are bc-proto's.

fn main() {
    println!("cargo:rerun-if-changed=../proto/node.proto");
    let files = protox::compile(["node.proto"], ["../proto"]).expect("node.proto parses");
    tonic_prost_build::configure()
        .build_client(false)
        .extern_path(".better_compute.node.v1", "::bc_proto::wire::v1")
        .compile_fds(files)
        .expect("Rust code can be written for it");
}
