//! Generates the session protocol's services, the client for the tests; its messages are bc-proto's.

fn main() {
    println!("cargo:rerun-if-changed=../proto/node.proto");
    // Compiled in by sqlx::migrate!, which cannot say so itself.
    println!("cargo:rerun-if-changed=../migrations");
    let files = protox::compile(["node.proto"], ["../proto"]).expect("node.proto parses");
    tonic_prost_build::configure()
        .codec_path("crate::gateway::codec::SmallCodec")
        .extern_path(".better_compute.node.v1", "::bc_proto::wire::v1")
        .compile_fds(files)
        .expect("Rust code can be written for it");
}
