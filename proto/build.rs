//! Generates the session protocol's messages from node.proto, with a compiler written in Rust: nothing to install.

fn main() {
    println!("cargo:rerun-if-changed=node.proto");
    let files = protox::compile(["node.proto"], ["."]).expect("node.proto parses");
    let mut messages = prost_build::Config::new();
    // Services are generated where they are served and called: this crate knows no transport.
    messages.compile_fds(files).expect("Rust code can be written for it");
}
