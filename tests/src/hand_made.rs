//! Kinds written as WebAssembly text, for what no compiler would make.

use std::path::Path;

use bc_proto::manifest::Manifest;
use better_compute::kind::pack;
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// A manifest that declares no capability, with the smallest limits that a test can tell apart: 1 s, 100 ms and 1 MiB.
pub fn manifest() -> Manifest {
    let text = "name = 'test.hand-made'\nversion = '1.0.0'\nsummary = 'Written by hand'\nmodule = 'test'\n\
                lane = 'control'\ntimeout = '1s'\nroles = ['host']\npayload = { type = 'object' }\nresult = {}\n\
                [limits]\nmemory = '1MiB'\ncpu = '100ms'";
    Manifest::from_toml(text).expect("the test's manifest keeps the rules")
}

/// The text of a core module whose `run` does what `body` says and then answers `{}`. `fields` are more module fields:
/// imports first.
pub fn core_module(fields: &str, body: &str) -> String {
    format!(
        r#"(module
        {fields}
        (memory (export "memory") 1)
        (global $free (mut i32) (i32.const 16384))
        (data (i32.const 2048) "\00\00\00\00\0c\08\00\00\02\00\00\00")
        (data (i32.const 2060) "{{}}")
        (func (export "better-compute:kind/command@1.0.0#validate") (param i32 i32) (result i32) i32.const 2048)
        (func (export "better-compute:kind/command@1.0.0#run")
            (param i32 i32 i32 i32 i32 i64 i32 i32) (result i32)
            {body}
            i32.const 2048)
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
            (global.set $free (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
            (global.get $free)
            (global.set $free (i32.add (global.get $free) (local.get 3)))))"#
    )
}

/// A component of a core module, without a manifest. `imports` are interfaces of the host package, `["nvml"]`.
pub fn component(core: &str, imports: &[&str]) -> Vec<u8> {
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit");
    let mut resolve = Resolve::new();
    resolve.push_path(wit.join("host/1.0.0")).expect("the host package parses");
    resolve.push_path(wit.join("kind/1.0.0")).expect("the kind package parses");
    let imports: String = imports.iter().map(|i| format!("import better-compute:host/{i}@1.0.0; ")).collect();
    let world = format!("package test:one; world one {{ {imports}include better-compute:kind/kind@1.0.0; }}");
    let package = resolve.push_str("one.wit", &world).expect("the world parses");
    let world = resolve.packages[package].worlds["one"];
    let mut module = wat::parse_str(core).unwrap_or_else(|error| panic!("{error}\n{core}"));
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("it can be embedded");
    pack::component(&module).unwrap_or_else(|error| panic!("{error:#}\n{core}"))
}
