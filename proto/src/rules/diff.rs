//! What another component of a kind may do that the one in service may not.
//!
//! **Invariant:** whatever a component gains over the other shows here; what is wider is never called the same.

use std::collections::BTreeSet;

use semver::Version;
use serde::{Deserialize, Serialize};

use crate::grants::Grants;
use crate::manifest::{Lane, Limits, Manifest, Role, Trait};
use crate::quantity::Span;

/// How two components differ in what they may do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Diff {
    /// The kind.
    pub kind: String,
    /// The version in service.
    pub from: Version,
    /// The other one.
    pub to: Version,
    /// Capabilities that only the other one has.
    pub wider: Grants,
    /// Capabilities that only the one in service has.
    pub narrower: Grants,
    /// Traits.
    pub traits: Changed<Trait>,
    /// Roles.
    pub roles: Changed<Role>,
    /// The lane, where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Turned<Lane>>,
    /// The timeout, where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Turned<Span>>,
    /// The limits, where they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Turned<Limits>>,
    /// Whether whoever activates the other one has to say that they mean it.
    pub needs_yes: bool,
}

/// What came to a set, and what went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Changed<T: Ord> {
    /// Only in the other one.
    pub added: BTreeSet<T>,
    /// Only in the one in service.
    pub removed: BTreeSet<T>,
}

/// A value that became another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Turned<T> {
    /// In service.
    pub from: T,
    /// In the other one.
    pub to: T,
}

impl<T: Ord + Copy> Changed<T> {
    fn between(old: &BTreeSet<T>, new: &BTreeSet<T>) -> Self {
        Self { added: new - old, removed: old - new }
    }

    fn is_none(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

fn turned<T: Copy + PartialEq>(from: T, to: T) -> Option<Turned<T>> {
    (from != to).then_some(Turned { from, to })
}

impl Diff {
    /// Compares a component with the one in service.
    ///
    /// A wider grant needs a yes, and so does the loss of a trait that keeps watch: a kind that is no longer `destructive` needs no
    /// approvals any more, and one that is no longer `attested` no signed result.
    pub fn between(old: &Manifest, new: &Manifest) -> Self {
        let wider = new.capabilities.minus(&old.capabilities);
        let traits = Changed::between(&old.traits, &new.traits);
        let unwatched = traits.removed.iter().any(|it| matches!(it, Trait::Destructive | Trait::Attested));
        Self {
            kind: new.name.clone(),
            from: old.version.clone(),
            to: new.version.clone(),
            needs_yes: unwatched || wider != Grants::default(),
            wider,
            narrower: old.capabilities.minus(&new.capabilities),
            traits,
            roles: Changed::between(&old.roles, &new.roles),
            lane: turned(old.lane, new.lane),
            timeout: turned(old.timeout, new.timeout),
            limits: turned(old.limits, new.limits),
        }
    }

    /// For people, a line each; empty when both may do the same.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (sign, grants) in [('+', &self.wider), ('-', &self.narrower)] {
            if *grants != Grants::default() {
                let text = toml::to_string(grants).unwrap_or_default();
                lines.extend(
                    text.lines().filter(|line| !line.is_empty()).map(|line| format!("{sign} capabilities {line}")),
                );
            }
        }
        set(&mut lines, "trait", &self.traits);
        set(&mut lines, "role", &self.roles);
        if let Some(Turned { from, to }) = self.lane {
            lines.push(format!("~ lane {} → {}", word(&from), word(&to)));
        }
        if let Some(Turned { from, to }) = self.timeout {
            lines.push(format!("~ timeout {from} → {to}"));
        }
        if let Some(Turned { from, to }) = self.limits {
            lines.push(format!(
                "~ limits {}, {} of CPU time → {}, {} of CPU time",
                from.memory, from.cpu, to.memory, to.cpu
            ));
        }
        lines
    }

    /// Whether both may do the same.
    pub fn is_same(&self) -> bool {
        let grants = self.wider == Grants::default() && self.narrower == Grants::default();
        grants
            && self.traits.is_none()
            && self.roles.is_none()
            && self.lane.is_none()
            && self.timeout.is_none()
            && self.limits.is_none()
    }
}

fn set<T: Ord + Serialize>(lines: &mut Vec<String>, what: &str, changed: &Changed<T>) {
    lines.extend(changed.added.iter().map(|it| format!("+ {what} {}", word(it))));
    lines.extend(changed.removed.iter().map(|it| format!("- {what} {}", word(it))));
}

fn word(it: &impl Serialize) -> String {
    serde_json::to_value(it).ok().and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(version: &str, rest: &str) -> Manifest {
        let rest = if rest.contains("roles") { rest.to_owned() } else { format!("roles = ['host']\n{rest}") };
        let text = format!(
            "name = 'acme.fan'\nversion = '{version}'\nsummary = 'x'\nmodule = 'acme'\nlane = 'control'\ntimeout = '1m'\n\
             payload = {{ type = 'object' }}\nresult = {{}}\n{rest}"
        );
        Manifest::from_toml(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn what_is_gained_and_lost_is_named() {
        let old = manifest(
            "1.0.0",
            "traits = ['destructive', 'attested']\nlimits = { memory = '16MiB', cpu = '1s' }\n[capabilities]\nnvml = {}\n\
             secrets = { refs = ['db.*'] }\ngpus = { reset = true }",
        );
        let cases = [
            (
                "the same",
                "traits = ['destructive', 'attested']\nlimits = { memory = '16MiB', cpu = '1s' }\n[capabilities]\nnvml = {}\nsecrets = { refs = ['db.*'] }\ngpus = { reset = true }",
            ),
            (
                "narrower",
                "traits = ['destructive', 'attested']\nlimits = { memory = '16MiB', cpu = '1s' }\n[capabilities]\nsecrets = { refs = ['db.one'] }\ngpus = {}",
            ),
            (
                "wider arguments",
                "traits = ['destructive', 'attested']\nlimits = { memory = '16MiB', cpu = '1s' }\n[capabilities]\nnvml = {}\nsecrets = { refs = ['*'] }\ngpus = { reset = true }",
            ),
            (
                "another capability",
                "traits = ['destructive', 'attested']\nlimits = { memory = '16MiB', cpu = '1s' }\n[capabilities]\nnvml = {}\nsecrets = { refs = ['db.*'] }\ngpus = { reset = true }\nsystem = { reboot = true }",
            ),
            (
                "unwatched, elsewhere and larger",
                "roles = ['host', 'ramdisk']\ntraits = ['retry-safe']\n[capabilities]\nnvml = {}\nsecrets = { refs = ['db.*'] }\ngpus = { reset = true }",
            ),
        ];
        let mut seen = String::new();
        for (what, rest) in cases {
            let diff = Diff::between(&old, &manifest("2.0.0", rest));
            assert_eq!(diff.is_same(), diff.lines().is_empty(), "{what}");
            seen += &format!("{what}: needs a yes: {}\n", diff.needs_yes);
            seen.extend(diff.lines().iter().map(|line| format!("  {line}\n")));
        }
        insta::assert_snapshot!(seen);
    }
}
