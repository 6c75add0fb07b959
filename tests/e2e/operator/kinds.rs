//! Kinds at the control plane, and what completions know.

use bc_proto::manifest::Trait;
use bc_proto::sign::SecretKey;
use bc_tests::cluster::operator::word;
use bc_tests::cluster::{COUNT, Cluster};
use bc_tests::{programs, repacked};
use serde_json::Value;

use crate::{admin, counted};

#[tokio::test(flavor = "multi_thread")]
async fn kinds_are_pushed_listed_activated_and_retired() {
    let cluster = Cluster::start(1, 1).await;
    let operator = admin(&cluster);
    let version = |version: &str| {
        let packed = repacked("test.count", |manifest| {
            manifest.name = "test.fresh".into();
            manifest.version = version.parse().expect("a version");
        });
        operator.file(&format!("{version}.wasm"), &packed.bytes)
    };
    let (one, two) = (version("1.0.0"), version("1.1.0"));
    let pushed = operator.json(&["kind", "push", &one, &two, "--expose"]).await;
    let digest = |kind: &Value| kind["digest"].as_str().expect("a digest").to_owned();
    let (first, second) = (digest(&pushed[0]), digest(&pushed[1]));
    let run = ["run", "test.fresh", "--node", "node-0", "--payload", &counted(0, 0)];
    // Nobody chose a version yet.
    operator.refused(&run, "UNSUPPORTED").await;
    let active = async || operator.json(&["kind", "get", "test.fresh"]).await["version"].clone();
    for (chosen, version) in [(&second, "1.1.0"), (&first, "1.0.0")] {
        operator.say(&["kind", "activate", chosen]).await;
        assert_eq!(active().await, version);
        operator.say(&run).await;
    }
    // The same bytes change nothing; other bytes are another version.
    assert_eq!(digest(&operator.json(&["kind", "push", &one]).await[0]), first);
    let other = repacked("test.count", |manifest| {
        manifest.name = "test.fresh".into();
        manifest.summary = "The same version with other bytes".into();
    });
    operator.refused(&["kind", "push", &operator.file("other.wasm", &other.bytes)], "CONFLICT").await;
    operator.refused(&["kind", "push", &operator.file("bad.wasm", b"no component")], "INVALID_INPUT").await;
    operator.refused(&["kind", "push", &word(&operator.path("none.wasm"))], "cannot be read").await;
    operator.refused(&["kind", "get", "test.none"], "NOT_FOUND").await;

    operator.say(&["kind", "retire", "test.fresh"]).await;
    operator.refused(&run, "UNSUPPORTED").await;
    let names = operator.say(&["kind", "list", "-o", "name"]).await;
    assert!(names.lines().any(|name| name == COUNT.name) && !names.contains("test.fresh"), "{names}");
    let all = operator.say(&["kind", "list", "--all"]).await;
    assert!(all.starts_with("NAME") && all.contains("test.fresh") && all.contains("retired"), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_signs_and_what_is_watched_less_needs_a_yes() {
    let publisher = SecretKey::from_seed([1; 32]);
    let settings = format!("[pki]\npublishers = [{{ name = 'acme', key = '{}' }}]\n", publisher.public());
    let mut cluster = Cluster::start(1, 0).await;
    cluster.resettle(&settings).await;
    let operator = admin(&cluster);
    let version = |version: &str, traits: &[Trait]| {
        let packed = repacked("test.count", |manifest| {
            manifest.name = "test.fresh".into();
            manifest.version = version.parse().expect("a version");
            manifest.traits = traits.iter().copied().collect();
        });
        (operator.file(&format!("{version}.wasm"), &packed.bytes), packed.digest)
    };
    let (one, first) = version("1.0.0", &[Trait::Destructive]);
    let (two, second) = version("2.0.0", &[]);

    // Nothing is taken that nobody vouches for, and a signature is for one component.
    let push = ["kind", "push", &one, &two];
    operator.refused(&push, "not signed").await;
    let pem = operator.file("publisher.pem", publisher.to_pem().as_bytes());
    let p256 = operator.file("p256.pem", rcgen::KeyPair::generate().expect("a key").serialize_pem().as_bytes());
    for (file, key, why) in [
        (&one, &p256, "is no publisher's key"),
        (&one, &word(&operator.path("none.pem")), "cannot be read"),
        (&pem, &pem, "is not WebAssembly"),
        (&word(&operator.path("none.wasm")), &pem, "cannot be read"),
    ] {
        operator.refused(&["kind", "sign", "--key", key, file], why).await;
    }
    let said = operator.say(&["kind", "sign", "--key", &pem, &one, &two]).await;
    assert!(said.contains(&first) && said.contains(&second), "{said}");
    let beside = |file: &str| format!("{file}.sig");
    let theirs = std::fs::read(beside(&two)).expect("it was written");
    std::fs::copy(beside(&one), beside(&two)).expect("copied");
    operator.refused(&push, "sign it again").await;
    std::fs::write(beside(&two), theirs).expect("written");
    operator.say(&push).await;
    operator.say(&["kind", "activate", &first]).await;

    // What changes is said, of files and of what is registered.
    for (old, new) in [(one.as_str(), two.as_str()), ("test.fresh@1.0.0", "test.fresh@2.0.0")] {
        let said = operator.say(&["kind", "diff", old, new]).await;
        assert!(said.contains("- trait destructive") && said.contains("--accept-wider"), "{said}");
        let back = operator.say(&["kind", "diff", new, old]).await;
        assert!(back.contains("+ trait destructive") && !back.contains("--accept-wider"), "{back}");
    }
    assert!(operator.say(&["kind", "diff", &one, &one]).await.contains("may do the same"));
    operator.refused(&["kind", "diff", &one, &format!("{}@{}", COUNT.name, "9.9.9")], "is not registered").await;
    operator.refused(&["kind", "diff", &one, "nothing"], "NAME@VERSION").await;
    let other = operator.file("other.wasm", &COUNT.component());
    operator.refused(&["kind", "diff", &one, &other], "different kinds").await;

    // A program is told what to say; a person is asked.
    let activate = ["kind", "activate", &second];
    operator.refused(&activate, "say --accept-wider").await;
    let active = async || operator.json(&["kind", "get", "test.fresh"]).await["version"].clone();
    for (typed, code, version) in [("n\n", 1, "1.0.0"), ("\n", 1, "1.0.0"), ("y\n", 0, "2.0.0")] {
        let command = operator.command(&activate);
        let said = tokio::task::spawn_blocking(move || programs::at_terminal(&command, typed)).await.expect("it runs");
        assert!(said.out.contains("- trait destructive") && said.out.contains("Activate it? [y/N]"), "{said:?}");
        assert_eq!((said.code, active().await), (Some(code), version.into()), "{typed:?}: {said:?}");
    }
    operator.say(&["kind", "activate", &first]).await;
    operator.say(&[&activate[..], &["--accept-wider"]].concat()).await;
    assert_eq!(active().await, "2.0.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_know_the_nodes_and_kinds_that_there_are() {
    let cluster = Cluster::start(1, 1).await;
    let operator = admin(&cluster);
    let complete = async |words: &[&str]| {
        let mut command = operator.command(&[&["--", "better-compute"], words].concat());
        command.env("COMPLETE", "fish");
        tokio::task::spawn_blocking(move || programs::run(&mut command)).await.expect("it runs").out
    };
    let nodes = complete(&["run", COUNT.name, "--node", "no"]).await;
    assert!(nodes.contains("node-0"), "{nodes}");
    let kinds = complete(&["run", "test.count-"]).await;
    assert!(kinds.contains("test.count-safe") && kinds.contains("counted outside"), "{kinds}");
    assert!(complete(&["commands", "list", "--node", "x"]).await.is_empty());
    assert_eq!(complete(&["context", "use", ""]).await.split_whitespace().next(), Some("here"));
}
