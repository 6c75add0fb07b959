//! The kinds that this node has loaded.
//!
//! **Invariant:** only what was admitted is in it, and a command runs the very component that its payload was checked with.

use std::collections::BTreeMap;

use bc_proto::rules::daemon::Availability;
use bc_runtime::Kind;

/// Loaded kinds by name.
#[derive(Clone, Default)]
pub struct Kinds {
    by_name: BTreeMap<String, Vec<Kind>>,
}

impl Kinds {
    /// Adds a kind; versions of one name stand beside each other.
    pub fn add(&mut self, kind: Kind) {
        let versions = self.by_name.entry(kind.manifest().name.clone()).or_default();
        versions.retain(|known| known.digest() != kind.digest());
        versions.push(kind);
    }

    /// The kind of that name and digest.
    pub fn find(&self, name: &str, digest: &str) -> Option<&Kind> {
        self.by_name.get(name)?.iter().find(|kind| kind.digest() == digest)
    }

    /// What acceptance needs to know of it.
    pub fn availability(&self, name: &str, digest: &str) -> Availability {
        match self.find(name, digest) {
            Some(kind) => {
                let manifest = kind.manifest();
                Availability::Loaded {
                    lane: manifest.lane,
                    traits: manifest.traits.clone(),
                    roles: manifest.roles.iter().copied().collect(),
                }
            }
            None if self.by_name.contains_key(name) => Availability::Unavailable,
            None => Availability::Unsupported,
        }
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Kind> {
        self.by_name.values().flatten()
    }
}
