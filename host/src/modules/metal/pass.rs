//! One look at the workflows that run, and what follows from it.
//!
//! **Invariant:** each transaction takes the module's lock, the node's and the workflow's, in this order, and then reads what it
//! decides on: whichever replica acts, a step's command is queued once.

use bc_proto::batch::Leaf;
use bc_proto::canonical;
use bc_proto::id::{BatchId, CommandId, NodeId};
use bc_proto::rules::state::State;
use bc_proto::rules::workflow::{self as rules, Ended, Meaning, Next, Phase, Standing};
use serde_json::Value;
use sqlx::PgTransaction;
use time::{Duration, OffsetDateTime};

use super::{Error, Module, NAME};
use crate::attestation;
use crate::batches::{self, Created, Proposal};
use crate::bus::Signal;
use crate::faults::crash_at;
use crate::queue;
use crate::queue::cancel::Cancellation;
use crate::queue::enqueue::{NewCommand, Outcome as Queueing};
use crate::queue::hello::REBOOTED;
use crate::store::commands::{self, Command};
use crate::store::workflows::{self, Due, NewTry, Step, Try, Workflow};
use crate::store::{self, corrupt, kinds, nodes, quarantines, specs};

/// The most workflows of one look.
const PAGE: u32 = 500;

/// The most transactions for one workflow in a pass: a step ends, the next begins. What is left is the next pass's.
const MOVES: u32 = 4;

/// What diagnostics are called. Each says of the machine in its result whether it is fit.
const DIAGNOSTICS: &str = "diag.";

/// What a pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// Steps that began.
    pub begun: u64,
    /// Steps that ended.
    pub concluded: u64,
    /// Commands that were called off.
    pub called_off: u64,
    /// Workflows that ended.
    pub ended: u64,
}

/// What became of one workflow in one transaction.
enum Done {
    /// A step began; `true`: its command went out at once.
    Begun(bool),
    /// A step ended.
    Concluded,
    /// A command was called off; `true`: its node has it and must be told.
    CalledOff(bool),
    /// It ended.
    Ended,
    /// There is nothing to do now, or another replica is at it.
    Nothing,
}

impl Module {
    /// Looks at all workflows once. What fails at one is logged and does not keep the others from their turn.
    pub async fn pass(&self) -> Result<Passed, Error> {
        let (mut passed, mut after) = (Passed::default(), None);
        loop {
            let page = {
                let mut db = self.pool.acquire().await?;
                workflows::due(&mut db, after, PAGE).await?
            };
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            for due in &page {
                if let Err(error) = self.go_on(due, &mut passed).await {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(workflow = %due.id, node = %due.node, error, "a workflow does not go on for now");
                }
            }
            if page.len() < PAGE as usize {
                break;
            }
        }
        if passed != Passed::default() {
            self.bus.tell(Signal::Events);
        }
        Ok(passed)
    }

    async fn go_on(&self, due: &Due, passed: &mut Passed) -> Result<(), Error> {
        for _ in 0..MOVES {
            match self.act(due).await? {
                Done::Begun(goes_out) => {
                    passed.begun += 1;
                    if goes_out {
                        self.bus.tell(Signal::Work { node: due.node });
                    }
                    return Ok(());
                }
                Done::Concluded => passed.concluded += 1,
                Done::CalledOff(is_sent) => {
                    passed.called_off += 1;
                    if is_sent {
                        self.bus.tell(Signal::Cancel { node: due.node });
                        return Ok(());
                    }
                }
                Done::Ended => {
                    passed.ended += 1;
                    return Ok(());
                }
                Done::Nothing => return Ok(()),
            }
        }
        Ok(())
    }

    /// Takes one workflow one move further, in a transaction of its own.
    async fn act(&self, due: &Due) -> Result<Done, Error> {
        let now = self.world.now();
        let mut tx = self.pool.begin().await?;
        if !workflows::lock(&mut tx).await? {
            return Ok(Done::Nothing);
        }
        // Nobody reserves a GPU of it, sets it apart or lets it go meanwhile.
        let is_there = specs::lock(&mut tx, due.tenant, due.node).await?;
        workflows::lock_one(&mut tx, due.id).await?;
        let Some(workflow) = workflows::find(&mut tx, due.tenant, due.id).await? else { return Ok(Done::Nothing) };
        let rules = workflow.rules();
        let done = match rules.next() {
            Next::Rest => Done::Nothing,
            Next::Wait(at) | Next::CallOff(at) => {
                let open = workflow.steps[at].newest.filter(|it| it.ended_at.is_none());
                let open = open.ok_or_else(|| corrupt("workflow_steps", "standing", workflow.id))?;
                self.look(&mut tx, &workflow, at, open, now).await?
            }
            Next::Begin(at) if is_there => self.begin(&mut tx, &workflow, at, now).await?,
            Next::Begin(at) => fail(&mut tx, &workflow, at, "node-deleted", now).await?,
            Next::End(standing) => end(&mut tx, &workflow, standing, now).await?,
        };
        if matches!(done, Done::Nothing) {
            return Ok(done);
        }
        crash_at("workflow.before-write");
        tx.commit().await?;
        crash_at("workflow.after-write");
        Ok(done)
    }

