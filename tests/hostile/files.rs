//! Files that are no kinds are refused with the file, the rule and a remedy, and none of their code is run.

use std::fs::{self, File};
use std::path::Path;

use bc_proto::grants::Grants;
use bc_proto::manifest::{self, Manifest};
use bc_runtime::{Config, Engine, Inspected, LoadError, MAX_COMPONENT_BYTES, Rejected};
use bc_tests::hand_made;
use better_compute::kind::pack;
use wasm_encoder::{ComponentSection, CustomSection, Encode};

/// Ids of a component's sections that hold types and components.
const TYPE: u8 = 7;
const COMPONENT: u8 = 4;

/// Reads a file that is refused.
fn refused(file: &Path) -> LoadError {
    let error = Inspected::read(file).expect_err("it is no kind");
    assert_eq!(error.to_string(), format!("{}: {}", file.display(), error.rejected), "the file and the rule");
    assert!(!error.rejected.remedy().is_empty(), "what to do about it");
    error
}

/// Writes bytes to a file and has it refused.
fn refused_bytes(bytes: &[u8]) -> LoadError {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("some.kind.wasm");
    fs::write(&file, bytes).expect("it can be written");
    refused(&file)
}

/// Why the engine does not load a component that can be read.
fn not_loaded(bytes: Vec<u8>) -> Rejected {
    let inspected = Inspected::from_bytes(bytes).expect("it can be read");
    let rejected = Engine::new(&Config::default()).expect("an engine").load(&inspected).err().expect("it is refused");
    assert!(!rejected.remedy().is_empty());
    rejected
}

fn hostile() -> Vec<u8> {
    bc_tests::inspected("test.hostile").bytes
}

/// The hand-made component that does nothing, without a manifest.
fn component() -> Vec<u8> {
    hand_made::component(&hand_made::core_module("", ""), &[])
}

fn with_manifest_section(mut component: Vec<u8>, data: &[u8]) -> Vec<u8> {
    let section = CustomSection { name: manifest::SECTION.into(), data: data.into() };
    component.push(section.id());
    section.encode(&mut component);
    component
}

#[test]
fn a_file_that_is_not_there_or_is_a_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    for file in [dir.path().join("absent.wasm"), dir.path().to_owned()] {
        assert!(matches!(refused(&file).rejected, Rejected::Unreadable(_)));
    }
}

#[test]
fn a_text_file_and_an_empty_file() {
    for bytes in [&b""[..], b"name = 'no.kind'", b"\0as", b"\x7fELF"] {
        assert!(matches!(refused_bytes(bytes).rejected, Rejected::NotWebAssembly), "{bytes:?}");
    }
}

#[test]
fn a_hundred_megabytes_are_not_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("large.wasm");
    File::create(&file).and_then(|file| file.set_len(100_000_000)).expect("a sparse file");
    assert!(matches!(refused(&file).rejected, Rejected::TooLarge));
    let bytes = vec![0; usize::try_from(MAX_COMPONENT_BYTES).expect("it fits") + 1];
    assert!(matches!(Inspected::from_bytes(bytes), Err(Rejected::TooLarge)));
}

#[test]
fn a_core_module() {
    let module = wat::parse_str(hand_made::core_module("", "")).expect("it is right");
    let error = refused_bytes(&module);
    assert!(matches!(error.rejected, Rejected::CoreModule));
    assert_eq!(error.rejected.remedy(), "pack it with `better-compute kind build`");
}

#[test]
fn a_header_of_a_layer_or_version_that_is_not_known() {
    assert!(matches!(refused_bytes(b"\0asm\x01\0\x07\0").rejected, Rejected::Damaged(_)));
    assert!(matches!(refused_bytes(b"\0asm").rejected, Rejected::Damaged(_)));
}

/// Wherever it is cut: the manifest is the last section, so that what is cut off is it at least.
#[test]
fn a_component_that_is_cut_off_anywhere() {
    let whole = hostile();
    let sampled = (0..whole.len()).step_by(997);
    for length in sampled.chain(0..64).chain(whole.len() - 64..whole.len()) {
        match Inspected::from_bytes(whole[..length].to_vec()).expect_err("it is cut off") {
            Rejected::NotWebAssembly => assert!(length < 4, "{length}"),
            Rejected::Damaged(_) | Rejected::NoManifest => {}
            other => panic!("cut at {length}: {other}"),
        }
    }
}

#[test]
fn a_component_without_a_manifest_and_with_two() {
    let without = component();
    assert!(matches!(refused_bytes(&without).rejected, Rejected::NoManifest));
    let twice = pack::embed(pack::embed(without, &hand_made::manifest()), &hand_made::manifest());
    assert!(matches!(refused_bytes(&twice).rejected, Rejected::ManyManifests(2)));
}

#[test]
fn the_manifest_of_a_component_inside_is_not_this_ones() {
    let inner = pack::embed(component(), &hand_made::manifest());
    let mut outer = wasm_encoder::Component::new();
    outer.section(&wasm_encoder::RawSection { id: COMPONENT, data: &inner });
    assert!(matches!(refused_bytes(&outer.finish()).rejected, Rejected::NoManifest));
}

