//! Which nodes a task is to look at next.
//!
//! **Invariant:** a node stands in a set once however often it is added, and whoever takes it sees all that was true when it was
//! added: it is taken before anything is read.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bc_proto::id::NodeId;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Nodes that wait for a task.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    nodes: Mutex<HashSet<NodeId>>,
    grew: Notify,
}

impl Wakes {
    fn nodes(&self) -> MutexGuard<'_, HashSet<NodeId>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, nodes: impl IntoIterator<Item = NodeId>) {
        let mut waiting = self.nodes();
        waiting.extend(nodes);
        let is_any = !waiting.is_empty();
        drop(waiting);
        if is_any {
            self.grew.notify_one();
        }
    }

    /// Waits for nodes and takes at most `limit` of them.
    pub(super) async fn take(&self, limit: usize) -> Vec<NodeId> {
        loop {
            let taken = self.take_now(limit);
            if !taken.is_empty() {
                return taken;
            }
            self.grew.notified().await;
        }
    }

    fn take_now(&self, limit: usize) -> Vec<NodeId> {
        let mut waiting = self.nodes();
        let taken: Vec<NodeId> = waiting.iter().copied().take(limit).collect();
        for node in &taken {
            waiting.remove(node);
        }
        taken
    }
}

/// Nodes that wait for a time.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: Mutex<BTreeSet<(Instant, NodeId)>>,
    changed: Notify,
}

impl Timers {
    fn due(&self) -> MutexGuard<'_, BTreeSet<(Instant, NodeId)>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, at: Instant, node: NodeId) {
        self.due().insert((at, node));
        self.changed.notify_one();
    }

    /// Waits for the next node whose time has come.
    pub(super) async fn next(&self) -> NodeId {
        loop {
            let first = self.due().first().copied();
            match first {
                None => self.changed.notified().await,
                Some((at, node)) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {
                            self.due().remove(&(at, node));
                            return node;
                        }
                        () = self.changed.notified() => {}
                    }
                }
            }
        }
    }
}