    /// Looks at the open step's command: takes note of its end, or calls it off where that is wanted.
    async fn look(
        &self,
        tx: &mut PgTransaction<'_>,
        workflow: &Workflow,
        at: usize,
        open: Try,
        now: OffsetDateTime,
    ) -> Result<Done, Error> {
        let command = commands::find(tx, workflow.tenant, open.command).await?;
        let command = command.ok_or_else(|| corrupt("workflow_tries", "command_id", open.command))?;
        let step = &workflow.steps[at];
        let is_proven = if step.is_attested {
            command.state == State::Succeeded && attestation::of(tx, command.id).await?.is_ok()
        } else {
            is_plainly_said(step, &command)
        };
        let verdict = verdict(step, &command);
        let (meaning, note) = Ended {
            state: command.state,
            reason: &command.reason,
            is_reported: command.reported_at.is_some(),
            is_proven,
            is_destructive: step.is_destructive,
            verdict: verdict.as_deref(),
        }
        .meaning();
        let mut rules = workflow.rules();
        if meaning == Meaning::Open {
            let is_wanted = matches!(rules.next(), Next::CallOff(_)) && command.cancel_requested_at.is_none();
            return if is_wanted { self.call_off(tx, workflow, open, now).await } else { Ok(Done::Nothing) };
        }
        if !rules.conclude(meaning) {
            return Ok(Done::Nothing);
        }
        let reason = note.unwrap_or(&command.reason);
        workflows::end_try(tx, command.id, reason, now).await?;
        let told = Some((command.id, open.batch));
        workflows::set_step(tx, workflow, at, (rules.steps[at], reason), told, now).await?;
        if let Some(batch) = open.batch {
            self.close(tx, workflow, batch, "the step is over", now).await?;
        }
        Ok(Done::Concluded)
    }

    /// Calls the open step's command off. What its node has already, the node ends.
    async fn call_off(
        &self,
        tx: &mut PgTransaction<'_>,
        workflow: &Workflow,
        open: Try,
        now: OffsetDateTime,
    ) -> Result<Done, Error> {
        // The batch first, as whoever decides on it does.
        if let Some(batch) = open.batch {
            store::batches::lock(tx, workflow.tenant, batch).await?;
        }
        match queue::cancel(tx, &self.signer, workflow.tenant, open.command, now).await? {
            Some(Cancellation::Cancelled) => Ok(Done::CalledOff(false)),
            Some(Cancellation::Requested { .. }) => Ok(Done::CalledOff(true)),
            Some(Cancellation::Over(_)) | None => Ok(Done::Nothing),
        }
    }

    /// Nothing more comes under a step's batch, whose command is over: nobody is asked to approve it any longer.
    async fn close(
        &self,
        tx: &mut PgTransaction<'_>,
        workflow: &Workflow,
        batch: BatchId,
        why: &str,
        now: OffsetDateTime,
    ) -> Result<(), Error> {
        let found = store::batches::lock(tx, workflow.tenant, batch).await?;
        let is_open = found
            .is_some_and(|it| it.state == store::batches::State::Open && it.closed_at.is_none() && now < it.expires_at);
        if is_open && self.pki.approvers.is_some() {
            batches::reject(tx, workflow.tenant, batch, NAME, why, now).await?;
        }
        Ok(())
    }

    /// Begins a step: its batch, its row, and last its command.
    async fn begin(
        &self,
        tx: &mut PgTransaction<'_>,
        workflow: &Workflow,
        at: usize,
        now: OffsetDateTime,
    ) -> Result<Done, Error> {
        let step = &workflow.steps[at];
        let node = nodes::find(tx, workflow.tenant, workflow.node).await?;
        let Some(node) = node else { return fail(tx, workflow, at, "node-deleted", now).await };
        if step.is_destructive {
            if node.incarnation != workflow.incarnation {
                return fail(tx, workflow, at, "node-replaced", now).await;
            }
            // Somebody let the node go: it may be in use again.
            if quarantines::find(tx, workflow.node).await?.is_none() {
                return fail(tx, workflow, at, "not-quarantined", now).await;
            }
            // What was queued before the node was set apart ends first, at the latest by its deadline.
            if commands::has_destructive(tx, workflow.node).await? {
                return Ok(Done::Nothing);
            }
        }
        match kinds::find(tx, None, Some(step.digest)).await? {
            Some(kind) if kind.status != "withdrawn" => {}
            _ => return fail(tx, workflow, at, "kind-withdrawn", now).await,
        }
        let number = workflows::next_number(tx, workflow.node, &step.kind).await?;
        let key = key(workflow, step, number);
        let payload: Value =
            serde_json::from_slice(&step.payload).map_err(|_| corrupt("workflow_steps", "payload", workflow.id))?;
        let mut not_after = now + Duration::seconds(i64::from(step.deadline_seconds));
        let mut batch = None;
        if step.is_destructive {
            let made = batches::create(tx, &self.proposal(workflow, step, &key), now).await?;
            let Created::New(made) = made else { return Err(Error::Taken { workflow: workflow.id, key }) };
            not_after = made.expires_at;
            batch = Some(made.document.batch_id);
        }
        // The node has what the spec says now before it is changed beneath it.
        let newest = if step.is_destructive { specs::newest(tx, workflow.node).await? } else { None };
        let command = CommandId::from_uuid(self.world.uuid());
        workflows::insert_try(tx, workflow, at, NewTry { command, number, batch }, now).await?;
        let mut rules = workflow.rules();
        rules.begin();
        workflows::set_step(tx, workflow, at, (rules.steps[at], ""), Some((command, batch)), now).await?;
        let new = NewCommand {
            id: command,
            node: workflow.node,
            idempotency_key: key.clone(),
            kind_digest: step.digest,
            payload,
            min_generation: newest.map(|spec| spec.generation),
            not_after,
            is_held: false,
            batch,
            // No step uploads anything.
            upload: None,
            requested_by: NAME.into(),
        };
        let queued = batches::enqueue(tx, &self.pki, &self.signer, vec![new], now).await?;
        match queued.first() {
            Some(Queueing::Queued(_)) => Ok(Done::Begun(batch.is_none() || self.pki.approvers.is_none())),
            // Deleted, or withdrawn, since it was read: the next look finds that.
            Some(Queueing::UnknownNode | Queueing::UnknownKind) | None => Ok(Done::Nothing),
            Some(Queueing::Existing(_) | Queueing::Conflict(_)) => Err(Error::Taken { workflow: workflow.id, key }),
        }
    }

