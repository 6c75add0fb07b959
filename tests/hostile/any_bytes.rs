//! Nothing panics, whatever bytes are given as a component and whatever JSON as a payload.

use std::sync::LazyLock;

use bc_proto::manifest;
use bc_runtime::{Config, Engine, Inspected, Kind};
use bc_tests::hand_made;
use better_compute::kind::pack;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::HOSTILE;

static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(&Config::default()).expect("an engine"));

/// Built kinds, and a small one, of which a change hits the structure rather than code.
static COMPONENTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let small = hand_made::component(&hand_made::core_module("", ""), &["log"]);
    vec![
        pack::embed(small, &hand_made::manifest()),
        bc_tests::inspected("test.hostile").bytes,
        bc_tests::inspected("diag.nvml").bytes,
    ]
});

/// `test.hostile` with a schema that admits every object, so that it reaches the guest.
static LAX: LazyLock<Kind> = LazyLock::new(|| {
    bc_tests::load(&bc_tests::repacked("test.hostile", |manifest| {
        manifest.payload = json!({ "type": "object" });
        manifest.examples.clear();
    }))
});

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// What may happen to a file.
#[derive(Debug, Clone)]
enum Change {
    Flip(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Repeat(prop::sample::Index, usize),
    Cut(prop::sample::Index),
}

fn change() -> impl Strategy<Value = Change> {
    let place = any::<prop::sample::Index>;
    prop_oneof![
        4 => (place(), any::<u8>()).prop_map(|(at, byte)| Change::Flip(at, byte)),
        2 => (place(), prop::collection::vec(any::<u8>(), 1..16)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (place(), 1..256_usize).prop_map(|(at, length)| Change::Remove(at, length)),
        1 => (place(), 1..256_usize).prop_map(|(at, length)| Change::Repeat(at, length)),
        1 => place().prop_map(Change::Cut),
    ]
}

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        if bytes.is_empty() {
            break;
        }
        match change {
            Change::Flip(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] ^= *byte;
            }
            Change::Insert(at, more) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, more.iter().copied());
            }
            Change::Remove(at, length) => {
                let at = at.index(bytes.len());
                bytes.drain(at..bytes.len().min(at + length));
            }
            Change::Repeat(at, length) => {
                let at = at.index(bytes.len());
                let again = bytes[at..bytes.len().min(at + length)].to_vec();
                bytes.splice(at..at, again);
            }
            Change::Cut(at) => {
                let at = at.index(bytes.len());
                bytes.truncate(at);
            }
        }
    }
    bytes
}

fn components() -> impl Strategy<Value = Vec<u8>> {
    let which = 0..COMPONENTS.len();
    (which, prop::collection::vec(change(), 1..6))
        .prop_map(|(which, changes)| changed(COMPONENTS[which].clone(), &changes))
}

/// The smallest component only, so that what still is one compiles fast.
fn small_components() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(change(), 1..4).prop_map(|changes| {
        let intact = &COMPONENTS[0];
        let code = bc_tests::without_manifest(intact);
        let manifest = intact[code.len()..].to_vec();
        [changed(code, &changes), manifest].concat()
    })
}

/// JSON of any shape, some of it near what the schema asks for.
fn json_values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
        Just(json!("ok")),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        let key = prop_oneof![Just("mode".to_owned()), ".{0,8}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(key, inner.clone(), 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
            inner.prop_map(|mode| json!({ "mode": mode })),
        ]
    })
}

fn read(bytes: Vec<u8>) -> Option<Inspected> {
    match Inspected::from_bytes(bytes) {
        Ok(inspected) => Some(inspected),
        Err(rejected) => {
            assert!(!rejected.to_string().is_empty() && !rejected.remedy().is_empty());
            None
        }
    }
}

/// Loads what can be read, and where that is a kind, runs it.
fn load_and_run(bytes: Vec<u8>) {
    let Some(inspected) = read(bytes) else { return };
    let kind: Kind = match ENGINE.load(&inspected) {
        Ok(kind) => kind,
        Err(rejected) => {
            assert!(!rejected.to_string().is_empty() && !rejected.remedy().is_empty());
            return;
        }
    };
    let run = bc_tests::run(&kind, json!({}));
    let report = runtime().block_on(kind.run(run));
    assert!(!report.outcome.to_string().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..2048), header: bool) {
        let header: &[u8] = if header { b"\0asm\x0d\0\x01\0" } else { b"" };
        read([header, &bytes].concat());
    }

    #[test]
    fn any_manifest_section_is_read_without_a_panic(data in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = manifest::Manifest::from_json(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn any_change_to_a_component_is_read_without_a_panic(bytes in components()) {
        read(bytes);
    }

    #[test]
    fn any_change_to_a_kind_is_loaded_and_run_without_a_panic(bytes in small_components()) {
        load_and_run(bytes);
    }

    #[test]
    fn any_payload_is_checked_without_a_panic(payload in json_values()) {
        let problems = HOSTILE.schema_problems(&payload);
        prop_assert_eq!(problems.is_empty(), payload == json!({ "mode": "ok" }));
        let told = runtime().block_on(LAX.validate(&payload)).expect("the guest answers");
        prop_assert_eq!(told.is_empty(), problems.is_empty(), "{:?}", told);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_change_to_a_built_kind_is_loaded_and_run_without_a_panic(bytes in components()) {
        load_and_run(bytes);
    }
}
