//! `bcd kind list` and `bcd kind watch` as processes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[expect(clippy::disallowed_methods, reason = "the program under test is a process")]
fn bcd(verb: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bcd"));
    command.env_clear().args(["kind", verb]);
    command
}

fn list(arguments: &[&Path]) -> Output {
    bcd("list").args(arguments).output().expect("bcd starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn a_directory_is_listed_with_what_is_refused_and_the_flag_wins_over_the_configuration() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (empty, full) = (folder.path().join("empty"), folder.path().join("full"));
    fs::create_dir(&empty).expect("a folder");
    fs::create_dir(&full).expect("a folder");
    fs::write(full.join("junk.wasm"), "junk").expect("a file");
    let config = folder.path().join("bcd.toml");
    fs::write(&config, format!("plugin-dir = {:?}", full.display().to_string())).expect("a file");

    let listed = list(&["--config".as_ref(), &config]);
    assert_eq!(listed.status.code(), Some(3), "{listed:?}");
    let listed = text(&listed.stdout);
    assert!(listed.starts_with(&format!("refused {}: it is not WebAssembly", full.join("junk.wasm").display())));
    assert!(listed.contains("\n  → give the `.wasm` file that"), "{listed}");

    let json = list(&["--config".as_ref(), &config, "--json".as_ref()]);
    let line: Value = serde_json::from_slice(&json.stdout).expect("one line of JSON");
    assert_eq!((&line["change"], &line["serving"]), (&Value::from("refused"), &Value::Null));

    let listed = list(&["--config".as_ref(), &config, "--plugin-dir".as_ref(), &empty]);
    assert_eq!((listed.status.code(), text(&listed.stdout)), (Some(0), String::new()));
}

#[test]
fn a_directory_that_is_not_there_or_not_named_is_an_error_with_a_remedy() {
    let missing = list(&["--plugin-dir".as_ref(), "/nowhere/plugins".as_ref()]);
    assert_eq!(missing.status.code(), Some(1));
    let missing = text(&missing.stderr);
    assert!(missing.contains("/nowhere/plugins cannot be read") && missing.contains("→ create it"), "{missing}");
    let unnamed = text(&list(&[]).stderr);
    assert!(unnamed.contains("→ give --plugin-dir"), "{unnamed}");
}

#[test]
fn watching_prints_each_change_and_an_interrupt_ends_it_well() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("junk.wasm");
    fs::write(&file, "junk").expect("a file");
    let mut watch =
        bcd("watch").arg("--plugin-dir").arg(folder.path()).stdout(Stdio::piped()).spawn().expect("bcd starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("piped")).lines();
    let mut reason = || -> String {
        let line = lines.next().expect("a line").expect("UTF-8");
        let change: Value = serde_json::from_str(&line).expect("JSON");
        change["reason"].as_str().expect("a refusal").to_owned()
    };
    assert!(reason().contains("not WebAssembly"));
    fs::write(&file, b"\0asm\x01\0\0\0").expect("a file");
    assert!(reason().contains("a core module"));
    kill_process(Pid::from_child(&watch), Signal::INT).expect("it runs");
    assert_eq!(watch.wait().expect("it ends").code(), Some(0));
}
