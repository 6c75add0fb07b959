//! Actions of a runner: which program a queued action means, and with which arguments.
//!
//! The list comes from the runner's own file. A payload fills declared placeholders, each within one argument; there is no shell and
//! nothing is split.
//!
//! **Invariant:** the payload decides neither program nor number of arguments, and no value of it becomes an option or part of one's name.

pub mod report;
mod template;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

pub use self::template::Template;
use crate::canonical;
use crate::quantity::Span;

/// The name that the kind `runner.action` gives to the program of whichever action runs: the runner alone knows which that is.
pub const PROGRAM: &str = "runner-action";

/// The kind that actions are.
pub const KIND: &str = "runner.action";

/// The most bytes of one argument. Linux takes 128 KiB; what is longer than this belongs on standard input.
pub const MAX_ARGUMENT_BYTES: usize = 4096;

/// The longest that an action may take: what the kind's manifest says.
pub const MAX_TIMEOUT: Duration = Duration::from_hours(24);

/// What an action's program reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stdin {
    /// Nothing.
    #[default]
    None,
    /// The payload as canonical JSON.
    Payload,
}

/// What one action runs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Action {
    /// The program's absolute path.
    pub program: String,
    /// Its arguments, in which `{name}` stands for a member of the payload.
    #[serde(default)]
    pub argv: Vec<Template>,
    /// How long it may take; else what the runner's command line says.
    #[serde(default)]
    pub timeout: Option<Span>,
    /// What it reads.
    #[serde(default)]
    pub stdin: Stdin,
    /// Whether it says itself when it has begun and how it ended.
    #[serde(default)]
    pub self_reporting: bool,
}

/// The actions of a runner, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actions(BTreeMap<String, Action>);

/// A rule that the list breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("actions.{action}{field}: {rule}")]
pub struct Violation {
    /// The action.
    pub action: String,
    /// The field, with a dot before it; empty for the whole.
    pub field: &'static str,
    /// The rule, and what was found instead.
    pub rule: String,
}

/// What is to be run for one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The program's absolute path.
    pub program: String,
    /// Its arguments, one for each that the list has.
    pub argv: Vec<String>,
    /// What it reads.
    pub stdin: Option<Vec<u8>>,
    /// How long it may take; `None` leaves it to the runner.
    pub timeout: Option<Duration>,
    /// Whether it reports by itself.
    pub self_reporting: bool,
}

/// Why a queued action is not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The list does not have it.
    #[error("this runner has no action `{0}`; add [actions.{0}] to its file, or correct the command")]
    UnknownAction(String),
    /// The payload is no object.
    #[error("payload: an object is needed, whose members fill the placeholders")]
    NotAnObject,
    /// A placeholder has no value.
    #[error("payload.{0}: it is missing; the action's arguments need it")]
    Missing(String),
    /// Members that nothing uses.
    #[error("payload: the action takes no {}", .0.iter().map(|name| format!("`{}`", name.escape_debug())).collect::<Vec<_>>().join(", "))]
    Extra(BTreeSet<String>),
    /// A list, an object, or null.
    #[error("payload.{0}: text, a number or a truth value is needed, since it becomes part of an argument")]
    NotAScalar(String),
    /// A zero byte, which no argument can hold.
    #[error("payload.{0}: it has a zero character, which no argument can hold")]
    ZeroCharacter(String),
    /// Longer than an argument may be.
    #[error(
        "payload.{placeholder}: the argument would have {bytes} bytes; at most {MAX_ARGUMENT_BYTES} are passed, the rest belongs on standard input"
    )]
    TooLong {
        /// The placeholder whose value made it so.
        placeholder: String,
        /// How long it would be.
        bytes: usize,
    },
    /// The program would take it for an option.
    #[error("payload.{0}: it would make the argument begin with `-`, and the program would take it for an option")]
    BecomesOption(String),
}

impl Refusal {
    /// A stable identifier.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownAction(_) => "unknown-action",
            Self::NotAnObject => "not-an-object",
            Self::Missing(_) => "missing-value",
            Self::Extra(_) => "extra-value",
            Self::NotAScalar(_) => "not-a-scalar",
            Self::ZeroCharacter(_) => "zero-character",
            Self::TooLong { .. } => "too-long",
            Self::BecomesOption(_) => "becomes-option",
        }
    }
}

impl Actions {
    /// Takes a list; errs with every rule that it breaks.
    pub fn new(actions: BTreeMap<String, Action>) -> Result<Self, Vec<Violation>> {
        let violations: Vec<_> = actions.iter().flat_map(|(name, action)| violations(name, action)).collect();
        if violations.is_empty() { Ok(Self(actions)) } else { Err(violations) }
    }

    /// The names of all of them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// What a queued action means.
    pub fn resolve(&self, action: &str, payload: &Value) -> Result<Invocation, Refusal> {
        // A name that no list can have is told as it is safe to show it.
        let found =
            self.0.get(action).ok_or_else(|| Refusal::UnknownAction(action.escape_debug().take(64).collect()))?;
        let Value::Object(members) = payload else { return Err(Refusal::NotAnObject) };
        let argv = found.argv.iter().map(|argument| argument.fill(members)).collect::<Result<_, _>>()?;
        if found.stdin == Stdin::None {
            let used: BTreeSet<&str> = found.argv.iter().flat_map(Template::placeholders).collect();
            let extra: BTreeSet<_> = members.keys().filter(|name| !used.contains(name.as_str())).cloned().collect();
            if !extra.is_empty() {
                return Err(Refusal::Extra(extra));
            }
        }
        let stdin = (found.stdin == Stdin::Payload)
            .then(|| canonical::to_vec(payload).expect("JSON has string keys and finite numbers"));
        Ok(Invocation {
            program: found.program.clone(),
            argv,
            stdin,
            timeout: found.timeout.map(|span| span.0),
            self_reporting: found.self_reporting,
        })
    }
}

/// Whether an action can be queued under that name.
pub fn is_action_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

fn violations(name: &str, action: &Action) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut rule = |holds: bool, field: &'static str, rule: &str| {
        if !holds {
            found.push(Violation { action: name.escape_debug().to_string(), field, rule: rule.to_owned() });
        }
    };
    rule(is_action_name(name), "", "up to 64 letters, digits, dots, dashes and underscores, a letter first");
    let program = &action.program;
    let is_path = program.starts_with('/') && !program.ends_with('/') && !program.split('/').any(|part| part == "..");
    rule(is_path && !program.contains(char::is_control), ".program", "an absolute path without `..`");
    rule(
        action.timeout.is_none_or(|span| (Duration::from_secs(1)..=MAX_TIMEOUT).contains(&span.0)),
        ".timeout",
        "between 1s and 1day",
    );
    rule(
        action.argv.iter().all(|argument| !argument.names_an_option()),
        ".argv",
        "in an argument that begins with `-` a placeholder stands after a `=`: elsewhere the payload would choose the option",
    );
    found
}