    /// A batch of one leaf: this node, this kind, this payload. Whoever began the workflow asks for it, and cannot approve it.
    fn proposal(&self, workflow: &Workflow, step: &Step, key: &str) -> Proposal {
        let reason = format!("{}, step {}: {}", workflow.id, step.name(), workflow.reason);
        let leaf = Leaf {
            subject: workflow.node.to_string(),
            kind: step.kind.clone(),
            payload_sha256: Some(canonical::sha256_hex(&step.payload)),
        };
        Proposal {
            id: BatchId::from_uuid(self.world.uuid()),
            tenant: workflow.tenant,
            requested_by: workflow.requested_by.clone(),
            idempotency_key: key.to_owned(),
            // As much as the API takes of others.
            reason: reason.chars().take(1_000).collect(),
            scope: vec![leaf],
            lasts: Duration::seconds(i64::from(step.deadline_seconds)),
        }
    }
}

/// What finds the step's command again: it names the workflow that it wakes, or the node and the diagnostic.
fn key(workflow: &Workflow, step: &Step, number: u32) -> String {
    let (id, node): (_, NodeId) = (workflow.id, workflow.node);
    match (Phase::of(&step.kind), step.commands) {
        (Phase::Acceptance, _) => format!("acceptance:{node}:{number}:{}", step.kind),
        (_, 0) => format!("wf:{id}:{}", step.name()),
        (_, before) => format!("wf:{id}:{}.{}", step.name(), before + 1),
    }
}

/// A step fails before it has a command.
async fn fail(
    tx: &mut PgTransaction<'_>,
    workflow: &Workflow,
    at: usize,
    reason: &str,
    now: OffsetDateTime,
) -> Result<Done, Error> {
    let mut rules = workflow.rules();
    rules.begin();
    rules.conclude(Meaning::Failed);
    workflows::set_step(tx, workflow, at, (rules.steps[at], reason), None, now).await?;
    Ok(Done::Concluded)
}

/// It ends, and where all is well the node that it set apart is let go.
async fn end(
    tx: &mut PgTransaction<'_>,
    workflow: &Workflow,
    standing: Standing,
    now: OffsetDateTime,
) -> Result<Done, Error> {
    let stopped = workflow.steps.iter().find(|it| it.standing != rules::StepStanding::Succeeded);
    let why = match stopped.filter(|_| standing != Standing::Cancelled) {
        Some(step) => format!("{}: {}", step.name(), step.reason),
        None => String::new(),
    };
    workflows::end(tx, workflow.id, standing, &why, now).await?;
    if standing == Standing::Succeeded && rules::releases(&workflow.rules().steps, workflow.keeps_quarantine) {
        quarantines::release(tx, (workflow.tenant, workflow.node), Some(workflow.id), NAME, now).await?;
    }
    Ok(Done::Ended)
}

/// Whether an end of a kind that signs nothing is the node's own word: it reported it, or came back from the boot that it was to
/// bring about.
fn is_plainly_said(step: &Step, command: &Command) -> bool {
    command.reported_at.is_some() || (step.is_self_terminating && command.result.as_deref() == Some(REBOOTED))
}

/// What a diagnostic says of the machine; what it does not say is not known. `None` for kinds that judge nothing.
fn verdict(step: &Step, command: &Command) -> Option<String> {
    if !step.kind.starts_with(DIAGNOSTICS) {
        return None;
    }
    let result = command.result.as_deref().and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    let said = result.as_ref().and_then(|result| result["status"].as_str()).unwrap_or_default();
    Some(said.to_owned())
}
