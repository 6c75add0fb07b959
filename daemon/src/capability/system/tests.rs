//! Reading systemd's answers. What is done with them is seen in `tests/faults/reboot.rs`, with a machine.

use proptest::prelude::*;

use super::inhibitors::blocking;
use super::*;

/// What `busctl` of systemd 252 prints for three inhibitors, but for the names.
const LISTED: &str = r#"{"type":"a(ssssuu)","data":[[["sleep","UPower","Pause device polling","delay",0,610],["shutdown:sleep","Unattended Upgrades","packages are being installed","block",0,812],["shutdown","a session","looks first","block-weak",1000,813],["handle-power-key","a desktop","its own button","block",1000,814]]]}"#;

#[test]
fn what_blocks_a_shutdown_is_named_and_nothing_else() {
    let found = blocking(LISTED).expect("it is read");
    let names: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["Unattended Upgrades (pid 812): packages are being installed"]);
    assert_eq!(blocking(r#"{"type":"a(ssssuu)","data":[[]]}"#).expect("it is read"), []);
}

#[test]
fn promise_32_a_list_that_cannot_be_read_is_not_an_empty_one() {
    for text in ["", "{}", "[]", r#"{"data":[]}"#, r#"{"data":[[["shutdown"]]]}"#, r#"{"data":[[],[]]}"#] {
        assert!(blocking(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_list_makes_it_panic(text in ".{0,200}") {
        let _ = blocking(&text);
        let _ = blocking(&format!(r#"{{"data":[[{text}]]}}"#));
    }
}

#[test]
fn promise_01_a_run_without_a_command_asks_for_no_reboot_and_is_told_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("boot-id");
    let system = ThisSystem::alone(file.clone());
    assert_eq!(system.boot_id().expect_err("there is none").code, "unreadable");
    std::fs::write(&file, "b0070000-0000-4000-8000-000000000001\n").expect("it is written");
    assert_eq!(system.boot_id().expect("it is there"), "b0070000-0000-4000-8000-000000000001");
    let error = system.reboot("a test").expect_err("it is refused");
    assert!(error.code == "no-command" && error.message.contains("--plan"), "{error:?}");
    for reason in ["", "two\nlines", &"x".repeat(201)] {
        assert_eq!(system.reboot(reason).expect_err(reason).code, "invalid-reason");
    }
}

#[test]
fn promise_32_where_systemd_cannot_be_asked_no_reboot_is_asked_for() {
    let config = Reboot { path: "/nonexistent".into(), ..Reboot::default() };
    let reboots = Reboots::new(config, Some("/proc/self/exe".into()));
    let asked = Arc::new(Asked::default());
    let system = ThisSystem { boot_id_file: "/nonexistent".into(), asking: Some((reboots, Arc::clone(&asked))) };
    let error = system.reboot("a test").expect_err("nothing is there");
    assert_eq!((error.code.as_str(), asked.take()), ("inhibitors-unknown", None));
    assert!(error.message.contains("there is no program `busctl`"), "{error:?}");
}
