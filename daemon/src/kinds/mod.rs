//! The kinds that this node has loaded: those of the plugin directory by name, and those fetched by digest.
//!
//! **Invariant:** only what was admitted is in it, and a command runs the very component that its payload was checked with.

pub mod kept;
pub mod signature;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bc_proto::rules::daemon::Availability;
use bc_proto::rules::publishing::{self, KindSignature, Untrusted};
use bc_proto::rules::trust::Publisher;
use bc_proto::wire::LoadedKind;
use bc_runtime::Kind;

/// How many components are held, in memory and on the disk, beside those of the plugin directory: the ones used last.
pub const HELD: usize = 32;

/// How many digests are remembered as not to be had. Each is asked for again after it was forgotten.
const LACKING: usize = 64;

/// Loaded kinds; clones are handles to one table.
#[derive(Clone, Default)]
pub struct Kinds(Arc<ArcSwap<Table>>);

#[derive(Clone, Default)]
struct Table {
    /// What the plugin directory serves, by name.
    served: Arc<BTreeMap<String, Kind>>,
    /// What commands named by digest, the one used last at the end.
    held: Vec<Kind>,
    /// Digests that cannot be had, the newest at the end.
    lacking: Vec<(String, Lack)>,
    /// The only kinds that the node's certificate allows; `None` for all.
    allowed: Option<Arc<[String]>>,
    /// The signatures of those that are here, by digest.
    signed: BTreeMap<String, KindSignature>,
}

/// Why a digest is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// It was not reached this time.
    Unfetched,
    /// It is not for this node's role. Asking again changes nothing.
    OtherRole,
    /// This node does not admit it. Asking again changes nothing.
    Refused,
}

impl Table {
    fn allows(&self, name: &str) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|it| it == name))
    }

    fn find(&self, name: &str, digest: &str) -> Option<&Kind> {
        let served = self.served.get(name).filter(|kind| kind.digest() == digest);
        served.or_else(|| self.held.iter().find(|kind| kind.digest() == digest && kind.manifest().name == name))
    }

    fn hold(&mut self, kind: Kind) {
        self.held.retain(|held| held.digest() != kind.digest());
        self.held.push(kind);
        let over = self.held.len().saturating_sub(HELD);
        self.held.drain(..over);
    }
}

impl Kinds {
    /// Adds a component that a command named. It goes when [`HELD`] others were used since.
    pub fn add(&self, kind: &Kind) {
        self.0.rcu(|table| {
            let mut table = Table::clone(table);
            table.lacking.retain(|(digest, _)| digest != kind.digest());
            table.hold(kind.clone());
            table
        });
    }

    /// From now on no other kinds than these are known here, whatever is loaded: a restricted identity.
    pub fn restrict(&self, allowed: &[String]) {
        let allowed: Arc<[String]> = allowed.into();
        self.0.rcu(|table| Table { allowed: Some(Arc::clone(&allowed)), ..Table::clone(table) });
    }

    /// Replaces what the plugin directory serves, in one step. A release that was replaced by another of its name is held a
    /// while longer: commands that name it may be on their way.
    pub(crate) fn serve(&self, served: BTreeMap<String, Kind>) {
        let served = Arc::new(served);
        self.0.rcu(|table| {
            let mut table = Table::clone(table);
            let before = std::mem::replace(&mut table.served, Arc::clone(&served));
            for (name, old) in before.iter() {
                if served.get(name).is_some_and(|new| new.digest() != old.digest()) {
                    table.hold(old.clone());
                }
            }
            table
        });
    }

    /// What the plugin directory serves, by name.
    pub fn served(&self) -> Arc<BTreeMap<String, Kind>> {
        Arc::clone(&self.0.load().served)
    }

    /// The kind of that name and digest.
    pub fn find(&self, name: &str, digest: &str) -> Option<Kind> {
        self.0.load().find(name, digest).cloned()
    }

