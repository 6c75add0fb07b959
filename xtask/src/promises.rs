//! Which promises are kept: tests whose names begin with a promise's number.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::say;
use crate::tidy::files;

/// The list in the project's own words; each promise is an item `N. text`.
const LIST: &str = "docs/promises.md";

pub(crate) fn list(root: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(root.join(LIST)).with_context(|| format!("{LIST} cannot be read"))?;
    let promises = numbered(&text);
    let tests = tests(root)?;
    for (number, promise) in &promises {
        say(&format!("{number:>2}. {promise}"));
        match tests.get(number) {
            Some(tests) => tests.iter().for_each(|test| say(&format!("      kept by {test}"))),
            None => say("      no test yet"),
        }
    }
    let kept = promises.keys().filter(|number| tests.contains_key(number)).count();
    say(&format!("{kept} of {} promises have tests", promises.len()));
    Ok(())
}

/// `N. text` at the start of a line → text.
pub(crate) fn numbered(text: &str) -> BTreeMap<u32, String> {
    let item = |line: &str| {
        let (number, promise) = line.split_once(". ")?;
        Some((number.parse().ok()?, promise.to_owned()))
    };
    text.lines().filter_map(item).collect()
}

/// Promise number → names of its tests, with their files.
pub(crate) fn tests(root: &Path) -> anyhow::Result<BTreeMap<u32, Vec<String>>> {
    let mut tests: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for file in files(root, "rs")? {
        let text = fs::read_to_string(root.join(&file))?;
        for name in
            text.lines().filter_map(|line| line.trim().strip_prefix("fn ").or(line.trim().strip_prefix("async fn ")))
        {
            let name = name.split(['(', '<']).next().unwrap_or_default();
            if let Some(number) = name.strip_prefix("promise_").and_then(|rest| rest.get(..2)?.parse().ok()) {
                tests.entry(number).or_default().push(format!("{name} ({})", file.display()));
            }
        }
    }
    Ok(tests)
}
