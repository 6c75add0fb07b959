//! One look at the fleet, and what follows from it.
//!
//! **Invariant:** every transaction that writes takes the module's lock first. What it writes it decides on what it read after
//! that, so two replicas that look at the same time act once.

use bc_proto::batch::Leaf;
use bc_proto::canonical;
use bc_proto::id::{BatchId, CommandId, NodeId, TenantId};
use bc_proto::rules::remediation::{Ailment, Outcome};
use serde_json::{Value, json};
use sqlx::{PgConnection, PgTransaction};
use time::{Duration, OffsetDateTime};

use super::case::{Case, Next, SETTLES_MS};
use super::{Error, Module, NAME};
use crate::attestation;
use crate::batches::{self, Created, Proposal};
use crate::bus::Signal;
use crate::faults::crash_at;
use crate::queue;
use crate::queue::cancel::Cancellation;
use crate::queue::enqueue::{NewCommand, Outcome as Queueing};
use crate::queue::hello::REBOOTED;
use crate::store::remediations::{self, Attempt, Fleet, Over, Patient, Standing};
use crate::store::{self, kinds::Digest, specs, unix_ms};

/// The most nodes of one look.
const PAGE: u32 = 500;

/// The most ends of attempts in one transaction.
const ENDS: u32 = 500;

/// How long a command may wait for its node.
const PATIENCE: Duration = Duration::hours(1);

/// How long it may wait for people, where they have to approve.
const PATIENCE_FOR_PEOPLE: Duration = Duration::hours(24);

/// What a pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// Attempts that ended.
    pub ended: u64,
    /// Attempts that began.
    pub begun: u64,
    /// Attempts that were called off.
    pub withdrawn: u64,
    /// New reasons to leave a node alone.
    pub held: u64,
}

/// What became of the wish to act on a node.
enum Done {
    /// It was done; `true`: its command went out at once.
    Begun { ailment: Ailment, goes_out: bool },
    /// It was called off.
    Withdrawn,
    /// It is to be left alone: things have changed since the look.
    Held(Ailment, String),
    /// There is nothing to do any more, or another replica is at it.
    Nothing,
}

impl Module {
    /// Looks at everything once. What fails at one node is logged and does not keep the others from their turn.
    pub async fn pass(&self) -> Result<Passed, Error> {
        let mut passed = Passed { ended: self.conclude().await?, ..Passed::default() };
        let (mut fleet, mut after) = (None, None);
        loop {
            let now = self.world.now();
            let mut db = self.pool.acquire().await?;
            let page = remediations::patients(&mut db, None, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.node);
            let attempts = self.attempts(&mut db, &page, now).await?;
            if fleet.is_none() {
                fleet = Some(self.fleet(&mut db, now).await?);
            }
            drop(db);
            let fleet = fleet.as_mut().expect("it was read");
            let mut notes = Vec::new();
            for patient in &page {
                let note = self.treat(patient, &attempts, fleet, now, &mut passed).await;
                notes.extend((note != patient.hold).then_some((patient.node, note)));
            }
            passed.held += self.note(&notes, now).await?;
            if page.len() < PAGE as usize {
                break;
            }
        }
        if passed != Passed::default() {
            self.bus.tell(Signal::Events);
        }
        Ok(passed)
    }

