//! The planner: a table of what it does and refuses, and the property that it never goes below what was asked for.

use proptest::prelude::*;
use sdk::block_devices::SampleReport;
use serde_json::json;

use super::*;
use crate::report::{Attempt, Report, Status, Verdict, Verification, Wiped};

fn level_of(method: Method) -> Level {
    if matches!(method, Method::ZeroOut | Method::Overwrite) { Level::Clear } else { Level::Purge }
}

fn fact(path: &str, offers: &[Method]) -> Fact {
    let methods = offers.iter().map(|method| json!({ "method": method.name(), "level": level_of(*method).name() }));
    let lacks = Method::ALL.iter().filter(|method| !offers.contains(method));
    let lacks = lacks.map(|method| json!({ "method": method.name(), "reason": "not in this drive" }));
    let identity = json!({
        "bus": "nvme", "methods": methods.collect::<Vec<_>>(), "unsupported": lacks.collect::<Vec<_>>(), "more": 1,
    });
    Fact {
        device: Device {
            path: path.into(),
            size_bytes: 1 << 30,
            model: Some("M".into()),
            serial: Some(format!("S-{path}")),
            users: vec![],
        },
        identity: Identity::parse(&identity.to_string()),
    }
}

fn payload(value: &serde_json::Value) -> Payload {
    sdk::payload::parse(&value.to_string()).unwrap_or_else(|problem| panic!("{value}: {problem:?}"))
}

fn named(paths: &[&str], level: &str, methods: Option<&[&str]>) -> Payload {
    let devices: Vec<_> = paths.iter().map(|path| json!({ "path": path })).collect();
    let mut value = json!({ "devices": devices, "minimumLevel": level });
    if let Some(methods) = methods {
        value["methods"] = json!(methods);
    }
    payload(&value)
}

fn methods(payload: &Payload, fact: &Fact) -> Result<Vec<&'static str>, String> {
    let planned = plan(payload, std::slice::from_ref(fact));
    planned
        .map(|targets| targets[0].methods.iter().map(|method| method.name()).collect())
        .map_err(|failure| failure.code)
}

#[test]
fn the_method_is_the_strongest_on_offer_or_the_first_that_is_allowed() {
    use Method::{NvmeFormatUser, NvmeSanitizeBlock, NvmeSanitizeCrypto, Overwrite, ZeroOut};
    let rich = fact("/dev/a", &[NvmeSanitizeBlock, NvmeSanitizeCrypto, NvmeFormatUser, ZeroOut, Overwrite]);
    let poor = fact("/dev/a", &[ZeroOut, Overwrite]);
    for (name, fact, level, allowed, expected) in [
        ("the strongest alone", &rich, "purge", None, Ok(vec!["nvme-sanitize-block"])),
        ("the strongest, even if less is enough", &rich, "clear", None, Ok(vec!["nvme-sanitize-block"])),
        ("what there is", &poor, "clear", None, Ok(vec!["zero-out"])),
        ("nothing reaches it", &poor, "purge", None, Err("no-method")),
        (
            "the payload's order",
            &rich,
            "purge",
            Some(&["nvme-format-user", "nvme-sanitize-crypto"][..]),
            Ok(vec!["nvme-format-user", "nvme-sanitize-crypto"]),
        ),
        (
            "one below the level is never a fallback",
            &rich,
            "purge",
            Some(&["nvme-format-user", "overwrite"][..]),
            Ok(vec!["nvme-format-user"]),
        ),
        ("allowed, and below the level", &rich, "purge", Some(&["overwrite"][..]), Err("no-method")),
        ("allowed, and not on offer", &poor, "clear", Some(&["ata-sanitize"][..]), Err("no-method")),
    ] {
        let planned = methods(&named(&["/dev/a"], level, allowed), fact);
        assert_eq!(planned, expected.map_err(ToOwned::to_owned), "{name}");
    }
}

