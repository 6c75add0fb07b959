//! From nothing to a kind that runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bc_tests::programs::{self, Said};
use serde_json::{Value, json};

use super::{better_compute, word};

/// Always the same folder, so that cargo finds again what it compiled for it: paths are part of what it compares.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("site-fans")
}

/// In the folder that the guests of this repository are built in, without network: what `kind new` writes must need nothing
/// that they do not.
fn offline(command: &mut Command) -> Said {
    command.env("CARGO_NET_OFFLINE", "true").env("CARGO_TARGET_DIR", programs::repository().join("plugins/target"));
    programs::run(command)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "an author's own tests are run with cargo")]
fn a_new_kind_builds_runs_and_tests_as_it_is() {
    let folder = folder();
    let _ = fs::remove_dir_all(&folder);
    let said = better_compute(&["kind", "new", "site.fans", "--folder", word(&folder)]);
    assert!(said.code == Some(0) && said.out.contains("kind build"), "{said:?}");
    let locked = locked_versions(&folder);

    let said = offline(programs::command("better-compute").args(["kind", "build", "--json", word(&folder)]));
    assert_eq!(said.code, Some(0), "{said:?}");
    let built: Value = serde_json::from_str(&said.out).expect("one object per kind");
    let file = folder.join("dist/site.fans.wasm");
    assert_eq!((&built["kind"], &built["file"]), (&json!("site.fans"), &json!(file)));
    let missing: Vec<_> = locked_versions(&folder).into_iter().filter(|version| !locked.contains(version)).collect();
    assert_eq!(
        missing,
        [("site-fans".to_owned(), "0.1.0".to_owned())],
        "versions are those that the SDK is tested with"
    );

    let said = better_compute(&["kind", "run", word(&file), "--payload", r#"{"name":"x"}"#, "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let report: Value = serde_json::from_str(&said.out).expect("a report");
    assert_eq!(report["result"], json!({ "greeting": "Hello, x" }));

    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let said = offline(Command::new(cargo).args(["test", "--manifest-path", word(&folder.join("Cargo.toml"))]));
    assert!(said.code == Some(0) && said.out.contains("a_greeting_names_whom_it_greets ... ok"), "{said:?}");

    let said = better_compute(&["kind", "new", "site.fans", "--folder", word(&folder)]);
    assert!(said.code == Some(1) && said.err.contains("exists"), "nothing is overwritten: {said:?}");
}

fn locked_versions(folder: &Path) -> Vec<(String, String)> {
    let lock = fs::read_to_string(folder.join("Cargo.lock")).expect("a lock file comes with the folder");
    let lock: toml::Table = lock.parse().expect("TOML");
    let text = |package: &toml::Value, key| package[key].as_str().expect("text").to_owned();
    let packages = lock["package"].as_array().expect("packages").iter();
    packages.map(|package| (text(package, "name"), text(package, "version"))).collect()
}

#[test]
fn a_bad_name_is_refused_with_the_manifests_own_rule() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = parent.path().join("kind");
    for name in ["fans", "Site.fans", "site..fans", "site.9", "a.b.c.d.e", "site.fan\"s", "site.fans\"\nlane = \"x", ""]
    {
        let said = better_compute(&["kind", "new", name, "--folder", word(&folder)]);
        assert_eq!(said.code, Some(1), "{name:?}: {said:?}");
        assert!(said.err.contains("is not a kind name: 2 to 4 words"), "{name:?}: {}", said.err);
        assert!(!folder.exists(), "{name:?}");
    }
}

#[test]
fn a_folder_without_a_kind_names_what_is_missing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let said = better_compute(&["kind", "build", word(folder.path())]);
    assert!(said.code == Some(1) && said.err.contains("kind.toml cannot be read"), "{said:?}");
    fs::copy(programs::repository().join("plugins/diag-nvml/kind.toml"), folder.path().join("kind.toml"))
        .expect("copied");
    let said = better_compute(&["kind", "build", word(folder.path())]);
    assert!(said.code == Some(1) && said.err.contains("`better-compute kind new` writes one"), "{said:?}");
}
