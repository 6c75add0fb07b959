//! Every function of `better-compute:host` goes through the gate.
//!
//! The functions are read from the WIT files themselves. For each, a component is generated that calls just this function, so
//! that a function which someone adds to the WIT and links beside the gate fails here without anyone having to list it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bc_proto::grants::Grants;
use bc_proto::manifest::Manifest;
use bc_runtime::capability::Capabilities;
use bc_runtime::effect::ReportOnly;
use bc_runtime::{Config, Engine, Inspected, Mode, Outcome, Report, Run, Watcher};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::abi::{AbiVariant, FlatTypes, WasmType};
use wit_parser::{Function, Resolve, Type, TypeDefKind, WorldId, WorldItem};

/// The manifest declares everything, with arguments that fit the text which the generated calls pass.
const TEXT: &str = "/dev/x";
const MANIFEST: &str = r#"
name = "test.everything"
version = "1.0.0"
summary = "Calls one host function"
module = "test"
lane = "control"
timeout = "5s"
roles = ["host"]
payload = { type = "object" }
result = {}
limits = { memory = "1MiB", cpu = "1s" }
[capabilities]
inventory = {}
nvml = {}
gpus = { reset = true }
system = { reboot = true }
process = { programs = [{ program = "/dev/x" }] }
upload = {}
block-devices = { devices = ["/dev/*"], erase = true, write = true }
secrets = { refs = ["*"] }
upgrade = {}
"#;

/// Who the functions are that change a node. Listed here as well, so that an effect cannot become a read unnoticed.
const EFFECTS: [&str; 11] = [
    "block-devices.erase",
    "block-devices.write-image",
    "gpus.reset",
    "process.run",
    "process.start",
    "system.reboot",
    "upgrade.confirm",
    "upgrade.roll-back",
    "upgrade.stage",
    "upgrade.switch",
    "upload.finish",
];

#[tokio::test]
async fn promise_22_every_host_function_is_denied_without_a_grant() {
    for call in calls() {
        let report = run(&call, &Grants::default(), Mode::Live).await;
        assert_eq!(report.host_calls, 1, "{}: {}", call.name, report.outcome);
        match call.interface.as_str() {
            "log" | "progress" | "clock" => {
                assert!(matches!(report.outcome, Outcome::Succeeded { .. }), "{}: {}", call.name, report.outcome);
            }
            _ => {
                let Outcome::Denied { message } = &report.outcome else { panic!("{}: {}", call.name, report.outcome) };
                assert!(message.contains("this node's policy does not allow"), "{}: {message}", call.name);
            }
        }
    }
}

#[tokio::test]
async fn every_host_function_is_recorded_and_every_effect_is_planned() {
    let declared = Manifest::from_toml(MANIFEST).expect("it keeps the rules").capabilities;
    let mut effects = BTreeSet::new();
    for call in calls() {
        let plan = run(&call, &declared, Mode::Plan).await;
        assert!(matches!(plan.outcome, Outcome::Succeeded { .. }), "{}: {}", call.name, plan.outcome);
        effects.extend(plan.effects.iter().map(|effect| effect.name.clone()));

        // Nothing stands behind the capabilities here, so nothing can happen; the call is made all the same.
        let live = run(&call, &declared, Mode::Live).await;
        assert!(matches!(live.outcome, Outcome::Succeeded { .. }), "{}: {}", call.name, live.outcome);
        assert_eq!(live.effects.len(), plan.effects.len(), "{}: what is planned is what is done", call.name);
        let recorded: Vec<_> =
            live.transcript.expect("it was to be recorded").calls.into_iter().map(|c| c.call).collect();
        let expected =
            if matches!(call.interface.as_str(), "log" | "progress") { vec![] } else { vec![call.name.clone()] };
        assert_eq!(recorded, expected);
    }
    assert_eq!(effects, EFFECTS.map(String::from).into());
}

#[tokio::test]
async fn a_manifest_that_lies_about_its_imports_is_refused_before_anything_runs() {
    for call in calls().iter().filter(|call| !matches!(call.interface.as_str(), "log" | "progress" | "clock")) {
        let mut manifest = Manifest::from_toml(MANIFEST).expect("it keeps the rules");
        manifest.capabilities = Grants::default();
        let inspected = Inspected::from_bytes(call.component(&manifest)).expect("it is a component");
        let refused = Engine::new(&Config::default()).expect("an engine").load(&inspected).err().expect("it lies");
        let words =
            format!("it imports `better-compute:host/{}@1.0.0`, which its manifest does not declare", call.interface);
        assert_eq!(refused.to_string(), words);
    }
}

struct HostCall {
    /// `nvml.devices`
    name: String,
    interface: String,
    component: Vec<u8>,
}

impl HostCall {
    fn component(&self, manifest: &Manifest) -> Vec<u8> {
        let mut component = self.component.clone();
        let section = wasm_encoder::CustomSection {
            name: bc_proto::manifest::SECTION.into(),
            data: manifest.to_canonical_json().into(),
        };
        component.push(wasm_encoder::ComponentSection::id(&section));
        wasm_encoder::Encode::encode(&section, &mut component);
        component
    }
}