    /// Does what is to be done with one node. Answers why it is left alone now, if it is.
    async fn treat(
        &self,
        patient: &Patient,
        attempts: &[Attempt],
        fleet: &mut Fleet,
        now: OffsetDateTime,
        passed: &mut Passed,
    ) -> Option<(Ailment, String)> {
        let case = case(patient, attempts);
        match case.next(fleet, &self.limits, unix_ms(now)) {
            Next::Rest => return None,
            Next::Hold(ailment, why) => return Some((ailment, why)),
            Next::Act { .. } | Next::Withdraw(..) => {}
        }
        let done = match self.act(patient.tenant, patient.node).await {
            Ok(done) => done,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(node = %patient.node, error, "a node is not mended for now");
                return patient.hold.clone();
            }
        };
        match done {
            Done::Begun { ailment, goes_out } => {
                passed.begun += 1;
                // As the next look would count it.
                if !case.attempts.iter().any(|it| it.started_at > self.breaker_since(now)) {
                    fleet.attempted = fleet.attempted.saturating_add(1);
                }
                if ailment == Ailment::RebootRequired {
                    *fleet.away.entry((patient.tenant, patient.pool.clone())).or_default() += 1;
                }
                if goes_out {
                    self.bus.tell(Signal::Work { node: patient.node });
                }
                None
            }
            Done::Withdrawn => {
                passed.withdrawn += 1;
                None
            }
            Done::Held(ailment, why) => Some((ailment, why)),
            Done::Nothing => patient.hold.clone(),
        }
    }

    /// Acts on one node, in a transaction of its own: looks and decides again, under the module's lock and the node's, and writes
    /// what follows.
    async fn act(&self, tenant: TenantId, node: NodeId) -> Result<Done, Error> {
        let now = self.world.now();
        let mut tx = self.pool.begin().await?;
        if !remediations::lock(&mut tx).await? {
            return Ok(Done::Nothing);
        }
        // Nobody reserves a GPU of it meanwhile.
        if !specs::lock(&mut tx, tenant, node).await? {
            return Ok(Done::Nothing);
        }
        let Some(patient) = remediations::patients(&mut tx, Some(node), None, 1).await?.pop() else {
            return Ok(Done::Nothing);
        };
        let attempts = self.attempts(&mut tx, std::slice::from_ref(&patient), now).await?;
        let fleet = self.fleet(&mut tx, now).await?;
        let done = match case(&patient, &attempts).next(&fleet, &self.limits, unix_ms(now)) {
            Next::Rest => return Ok(Done::Nothing),
            Next::Hold(ailment, why) => return Ok(Done::Held(ailment, why)),
            Next::Act { ailment, gpus, digest } => self.begin(&mut tx, &patient, (ailment, gpus), digest, now).await?,
            Next::Withdraw(attempt, why) => self.withdraw(&mut tx, &attempt, why, now).await?,
        };
        if matches!(done, Done::Nothing) {
            return Ok(done);
        }
        crash_at("remediation.before-write");
        tx.commit().await?;
        crash_at("remediation.after-write");
        Ok(done)
    }

    /// Begins an attempt: its row, a batch of one leaf, and the command in it.
    async fn begin(
        &self,
        tx: &mut PgTransaction<'_>,
        patient: &Patient,
        (ailment, gpus): (Ailment, Vec<String>),
        digest: Digest,
        now: OffsetDateTime,
    ) -> Result<Done, Error> {
        let (node, tenant) = (patient.node, patient.tenant);
        let number = remediations::next_number(tx, node, ailment).await?;
        let taken = || Error::Taken { node, ailment, number };
        let key = format!("remediation:{node}:{ailment}:{number}");
        let payload = payload(ailment, &gpus);
        let bytes = canonical::to_vec(&payload).expect("text is JSON");
        let leaf = Leaf {
            subject: node.to_string(),
            kind: ailment.kind().into(),
            payload_sha256: Some(canonical::sha256_hex(&bytes)),
        };
        let lasts = if self.pki.approvers.is_some() { PATIENCE_FOR_PEOPLE } else { PATIENCE };
        let proposal = Proposal {
            id: BatchId::from_uuid(self.world.uuid()),
            tenant,
            requested_by: NAME.into(),
            idempotency_key: key.clone(),
            reason: reason(ailment, &gpus, number),
            scope: vec![leaf],
            lasts,
        };
        let Created::New(batch) = batches::create(tx, &proposal, now).await? else { return Err(taken()) };
        let attempt = Attempt {
            command: CommandId::from_uuid(self.world.uuid()),
            tenant,
            node,
            ailment,
            number,
            gpus,
            batch: batch.document.batch_id,
            standing: Standing::Pending,
            reason: String::new(),
            started_at: now,
            ended_at: None,
            cleared: None,
            is_unsent: true,
        };
        remediations::insert(tx, &attempt).await?;
        let command = NewCommand {
            id: attempt.command,
            node,
            idempotency_key: key,
            kind_digest: digest,
            payload,
            // The node looks at its holds itself, once it has them as they are now.
            min_generation: patient.generation,
            not_after: batch.expires_at,
            is_held: false,
            batch: Some(attempt.batch),
            requested_by: NAME.into(),
            upload: None,
        };
        let queued = batches::enqueue(tx, &self.pki, &self.signer, vec![command], now).await?;
        match queued.first() {
            Some(Queueing::Queued(_)) => Ok(Done::Begun { ailment, goes_out: self.pki.approvers.is_none() }),
            // Deleted, or retired, since it was read: the next look finds that.
            Some(Queueing::UnknownNode | Queueing::UnknownKind) | None => Ok(Done::Nothing),
            Some(Queueing::Existing(_) | Queueing::Conflict(_)) => Err(taken()),
        }
    }

    /// Calls an attempt off whose command was not sent yet, and ends its batch.
    async fn withdraw(
        &self,
        tx: &mut PgTransaction<'_>,
        attempt: &Attempt,
        why: &str,
        now: OffsetDateTime,
    ) -> Result<Done, Error> {
        // The batch first, as whoever decides on it does.
        let batch = store::batches::lock(tx, attempt.tenant, attempt.batch).await?;
        let cancelled = queue::cancel(tx, &self.signer, attempt.tenant, attempt.command, now).await?;
        if cancelled != Some(Cancellation::Cancelled) {
            // It was sent or over meanwhile. Nothing of this stays.
            return Ok(Done::Nothing);
        }
        if batch.is_some_and(|batch| batch.closed_at.is_none() && now < batch.expires_at) {
            batches::reject(tx, attempt.tenant, attempt.batch, NAME, &format!("withdrawn: {why}"), now).await?;
        }
        remediations::end(tx, &[(attempt.command, Standing::Withdrawn, why.to_owned())], now).await?;
        Ok(Done::Withdrawn)
    }

    /// Gives attempts whose commands are over their outcomes; returns how many.
    async fn conclude(&self) -> Result<u64, Error> {
        let mut all = 0;
        loop {
            let now = self.world.now();
            let mut db = self.pool.acquire().await?;
            if remediations::over(&mut db, 1).await?.is_empty() {
                return Ok(all);
            }
            drop(db);
            let mut tx = self.pool.begin().await?;
            if !remediations::lock(&mut tx).await? {
                return Ok(all);
            }
            let over = remediations::over(&mut tx, ENDS).await?;
            let attested: Vec<CommandId> = over.iter().filter(|it| it.is_attested).map(|it| it.command).collect();
            let attested = attestation::of_many(&mut tx, &attested).await?;
            let ended: Vec<_> = over
                .into_iter()
                .map(|it| {
                    let is_proven =
                        if it.is_attested { attested.contains_key(&it.command) } else { is_plainly_said(&it) };
                    let reason = reason_of(&it);
                    let outcome = Outcome::of(it.state, &reason, is_proven);
                    (it.command, Standing::from(outcome), reason)
                })
                .collect();
            let ends = remediations::end(&mut tx, &ended, now).await?;
            tx.commit().await?;
            all += ends;
            if ended.len() < ENDS as usize {
                return Ok(all);
            }
        }
    }

    /// Notes why nodes are left alone; returns how many reasons are new.
    async fn note(&self, notes: &[(NodeId, Option<(Ailment, String)>)], now: OffsetDateTime) -> Result<u64, Error> {
        if notes.is_empty() {
            return Ok(0);
        }
        let mut tx = self.pool.begin().await?;
        if !remediations::lock(&mut tx).await? {
            return Ok(0);
        }
        let held = remediations::note(&mut tx, notes, now).await?;
        tx.commit().await?;
        Ok(held)
    }

    async fn attempts(
        &self,
        db: &mut PgConnection,
        patients: &[Patient],
        now: OffsetDateTime,
    ) -> Result<Vec<Attempt>, Error> {
        let nodes: Vec<NodeId> = patients.iter().map(|it| it.node).collect();
        let window = self.limits.attempt_window_ms.max(self.limits.breaker_window_ms).max(SETTLES_MS);
        Ok(remediations::counting(db, &nodes, remediations::before(now, window)).await?)
    }

    async fn fleet(&self, db: &mut PgConnection, now: OffsetDateTime) -> Result<Fleet, Error> {
        let kinds = [Ailment::RowRemapPending, Ailment::RebootRequired].map(|it| it.kind().to_owned());
        Ok(remediations::fleet(db, &kinds, self.breaker_since(now)).await?)
    }

    fn breaker_since(&self, now: OffsetDateTime) -> OffsetDateTime {
        remediations::before(now, self.limits.breaker_window_ms)
    }
}

