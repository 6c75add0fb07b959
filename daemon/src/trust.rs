//! What this node trusts: the bundle that counts now.
//!
//! **Invariant:** it changes only as [`SignedBundle::accept`] allows: by the word of a root that was trusted before, and never
//! backwards.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bc_proto::rules::trust::{NotTrusted, SignedBundle, TrustBundle};

/// The node's trust; clones are handles to one.
#[derive(Clone, Default)]
pub struct Trust(Arc<ArcSwap<TrustBundle>>);

impl Trust {
    /// What counts now.
    pub fn now(&self) -> Arc<TrustBundle> {
        self.0.load_full()
    }

    /// Takes a bundle that was offered, if it may. Answers whether something changed.
    pub fn offer(&self, offered: SignedBundle) -> Result<bool, NotTrusted> {
        let Some(bundle) = offered.accept(&self.now())? else { return Ok(false) };
        self.0.store(Arc::new(bundle));
        Ok(true)
    }
}
