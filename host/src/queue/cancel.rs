//! Calling a command off, in the caller's transaction.
//!
//! **Invariant:** a command that is cancelled while it waits never runs; one that a node has keeps its state until the node
//! says what became of it.

use bc_proto::id::{CommandId, NodeId, TenantId};
use bc_proto::rules::state::{Event, State};
use bc_proto::sign::body::CancelBody;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::settle::{self, Settlement};
use crate::store::{Error, code, commands, corrupt, worker_keys};
use crate::trust::Signer;

/// How often a command that moves between reading and writing is looked at again. It moves at most from ready to in flight,
/// back, and to its end, in this time.
const ATTEMPTS: u32 = 5;

/// What became of the wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancellation {
    /// It was pending and is cancelled.
    Cancelled,
    /// The node has it and must be told: it stands so far in this state.
    Requested {
        /// The node to tell.
        node: NodeId,
        /// Where it stands.
        state: State,
    },
    /// It was over; this is how it ended.
    Over(State),
}

/// Calls a command off. `None`: the tenant has no such command. Asking again changes nothing and says the same.
pub async fn cancel(
    db: &mut PgConnection,
    signer: &Signer,
    tenant: TenantId,
    command: CommandId,
    now: OffsetDateTime,
) -> Result<Option<Cancellation>, Error> {
    for _ in 0..ATTEMPTS {
        let Some(found) = commands::find(&mut *db, tenant, command).await? else {
            return Ok(None);
        };
        if found.state.is_terminal() {
            return Ok(Some(Cancellation::Over(found.state)));
        }
        let (node, id) = (found.node.uuid(), command.uuid());
        let decided = Settlement::decided(node, id, found.state, Event::CancelRequested, "cancelled");
        if let Some(settlement) = decided {
            if !settle::write(db, &[settlement], now).await?.is_empty() {
                announce(db, command, found.state, now).await?;
                return Ok(Some(Cancellation::Cancelled));
            }
        } else if found.cancel_requested_at.is_some() {
            return Ok(Some(Cancellation::Requested { node: found.node, state: found.state }));
        } else if let Some(state) = request(db, signer, found.node, command, now).await? {
            announce(db, command, state, now).await?;
            return Ok(Some(Cancellation::Requested { node: found.node, state }));
        }
    }
    Err(corrupt("command_states", "state", command))
}

/// Notes the wish on a command in flight; `None` if it is no longer there, or somebody else noted it first.
async fn request(
    db: &mut PgConnection,
    signer: &Signer,
    node: NodeId,
    command: CommandId,
    now: OffsetDateTime,
) -> Result<Option<State>, Error> {
    let made = signer.sign(&CancelBody { command, node }, now);
    let worker = match &made {
        Some(made) => Some(worker_keys::id(db, &made.worker, now).await?),
        None => None,
    };
    let state = sqlx::query_scalar!(
        r#"update in_flight f set cancel_requested_at = $2, cancel_signature = $3, cancel_worker_key = $4
           from commands c
           where c.id = $1 and f.node_id = c.node_id and f.seq = c.seq and f.cancel_requested_at is null
           returning f.state::text as "state!""#,
        command.uuid(),
        now,
        made.map(|made| made.signature.as_bytes().to_vec()),
        worker,
    )
    .fetch_optional(db)
    .await?;
    state.map(|word| code::parse_state(&word).ok_or_else(|| corrupt("in_flight", "state", command))).transpose()
}

async fn announce(db: &mut PgConnection, command: CommandId, state: State, now: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!(
        "insert into events (tenant_id, node_id, command_id, topic, body, at)
         select tenant_id, node_id, id, 'node.command.cancel-requested',
                jsonb_build_object('kind', kind, 'state', $2::text), $3
         from commands where id = $1",
        command.uuid(),
        state.to_string(),
        now,
    )
    .execute(db)
    .await?;
    Ok(())
}
