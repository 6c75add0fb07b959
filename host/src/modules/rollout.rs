//! Bringing a release of the daemon to many nodes.
//!
//! A loop as that of [`remediation`](super::remediation): hints wake it, and a slow tick does. It reads a rollout, asks
//! `bc_proto::rules::rollout`, and queues one `daemon.upgrade` for each step that may begin.
//!
//! **Invariant:** a rollout's row is locked before anything is decided about it, and a step's command has a key of rollout and node: so
//! of two replicas one acts, and a step is queued once whatever dies.

use std::time::Duration;

use bc_proto::id::{CommandId, NodeId, RolloutId};
use bc_proto::rules::rollout::{self as rules, Decision};
use serde_json::json;
use sqlx::PgPool;
use tokio::sync::broadcast::{self, error::TryRecvError};
use tokio_util::sync::CancellationToken;

use crate::bus::{self, Bus, Signal};
use crate::faults::crash_at;
use crate::queue;
use crate::queue::enqueue::{NewCommand, Outcome};
use crate::store;
use crate::store::rollouts::{self, Member, Rollout, State};
use crate::trust::Signer;
use crate::world::World;

/// What it calls itself: commands are requested by it.
pub const NAME: &str = "module/rollout";

/// The kind that its commands are of.
pub const KIND: &str = "daemon.upgrade";

/// How long news are gathered before a pass: one look for many events.
const PACE: Duration = Duration::from_millis(500);

/// How often it looks though nobody told it anything: nodes that come back tell it nothing.
const SAFETY_NET: Duration = Duration::from_secs(15);

/// How long a command may wait for its node, which has a session when it is queued.
const PATIENCE: time::Duration = time::Duration::minutes(10);

/// What it works with. It has no state of its own.
#[derive(Debug, Clone)]
pub struct Module {
    /// The database.
    pub pool: PgPool,
    /// Where wake-ups go, and where they come from.
    pub bus: Bus,
    /// The clock, and randomness.
    pub world: World,
    /// Signs its commands.
    pub signer: Signer,
}

/// Starts the loop, until `stop`.
pub fn start(module: Module, stop: &CancellationToken) {
    let signals = module.bus.subscribe();
    tokio::spawn(stop.clone().run_until_cancelled_owned(run(module, signals)));
}

async fn run(module: Module, mut signals: broadcast::Receiver<Signal>) {
    loop {
        if let Err(error) = module.pass().await {
            tracing::error!(error = &error as &dyn std::error::Error, "rollouts stand still for now");
        }
        bus::told(&mut signals, &Signal::Events, SAFETY_NET).await;
        tokio::time::sleep(PACE).await;
        while !matches!(signals.try_recv(), Err(TryRecvError::Empty | TryRecvError::Closed)) {}
    }
}

impl Module {
    /// Looks at every rollout that goes on, once. Returns how many steps were begun.
    pub async fn pass(&self) -> Result<usize, store::Error> {
        let open = rollouts::open(&mut *self.pool.acquire().await?).await?;
        let mut begun = 0;
        for id in open {
            match self.advance(id).await {
                Ok(steps) => begun += steps,
                // It does not keep the others from their turn.
                Err(error) => {
                    tracing::error!(rollout = %id, error = &error as &dyn std::error::Error, "it stands still for now");
                }
            }
        }
        Ok(begun)
    }

    /// Takes one rollout as far as it may go now.
    async fn advance(&self, id: RolloutId) -> Result<usize, store::Error> {
        let now = self.world.now();
        let mut tx = self.pool.begin().await?;
        let Some(mut rollout) = rollouts::lock(&mut tx, id).await?.filter(|it| !it.state.is_over()) else {
            return Ok(0);
        };
        let mut has_changed = rollouts::conclude(&mut tx, id, now).await? > 0;
        let mut begun = Vec::new();
        if rollout.state == State::Running {
            let members = rollouts::members(&mut tx, id).await?;
            let nodes: Vec<rules::Node> = members.iter().map(node).collect();
            match rules::decide(&nodes, rollout.limits) {
                Decision::Pause => {
                    rollouts::change(&mut tx, &mut rollout, State::Paused, "too-many-failures", now).await?;
                    has_changed = true;
                }
                Decision::Done => {
                    rollouts::change(&mut tx, &mut rollout, State::Done, "", now).await?;
                    has_changed = true;
                }
                Decision::Begin(nodes) if nodes.is_empty() => {}
                Decision::Begin(nodes) => {
                    if let Some(digest) = rollouts::active_kind(&mut tx, KIND).await? {
                        begun = self.begin(&mut tx, &rollout, digest, nodes, now).await?;
                    } else {
                        rollouts::change(&mut tx, &mut rollout, State::Paused, "kind-not-registered", now).await?;
                        has_changed = true;
                    }
                }
            }
        }
        if !has_changed && begun.is_empty() {
            return Ok(0);
        }
        crash_at("rollout.before-write");
        tx.commit().await?;
        crash_at("rollout.after-write");
        for node in &begun {
            self.bus.tell(Signal::Work { node: *node });
        }
        self.bus.tell(Signal::Events);
        Ok(begun.len())
    }

    /// Queues the commands of these nodes, in the order of their ids, last in the transaction.
    async fn begin(
        &self,
        tx: &mut sqlx::PgTransaction<'_>,
        rollout: &Rollout,
        kind_digest: store::kinds::Digest,
        mut nodes: Vec<NodeId>,
        now: time::OffsetDateTime,
    ) -> Result<Vec<NodeId>, store::Error> {
        nodes.sort_unstable();
        let payload = json!({
            "version": rollout.version,
            "sha256": hex::encode(rollout.sha256),
            "allowDowngrade": rollout.allow_downgrade,
        });
        let mut commands = Vec::with_capacity(nodes.len());
        for node in nodes {
            let id = CommandId::from_uuid(self.world.uuid());
            if rollouts::begin(tx, rollout.id, node, id).await? {
                commands.push(NewCommand {
                    id,
                    node,
                    idempotency_key: format!("rollout:{}:{node}", rollout.id),
                    kind_digest,
                    payload: payload.clone(),
                    min_generation: None,
                    not_after: now + PATIENCE,
                    is_held: false,
                    batch: None,
                    upload: None,
                    requested_by: NAME.into(),
                });
            }
        }
        let outcomes = queue::enqueue_many(tx, &self.signer, &commands, now).await?;
        let refused = commands.iter().zip(&outcomes).find(|(_, outcome)| !matches!(outcome, Outcome::Queued(_)));
        if let Some((command, outcome)) = refused {
            // Deleted or retired since it was read: nothing of this is written, and the next pass finds out.
            tracing::warn!(rollout = %rollout.id, node = %command.node, ?outcome, "a step was not queued");
            return Err(store::Error::Corrupt {
                table: "rollout_nodes",
                column: "command_id",
                row: command.node.to_string(),
            });
        }
        Ok(commands.into_iter().map(|command| command.node).collect())
    }
}

fn node(member: &Member) -> rules::Node {
    rules::Node {
        id: member.node,
        wave: member.wave,
        step: member.step,
        is_connected: member.is_connected,
        is_taken: member.is_taken,
    }
}
