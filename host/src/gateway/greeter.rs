//! Hellos of all nodes, in batches: a storm of ten thousand costs a few dozen transactions.
//!
//! **Invariant:** a session opens only with a certificate that is recorded, not revoked and of the node's present life.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bc_proto::wire::{Hello, SESSION_EPOCH};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use super::{Caller, Inner, away};
use crate::bus::Signal;
use crate::faults::crash_at;
use crate::queue;
use crate::queue::hello::{Greeted, Greeting, Session};
use crate::store::specs::{self, Spec};
use crate::store::{Error, node_certificates};

/// The most hellos in one transaction: it holds locks on as many nodes.
const BATCH: usize = 512;

/// A node at the door.
pub(super) struct Knock {
    pub(super) caller: Caller,
    pub(super) hello: Hello,
    pub(super) reply: oneshot::Sender<Result<Entered, Status>>,
}

/// A node that was let in.
pub(super) struct Entered {
    pub(super) session: Session,
    /// The only kinds that its certificate allows.
    pub(super) allowed_kinds: Option<Vec<String>>,
    /// Its newest spec, if that is newer than the one that it has.
    pub(super) spec: Option<Spec>,
}

/// Answers knocks. What gathers while one batch is written is the next.
pub(super) async fn run(gateway: Arc<Inner>, mut knocks: mpsc::Receiver<Knock>) {
    let mut waiting = Vec::new();
    loop {
        if waiting.is_empty() && knocks.recv_many(&mut waiting, BATCH).await == 0 {
            return;
        }
        while waiting.len() < BATCH
            && let Ok(knock) = knocks.try_recv()
        {
            waiting.push(knock);
        }
        // Of two hellos of one node the second is a session after the first.
        let mut nodes = HashSet::new();
        let (batch, later): (Vec<Knock>, Vec<Knock>) =
            waiting.drain(..).partition(|knock| nodes.insert(knock.caller.peer.node));
        waiting = later;
        answer(&gateway, batch).await;
    }
}

async fn answer(gateway: &Inner, batch: Vec<Knock>) {
    match greet(gateway, &batch).await {
        Ok(answers) => {
            for (knock, answer) in batch.into_iter().zip(answers) {
                // Whoever gave up meanwhile is replayed at the next hello.
                let _ = knock.reply.send(answer);
            }
        }
        // Something about one of them: the rest must not suffer for it.
        Err(Error::Database(sqlx::Error::Database(_)) | Error::Corrupt { .. }) if batch.len() > 1 => {
            for knock in batch {
                let answer = match greet(gateway, std::slice::from_ref(&knock)).await {
                    Ok(answers) => answers.into_iter().next().unwrap_or_else(|| Err(Status::internal("no answer"))),
                    Err(error) => Err(away(&error)),
                };
                let _ = knock.reply.send(answer);
            }
        }
        Err(error) => {
            let status = away(&error);
            for knock in batch {
                let _ = knock.reply.send(Err(status.clone()));
            }
        }
    }
}

async fn greet(gateway: &Inner, batch: &[Knock]) -> Result<Vec<Result<Entered, Status>>, Error> {
    let mut tx = gateway.pool.begin().await?;
    let fingerprints: Vec<_> = batch.iter().map(|knock| knock.caller.fingerprint).collect();
    let mut certificates = node_certificates::find_many(&mut tx, &fingerprints).await?;
    let greetings: Vec<Result<Greeting, Status>> = batch.iter().map(|knock| check(knock, &certificates)).collect();
    let good: Vec<Greeting> = greetings.iter().filter_map(|it| it.as_ref().ok()).cloned().collect();
    let sessions = queue::hello_many(&mut tx, &gateway.settings.replica, &good, gateway.world.now()).await?;
    gateway.bundles.read(&mut tx).await?;
    let than: Vec<_> = good.iter().map(|it| (it.node, it.generation)).collect();
    let specs = specs::newer(&mut tx, &than).await?;
    let mut specs: HashMap<_, Spec> = specs.into_iter().map(|spec| (spec.node, spec)).collect();
    crash_at("hello.before-write");
    tx.commit().await?;
    crash_at("hello.after-write");
    if sessions.iter().any(|it| matches!(it, Greeted::Open(session) if session.settled > 0)) {
        gateway.bus.tell(Signal::Events);
    }
    let mut sessions = sessions.into_iter();
    let answers = batch.iter().zip(greetings).map(|(knock, greeting)| {
        greeting?;
        let session = match sessions.next() {
            Some(Greeted::Open(session)) => session,
            Some(Greeted::Overtaken(epoch)) => return Err(overtaken(epoch)),
            Some(Greeted::Unknown) | None => return Err(unknown()),
        };
        let certificate = certificates.remove(&knock.caller.fingerprint);
        let allowed_kinds = certificate.and_then(|it| it.allowed_kinds);
        Ok(Entered { session, allowed_kinds, spec: specs.remove(&knock.caller.peer.node) })
    });
    Ok(answers.collect())
}

fn overtaken(epoch: u64) -> Status {
    let mut status = Status::failed_precondition("the node has had another session since; say Hello again");
    status.metadata_mut().insert(SESSION_EPOCH, epoch.into());
    status
}

fn unknown() -> Status {
    Status::unauthenticated(
        "this certificate opens no session: it was revoked, or its node was deleted or enrolled again; join again",
    )
}

fn check(
    knock: &Knock,
    certificates: &HashMap<node_certificates::Fingerprint, node_certificates::Certificate>,
) -> Result<Greeting, Status> {
    let (peer, hello) = (knock.caller.peer, &knock.hello);
    let certificate = certificates.get(&knock.caller.fingerprint).ok_or_else(unknown)?;
    if (certificate.node, certificate.incarnation) != (peer.node, peer.incarnation) {
        return Err(unknown());
    }
    if hello.incarnation != peer.incarnation {
        return Err(Status::unauthenticated("Hello.incarnation is not the one that the certificate was issued for"));
    }
    let texts = hello.kinds.iter().map(|kind| &kind.name).chain([&hello.boot]);
    if texts.into_iter().any(|text| text.contains('\0')) {
        return Err(Status::invalid_argument("Hello: no text may contain NUL"));
    }
    Ok(Greeting {
        node: peer.node,
        incarnation: peer.incarnation,
        journal: hello.journal,
        boot: hello.boot.clone(),
        role: hello.role,
        generation: hello.generation,
        bcd_version: hello.bcd_version.to_string(),
        host_abi: hello.host_abi.to_string(),
        kinds: hello.kinds.clone(),
        last_epoch: hello.last_epoch,
    })
}
