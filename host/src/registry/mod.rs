//! The kinds that this replica has loaded, to validate payloads with the component that the node will run.
//!
//! **Invariant:** what is loaded for a digest is the component with that digest, read from the database; the cache holds at
//! most [`MAX_LOADED`] of them, and nothing but time is lost when one is dropped.

pub mod examine;
pub mod quorum;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bc_proto::canonical;
use bc_runtime::{Engine, Inspected, Kind, Rejected};
use sqlx::PgPool;
use tokio::sync::{OnceCell, Semaphore};

use crate::store::kinds::Digest;
use crate::store::{self, components};

/// How many loaded kinds are kept. A loaded Rust kind takes a few hundred KiB; a server has tens of kinds.
const MAX_LOADED: usize = 128;

/// How many components are inspected and compiled at once. Each takes a core, and memory a few times its size.
const MAX_COMPILING: usize = 2;

/// The kinds that `commands.run` accepts without anybody exposing them.
pub const BUILT_IN: [&str; 4] = ["diag.nvml", "inventory.refresh", "logs.collect", "node.reboot"];

/// The kinds that it never accepts, exposed or not: a reset is the health reconciler's decision.
pub const NEVER: [&str; 1] = ["gpu.reset"];

/// Whether `commands.run` accepts a kind of this name, which is `exposed` by an operator or not.
pub fn accepts(name: &str, exposed: bool) -> bool {
    !NEVER.contains(&name) && (exposed || BUILT_IN.contains(&name))
}

/// Why there is no kind to validate with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// It is not registered.
    #[error("no component with this digest is registered")]
    Unknown,
    /// It was registered, and this replica cannot load it.
    #[error("a registered component does not load")]
    Rejected(#[source] Rejected),
    /// The component in the database is not the one that its digest names.
    #[error("a stored component is not what its digest says")]
    WrongDigest,
    /// The thread that was to load it ended.
    #[error("loading a component did not finish")]
    Interrupted(#[from] tokio::task::JoinError),
}

/// The loaded kinds. Clones are handles to one.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    engine: Engine,
    loaded: Mutex<Loaded>,
    compiling: Semaphore,
}

/// What is loaded, and when it was last used, counted in uses.
#[derive(Default)]
struct Loaded {
    kinds: HashMap<Digest, (Arc<OnceCell<Kind>>, u64)>,
    uses: u64,
}

impl Loaded {
    fn place(&mut self, digest: Digest) -> Arc<OnceCell<Kind>> {
        self.uses += 1;
        if !self.kinds.contains_key(&digest) && self.kinds.len() >= MAX_LOADED {
            let oldest = self.kinds.iter().min_by_key(|(_, (_, used))| *used).map(|(digest, _)| *digest);
            oldest.and_then(|digest| self.kinds.remove(&digest));
        }
        let (cell, last_use) = self.kinds.entry(digest).or_default();
        *last_use = self.uses;
        Arc::clone(cell)
    }
}

impl Registry {
    /// Nothing is loaded yet.
    pub fn new(engine: Engine) -> Self {
        let compiling = Semaphore::new(MAX_COMPILING);
        Self(Arc::new(Inner { engine, loaded: Mutex::default(), compiling }))
    }

    /// The kind of a registered component. Whoever asks first loads it; the others wait for that.
    pub async fn kind(&self, pool: &PgPool, digest: Digest) -> Result<Kind, Error> {
        let cell = self.place(digest);
        let kind = cell.get_or_try_init(|| self.load(pool, digest)).await?;
        Ok(kind.clone())
    }

    fn place(&self, digest: Digest) -> Arc<OnceCell<Kind>> {
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner).place(digest)
    }

    async fn load(&self, pool: &PgPool, digest: Digest) -> Result<Kind, Error> {
        let component = {
            let mut db = pool.acquire().await.map_err(store::Error::from)?;
            components::find(&mut db, digest).await?.ok_or(Error::Unknown)?.bytes
        };
        if canonical::sha256_hex(&component) != hex::encode(digest) {
            return Err(Error::WrongDigest);
        }
        let _place = self.0.compiling.acquire().await.expect("it is never closed");
        let engine = self.0.engine.clone();
        let load = move || Inspected::from_bytes(component).and_then(|inspected| engine.load(&inspected));
        tokio::task::spawn_blocking(load).await?.map_err(Error::Rejected)
    }

    /// Keeps a kind that was loaded in order to examine it.
    fn keep(&self, digest: Digest, kind: Kind) {
        // One that is there already is the same.
        let _ = self.place(digest).set(kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_run_accepts() {
        for (name, exposed, expected) in [
            ("diag.nvml", false, true),
            ("node.reboot", true, true),
            ("acme.fan", false, false),
            ("acme.fan", true, true),
            ("gpu.reset", false, false),
            ("gpu.reset", true, false),
        ] {
            assert_eq!(accepts(name, exposed), expected, "{name} {exposed}");
        }
    }

    #[test]
    fn the_cache_is_bounded_and_drops_what_was_used_longest_ago() {
        let mut loaded = Loaded::default();
        let digest = |n: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&n.to_be_bytes());
            digest
        };
        let first = loaded.place(digest(0));
        for n in 1..=MAX_LOADED {
            loaded.place(digest(n));
            assert!(Arc::ptr_eq(&first, &loaded.place(digest(0))), "what is used stays");
        }
        assert_eq!(loaded.kinds.len(), MAX_LOADED);
        assert!(!loaded.kinds.contains_key(&digest(1)));
    }
}
