//! Which program a payload gets run, and which payloads get none.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn list(text: &str) -> Result<Actions, Vec<Violation>> {
    Actions::new(toml::from_str(text).expect("the test's list is TOML"))
}

fn actions() -> Actions {
    list(
        r#"
        [provision]
        program = "/usr/local/bin/add-agent"
        argv = ["--agent", "{agent}", "--size={size}", "{{}}", "at-{agent}-{place}"]
        timeout = "10m"

        [restart]
        program = "/usr/bin/systemctl"
        argv = ["restart", "gateway"]

        [auth_github]
        program = "/usr/local/bin/auth"
        argv = ["{account}"]
        stdin = "payload"
        self-reporting = true
        "#,
    )
    .expect("the test's list keeps the rules")
}

#[test]
fn placeholders_are_filled_each_within_its_argument() {
    let payload = json!({ "agent": "a b; rm -rf / \"$(id)\"\n", "size": 3, "place": true });
    let invocation = actions().resolve("provision", &payload).expect("all is there");
    let agent = "a b; rm -rf / \"$(id)\"\n";
    assert_eq!(invocation.argv, ["--agent", agent, "--size=3", "{}", &format!("at-{agent}-true")]);
    assert_eq!((invocation.program.as_str(), invocation.stdin), ("/usr/local/bin/add-agent", None));
    assert_eq!(invocation.timeout, Some(Duration::from_mins(10)));

    let payload = json!({ "account": "me", "z": [1], "b": { "c": null } });
    let invocation = actions().resolve("auth_github", &payload).expect("it reads the rest");
    assert_eq!(invocation.stdin.as_deref(), Some(br#"{"account":"me","b":{"c":null},"z":[1]}"#.as_slice()));
    assert!(invocation.self_reporting);
}

#[test]
fn what_does_not_fit_is_refused_with_a_code_and_its_place() {
    let long = "x".repeat(MAX_ARGUMENT_BYTES + 1);
    for (action, payload, code, words) in [
        ("reboot", json!({}), "unknown-action", "no action `reboot`"),
        ("x\u{1b}\n", json!({}), "unknown-action", r"x\u{1b}\n"),
        ("restart", json!([]), "not-an-object", "an object"),
        ("restart", json!({ "now": 1 }), "extra-value", "no `now`"),
        ("auth_github", json!({}), "missing-value", "payload.account"),
        ("auth_github", json!({ "account": null }), "not-a-scalar", "payload.account"),
        ("auth_github", json!({ "account": ["a", "b"] }), "not-a-scalar", "payload.account"),
        ("auth_github", json!({ "account": { "a": 1 } }), "not-a-scalar", "payload.account"),
        ("auth_github", json!({ "account": "a\0b" }), "zero-character", "payload.account"),
        ("auth_github", json!({ "account": long }), "too-long", "4097 bytes"),
        ("auth_github", json!({ "account": "--help" }), "becomes-option", "payload.account"),
        ("auth_github", json!({ "account": "-" }), "becomes-option", "payload.account"),
        ("auth_github", json!({ "account": -5 }), "becomes-option", "payload.account"),
        ("provision", json!({ "agent": "-v", "size": 1, "place": "p" }), "becomes-option", "payload.agent"),
    ] {
        let refusal = actions().resolve(action, &payload).expect_err(action);
        assert_eq!(refusal.code(), code, "{action} {payload}");
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
}

#[test]
fn a_value_after_the_options_own_text_may_begin_with_a_dash() {
    let payload = json!({ "agent": "a", "size": -5, "place": "-x" });
    let invocation = actions().resolve("provision", &payload).expect("neither begins an argument");
    assert_eq!((&*invocation.argv[2], &*invocation.argv[4]), ("--size=-5", "at-a--x"));
}

#[test]
fn a_list_that_breaks_a_rule_is_refused_with_every_one() {
    let broken = list(
        r#"
        ["1st"]
        program = "relative"
        timeout = "2days"
        [flags]
        program = "/bin/../bin/x"
        argv = ["--{option}", "x"]
        [short]
        program = "/bin/x"
        argv = ["-o{file}"]
        "#,
    );
    let said: Vec<_> = broken.expect_err("it breaks rules").iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(said.join("\n"));
    for wrong in
        ["[a]\nprogram = 1", "[a]\nargv = []", "[a]\nprogram = '/x'\nargv = ['{a b}']", "[a]\nprogram = '/x'\nenv = {}"]
    {
        assert!(toml::from_str::<BTreeMap<String, Action>>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn braces_are_written_twice_and_a_placeholder_is_a_name() {
    for text in ["", "a", "{a}", "x{a}{b}y", "{{", "}}", "{{{a}}}", "{a-b_1}"] {
        assert_eq!(Template::parse(text).map(|template| template.to_string()), Ok(text.to_owned()));
    }
    for text in ["{", "}", "{}", "{a", "a}", "{a b}", "{{a}", "{é}", "\0", &"x".repeat(MAX_ARGUMENT_BYTES + 1)] {
        assert!(Template::parse(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "[{}a-]{0,12}|.{0,12}") {
        if let Ok(template) = Template::parse(&text) {
            prop_assert_eq!(Template::parse(&template.to_string()), Ok(template));
        }
    }

    /// Whatever the payload holds, there are as many arguments as the list has, those without placeholders are untouched, and none
    /// begins with a dash but by its own text.
    #[test]
    fn no_payload_adds_an_argument_or_an_option(agent in ".{0,12}|-{1,2}.{0,6}", size in "-?.{0,8}", place in "[- a]{0,6}") {
        let payload = json!({ "agent": agent, "size": size, "place": place });
        match actions().resolve("provision", &payload) {
            Ok(invocation) => {
                let argv = &invocation.argv;
                prop_assert_eq!(argv.len(), 5);
                prop_assert_eq!((&*argv[0], &*argv[3]), ("--agent", "{}"));
                prop_assert!(!argv[1].starts_with('-') && !argv[4].starts_with('-'));
                prop_assert_eq!(&argv[1], &agent);
                prop_assert_eq!(&argv[2], &format!("--size={size}"));
            }
            Err(refusal) => prop_assert!(agent.starts_with('-') || format!("{agent}{size}{place}").contains('\0'), "{refusal}"),
        }
    }

    #[test]
    fn an_empty_value_makes_no_option_of_what_follows(first in "-{0,2}a?") {
        let list = list("[a]\nprogram = '/x'\nargv = ['{first}-rf']").expect("a list");
        let resolved = list.resolve("a", &json!({ "first": first }));
        prop_assert_eq!(resolved.is_ok(), first == "a");
    }
}
