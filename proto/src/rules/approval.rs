//! Is a batch approved? Enough different people, each group's share by people of that group.
//!
//! **Invariant:** one person counts once, whatever number of keys, signatures or groups they have, and the requester never.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::batch::{Approval, Document};
use crate::sign::{self, PublicKey};

/// Who may approve, and how many of them it takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// The approvers.
    pub approvers: Vec<Approver>,
    /// What it takes: all of these, each by people of their own. "2 of group a and 1 of group b" is two of them, and three people.
    pub require: Vec<Requirement>,
}

/// Somebody who may approve. One entry for each key of theirs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Approver {
    /// The name of their identity on the control plane.
    pub name: String,
    /// Their key.
    pub key: PublicKey,
    /// The groups that they are in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

/// How many of whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Requirement {
    /// The group; absent for anybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How many.
    pub count: u32,
}

/// Why a policy is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    /// It asks for nobody.
    #[error("approvers.require: must ask for at least one approver")]
    AsksForNobody,
    /// It asks for more than there are.
    #[error("approvers.require: no set of the named approvers can meet it")]
    CannotBeMet,
    /// A key that stands for two people.
    #[error("approvers: the key {0} is listed for two names")]
    KeyOfTwo(PublicKey),
}

/// Why one approval does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Void {
    /// Its key is nobody's.
    #[error("{0} is not an approver's key")]
    UnknownKey(PublicKey),
    /// The requester's own.
    #[error("{0} asked for the batch and cannot approve it")]
    Requester(String),
    /// It says that it was signed at a time that has not come.
    #[error("the clocks are far apart: the approval of {0} is from the future")]
    Early(String),
    /// Its time is over.
    #[error("the approval of {0} has expired")]
    Expired(String),
    /// Its signature does not fit.
    #[error("{name}: {error}")]
    Signature {
        /// The approver.
        name: String,
        /// What is wrong.
        error: sign::Error,
    },
}

/// What approvals come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Whether the policy is met.
    pub is_met: bool,
    /// The people who count, by name.
    pub by: BTreeSet<String>,
    /// Those approvals that do not count.
    pub void: Vec<Void>,
    /// How many more people it takes, at least.
    pub missing: u32,
}

impl Policy {
    /// Whether it is one that can be met.
    pub fn check(&self) -> Result<(), BadPolicy> {
        if self.require.iter().all(|it| it.count == 0) {
            return Err(BadPolicy::AsksForNobody);
        }
        let mut names: BTreeMap<PublicKey, &str> = BTreeMap::new();
        for approver in &self.approvers {
            if names.insert(approver.key, &approver.name).is_some_and(|name| name != approver.name) {
                return Err(BadPolicy::KeyOfTwo(approver.key));
            }
        }
        let all = self.approvers.iter().map(|it| it.name.as_str()).collect();
        if self.missing(&all) > 0 { Err(BadPolicy::CannotBeMet) } else { Ok(()) }
    }

    /// Counts approvals at a time, milliseconds since the Unix epoch.
    pub fn tally(&self, document: &Document, approvals: &[Approval], now_ms: u64) -> Tally {
        let mut by = BTreeSet::new();
        let mut void = Vec::new();
        for approval in approvals {
            match self.count(document, approval, now_ms) {
                Ok(name) => {
                    by.insert(name);
                }
                Err(why) => void.push(why),
            }
        }
        let missing = self.missing(&by);
        Tally { is_met: missing == 0, by: by.into_iter().map(str::to_owned).collect(), void, missing }
    }

    /// Whose word an approval is.
    fn count(&self, document: &Document, approval: &Approval, now_ms: u64) -> Result<&str, Void> {
        let approver = self.approvers.iter().find(|it| it.key == approval.approver);
        let name = &approver.ok_or(Void::UnknownKey(approval.approver))?.name;
        if *name == document.requested_by {
            return Err(Void::Requester(name.clone()));
        }
        approval.verify(document).map_err(|error| Void::Signature { name: name.clone(), error })?;
        if approval.approved_at_ms > now_ms.saturating_add(sign::MAX_AHEAD_MS) {
            return Err(Void::Early(name.clone()));
        }
        if now_ms >= approval.expires_at_ms {
            return Err(Void::Expired(name.clone()));
        }
        Ok(name)
    }

    /// How many places of the requirements stay empty when these people fill as many as they can: a matching of people and places,
    /// grown along augmenting paths.
    fn missing(&self, people: &BTreeSet<&str>) -> u32 {
        let places: Vec<Option<&str>> = self
            .require
            .iter()
            .flat_map(|it| std::iter::repeat_n(it.group.as_deref(), usize::try_from(it.count).unwrap_or(usize::MAX)))
            .take(self.approvers.len() + 1)
            .collect();
        let people: Vec<&str> = people.iter().copied().collect();
        let fits = |person: &str, group: Option<&str>| {
            group.is_none_or(|group| {
                let mut entries = self.approvers.iter().filter(|it| it.name == person);
                entries.any(|it| it.groups.iter().any(|it| it == group))
            })
        };
        let mut taken_by: Vec<Option<usize>> = vec![None; places.len()];
        let mut filled = 0;
        for person in 0..people.len() {
            let mut seen = vec![false; places.len()];
            filled += u32::from(place(person, &people, &places, &fits, &mut taken_by, &mut seen));
        }
        let wanted: u32 = self.require.iter().map(|it| it.count).fold(0, u32::saturating_add);
        wanted - filled
    }
}

/// Finds a place for a person, moving others where they have another choice.
fn place(
    person: usize,
    people: &[&str],
    places: &[Option<&str>],
    fits: &dyn Fn(&str, Option<&str>) -> bool,
    taken_by: &mut [Option<usize>],
    seen: &mut [bool],
) -> bool {
    for at in 0..places.len() {
        if seen[at] || !fits(people[person], places[at]) {
            continue;
        }
        seen[at] = true;
        let is_free = match taken_by[at] {
            None => true,
            Some(other) => place(other, people, places, fits, taken_by, seen),
        };
        if is_free {
            taken_by[at] = Some(person);
            return true;
        }
    }
    false
}