#[test]
fn a_refusal_for_want_of_a_method_lists_what_the_disk_offers() {
    let failure = plan(&named(&["/dev/a"], "purge", None), &[fact("/dev/a", &[Method::Overwrite])]).expect_err("none");
    for part in ["no disk was touched", "overwrite (clear)", "ata-sanitize: not in this drive", "`purge` is wanted"] {
        assert!(failure.message.contains(part), "{part}: {}", failure.message);
    }
    assert!(failure.details.expect("details").contains(r#""code":"no-method""#));
}

#[test]
fn one_bad_disk_refuses_the_whole_command() {
    let good = fact("/dev/a", &Method::ALL);
    let bad = |change: fn(&mut Fact)| {
        let mut fact = fact("/dev/b", &Method::ALL);
        change(&mut fact);
        fact
    };
    for (fact, code) in [
        (bad(|fact| fact.device.users = vec!["/dev/b1 is mounted at /".into()]), "in-use"),
        (bad(|fact| fact.device.serial = None), "wrong-serial"),
        (bad(|fact| fact.identity = Err("it does not answer".into())), "unknown-device"),
        (bad(|fact| fact.device.path = "/dev/c".into()), "not-found"),
    ] {
        let payload = payload(&json!({
            "devices": [{ "path": "/dev/a" }, { "path": "/dev/b", "serial": "S-/dev/b" }], "minimumLevel": "clear",
        }));
        let failure = plan(&payload, &[good.clone(), fact]).expect_err(code);
        assert_eq!(failure.code, code, "{}", failure.message);
    }
}

#[test]
fn all_are_so_many_pieces_of_hardware() {
    let mut memory = fact("/dev/zram0", &Method::ALL);
    if let Ok(identity) = &mut memory.identity {
        identity.bus = SOFTWARE.into();
    }
    let facts = [fact("/dev/a", &Method::ALL), memory, fact("/dev/b", &Method::ALL)];
    let all = |expected: u32| payload(&json!({ "all": true, "expected": expected, "minimumLevel": "clear" }));
    let paths = plan(&all(2), &facts).map(|targets| targets.into_iter().map(|it| it.path).collect::<Vec<_>>());
    assert_eq!(paths, Ok(vec!["/dev/a".into(), "/dev/b".into()]));
    assert_eq!(plan(&all(3), &facts).expect_err("there are two").code, "wrong-count");
    let mut facts = facts;
    facts[2].device.users = vec!["swap".into()];
    assert_eq!(plan(&all(2), &facts).expect_err("one is in use").code, "in-use");
}

#[test]
fn a_payload_says_which_disks_one_way() {
    for (value, pointer) in [
        (json!({ "minimumLevel": "clear" }), ""),
        (json!({ "all": true, "minimumLevel": "clear" }), "/expected"),
        (json!({ "devices": [{ "path": "/dev/a" }], "all": true, "expected": 1, "minimumLevel": "clear" }), "/all"),
        (json!({ "devices": [{ "path": "/dev/a" }], "expected": 1, "minimumLevel": "clear" }), "/expected"),
        (
            json!({ "devices": [{ "path": "/dev/a" }, { "path": "/dev/a" }], "minimumLevel": "clear" }),
            "/devices/1/path",
        ),
    ] {
        let problems = payload(&value).problems();
        assert_eq!(problems.len(), 1, "{value}: {problems:?}");
        assert_eq!(problems[0].pointer, pointer, "{value}");
    }
    assert!(named(&["/dev/a"], "clear", None).problems().is_empty());
}

fn target(minimum: Level) -> Target {
    Target {
        path: "/dev/a".into(),
        model: None,
        serial: Some("S".into()),
        size_bytes: 1,
        minimum,
        methods: vec![Method::NvmeFormatUser],
    }
}

fn erased(method: &str, level: &str) -> EraseReport {
    EraseReport { method: method.into(), level: level.into(), model: None, serial: Some("S".into()), device_log: None }
}

#[test]
fn promise_34_a_report_of_less_than_was_asked_for_is_no_success() {
    let target = target(Level::Purge);
    let check = |report| target.check(Method::NvmeFormatUser, report).map_err(|error| error.code);
    assert!(check(erased("nvme-format-user", "purge")).is_ok());
    for report in [
        erased("nvme-format-user", "clear"),
        erased("nvme-format-user", "none"),
        erased("overwrite", "purge"),
        EraseReport { serial: None, ..erased("nvme-format-user", "purge") },
    ] {
        let named = format!("{report:?}");
        assert_eq!(check(report).expect_err(&named), "downgraded", "{named}");
    }
}

#[test]
fn reading_back_passes_fails_or_cannot_tell() {
    let sampled = |nonzero| Ok(SampleReport { read: 10, nonzero, sample_bytes: 4096 });
    let verdict = |method, sampled| Verification::new(&erased(method, "purge"), sampled, 1).verdict;
    assert_eq!(verdict("overwrite", sampled(0)), Verdict::Passed);
    assert_eq!(verdict("overwrite", sampled(1)), Verdict::Failed);
    assert_eq!(verdict("zero-out", sampled(10)), Verdict::Failed);
    assert_eq!(verdict("nvme-sanitize-crypto", sampled(10)), Verdict::Unknown);
    assert_eq!(verdict("nvme-sanitize-block", sampled(3)), Verdict::Unknown);
    assert_eq!(verdict("nvme-sanitize-block", sampled(0)), Verdict::Passed);
    let error = Error { code: "io".into(), native: Some(5), message: "it cannot be read".into() };
    assert_eq!(verdict("overwrite", Err(error)), Verdict::Unknown);
    let nothing = Ok(SampleReport { read: 0, nonzero: 0, sample_bytes: 4096 });
    assert_eq!(verdict("overwrite", nothing), Verdict::Unknown, "nothing read shows nothing");
}

fn wiped(report: Option<EraseReport>, nonzero: u32) -> Wiped {
    let sampled = Ok(SampleReport { read: 10, nonzero, sample_bytes: 4096 });
    let verification = match &report {
        Some(report) => Verification::new(report, sampled, 1),
        None => Verification::not_erased(1),
    };
    let error = Error { code: "io".into(), native: None, message: "it broke".into() };
    let attempts = vec![Attempt::new(Method::Overwrite, report.is_none().then_some(&error))];
    Wiped::new(&target(Level::Clear), report, attempts, verification, (1, 2))
}

#[test]
fn one_disk_that_failed_fails_the_command_and_the_report_is_kept() {
    let good = || wiped(Some(erased("overwrite", "clear")), 0);
    let report = Report::new(Level::Clear, vec![good()]).expect("all are wiped");
    let json = serde_json::to_value(&report).expect("JSON");
    let device = &json["devices"][0];
    assert_eq!(
        (&device["method"], &device["level"], &device["serial"], &device["verification"]["verdict"]),
        (&json!("overwrite"), &json!("clear"), &json!("S"), &json!("passed"))
    );
    for (bad, code, status) in [
        (wiped(None, 0), "wipe-failed", Status::Failed),
        (wiped(Some(erased("overwrite", "clear")), 2), "not-verified", Status::NotVerified),
    ] {
        assert_eq!(bad.status, status);
        let failure = Report::new(Level::Clear, vec![good(), bad]).expect_err(code);
        assert_eq!(failure.code, code, "{}", failure.message);
        let details: serde_json::Value = serde_json::from_str(&failure.details.expect("details")).expect("JSON");
        assert_eq!(details["devices"].as_array().map(Vec::len), Some(2));
    }
}

fn some_methods() -> impl Strategy<Value = Vec<Method>> {
    prop::sample::subsequence(Method::ALL.to_vec(), 0..=8).prop_shuffle()
}

proptest! {
    /// Whatever a disk offers and a payload allows.
    #[test]
    fn promise_34_no_plan_holds_a_method_that_was_not_asked_for_or_is_below_the_level(
        offers in some_methods(),
        allowed in prop::option::of(some_methods()),
        purge: bool,
    ) {
        let level = if purge { Level::Purge } else { Level::Clear };
        let mut payload = named(&["/dev/a"], level.name(), None);
        payload.methods = allowed.clone();
        let is_right = |method: &Method| offers.contains(method)
            && level_of(*method) >= level
            && allowed.as_ref().is_none_or(|allowed| allowed.contains(method));
        match plan(&payload, &[fact("/dev/a", &offers)]) {
            Ok(targets) => {
                let methods = &targets[0].methods;
                prop_assert!(!methods.is_empty() && methods.iter().all(is_right), "{methods:?}");
                prop_assert!(allowed.is_some() || methods.len() == 1, "a fallback that nobody listed: {methods:?}");
            }
            Err(failure) => {
                prop_assert_eq!(failure.code, "no-method");
                prop_assert!(!Method::ALL.iter().any(is_right), "one would have done");
            }
        }
    }

    /// Between an attempt that failed and the next, nothing may still be going on in the drive.
    #[test]
    fn only_two_errors_lead_to_another_method(code in "[a-z-]{1,14}") {
        let error = Error { code: code.clone(), native: None, message: String::new() };
        prop_assert_eq!(may_fall_back(&error), code == "not-supported" || code == "erase-failed");
    }

    #[test]
    fn no_identity_makes_it_panic(text in ".{0,80}") {
        let _ = Identity::parse(&text);
    }
}
