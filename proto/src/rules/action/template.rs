//! One argument of an action: text with placeholders.
//!
//! **Invariant:** whatever fills it, it is one argument, and it begins with `-` only if its own text does.

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};

use super::{MAX_ARGUMENT_BYTES, Refusal};

/// Text in which `{name}` stands for a member of the payload. `{{` and `}}` are braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Placeholder(String),
}

/// Why text is no argument.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is no argument: {rule}", text.escape_debug())]
pub struct Malformed {
    text: String,
    rule: &'static str,
}

impl Template {
    /// Reads it.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let malformed = |rule| Malformed { text: text.to_owned(), rule };
        if text.contains('\0') {
            return Err(malformed("it has a zero character"));
        }
        if text.len() > MAX_ARGUMENT_BYTES {
            return Err(malformed("it is longer than 4096 bytes"));
        }
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            plain.push_str(before);
            if let Some(after) = brace.strip_prefix("{{") {
                plain.push('{');
                rest = after;
            } else if let Some(after) = brace.strip_prefix("}}") {
                plain.push('}');
                rest = after;
            } else {
                let named = brace.strip_prefix('{').and_then(|after| after.split_once('}'));
                let (name, after) = named.filter(|(name, _)| is_placeholder(name)).ok_or_else(|| {
                    malformed("a placeholder is `{name}`, of letters, digits, `_` and `-`; a brace is `{{` or `}}`")
                })?;
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(Piece::Placeholder(name.to_owned()));
                rest = after;
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }

    /// The names that it needs.
    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Placeholder(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// Whether a value would become part of an option's name: its own text begins with `-`, and a placeholder comes before any `=`.
    pub(super) fn names_an_option(&self) -> bool {
        let Some(Piece::Text(first)) = self.0.first() else { return false };
        first.starts_with('-') && !first.contains('=') && self.placeholders().next().is_some()
    }

    /// The argument, filled.
    pub(super) fn fill(&self, members: &Map<String, Value>) -> Result<String, Refusal> {
        let mut argument = String::new();
        let mut last = None;
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => argument.push_str(text),
                Piece::Placeholder(name) => {
                    argument.push_str(&scalar(name, members.get(name))?);
                    last = Some(name);
                }
            }
            if let Some(name) = last.filter(|_| argument.len() > MAX_ARGUMENT_BYTES) {
                return Err(Refusal::TooLong { placeholder: name.clone(), bytes: argument.len() });
            }
        }
        match self.0.first() {
            Some(Piece::Placeholder(name)) if argument.starts_with('-') => Err(Refusal::BecomesOption(name.clone())),
            _ => Ok(argument),
        }
    }
}

fn is_placeholder(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

fn scalar(name: &str, value: Option<&Value>) -> Result<String, Refusal> {
    match value {
        None => Err(Refusal::Missing(name.to_owned())),
        Some(Value::String(text)) if text.contains('\0') => Err(Refusal::ZeroCharacter(name.to_owned())),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Bool(truth)) => Ok(truth.to_string()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) => Err(Refusal::NotAScalar(name.to_owned())),
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}")),
            Piece::Placeholder(name) => write!(f, "{{{name}}}"),
        })
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}
