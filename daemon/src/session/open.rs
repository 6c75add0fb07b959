//! One session: opening it, and serving it to its end.
//!
//! **Invariant:** a frame of another epoch than the session's has no effect, and whatever the loop is told of a session
//! carries that session's epoch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bc_proto::rules::daemon::Input;
use bc_proto::sign::WorkerSignature;
use bc_proto::wire::{Deliver, Hello, SESSION_EPOCH, v1};
use rustls::AlertDescription;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use super::fetch::Fetches;
use super::outbox::{FRAMES, Line};
use super::{Context, MESSAGE_BYTES};
use crate::gateway::chain;
use crate::gateway::rpc::node_gateway_client::NodeGatewayClient;
use crate::spec::Offered;

/// How long a gateway may take from the connection to Welcome. Its server time was read before it was sent, so this is also the
/// most that the node lags behind.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);
/// The pace of heartbeats, whatever a Welcome says.
const HEARTBEAT: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_mins(5);
/// How long a session that is ended here waits for what was said to be taken.
const FLUSH: Duration = Duration::from_secs(2);

/// How a session came to its end, or to none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum End {
    #[error("this node's certificate is not accepted: {0}")]
    Rejected(String),
    #[error("{0}")]
    Failed(String),
    #[error("the gateway ended the session")]
    Closed,
    #[error("what was said was not taken in time")]
    Overflow,
    #[error("the gateway drains")]
    Drained,
    #[error("another session has taken its place")]
    Superseded,
    #[error("this daemon stops")]
    Stopped,
}

impl From<Status> for End {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::Unauthenticated | Code::PermissionDenied => Self::Rejected(status.message().to_owned()),
            _ if has_expired(&status) => Self::expired(),
            _ => Self::Failed(chain(&status)),
        }
    }
}

impl End {
    fn expired() -> Self {
        Self::Rejected("it has expired".into())
    }
}

/// Whether the gateway's TLS said that this node's certificate is over. It may say so at the connection or at the first call; HTTP/2
/// passes on the words of such an error and not the error.
fn has_expired(error: &dyn std::error::Error) -> bool {
    let alert = rustls::Error::AlertReceived(AlertDescription::CertificateExpired);
    chain(error).contains(&alert.to_string())
}

/// What a Hello is answered with: where to send frames, where they come from, and the first of them.
type Answered = (mpsc::Sender<v1::FromNode>, Streaming<v1::ToNode>, Option<v1::ToNode>);

/// The epoch of a session that the node had and the Hello did not know of.
fn overtaken(status: &Status) -> Option<u64> {
    let epoch = status.metadata().get(SESSION_EPOCH).filter(|_| status.code() == Code::FailedPrecondition)?;
    epoch.to_str().ok()?.parse().ok()
}

/// A session that was welcomed.
pub(super) struct Open {
    channel: Channel,
    line: Arc<Line>,
    incoming: Streaming<v1::ToNode>,
    heartbeat: Duration,
    settled_below_seq: u64,
}

/// From outside to a session that is served.
pub(super) struct Signals {
    /// The daemon stops.
    pub(super) stop: CancellationToken,
    /// Another session has taken its place.
    pub(super) superseded: CancellationToken,
    /// Told when the gateway drains.
    pub(super) drain: oneshot::Sender<()>,
}

impl Open {
    /// Connects, says Hello and waits for Welcome. `newest` is the highest epoch that this process has seen.
    pub(super) async fn new(endpoint: &Endpoint, context: &Context, newest: u64) -> Result<Self, End> {
        let welcomed = tokio::time::timeout(WELCOME_TIMEOUT, Self::greet(endpoint, context, newest)).await;
        welcomed.unwrap_or_else(|_| Err(End::Failed("there was no Welcome in time".into())))
    }

