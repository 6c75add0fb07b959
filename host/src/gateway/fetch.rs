//! Components on their way to nodes.
//!
//! **Invariant:** however many nodes fetch a component at once, it is in memory once, and not at all when none does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bc_proto::wire::v1::KindChunk;
use futures_util::{Stream, StreamExt, stream};
use sqlx::PgPool;
use tonic::Status;

use super::away;
use crate::store::Error;
use crate::store::components::{self, Component};
use crate::store::kinds::Digest;
use crate::store::releases::{self, Release};

/// The size of a piece: one is well below every limit of a message.
const CHUNK: usize = 64 * 1_024;

/// The components that are being sent.
#[derive(Default)]
pub(super) struct Components {
    present: Mutex<HashMap<Digest, Weak<Component>>>,
    /// One is read at a time: the next may find it there.
    reading: tokio::sync::Mutex<()>,
}

impl Components {
    fn present(&self, digest: &Digest) -> Option<Arc<Component>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner).get(digest).and_then(Weak::upgrade)
    }

    /// The component with a digest.
    pub(super) async fn find(&self, pool: &PgPool, digest: Digest) -> Result<Option<Arc<Component>>, Error> {
        if let Some(component) = self.present(&digest) {
            return Ok(Some(component));
        }
        let _reading = self.reading.lock().await;
        if let Some(component) = self.present(&digest) {
            return Ok(Some(component));
        }
        let Some(component) = components::find(&mut *pool.acquire().await?, digest).await? else { return Ok(None) };
        let component = Arc::new(component);
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        present.retain(|_, component| component.strong_count() > 0);
        present.insert(digest, Arc::downgrade(&component));
        Ok(Some(component))
    }
}

/// A release in pieces, each read when the one before was taken: however many nodes fetch it, one piece of each is in memory.
pub(super) fn release(
    pool: PgPool,
    release: Release,
) -> impl Stream<Item = Result<KindChunk, Status>> + Send + 'static {
    stream::try_unfold((pool, release, 0), |(pool, release, seq)| async move {
        let read = async { releases::chunk(&mut *pool.acquire().await?, release.sha256, seq).await };
        let Some(bytes) = read.await.map_err(|error| away(&error))? else { return Ok(None) };
        let signature = release.signature.as_ref().filter(|_| seq == 0);
        let chunk = KindChunk {
            bytes,
            publisher: signature.map(|it| it.publisher.as_bytes().to_vec()).unwrap_or_default(),
            publisher_sig: signature.map(|it| it.signature.as_bytes().to_vec()).unwrap_or_default(),
        };
        Ok(Some((chunk, (pool, release, seq + 1))))
    })
}

/// A component in pieces.
pub(super) fn pieces(component: Arc<Component>) -> impl Stream<Item = Result<KindChunk, Status>> + Send + 'static {
    stream::iter((0..component.bytes.len()).step_by(CHUNK)).map(move |at| {
        let end = (at + CHUNK).min(component.bytes.len());
        let signature = component.signature.as_ref().filter(|_| at == 0);
        Ok(KindChunk {
            bytes: component.bytes[at..end].to_vec(),
            publisher: signature.map(|it| it.publisher.as_bytes().to_vec()).unwrap_or_default(),
            publisher_sig: signature.map(|it| it.signature.as_bytes().to_vec()).unwrap_or_default(),
        })
    })
}
