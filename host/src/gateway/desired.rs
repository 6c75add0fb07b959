//! Desired state on sessions: specs go out as they were stored, and what nodes say of them comes in.
//!
//! Nothing is decided or signed here of what a node should be: a gateway relays bytes. What nodes say is written in batches, one
//! statement for each sort.
//!
//! **Invariant:** a spec is sent once on a session, unless the node asks for it; and what a node says changes nothing but through
//! the session that counts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bc_proto::wire::{self, Bound, v1};
use prost::Message as _;
use sqlx::PgConnection;
use tokio::sync::mpsc;

use super::Inner;
use super::sessions::Session;
use crate::bus::Signal;
use crate::desired::bound::{self, Verdict};
use crate::store::conditions::{self, Report};
use crate::store::reservations::{self, Asked, Binding, Refusal};
use crate::store::specs::{self, Applied, Spec};
use crate::store::{Error, corrupt};

/// The most that is written at once, and how much may wait before sessions are not read any more.
pub(super) const BATCH: usize = 512;

/// The waits before a batch is tried again. After the last one it is dropped: the nodes' next sessions say it again.
const RETRIES: [Duration; 3] = [Duration::from_millis(50), Duration::from_secs(1), Duration::from_secs(3)];

/// What a node said of its desired state.
pub(super) struct Said {
    session: Arc<Session>,
    what: What,
}

pub(super) enum What {
    Applied(u64),
    Bound(v1::AllocationBound),
    Conditions(Vec<wire::Condition>),
}

/// Hands over what a node said. Waits while much is to be written, which keeps the node from sending more.
pub(super) async fn take(gateway: &Inner, session: &Arc<Session>, what: What) {
    // Without the writer the gateway ends, and the node says it to another one.
    let _ = gateway.said.send(Said { session: session.clone(), what }).await;
}

/// Sends the newest specs of sessions that do not have them: one statement for all of them.
pub(super) async fn look(db: &mut PgConnection, sessions: &[Arc<Session>]) -> Result<(), Error> {
    let than: Vec<_> = sessions.iter().map(|session| (session.node, session.spec())).collect();
    let mut newer: HashMap<_, Spec> =
        specs::newer(db, &than).await?.into_iter().map(|spec| (spec.node, spec)).collect();
    for session in sessions {
        if let Some(spec) = newer.remove(&session.node)
            && session.has_spec(spec.generation)
        {
            session.send(frame(spec));
        }
    }
    Ok(())
}

/// A spec on its way.
pub(super) fn frame(spec: Spec) -> v1::to_node::Frame {
    let signature = spec.signature.and_then(|bytes| {
        let decoded = v1::WorkerSignature::decode(&*bytes);
        // Without it a node that trusts roots refuses the spec, and says so.
        decoded.inspect_err(|_| log(&corrupt("node_specs", "signature", spec.node))).ok()
    });
    v1::to_node::Frame::Spec(v1::Spec { document: spec.document, signature })
}

fn log(error: &Error) {
    tracing::error!(error = error as &dyn std::error::Error, "what nodes say of their state cannot be written or read");
}

/// Writes what comes.
pub(super) async fn run(gateway: Arc<Inner>, mut said: mpsc::Receiver<Said>) {
    let mut gathered = Vec::new();
    while said.recv_many(&mut gathered, BATCH).await > 0 {
        let batch = Batch::of(std::mem::take(&mut gathered));
        for wait in RETRIES.iter().map(Some).chain([None]) {
            match batch.write(&gateway).await {
                Ok(changed) => {
                    if changed > 0 {
                        gateway.bus.tell(Signal::Events);
                    }
                    break;
                }
                Err(error) => log(&error),
            }
            match wait {
                Some(wait) => tokio::time::sleep(*wait).await,
                None => batch.close(),
            }
        }
    }
}

