//! The end of a node's life, and what becomes of its commands then.
//!
//! **Invariant:** what was meant for one life of a node and could do harm never reaches another. The claim looks at the life
//! as well, so a command that is queued at the same moment is safe too; the sweeper ends it.

use std::collections::BTreeSet;

use bc_proto::id::NodeId;
use bc_proto::manifest::Trait;
use bc_proto::rules::resume;
use bc_proto::rules::state::{Event, State};
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::settle::{self, Settlement};
use crate::store::{Error, code, corrupt, reservations, unsigned};

/// How many pending commands one statement settles.
const BATCH: i64 = 5_000;

/// Deletes a node: pending commands are cancelled, those in flight end by their deadlines, and its sessions are fenced off.
/// Returns whether it was there.
pub async fn delete(db: &mut PgTransaction<'_>, node: NodeId, now: OffsetDateTime) -> Result<bool, Error> {
    let deleted = sqlx::query!(
        "update nodes set deleted_at = $2, session_epoch = session_epoch + 1 where id = $1 and deleted_at is null",
        node.uuid(),
        now,
    )
    .execute(&mut **db)
    .await?;
    if deleted.rows_affected() == 0 {
        return Ok(false);
    }
    settle_pending(db, node, now, |_| Some((Event::NodeDeleted, "node-deleted"))).await?;
    Ok(true)
}

/// Begins a node's next life and returns its number: it was wiped or enrolled again. Destructive commands that still wait
/// expire. `None`: the node is deleted or unknown.
pub async fn replace(db: &mut PgTransaction<'_>, node: NodeId, now: OffsetDateTime) -> Result<Option<u64>, Error> {
    let incarnation = sqlx::query_scalar!(
        "update nodes set incarnation = incarnation + 1, session_epoch = session_epoch + 1
         where id = $1 and deleted_at is null returning incarnation",
        node.uuid(),
    )
    .fetch_optional(&mut **db)
    .await?;
    let Some(incarnation) = incarnation else { return Ok(None) };
    reservations::unbind(db, node).await?;
    settle_pending(db, node, now, |traits| {
        (!resume::survives_replacement(traits, State::Pending)).then_some((Event::NodeReplaced, "node-replaced"))
    })
    .await?;
    unsigned("nodes", "incarnation", node, incarnation).map(Some)
}

async fn settle_pending(
    db: &mut PgConnection,
    node: NodeId,
    now: OffsetDateTime,
    verdict: impl Fn(&BTreeSet<Trait>) -> Option<(Event, &'static str)>,
) -> Result<(), Error> {
    let mut above = 0;
    loop {
        let rows = sqlx::query!(
            "select c.id, c.seq, k.traits from ready r
             join commands c on c.node_id = r.node_id and c.seq = r.seq
             join kinds k on k.digest = c.kind_digest
             where r.node_id = $1 and r.seq > $2 order by r.seq limit $3",
            node.uuid(),
            above,
            BATCH,
        )
        .fetch_all(&mut *db)
        .await?;
        let Some(last) = rows.last() else { return Ok(()) };
        above = last.seq;
        let mut settlements = Vec::new();
        for row in &rows {
            if let Some((event, reason)) = verdict(&traits(row.id, &row.traits)?) {
                settlements.extend(Settlement::decided(node.uuid(), row.id, State::Pending, event, reason));
            }
        }
        settle::write(db, &settlements, now).await?;
    }
}

fn traits(command: Uuid, words: &[String]) -> Result<BTreeSet<Trait>, Error> {
    words.iter().map(|word| code::parse_trait(word).ok_or_else(|| corrupt("kinds", "traits", command))).collect()
}
