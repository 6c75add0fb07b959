//! The plugin directory: the kinds that this node serves, and their replacement while it runs.
//!
//! A rescan reads every file, asks [`rules::plugins`] what to do, compiles what is new beside what runs, and swaps one map.
//! A command takes its [`Kind`] when it starts and keeps it to its end, so that a swap meets new commands alone.
//!
//! **Invariant:** what is served changes in one step, after everything that is new compiled; a file that fails on the way is
//! reported and changes nothing.

mod change;
mod error;
mod scan;
mod watch;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bc_proto::rules::plugins::{self as rules, Action, Directory, Serving};
use bc_runtime::Kind;

pub use self::change::Change;
pub use self::error::OpenError;
use crate::kinds::{Kinds, signature};
use crate::node::Node;

/// The directory and what is served from it. Clones are handles to one.
#[derive(Clone)]
pub struct Plugins(Arc<Inner>);

struct Inner {
    /// Absolute.
    dir: PathBuf,
    node: Arc<Node>,
    kinds: Kinds,
    /// Held for a whole rescan: one at a time.
    state: Mutex<State>,
    on_change: Box<dyn Fn(Change) + Send + Sync>,
}

#[derive(Default)]
struct State {
    serving: Serving,
    /// The refusals that stand, by file: each was reported once.
    refused: BTreeMap<PathBuf, Change>,
}

/// A directory under watch.
pub struct Watching {
    watch: watch::Watch,
    plugins: Plugins,
}

impl Plugins {
    /// Loads what the directory holds. `on_change` hears of every change, this first load included, when it has taken
    /// effect; it is called from a thread that may block.
    ///
    /// Errors when the directory cannot be read; files that cannot be served are changes like any other.
    pub async fn open(
        dir: &Path,
        node: Arc<Node>,
        on_change: impl Fn(Change) + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let unreadable = |error| OpenError::Unreadable { dir: dir.to_owned(), error };
        let dir = std::path::absolute(dir).map_err(unreadable)?;
        let plugins = Self(Arc::new(Inner {
            dir,
            node,
            kinds: Kinds::default(),
            state: Mutex::default(),
            on_change: Box::new(on_change),
        }));
        plugins.on_own_thread(Inner::load_changes).await.map_err(unreadable)?;
        Ok(plugins)
    }

    /// The same, and watches the directory from before it is read: [`Watching::follow`] misses nothing.
    ///
    /// Errors as well when the system does not let it watch.
    pub async fn watch(
        dir: &Path,
        node: Arc<Node>,
        on_change: impl Fn(Change) + Send + Sync + 'static,
    ) -> Result<(Self, Watching), OpenError> {
        let unreadable = |error| OpenError::Unreadable { dir: dir.to_owned(), error };
        let absolute = std::path::absolute(dir).map_err(unreadable)?;
        // Says better than the watcher what is wrong with it.
        std::fs::read_dir(&absolute).map_err(unreadable)?;
        let unwatchable = |error| OpenError::Unwatchable { dir: dir.to_owned(), error };
        let watch = watch::Watch::start(&absolute).map_err(unwatchable)?;
        let plugins = Self::open(dir, node, on_change).await?;
        Ok((plugins.clone(), Watching { watch, plugins }))
    }

    /// The kind of a name, as it is served to new commands now.
    pub fn kind(&self, name: &str) -> Option<Kind> {
        self.0.kinds.served().get(name).cloned()
    }

    /// The table in which what is served stands; fetched kinds can be added to it.
    pub fn kinds(&self) -> Kinds {
        self.0.kinds.clone()
    }

    /// Reads the directory again. A directory that cannot be read any more is reported as a change, and what is served stays.
    pub async fn rescan(&self) {
        self.on_own_thread(|inner| {
            if let Err(error) = inner.load_changes() {
                inner.report_unreadable(error);
            }
        })
        .await;
    }

    /// Reading and compiling block. Goes on to its end when the caller is dropped.
    async fn on_own_thread<T: Send + 'static>(&self, work: impl FnOnce(&Inner) -> T + Send + 'static) -> T {
        let inner = Arc::clone(&self.0);
        match tokio::task::spawn_blocking(move || work(&inner)).await {
            Ok(done) => done,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

impl Watching {
    /// Follows the directory until it is dropped: waits for changes to come to rest, and rescans. Does so as well when the node
    /// trusts others: files of publishers that it knows now are served. Does nothing in between.
    pub async fn follow(mut self) -> Infallible {
        let (node, tell) = (Arc::clone(&self.plugins.0.node), self.watch.teller());
        let trusting = async {
            loop {
                node.trust.changed().await;
                tell();
            }
        };
        let following = async {
            loop {
                self.watch.settled().await;
                self.plugins.rescan().await;
            }
        };
        tokio::select! {
            never = trusting => never,
            never = following => never,
        }
    }
}

impl Inner {
    fn load_changes(&self) -> io::Result<()> {
        // A rescan writes the state last, so that one that panicked left it as it was.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = scan::directory(&self.dir, &self.node)?;
        let (actions, mut fresh) = self.compile(&state.serving, directory);

        let serving = rules::after(&actions);
        let old = self.kinds.served();
        let kinds = serving.iter().map(|(name, served)| {
            let fresh = fresh.remove(&served.release.digest);
            let kind = fresh.or_else(|| old.get(name).cloned()).expect("what was not compiled now was served before");
            (name.clone(), kind)
        });
        self.kinds.serve(kinds.collect());
        // A signature may have come after its component.
        for served in serving.values() {
            let signature = signature::beside(&self.dir.join(&served.file)).ok().flatten();
            signature.iter().filter(|it| it.digest == served.release.digest).for_each(|it| self.kinds.sign(it));
        }
        state.serving = serving;

        let before = std::mem::take(&mut state.refused);
        for change in actions.into_iter().filter_map(|action| Change::of(action, &self.dir)) {
            let known = before.get(change.file()) == Some(&change);
            if matches!(change, Change::Refused { .. }) {
                state.refused.insert(change.file().to_owned(), change.clone());
            }
            if !known {
                self.report(change);
            }
        }
        Ok(())
    }

    /// Decides, and compiles what is to be loaded. What does not compile is decided again as a rejected file.
    fn compile(&self, serving: &Serving, mut directory: Directory) -> (Vec<Action>, BTreeMap<String, Kind>) {
        let mut fresh = BTreeMap::new();
        'decide: loop {
            let actions = rules::decide(serving, &directory);
            for action in &actions {
                let (Action::Load(new) | Action::Replace { new, .. }) = action else { continue };
                if fresh.contains_key(&new.release.digest) {
                    continue;
                }
                match scan::load(&self.dir, new, &self.node) {
                    Ok((kind, signature)) => {
                        if let Some(signature) = &signature {
                            self.kinds.sign(signature);
                        }
                        fresh.insert(new.release.digest.clone(), kind);
                    }
                    Err(rejection) => {
                        directory.insert(new.file.clone(), Err(*rejection));
                        continue 'decide;
                    }
                }
            }
            return (actions, fresh);
        }
    }

    fn report_unreadable(&self, error: io::Error) {
        let unreadable = OpenError::Unreadable { dir: self.dir.clone(), error };
        let change = Change::Refused {
            file: self.dir.clone(),
            release: None,
            reason: unreadable.to_string(),
            remedy: unreadable.remedy(),
            serving: None,
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.refused.insert(self.dir.clone(), change.clone()).as_ref() != Some(&change) {
            self.report(change);
        }
    }

    fn report(&self, change: Change) {
        change.log();
        (self.on_change)(change);
    }
}
