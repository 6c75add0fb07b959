//! A node's policy: which kinds get which grants.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Grants;
use crate::pattern::Pattern;

/// Grants by kind. The key is a kind's name or a pattern over names (`metal.*`); a kind gets all that its entries grant
/// together. The empty policy grants nothing.
///
/// ```toml
/// [grants."diag.nvml"]
/// nvml = {}
/// [grants."gpu.reset"]
/// gpus = { reset = true }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Kind name or pattern → grants.
    #[serde(default)]
    pub grants: BTreeMap<Pattern, Grants>,
}

/// What a kind declares and a node does not grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The kind.
    pub kind: String,
    /// Exactly the uncovered part.
    pub grants: Grants,
}

impl Policy {
    /// Reads a policy file. The error names line and rule.
    pub fn from_toml(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// Everything that the entries for this kind grant.
    pub fn grants_of(&self, kind: &str) -> Grants {
        let entries = self.grants.iter().filter(|(pattern, _)| pattern.matches(kind));
        entries.fold(Grants::default(), |sum, (_, grants)| sum.union(grants))
    }

    /// Whether a kind may be loaded: everything it declares is granted.
    pub fn admit(&self, kind: &str, declared: &Grants) -> Result<(), Box<Missing>> {
        let granted = self.grants_of(kind);
        let grants = where_the_operator_chooses(declared, &granted).minus(&granted);
        if grants == Grants::default() { Ok(()) } else { Err(Box::new(Missing { kind: kind.to_owned(), grants })) }
    }
}

/// The declaration without what it leaves to the node: a kind for a site's BMCs cannot know their names, so it declares the origin
/// `*`, and so with credentials. It is then enough that the policy names some; each call is held to the policy's.
fn where_the_operator_chooses(declared: &Grants, granted: &Grants) -> Grants {
    let mut declared = declared.clone();
    if let (Some(asked), Some(granted)) = (&mut declared.http, &granted.http) {
        let any = Pattern("*".into());
        if !granted.origins.is_empty() {
            asked.origins.remove(&any);
        }
        // A kind can be asked to do without credentials.
        asked.credentials.remove(&any);
    }
    declared
}

impl Missing {
    /// The lines that, added to the policy, would admit the kind.
    pub fn as_toml(&self) -> String {
        let policy = Policy { grants: BTreeMap::from([(Pattern(self.kind.clone()), self.grants.clone())]) };
        toml::to_string(&policy).expect("a policy has string keys and plain values")
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            self.grants.capabilities().into_iter().map(|capability| format!("`{}`", capability.interface())).collect();
        write!(f, "kind {} declares {}, which this node's policy does not grant", self.kind, names.join(", "))
    }
}

impl std::error::Error for Missing {}