    async fn greet(endpoint: &Endpoint, context: &Context, newest: u64) -> Result<Self, End> {
        let channel = endpoint
            .connect()
            .await
            .map_err(|error| if has_expired(&error) { End::expired() } else { End::Failed(chain(&error)) })?;
        let (frames, incoming, first) = match Self::say_hello(&channel, context, newest).await {
            // After a restart the daemon knows of no session, and after a lost Welcome not of the last one.
            Err(status) => match overtaken(&status) {
                Some(epoch) => Self::say_hello(&channel, context, epoch).await?,
                None => return Err(status.into()),
            },
            Ok(answered) => answered,
        };
        let first = first.ok_or(End::Closed)?;
        let Some(v1::to_node::Frame::Welcome(welcome)) = first.frame else {
            return Err(End::Failed("the gateway's first frame is no Welcome".into()));
        };
        if welcome.epoch <= newest {
            let epoch = welcome.epoch;
            return Err(End::Failed(format!("the gateway gave epoch {epoch}, and {newest} was open already")));
        }
        context.trust.offered(&welcome.trust_bundle);
        set_time(context, welcome.server_time_ms);
        let line = Line { epoch: welcome.epoch, frames, broken: CancellationToken::new() };
        Ok(Self {
            channel,
            line: Arc::new(line),
            incoming,
            heartbeat: Duration::from_millis(welcome.heartbeat_ms.into()).clamp(*HEARTBEAT.start(), *HEARTBEAT.end()),
            settled_below_seq: welcome.settled_below_seq,
        })
    }

    async fn say_hello(channel: &Channel, context: &Context, last_epoch: u64) -> Result<Answered, Status> {
        let (frames, outgoing) = mpsc::channel(FRAMES);
        let hello = Hello { last_epoch, ..(context.hello)() };
        let hello = v1::from_node::Frame::Hello(hello.into());
        let hello = frames.try_send(v1::FromNode { epoch: 0, frame: Some(hello) });
        hello.expect("the channel is new and its receiver is here");
        let mut client = NodeGatewayClient::new(channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
        let mut incoming = client.session(ReceiverStream::new(outgoing)).await?.into_inner();
        let first = incoming.message().await?;
        Ok((frames, incoming, first))
    }

    pub(super) fn epoch(&self) -> u64 {
        self.line.epoch
    }

    /// Makes it the session of this daemon: what is said goes here, and the loop takes commands from here.
    pub(super) async fn enter(&self, context: &Context) {
        context.outbox.attach(Arc::clone(&self.line));
        context.secrets.attach(self.epoch(), self.channel.clone());
        context.upgrades.attach(self.epoch(), self.channel.clone());
        let opened = Input::SessionOpened { epoch: self.epoch(), settled_below_seq: self.settled_below_seq };
        context.handle.input(opened).await;
        say_bound(&self.line, context).await;
        context.looks.opened();
    }

    /// Serves it to its end.
    pub(super) async fn serve(self, context: &Context, signals: Signals) -> End {
        let Self { channel, line, mut incoming, heartbeat, .. } = self;
        let epoch = line.epoch;
        let fetches = Fetches::new(context.kinds.clone(), context.kept.clone(), channel);
        let end = Serving { context, line: &line, fetches, grace: None, drain: Some(signals.drain) }
            .until_the_end(&mut incoming, heartbeat, &signals.stop, &signals.superseded)
            .await;
        context.outbox.detach(epoch);
        context.secrets.detach(epoch);
        context.upgrades.detach(epoch);
        context.handle.input(Input::SessionClosed { epoch }).await;
        if matches!(end, End::Stopped | End::Superseded | End::Drained) {
            // Without senders our side of the stream ends once all of it is sent; then the gateway ends its own.
            drop(line);
            let ended = async { while let Ok(Some(_)) = incoming.message().await {} };
            let _ = tokio::time::timeout(FLUSH, ended).await;
        }
        end
    }
}

/// Takes the server time of a Welcome. Where commands are signed it only goes forward: a gateway that turned it back could
/// deliver what is over.
fn set_time(context: &Context, server_ms: u64) {
    let now = Instant::now();
    if context.trust.now().roots.is_empty() {
        context.time.set(server_ms, now);
    } else {
        context.trust.told(server_ms);
        context.time.advance(server_ms.max(context.trust.floor_ms()), now);
    }
}

struct Serving<'a> {
    context: &'a Context,
    line: &'a Line,
    fetches: Fetches,
    /// When a draining gateway is gone.
    grace: Option<tokio::time::Instant>,
    drain: Option<oneshot::Sender<()>>,
}

