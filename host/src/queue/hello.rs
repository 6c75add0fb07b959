//! A new session: what the node's hello proves is settled, the rest of what it may have is sent again.
//!
//! **Invariant:** after a hello, no command is in flight that is neither replayed on this session nor known to the node's
//! newer ones. The epoch is raised first, which waits for claims of the old session and keeps it from making more.

use std::collections::BTreeSet;

use bc_proto::id::{JournalId, NodeId};
use bc_proto::manifest::{Role, Trait};
use bc_proto::rules::resume::{self, Life, Resumption};
use bc_proto::rules::state::{Event, State};
use bc_proto::rules::sweep::UNREGISTERED_TIMEOUT_MS;
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::claim::{Delivery, Row};
use super::settle::{self, Settlement};
use crate::store::{Error, code, corrupt, signed, unsigned};

/// The result of a command that a new boot or role settles; the node that would have reported it is no more.
const REBOOTED: &[u8] = br#"{"rebooted":true}"#;

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// The node, by its certificate.
    pub node: NodeId,
    /// The life that its certificate was issued for.
    pub incarnation: u64,
    /// Its journal.
    pub journal: JournalId,
    /// The kernel's boot id.
    pub boot: String,
    /// Its role now.
    pub role: Role,
    /// The generation of the spec that it applied last.
    pub generation: u64,
}

/// An open session.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Its epoch.
    pub epoch: u64,
    /// Every command with a lower seq is settled for good.
    pub settled_below_seq: u64,
    /// What the node may have, to be sent again in this order. It takes credits; pending commands are claimed after it.
    pub replay: Vec<Delivery>,
    /// How many commands the hello settled.
    pub settled: usize,
}

/// Opens a session. `None`: the node is deleted or unknown, or lives another life than its certificate.
pub async fn hello(
    db: &mut PgTransaction<'_>,
    greeting: &Greeting,
    now: OffsetDateTime,
) -> Result<Option<Session>, Error> {
    let node = greeting.node.uuid();
    let raised = sqlx::query_scalar!(
        "update nodes set session_epoch = session_epoch + 1, journal_id = $3, boot_id = $4, role = $5::text::role,
                          spec_generation = $6, last_hello_at = $7
         where id = $1 and incarnation = $2 and deleted_at is null
         returning session_epoch",
        node,
        signed(greeting.incarnation),
        greeting.journal.uuid(),
        greeting.boot,
        code::role(greeting.role),
        signed(greeting.generation),
        now,
    )
    .fetch_optional(&mut **db)
    .await?;
    let Some(epoch) = raised else { return Ok(None) };
    let mut settlements = Vec::new();
    for flight in flights(db, node).await? {
        if let Some((event, reason)) = flight.verdict(greeting) {
            let result = if event == Event::Rebooted { REBOOTED } else { b"" };
            let decided = Settlement::decided(node, flight.id, flight.state, event, reason);
            settlements.extend(decided.map(|decided| Settlement { result: result.to_vec(), ..decided }));
        }
    }
    let settled = settle::write(db, &settlements, now).await?.len();
    let replay = replay(db, node, epoch).await?;
    let below = settled_below(db, node).await?;
    let number = |column, value| unsigned("nodes", column, greeting.node, value);
    Ok(Some(Session {
        epoch: number("session_epoch", epoch)?,
        settled_below_seq: number("next_cmd_seq", below)?,
        replay,
        settled,
    }))
}

/// A command in flight, and the node as it was when it was last sent.
struct Flight {
    id: Uuid,
    state: State,
    traits: BTreeSet<Trait>,
    incarnation: u64,
    journal: String,
    boot: String,
    role: Role,
}