#[test]
fn a_broken_manifest() {
    let rules = Manifest { name: "no kind name".into(), ..hand_made::manifest() }.to_canonical_json();
    let cases: [(&[u8], &str); 5] = [
        (b"", "the manifest does not parse: EOF"),
        (b"\xff\xfe", "the manifest does not parse: "),
        (b"{}", "the manifest does not parse: missing field `name`"),
        (&rules, "the manifest breaks 1 rule(s):\n  name: 'no kind name' is not a kind name"),
        (&vec![b' '; manifest::MAX_BYTES + 1], "the manifest has 262145 bytes; at most 262144 are read"),
    ];
    for (data, words) in cases {
        let error = refused_bytes(&with_manifest_section(component(), data));
        assert!(matches!(error.rejected, Rejected::Manifest(_)));
        assert!(error.rejected.to_string().starts_with(words), "{}", error.rejected);
        assert_eq!(error.rejected.remedy(), "correct kind.toml and build again");
    }
}

#[test]
fn a_manifest_that_does_not_declare_what_is_imported() {
    let lying = bc_tests::repacked("test.hostile", |manifest| manifest.capabilities = Grants::default());
    let rejected = not_loaded(lying.bytes);
    for interface in ["gpus", "nvml", "secrets", "system"] {
        let rule = format!("it imports `better-compute:host/{interface}@1.0.0`, which its manifest does not declare");
        assert!(rejected.to_string().contains(&rule), "{rejected}");
        assert!(rejected.remedy().contains(&format!("[capabilities.{interface}]")), "{}", rejected.remedy());
    }
}

#[test]
fn a_component_that_exports_no_command() {
    let bytes = pack::embed(wat::parse_str("(component)").expect("it is right"), &hand_made::manifest());
    assert!(not_loaded(bytes).to_string().contains("does not export `better-compute:kind/command@1.0.0`"));
}

/// The name is right, what is behind it is not.
#[test]
fn a_component_whose_import_or_export_has_another_type() {
    let export = r#"(component (instance $i) (export "better-compute:kind/command@1.0.0" (instance $i)))"#;
    let import = format!(
        r#"(component
            (import "better-compute:host/log@1.0.0" (instance (export "write" (func (param "line" u32)))))
            {})"#,
        &export["(component".len()..export.len() - 1]
    );
    for text in [export, &import] {
        let rejected = not_loaded(pack::embed(wat::parse_str(text).expect("it is right"), &hand_made::manifest()));
        assert!(matches!(rejected, Rejected::Link(_)), "{rejected}");
    }
}

#[test]
fn a_component_that_needs_what_the_engine_leaves_off() {
    let command = r#"(instance $i) (export "better-compute:kind/command@1.0.0" (instance $i))"#;
    for module in ["(memory i64 1)", "(memory 1 1 shared)", "(type (struct))"] {
        let text = format!("(component (core module {module}) {command})");
        let rejected = not_loaded(pack::embed(wat::parse_str(text).expect("it is right"), &hand_made::manifest()));
        assert!(matches!(rejected, Rejected::Compile(_)), "{module}: {rejected}");
    }
}

/// A component with more sections: each an id and its content.
fn with_sections(sections: impl IntoIterator<Item = (u8, Vec<u8>)>) -> Vec<u8> {
    let mut component = component();
    for (id, data) in sections {
        component.push(id);
        data.encode(&mut component);
    }
    pack::embed(component, &hand_made::manifest())
}

#[test]
fn components_inside_of_components_without_end() {
    let nested = |depth| {
        let empty = wasm_encoder::Component::new().finish();
        let inside = (1..depth).fold(empty, |inner, _| {
            let mut outer = wasm_encoder::Component::new();
            outer.section(&wasm_encoder::RawSection { id: COMPONENT, data: &inner });
            outer.finish()
        });
        with_sections([(COMPONENT, inside)])
    };
    let engine = Engine::new(&Config::default()).expect("an engine");
    let deep = Inspected::from_bytes(nested(32)).expect("it can be read");
    engine.load(&deep).map(drop).expect("no tool nests as deep, and it is no harm");
    for depth in [33, 1_000] {
        assert!(matches!(refused_bytes(&nested(depth)).rejected, Rejected::TooDeep), "{depth}");
    }
}

#[test]
fn blocks_inside_of_blocks_without_end() {
    let body = ["(block ".repeat(10_000), ")".repeat(10_000)].concat();
    let bytes = pack::embed(hand_made::component(&hand_made::core_module("", &body), &[]), &hand_made::manifest());
    let inspected = Inspected::from_bytes(bytes).expect("it can be read");
    let loaded = Engine::new(&Config::default()).expect("an engine").load(&inspected);
    assert!(matches!(loaded, Ok(_) | Err(Rejected::Compile(_))), "{:?}", loaded.err());
}

/// Deeper than any call stack: this ended the process when such a component was loaded.
#[test]
fn types_inside_of_types_without_end() {
    for kind_of_type in [0x41, 0x42] {
        // One type; it declares one type; that one declares one type …
        let mut types = vec![1];
        types.extend([kind_of_type, 1, 1].repeat(100_000));
        types.extend([kind_of_type, 0]);
        assert!(matches!(refused_bytes(&with_sections([(TYPE, types)])).rejected, Rejected::TooDeep));
    }
}
