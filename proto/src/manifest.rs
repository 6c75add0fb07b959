//! A kind's declaration: written by its author as `kind.toml`, packed as canonical JSON into the component's custom section
//! `better-compute:kind`, and read from there by control plane and node without running any of the kind's code.
//!
//! **Invariant:** a [`Manifest`] exists only when every rule holds; what breaks a rule is a list of [`Violation`]s.

mod rules;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use semver::Version;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical;
use crate::grants::Grants;
use crate::quantity::{Bytes, Span};

/// The custom section's name.
pub const SECTION: &str = "better-compute:kind";

/// The largest manifest that is read: schemas and examples are small; 256 KiB is a hundred times the first kinds'.
pub const MAX_BYTES: usize = 256 * 1024;

/// Which worker pool of the node runs the kind. At most 8 control, 4 provision and 2 bulk commands are outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lane {
    /// Short, interactive work.
    Control,
    /// Long work that changes the node.
    Provision,
    /// Work that moves much data.
    Bulk,
}

/// What a node is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// An installed machine.
    Host,
    /// A machine that runs from memory, before or between installations.
    Ramdisk,
    /// A controller of a site, next to the machines' BMCs.
    Site,
    /// A gateway that leases its commands from Postgres.
    Gateway,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Ramdisk => "ramdisk",
            Self::Site => "site",
            Self::Gateway => "gateway",
        })
    }
}

/// A promise or a warning about a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trait {
    /// It destroys data or takes the node out of service: under a quorum it needs an approved batch.
    Destructive,
    /// Running it again after an interruption does no harm.
    RetrySafe,
    /// It ends the daemon that runs it; coming back settles it.
    SelfTerminating,
    /// The node signs its result.
    Attested,
}

/// What a run may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Linear memory.
    pub memory: Bytes,
    /// Time spent in the guest's own code, host calls not counted.
    pub cpu: Span,
}

/// A payload that shows what the kind is for. Registration runs each through the kind's own `validate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// What the payload asks for.
    pub summary: String,
    /// The payload.
    pub payload: Value,
}

/// The declaration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Manifest {
    /// The command kind, `diag.nvml`.
    pub name: String,
    /// The version of this component.
    pub version: Version,
    /// One line for lists.
    pub summary: String,
    /// The module that it belongs to, `core`.
    pub module: String,
    /// Its worker pool.
    pub lane: Lane,
    /// How long a run may take. For self-terminating kinds this covers the way back.
    pub timeout: Span,
    /// The roles in which a node may run it.
    pub roles: BTreeSet<Role>,
    /// Promises and warnings.
    #[serde(default)]
    pub traits: BTreeSet<Trait>,
    /// The capabilities that it imports, with their arguments.
    #[serde(default)]
    pub capabilities: Grants,
    /// What a run may use.
    #[serde(default)]
    pub limits: Limits,
    /// JSON Schema (draft 2020-12) of the payload.
    pub payload: Value,
    /// JSON Schema (draft 2020-12) of the result.
    pub result: Value,
    /// Payloads that show what it is for.
    #[serde(default)]
    pub examples: Vec<Example>,
}

impl Default for Limits {
    /// 64 MiB and 10 s: ample for kinds whose work is host calls, and little enough that eight of them at once fit any node.
    fn default() -> Self {
        Self { memory: Bytes::mib(64), cpu: Span(Duration::from_secs(10)) }
    }
}

/// A rule that a manifest breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The field, as a path with dots: `limits.memory`.
    pub field: String,
    /// The rule and what was found instead.
    pub rule: String,
}

/// Why there is no manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Larger than [`MAX_BYTES`].
    #[error("the manifest has {0} bytes; at most {MAX_BYTES} are read")]
    TooLarge(usize),
    /// Not TOML or JSON of this shape.
    #[error("the manifest does not parse: {0}")]
    Syntax(String),
    /// Parsed, but against the rules.
    #[error("the manifest breaks {} rule(s):{}", .0.len(), .0.iter().map(|v| format!("\n  {v}")).collect::<String>())]
    Rules(Vec<Violation>),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.rule)
    }
}

impl Manifest {
    /// Reads `kind.toml`.
    pub fn from_toml(text: &str) -> Result<Self, Invalid> {
        if text.len() > MAX_BYTES {
            return Err(Invalid::TooLarge(text.len()));
        }
        toml::from_str::<Self>(text).map_err(|error| Invalid::Syntax(error.to_string()))?.checked()
    }

    /// Reads the custom section's content.
    pub fn from_json(bytes: &[u8]) -> Result<Self, Invalid> {
        if bytes.len() > MAX_BYTES {
            return Err(Invalid::TooLarge(bytes.len()));
        }
        serde_json::from_slice::<Self>(bytes).map_err(|error| Invalid::Syntax(error.to_string()))?.checked()
    }

    /// The custom section's content.
    pub fn to_canonical_json(&self) -> Vec<u8> {
        canonical::to_vec(self).expect("a manifest has string keys and finite numbers")
    }

    /// Whether the kind has a trait.
    pub fn is(&self, which: Trait) -> bool {
        self.traits.contains(&which)
    }

    fn checked(self) -> Result<Self, Invalid> {
        let violations = rules::violations(&self);
        if violations.is_empty() { Ok(self) } else { Err(Invalid::Rules(violations)) }
    }
}

#[cfg(test)]
mod tests;
