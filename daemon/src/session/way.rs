//! The way to the control plane for what a command asks of it: the session that is open now.
//!
//! **Invariant:** nothing is asked through a session that is over.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tonic::transport::Channel;

/// The open session, if there is one; clones are handles to one.
#[derive(Clone, Default)]
pub struct Way(Arc<ArcSwapOption<Session>>);

struct Session {
    epoch: u64,
    channel: Channel,
}

impl Way {
    /// From now on through this session.
    pub(crate) fn attach(&self, epoch: u64, channel: Channel) {
        self.0.store(Some(Arc::new(Session { epoch, channel })));
    }

    /// Through this session no more, if it still is the one.
    pub(crate) fn detach(&self, epoch: u64) {
        let current = self.0.load();
        if current.as_ref().is_some_and(|session| session.epoch == epoch) {
            // Nothing changes when a newer one was attached meanwhile.
            self.0.compare_and_swap(&*current, None);
        }
    }

    /// The open session's channel.
    pub(crate) fn channel(&self) -> Option<Channel> {
        self.0.load().as_ref().map(|session| session.channel.clone())
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").field("epoch", &self.0.load().as_ref().map(|session| session.epoch)).finish()
    }
}
