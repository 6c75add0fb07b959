//! Kinds written as WebAssembly text, small enough to compile in a moment.

use std::path::Path;

use bc_proto::manifest::{self, Manifest};
use wasm_encoder::{ComponentSection as _, CustomSection, Encode as _};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// A manifest for hosts, whose payload may hold a number `n`. `more` are further lines.
pub(crate) fn manifest(name: &str, version: &str, more: &str) -> Manifest {
    let text = format!(
        "name = '{name}'\nversion = '{version}'\nsummary = 'Made by hand'\nmodule = 'test'\nlane = 'control'\n\
         timeout = '1m'\nroles = ['host']\nresult = {{}}\n{more}\n\
         [payload]\ntype = 'object'\nadditionalProperties = false\nproperties.n = {{ type = 'integer', minimum = 0 }}\n"
    );
    Manifest::from_toml(&text).expect("the test's manifest keeps the rules")
}

/// `validate` finds nothing.
const ACCEPTS: &str = "i32.const 2048";

/// `validate` finds the problem `/n` `the guest does not like it` in any payload but `{}`.
const REFUSES: &str = "i32.const 2048
    i32.const 3000
    (i32.eq (local.get 1) (i32.const 2))
    select";

/// A kind that takes what its schema takes.
pub(crate) fn kind(manifest: &Manifest) -> Vec<u8> {
    embed(component(ACCEPTS, &[]), manifest)
}

/// A kind whose `validate` takes nothing but `{}`.
pub(crate) fn picky(manifest: &Manifest) -> Vec<u8> {
    embed(component(REFUSES, &[]), manifest)
}

/// A kind whose `validate` ends in a trap.
pub(crate) fn broken(manifest: &Manifest) -> Vec<u8> {
    embed(component("unreachable", &[]), manifest)
}

/// A component with this `validate` that imports interfaces of the host package, without a manifest.
pub(crate) fn component(validate: &str, imports: &[&str]) -> Vec<u8> {
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit");
    let mut resolve = Resolve::new();
    resolve.push_path(wit.join("host/1.0.0")).expect("the host package parses");
    resolve.push_path(wit.join("kind/1.0.0")).expect("the kind package parses");
    let interfaces: String = imports.iter().map(|it| format!("import better-compute:host/{it}@1.0.0; ")).collect();
    let world = format!("package test:one; world one {{ {interfaces}include better-compute:kind/kind@1.0.0; }}");
    let package = resolve.push_str("one.wit", &world).expect("the world parses");
    let world = resolve.packages[package].worlds["one"];
    let mut module = wat::parse_str(core_module(validate, imports)).expect("the text is right");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("it can be embedded");
    let encoder = ComponentEncoder::default().module(&module).expect("a module");
    encoder.validate(true).encode().expect("a component")
}

fn core_module(validate: &str, imports: &[&str]) -> String {
    // What a module does not import is left out of its component.
    let import = if imports.contains(&"system") {
        r#"(import "better-compute:host/system@1.0.0" "role" (func (param i32)))"#
    } else {
        ""
    };
    format!(
        r#"(module
        {import}
        (memory (export "memory") 1)
        (global $free (mut i32) (i32.const 16384))
        (data (i32.const 2048) "\00\00\00\00\0c\08\00\00\02\00\00\00")
        (data (i32.const 2060) "{{}}")
        (data (i32.const 3000) "\01\00\00\00\c8\0b\00\00\01\00\00\00")
        (data (i32.const 3016) "\e8\0b\00\00\02\00\00\00\f0\0b\00\00\1a\00\00\00")
        (data (i32.const 3048) "/n")
        (data (i32.const 3056) "the guest does not like it")
        (func (export "better-compute:kind/command@1.0.0#validate") (param i32 i32) (result i32) {validate})
        (func (export "better-compute:kind/command@1.0.0#run")
            (param i32 i32 i32 i32 i32 i64 i32 i32) (result i32) i32.const 2048)
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
            (global.set $free (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
            (global.get $free)
            (global.set $free (i32.add (global.get $free) (local.get 3)))))"#
    )
}

/// Appends a manifest.
pub(crate) fn embed(mut component: Vec<u8>, manifest: &Manifest) -> Vec<u8> {
    let section = CustomSection { name: manifest::SECTION.into(), data: manifest.to_canonical_json().into() };
    component.push(section.id());
    section.encode(&mut component);
    component
}