async fn run(call: &HostCall, grants: &Grants, mode: Mode) -> Report {
    let manifest = Manifest::from_toml(MANIFEST).expect("it keeps the rules");
    let inspected = Inspected::from_bytes(call.component(&manifest)).expect("it is a kind");
    let kind = Engine::new(&Config::default()).expect("an engine").load(&inspected).expect("it loads");
    let run = Run {
        command_id: "cmd_1".into(),
        node_id: "node_1".into(),
        attempt: 1,
        payload: json!({}),
        timeout: None,
        mode,
        record: true,
        capabilities: Capabilities::default(),
        grants: Arc::new(ArcSwap::from_pointee(grants.clone())),
        journal: Arc::new(ReportOnly),
        cancel: CancellationToken::new(),
        slot: None,
        watcher: Arc::new(Nobody),
    };
    kind.run(run).await
}

struct Nobody;

impl Watcher for Nobody {
    fn log(&self, _: bc_runtime::v1::wit::log::Level, _: &str, _: &str, _: &str) {}
    fn progress(&self, _: u64, _: Option<u64>, _: &str, _: &str) {}
    fn now_ms(&self) -> u64 {
        0
    }
    fn role(&self) -> String {
        "host".into()
    }
}

/// One component per host function.
fn calls() -> Vec<HostCall> {
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit");
    let mut resolve = Resolve::new();
    let (host, _) = resolve.push_path(wit.join("host/1.0.0")).expect("the host package parses");
    resolve.push_path(wit.join("kind/1.0.0")).expect("the kind package parses");
    let mut calls = Vec::new();
    for (interface, id) in resolve.packages[host].interfaces.clone() {
        let import = resolve.id_of(id).expect("a package's interface has a name");
        for (function, definition) in resolve.interfaces[id].functions.clone() {
            let mut resolve = resolve.clone();
            let text =
                format!("package test:one; world one {{ import {import}; include better-compute:kind/kind@1.0.0; }}");
            let package = resolve.push_str("one.wit", &text).expect("the world parses");
            let world = resolve.packages[package].worlds["one"];
            let core = core_module(&resolve, world, &import, &definition);
            let mut module = wat::parse_str(&core).expect("the generated text is right");
            embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("it can be embedded");
            let component = ComponentEncoder::default().module(&module).and_then(|e| e.validate(true).encode());
            let component = component.unwrap_or_else(|error| panic!("{interface}.{function}: {error:#}\n{core}"));
            calls.push(HostCall { name: format!("{interface}.{function}"), interface: interface.clone(), component });
        }
    }
    assert!(calls.len() > 40, "the WIT has {} functions", calls.len());
    calls
}

/// A module whose `run` calls the function once and answers `{}`.
fn core_module(resolve: &Resolve, world: WorldId, import: &str, function: &Function) -> String {
    let signature = resolve.wasm_signature(AbiVariant::GuestImport, function);
    let types = |types: &[WasmType]| types.iter().map(|t| format!(" {}", wasm_type(*t))).collect::<String>();
    let mut arguments: Vec<String> = Vec::new();
    if signature.indirect_params {
        arguments.push("i32.const 4096".into());
    } else {
        for param in &function.params {
            flatten(resolve, &param.ty, &mut arguments);
        }
    }
    if signature.retptr {
        arguments.push("i32.const 8192".into());
    }
    let drops = "drop ".repeat(signature.results.len());
    let exports = resolve.worlds[world].exports.iter().flat_map(|(key, item)| {
        let WorldItem::Interface { id, .. } = item else { panic!("the kind world exports interfaces") };
        let prefix = resolve.name_world_key(key);
        resolve.interfaces[*id].functions.values().map(move |f| (format!("{prefix}#{}", f.name), f))
    });
    let exports: String = exports
        .map(|(name, f)| {
            let signature = resolve.wasm_signature(AbiVariant::GuestExport, f);
            let call =
                if f.name == "run" { format!("{} call $import {drops}", arguments.join(" ")) } else { String::new() };
            format!(
                "(func (export \"{name}\") (param{}) (result{}) {call} i32.const 2048)\n",
                types(&signature.params),
                types(&signature.results)
            )
        })
        .collect();
    format!(
        r#"(module
        (import "{import}" "{}" (func $import (param{}) (result{})))
        (memory (export "memory") 1)
        (global $free (mut i32) (i32.const 16384))
        (data (i32.const 1024) "{TEXT}")
        (data (i32.const 2048) "\00\00\00\00\0c\08\00\00\02\00\00\00")
        (data (i32.const 2060) "{{}}")
        {exports}
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
            (global.set $free (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
            (global.get $free)
            (global.set $free (i32.add (global.get $free) (local.get 3)))))"#,
        function.name,
        types(&signature.params),
        types(&signature.results)
    )
}

/// Constants for one parameter: the text for strings, zeros (empty, none, false, the first case) for all else.
fn flatten(resolve: &Resolve, ty: &Type, out: &mut Vec<String>) {
    if *ty == Type::String {
        out.extend(["i32.const 1024".to_owned(), format!("i32.const {}", TEXT.len())]);
        return;
    }
    if let Type::Id(id) = ty {
        match &resolve.types[*id].kind {
            TypeDefKind::Type(alias) => return flatten(resolve, alias, out),
            TypeDefKind::Record(record) => return record.fields.iter().for_each(|f| flatten(resolve, &f.ty, out)),
            _ => {}
        }
    }
    let mut storage = [WasmType::I32; 16];
    let mut flat = FlatTypes::new(&mut storage);
    assert!(resolve.push_flat(ty, &mut flat), "at most 16 values");
    out.extend(flat.to_vec().into_iter().map(|t| format!("{}.const 0", wasm_type(t))));
}

fn wasm_type(ty: WasmType) -> &'static str {
    match ty {
        WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32",
        WasmType::I64 | WasmType::PointerOrI64 => "i64",
        WasmType::F32 => "f32",
        WasmType::F64 => "f64",
    }
}