fn case<'a>(patient: &'a Patient, attempts: &'a [Attempt]) -> Case<'a> {
    Case { patient, attempts: attempts.iter().filter(|it| it.node == patient.node).collect() }
}

/// Whether an end of a kind that signs nothing is the node's own word: it reported it, or came back from the boot that it was to
/// bring about.
fn is_plainly_said(over: &Over) -> bool {
    over.is_reported || (over.is_self_terminating && over.result == REBOOTED)
}

/// Why it ended: the kind's own code where it refused because somebody uses a GPU, since it has done nothing then. Whatever else a
/// kind says of its failure leaves open what it did before.
fn reason_of(over: &Over) -> String {
    let failure =
        (over.reason == "guest-failure").then(|| serde_json::from_slice::<Value>(&over.result).ok()).flatten();
    let code = failure.as_ref().and_then(|failure| failure["code"].as_str());
    code.filter(|code| *code == "gpu-busy").unwrap_or(&over.reason).to_owned()
}

fn payload(ailment: Ailment, gpus: &[String]) -> Value {
    match ailment {
        Ailment::RowRemapPending => json!({ "gpus": gpus }),
        Ailment::RebootRequired => json!({}),
    }
}

/// What whoever approves the batch reads.
fn reason(ailment: Ailment, gpus: &[String], number: u32) -> String {
    let what = match ailment {
        Ailment::RowRemapPending => format!("rows of {} wait for a reset", gpus.join(", ")),
        Ailment::RebootRequired => "settings of the host wait for a boot".to_owned(),
    };
    let full = format!("{ailment}: {what}; attempt {number}");
    // As much as the API takes of others.
    full.chars().take(1_000).collect()
}