    /// The same; it counts as used, so that it stays.
    pub(crate) fn take(&self, name: &str, digest: &str) -> Option<Kind> {
        let found = self.find(name, digest)?;
        let table = self.0.load();
        let is_held = |kind: &Kind| kind.digest() == digest;
        if table.held.iter().any(is_held) && !table.held.last().is_some_and(is_held) {
            self.add(&found);
        }
        Some(found)
    }

    /// Remembers who signed a component, to be called before it is added.
    pub(crate) fn sign(&self, signature: &KindSignature) {
        self.0.rcu(|table| {
            let mut table = Table::clone(table);
            let here: Vec<_> = table.served.values().chain(&table.held).map(|kind| kind.digest().to_owned()).collect();
            if table.signed.len() > 2 * (here.len() + HELD) {
                table.signed.retain(|digest, _| here.contains(digest));
            }
            table.signed.insert(signature.digest.clone(), signature.clone());
            table
        });
    }

    /// Whether one of these publishers vouches for a component that is here.
    pub fn vouched(&self, publishers: &[Publisher], digest: &str) -> Result<(), Untrusted> {
        publishing::check(publishers, digest, self.0.load().signed.get(digest)).map(drop)
    }

    /// What acceptance needs to know of it where these publishers are trusted. One that they no longer vouch for takes no new
    /// commands; what was accepted before goes on.
    pub fn availability_under(&self, publishers: &[Publisher], name: &str, digest: &str) -> Availability {
        let found = self.availability(name, digest);
        if let (Availability::Loaded { .. }, Err(untrusted)) = (&found, self.vouched(publishers, digest)) {
            tracing::warn!(kind = name, reason = untrusted.reason(), "a command is refused: {untrusted}");
            return Availability::Unavailable;
        }
        found
    }

    /// Remembers that a digest is not to be had.
    pub(crate) fn lacks(&self, digest: &str, lack: Lack) {
        self.0.rcu(|table| {
            let mut table = Table::clone(table);
            table.lacking.retain(|(known, _)| known != digest);
            table.lacking.push((digest.to_owned(), lack));
            let over = table.lacking.len().saturating_sub(LACKING);
            table.lacking.drain(..over);
            table
        });
    }

    /// Whether a command of that digest should wait until it was asked for.
    pub(crate) fn is_wanted(&self, name: &str, digest: &str) -> bool {
        let table = self.0.load();
        let for_good = |(known, lack): &(String, Lack)| known == digest && *lack != Lack::Unfetched;
        table.allows(name) && table.find(name, digest).is_none() && !table.lacking.iter().any(for_good)
    }

    /// What acceptance needs to know of it.
    pub fn availability(&self, name: &str, digest: &str) -> Availability {
        let table = self.0.load();
        if !table.allows(name) {
            return Availability::Unsupported;
        }
        if let Some(kind) = table.find(name, digest) {
            let manifest = kind.manifest();
            return Availability::Loaded {
                lane: manifest.lane,
                traits: manifest.traits.clone(),
                roles: manifest.roles.iter().copied().collect(),
                timeout_ms: u64::try_from(manifest.timeout.0.as_millis()).unwrap_or(u64::MAX),
            };
        }
        let lack = table.lacking.iter().find(|(known, _)| known == digest).map(|(_, lack)| *lack);
        let has_name = || table.served.contains_key(name) || table.held.iter().any(|kind| kind.manifest().name == name);
        match lack {
            Some(Lack::Unfetched | Lack::Refused) => Availability::Unavailable,
            None if has_name() => Availability::Unavailable,
            Some(Lack::OtherRole) | None => Availability::Unsupported,
        }
    }

    /// All of them, as a Hello lists them.
    pub fn loaded(&self) -> Vec<LoadedKind> {
        let table = self.0.load();
        let served = |digest: &str| table.served.values().any(|kind| kind.digest() == digest);
        let held = table.held.iter().filter(|kind| !served(kind.digest()));
        let all = table.served.values().chain(held);
        all.map(|kind| LoadedKind {
            name: kind.manifest().name.clone(),
            version: kind.manifest().version.clone(),
            digest: kind.digest().to_owned(),
        })
        .collect()
    }
}
