//! The command line `better-compute`, end to end: what a module author and an operator type, and what they read.

mod author;
mod check;
mod inspect;
mod people;
mod refusals;
mod replay;

use std::path::Path;

use bc_tests::programs::{self, Said};

/// Runs `better-compute` with words.
fn better_compute(words: &[&str]) -> Said {
    programs::run(programs::command("better-compute").args(words))
}

/// A path as a word; ours are UTF-8.
fn word(path: &Path) -> &str {
    path.to_str().expect("paths of these tests are text")
}

/// The file of a built kind, as a word.
fn kind(name: &str) -> String {
    word(&programs::kind(name)).to_owned()
}

#[test]
fn completions_exist_for_every_shell() {
    for (shell, part) in
        [("bash", "complete -F"), ("zsh", "#compdef better-compute"), ("fish", "complete -c better-compute")]
    {
        let said = better_compute(&["completions", shell]);
        assert!(said.code == Some(0) && said.out.contains(part) && said.out.contains("inspect"), "{shell}: {said:?}");
    }
}

#[test]
fn wrong_usage_exits_1_and_help_is_a_result() {
    for words in [&["kind", "run"][..], &["kind", "runn"], &["kind"], &[], &["kind", "run", "a", "--plan", "--colour"]]
    {
        let said = better_compute(words);
        assert!(said.code == Some(1) && said.out.is_empty() && said.err.contains("Usage"), "{words:?}: {said:?}");
    }
    for words in [&["--version"][..], &["kind", "run", "--help"]] {
        let said = better_compute(words);
        assert!(said.code == Some(0) && said.err.is_empty() && !said.out.is_empty(), "{words:?}: {said:?}");
    }
    let help = better_compute(&["kind", "run", "--help"]).out;
    assert!(help.contains("0 succeeded, 1 usage or I/O, 2 failed, 3 refused, 6 cancelled"), "{help}");
}