impl Serving<'_> {
    async fn until_the_end(
        mut self,
        incoming: &mut Streaming<v1::ToNode>,
        heartbeat: Duration,
        stop: &CancellationToken,
        superseded: &CancellationToken,
    ) -> End {
        let mut beats = tokio::time::interval_at(tokio::time::Instant::now() + heartbeat, heartbeat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let grace = self.grace;
            tokio::select! {
                () = stop.cancelled() => return End::Stopped,
                () = superseded.cancelled() => return End::Superseded,
                () = self.line.broken.cancelled() => return End::Overflow,
                () = over(grace) => return End::Drained,
                _ = beats.tick() => {
                    let outstanding = u32::try_from(self.context.handle.outstanding()).unwrap_or(u32::MAX);
                    self.line.mention(v1::from_node::Frame::Heartbeat(v1::Heartbeat { outstanding }));
                }
                delivers = self.fetches.next() => {
                    for deliver in delivers {
                        self.deliver(deliver).await;
                    }
                }
                message = incoming.message() => match message {
                    Ok(Some(message)) => self.take(message).await,
                    Ok(None) if grace.is_some() => return End::Drained,
                    Ok(None) => return End::Closed,
                    Err(status) => return status.into(),
                },
            }
        }
    }

    async fn take(&mut self, message: v1::ToNode) {
        let epoch = self.line.epoch;
        if message.epoch != epoch {
            tracing::debug!(epoch, of = message.epoch, "a frame of another epoch is ignored");
            return;
        }
        match message.frame {
            Some(v1::to_node::Frame::Deliver(deliver)) => match Deliver::try_from(deliver) {
                Ok(deliver) => {
                    // No component is fetched, let alone compiled, for what nobody ordered.
                    let Context { trust, time, .. } = self.context;
                    let is_ordered = trust.now().is_ordered(&deliver, time.at(Instant::now()));
                    let ready = if is_ordered { self.fetches.hold(deliver) } else { Some(deliver) };
                    if let Some(deliver) = ready {
                        self.deliver(deliver).await;
                    }
                }
                Err(invalid) => tracing::error!(%invalid, "a command is ignored"),
            },
            Some(v1::to_node::Frame::Cancel(cancel)) => {
                let signature = cancel.signature.map(WorkerSignature::try_from).transpose();
                if let (Ok(command), Ok(signature)) = (cancel.command_id.parse(), signature) {
                    let signature = signature.map(Box::new);
                    self.input(Input::CancelReceived { epoch, command, signature }).await;
                } else {
                    tracing::error!("a Cancel that does not fit is ignored");
                }
            }
            Some(v1::to_node::Frame::UpdateAck(ack)) => {
                let commands = ack.command_ids.iter().filter_map(|command| command.parse().ok()).collect();
                let settled_below_seq = ack.settled_below_seq;
                self.input(Input::UpdateAcked { epoch, commands, settled_below_seq }).await;
            }
            Some(v1::to_node::Frame::Drain(drain)) => {
                let grace = Duration::from_millis(drain.grace_ms.into());
                self.grace = Some(tokio::time::Instant::now() + grace);
                if let Some(drain) = self.drain.take() {
                    // Who hears of it is gone only when the daemon stops.
                    let _ = drain.send(());
                }
            }
            Some(v1::to_node::Frame::Welcome(_)) => tracing::debug!("a second Welcome is ignored"),
            Some(v1::to_node::Frame::TrustChanged(changed)) => self.context.trust.offered(&changed.trust_bundle),
            Some(v1::to_node::Frame::Spec(spec)) => self.take_spec(spec).await,
            // A frame that only a newer gateway knows.
            None => {}
        }
    }

    async fn take_spec(&self, spec: v1::Spec) {
        let Context { desired, looks, time, .. } = self.context;
        if let Offered::Applied(generation) = desired.offer(spec, time.at(Instant::now())).await {
            self.input(Input::SpecApplied { generation }).await;
            self.line.say_all([v1::from_node::Frame::SpecApplied(v1::SpecApplied { generation })]).await;
            say_bound(self.line, self.context).await;
        }
        looks.again();
    }

    async fn deliver(&self, deliver: Deliver) {
        self.input(Input::Delivered { epoch: self.line.epoch, deliver: Box::new(deliver) }).await;
    }

    async fn input(&self, input: Input) {
        // False when the loop is gone: then the daemon ends.
        self.context.handle.input(input).await;
    }
}

/// What the node holds, each with its signature.
async fn say_bound(line: &Line, context: &Context) {
    let bound = context.desired.bound(context.time.at(Instant::now()));
    line.say_all(bound.into_iter().map(v1::from_node::Frame::AllocationBound)).await;
}

async fn over(grace: Option<tokio::time::Instant>) {
    match grace {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}
