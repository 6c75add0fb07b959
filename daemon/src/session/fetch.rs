//! Commands that wait for their component, and its way from the gateway.
//!
//! **Invariant:** a command waits here for its own component alone: the session goes on, other commands pass, and whatever
//! comes of the fetch, the command is handed on.

use std::collections::HashMap;
use std::time::Duration;

use bc_proto::rules::publishing::KindSignature;
use bc_proto::sign::{PublicKey, Signature};
use bc_proto::wire::{Deliver, v1};
use bc_runtime::MAX_COMPONENT_BYTES;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::gateway::chain;
use crate::gateway::rpc::node_gateway_client::NodeGatewayClient;
use crate::kinds::Kinds;
use crate::kinds::kept::{Fetched, Kept};

/// How often a fetch is tried on one session, and how long between two tries.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// A fetch that gets nothing for so long has failed.
const SILENCE: Duration = Duration::from_secs(30);
/// More commands than a gateway may have outstanding do not wait here.
const WAITING: usize = 64;

/// The fetches of one session. They end with it: the next session brings the commands again.
pub(super) struct Fetches {
    kinds: Kinds,
    kept: Kept,
    channel: Channel,
    /// By digest.
    waiting: HashMap<String, Vec<Deliver>>,
    under_way: JoinSet<String>,
}

impl Fetches {
    pub(super) fn new(kinds: Kinds, kept: Kept, channel: Channel) -> Self {
        Self { kinds, kept, channel, waiting: HashMap::new(), under_way: JoinSet::new() }
    }

    /// Takes a command that has to wait for its component; gives back one that need not.
    pub(super) fn hold(&mut self, deliver: Deliver) -> Option<Deliver> {
        let digest = &deliver.kind_digest;
        let waiting: usize = self.waiting.values().map(Vec::len).sum();
        if waiting >= WAITING || !self.kinds.is_wanted(&deliver.kind, digest) {
            return Some(deliver);
        }
        if let Some(others) = self.waiting.get_mut(digest) {
            // A gateway may send a command twice.
            others.retain(|other| other.command != deliver.command);
            others.push(deliver);
            return None;
        }
        let (kept, channel, digest) = (self.kept.clone(), self.channel.clone(), digest.clone());
        self.waiting.insert(digest.clone(), vec![deliver]);
        self.under_way.spawn(async move {
            kept.obtain(&digest, fetch(channel, &digest)).await;
            digest
        });
        None
    }

    /// The commands of the next component that is there, or is known not to be had. Waits for ever when none is under way.
    pub(super) async fn next(&mut self) -> Vec<Deliver> {
        match self.under_way.join_next().await {
            None => std::future::pending().await,
            Some(Ok(digest)) => self.waiting.remove(&digest).unwrap_or_default(),
            Some(Err(error)) => {
                // Whose it was is not known: all of them get an answer.
                tracing::error!(%error, "a fetch broke down");
                let waiting = std::mem::take(&mut self.waiting);
                waiting.into_values().flatten().collect()
            }
        }
    }
}

/// The component's bytes, unchecked. Tries again when that may help.
async fn fetch(channel: Channel, digest: &str) -> Result<Fetched, String> {
    let digest = hex::decode(digest).map_err(|error| error.to_string())?;
    let mut tried = 1;
    loop {
        match fetch_once(channel.clone(), digest.clone()).await {
            Ok(fetched) => return Ok(fetched),
            Err(status) if tried < TRIES && may_pass(status.code()) => {
                tracing::debug!(status = chain(&status), "a kind was not fetched; it is tried again");
                tried += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Err(status) => return Err(format!("the gateway does not give it: {}", chain(&status))),
        }
    }
}

fn may_pass(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Internal | Code::Aborted | Code::Cancelled
    )
}

async fn fetch_once(channel: Channel, digest: Vec<u8>) -> Result<Fetched, Status> {
    let silent = |_| Status::deadline_exceeded("nothing came for 30 s");
    let mut client = NodeGatewayClient::new(channel);
    let request = client.fetch_kind(v1::FetchKindRequest { digest: digest.clone() });
    let mut chunks = tokio::time::timeout(SILENCE, request).await.map_err(silent)??.into_inner();
    let Fetched { mut bytes, mut signature } = Fetched::default();
    while let Some(chunk) = tokio::time::timeout(SILENCE, chunks.message()).await.map_err(silent)?? {
        if (bytes.len() + chunk.bytes.len()) as u64 > MAX_COMPONENT_BYTES {
            return Err(Status::out_of_range("it is larger than a component may be"));
        }
        if bytes.is_empty() {
            signature = signature_of(&digest, &chunk)?;
        }
        bytes.extend_from_slice(&chunk.bytes);
    }
    Ok(Fetched { bytes, signature })
}

/// The signature in the first piece, if there is one.
fn signature_of(digest: &[u8], first: &v1::KindChunk) -> Result<Option<KindSignature>, Status> {
    if first.publisher.is_empty() && first.publisher_sig.is_empty() {
        return Ok(None);
    }
    let bad = || Status::data_loss("its signature is none");
    let publisher = first.publisher.as_slice().try_into().map_err(|_| bad())?;
    let publisher = PublicKey::from_bytes(publisher).map_err(|_| bad())?;
    let signature = Signature::from_slice(&first.publisher_sig).map_err(|_| bad())?;
    Ok(Some(KindSignature { digest: hex::encode(digest), publisher, signature }))
}