#[cfg(test)]
mod tests {
    use bc_proto::manifest::Manifest;
    use bc_proto::rules::state::State;
    use bc_proto::schema::Schema;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_it_sends_fits_the_kind_that_mends() {
        let manifest =
            Manifest::from_toml(include_str!("../../../../plugins/gpu-reset/kind.toml")).expect("a manifest");
        assert_eq!(manifest.name, Ailment::RowRemapPending.kind());
        let schema = Schema::compile(&manifest.payload).expect("a schema");
        let gpus = ["GPU-51d00000-0000-4000-8000-000000000001".to_owned()];
        assert_eq!(schema.problems(&payload(Ailment::RowRemapPending, &gpus)), []);
        assert_ne!(schema.problems(&payload(Ailment::RowRemapPending, &[])), [], "none would be all of them");
    }

    #[test]
    fn a_refusal_because_of_use_is_told_from_other_failures_of_the_kind() {
        let over = |reason: &str, result: &str| Over {
            command: CommandId::from_uuid(Uuid::nil()),
            state: State::Failed,
            reason: reason.into(),
            result: result.into(),
            is_reported: true,
            is_attested: true,
            is_self_terminating: false,
        };
        for (reason, result, expected) in [
            ("guest-failure", r#"{"outcome":"guest-failure","code":"gpu-busy"}"#, "gpu-busy"),
            ("guest-failure", r#"{"outcome":"guest-failure","code":"could-not-be-known"}"#, "guest-failure"),
            ("guest-failure", "{", "guest-failure"),
            ("deadline", r#"{"code":"gpu-busy"}"#, "deadline"),
        ] {
            assert_eq!(reason_of(&over(reason, result)), expected, "{reason} {result}");
        }
    }
}