impl Flight {
    /// What the hello makes of it; `None` to send it again.
    fn verdict(&self, greeting: &Greeting) -> Option<(Event, &'static str)> {
        let journal = greeting.journal.to_string();
        let before = Life { journal: &self.journal, boot: &self.boot, role: self.role };
        let now = Life { journal: &journal, boot: &greeting.boot, role: greeting.role };
        match resume::resume(&self.traits, &before, &now) {
            Resumption::Settle(event @ Event::JournalLost) => Some((event, "journal-lost")),
            Resumption::Settle(event) => Some((event, "")),
            // To the new life a replay would be a first delivery, which destructive commands of an earlier one never get.
            Resumption::Replay if self.incarnation != greeting.incarnation => {
                (!resume::survives_replacement(&self.traits, State::Pending))
                    .then_some((Event::NodeReplaced, "node-replaced"))
            }
            Resumption::Replay => None,
        }
    }
}

async fn flights(db: &mut PgConnection, node: Uuid) -> Result<Vec<Flight>, Error> {
    let rows = sqlx::query!(
        r#"select c.id, f.state::text as "state!", k.traits, c.incarnation, f.journal_id, f.boot_id,
                  f.role::text as "role!"
           from in_flight f
           join commands c on c.node_id = f.node_id and c.seq = f.seq
           join kinds k on k.digest = c.kind_digest
           where f.node_id = $1
           order by f.seq"#,
        node,
    )
    .fetch_all(db)
    .await?;
    let parsed = rows.into_iter().map(|row| {
        let bad = |column| corrupt("in_flight", column, row.id);
        let traits = row.traits.iter().map(|word| code::parse_trait(word).ok_or_else(|| bad("traits")));
        Ok(Flight {
            id: row.id,
            state: code::parse_state(&row.state).ok_or_else(|| bad("state"))?,
            traits: traits.collect::<Result<_, Error>>()?,
            incarnation: unsigned("commands", "incarnation", row.id, row.incarnation)?,
            journal: JournalId::from_uuid(row.journal_id).to_string(),
            boot: row.boot_id,
            role: code::parse_role(&row.role).ok_or_else(|| bad("role"))?,
        })
    });
    parsed.collect()
}

/// Takes all that is in flight over to a session, with the node's life as it is now.
async fn replay(db: &mut PgConnection, node: Uuid, epoch: i64) -> Result<Vec<Delivery>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"
        with moved as (
            update in_flight f set epoch = $2, journal_id = n.journal_id, boot_id = n.boot_id, role = n.role
            from nodes n
            where f.node_id = $1 and n.id = $1 and n.session_epoch = $2
            returning f.node_id, f.seq, f.lane, f.cancel_requested_at, n.incarnation
        )
        select c.id, c.seq, c.node_id, m.incarnation as "incarnation!", c.kind, c.kind_digest,
               c.payload::text as "payload!", c.not_after,
               case when k.status = 'withdrawn' then $3::bigint else k.timeout_ms end as "timeout_ms!",
               c.min_generation, m.lane::text as "lane!", m.cancel_requested_at is not null as "is_cancelled!"
        from moved m
        join commands c on c.node_id = m.node_id and c.seq = m.seq
        join kinds k on k.digest = c.kind_digest
        order by c.seq"#,
        node,
        epoch,
        signed(UNREGISTERED_TIMEOUT_MS),
    )
    .fetch_all(db)
    .await?;
    rows.into_iter().map(Delivery::try_from).collect()
}

/// The lowest seq of the node that is not over, or the next one. Counting up locks the counter until it is committed, so
/// nothing lower appears later.
async fn settled_below(db: &mut PgConnection, node: Uuid) -> Result<i64, Error> {
    let below = sqlx::query_scalar!(
        r#"select least(
               s.next_cmd_seq,
               (select seq from ready where node_id = $1 and lane = 'control' order by seq limit 1),
               (select seq from ready where node_id = $1 and lane = 'provision' order by seq limit 1),
               (select seq from ready where node_id = $1 and lane = 'bulk' order by seq limit 1),
               (select seq from in_flight where node_id = $1 order by seq limit 1)
           ) as "below!"
           from node_sequences s where s.node_id = $1"#,
        node,
    );
    Ok(below.fetch_one(db).await?)
}