/// A batch, by what it takes to write it.
#[derive(Default)]
struct Batch {
    sessions: Vec<Arc<Session>>,
    applied: Vec<Applied>,
    bound: Vec<(Arc<Session>, Result<Bound, String>)>,
    conditions: Vec<Report>,
}

impl Batch {
    fn of(said: Vec<Said>) -> Self {
        let mut batch = Self::default();
        // The last word of each node counts.
        let mut conditions: HashMap<_, Report> = HashMap::new();
        for Said { session, what } in said {
            let (node, epoch) = (session.node, session.epoch);
            match what {
                What::Applied(generation) => batch.applied.push(Applied { node, epoch, generation }),
                What::Bound(bound) => {
                    let bound = Bound::try_from(bound).map_err(|invalid| invalid.to_string());
                    batch.bound.push((session.clone(), bound));
                }
                What::Conditions(said) => {
                    let is_newer = conditions.get(&node).is_none_or(|present| present.epoch <= epoch);
                    if is_newer {
                        conditions.insert(node, Report { node, epoch, conditions: said });
                    }
                }
            }
            batch.sessions.push(session);
        }
        batch.conditions = conditions.into_values().collect();
        batch
    }

    /// Each statement commits by itself, and all of them may be written again.
    async fn write(&self, gateway: &Inner) -> Result<u64, Error> {
        let mut db = gateway.pool.acquire().await?;
        let now = gateway.world.now();
        let mut changed = 0;
        if !self.applied.is_empty() {
            changed += specs::applied(&mut db, &self.applied, now).await?;
        }
        if !self.bound.is_empty() {
            let ids: Vec<_> =
                self.bound.iter().filter_map(|(_, it)| it.as_ref().ok()).map(|it| it.body.allocation).collect();
            let asked = reservations::asked(&mut db, &ids).await?;
            let (bindings, refusals) = judge(&self.bound, &asked);
            if !bindings.is_empty() {
                changed += reservations::activate(&mut db, &bindings, now).await?;
            }
            if !refusals.is_empty() {
                changed += reservations::refuse(&mut db, &refusals, now).await?;
            }
        }
        if !self.conditions.is_empty() {
            changed += conditions::replace(&mut db, &self.conditions, now).await?;
        }
        Ok(changed)
    }

    fn close(&self) {
        for session in &self.sessions {
            session
                .close(tonic::Status::unavailable("what you say of your state cannot be stored for now; say it again"));
        }
    }
}

/// What of these bindings is to be believed, and what is not; each node and allocation once.
fn judge(said: &[(Arc<Session>, Result<Bound, String>)], asked: &[Asked]) -> (Vec<Binding>, Vec<Refusal>) {
    let asked: HashMap<_, &Asked> = asked.iter().map(|asked| (asked.id, asked)).collect();
    let (mut bindings, mut refusals) = (Vec::new(), Vec::new());
    let (mut bound_once, mut refused_once) = (HashSet::new(), HashSet::new());
    for (session, said) in said {
        let (node, epoch) = (session.node, session.epoch);
        let allocation = said.as_ref().ok().map(|bound| bound.body.allocation);
        let why = match said {
            Err(invalid) => invalid.clone(),
            Ok(bound) => match bound::judge(node, bound, asked.get(&bound.body.allocation).copied()) {
                Ok(Verdict::Known | Verdict::Late) => continue,
                Ok(Verdict::Activate) => {
                    if bound_once.insert(bound.body.allocation) {
                        bindings.push(Binding {
                            id: bound.body.allocation,
                            node,
                            incarnation: bound.body.incarnation,
                            epoch,
                            body: bound.bytes.clone(),
                            signature: bound.signature.as_bytes().to_vec(),
                        });
                    }
                    continue;
                }
                Err(refused) => refused.to_string(),
            },
        };
        tracing::warn!(%node, epoch, why, "a binding is not believed");
        if refused_once.insert((node, allocation)) {
            refusals.push(Refusal { node, epoch, allocation, why });
        }
    }
    (bindings, refusals)
}
