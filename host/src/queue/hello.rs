//! A new session: what the node's hello proves is settled, the rest of what it may have is sent again.
//!
//! **Invariant:** after a hello, no command is in flight that is neither replayed on this session nor known to the node's
//! newer ones. The epoch is raised first, which waits for claims of the old session and keeps it from making more.

use std::collections::{BTreeSet, HashMap, HashSet};

use bc_proto::id::{JournalId, NodeId};
use bc_proto::manifest::{Role, Trait};
use bc_proto::rules::resume::{self, Life, Resumption};
use bc_proto::rules::state::{Event, State};
use bc_proto::rules::sweep::UNREGISTERED_TIMEOUT_MS;
use bc_proto::wire::LoadedKind;
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::claim::{Delivery, Row};
use super::held;
use super::settle::{self, Settlement};
use crate::store::{Error, code, corrupt, signed, unsigned};

/// The result of a command that a new boot or role settles; the node that would have reported it is no more.
pub(crate) const REBOOTED: &[u8] = br#"{"rebooted":true}"#;

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
    /// The daemon's version.
    pub bcd_version: String,
    /// The host ABI that it provides.
    pub host_abi: String,
    /// The kinds that it has loaded.
    pub kinds: Vec<LoadedKind>,
    /// The epoch of the node's newest session, as far as it knows; 0 for none.
    pub last_epoch: u64,
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

/// What a hello came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Greeted {
    /// A session is open.
    Open(Session),
    /// The node has had a session since, of this epoch: what the hello says may be over. Nothing was changed.
    Overtaken(u64),
    /// The node is deleted or unknown, lives another life than its certificate, or has its commands leased by a runner.
    Unknown,
}

/// Opens a session at a gateway.
pub async fn hello(
    db: &mut PgTransaction<'_>,
    gateway: &str,
    greeting: &Greeting,
    now: OffsetDateTime,
) -> Result<Greeted, Error> {
    let greeted = hello_many(db, gateway, std::slice::from_ref(greeting), now).await?;
    Ok(greeted.into_iter().next().expect("one hello has one answer"))
}

/// Opens sessions of different nodes, each as if alone, with as many statements as for one. The answers are in the greetings'
/// order.
pub async fn hello_many(
    db: &mut PgTransaction<'_>,
    gateway: &str,
    greetings: &[Greeting],
    now: OffsetDateTime,
) -> Result<Vec<Greeted>, Error> {
    let Raised { epochs, newer } = raise(db, gateway, greetings, now).await?;
    let nodes: Vec<Uuid> = epochs.keys().copied().collect();
    let greeted: HashMap<Uuid, &Greeting> = greetings.iter().map(|it| (it.node.uuid(), it)).collect();
    let mut settlements = Vec::new();
    let flights = flights(db, &nodes).await?;
    for flight in &flights {
        if let Some((event, reason)) = flight.verdict(greeted[&flight.node]) {
            let result = if event == Event::Rebooted { REBOOTED } else { b"" };
            let decided = Settlement::decided(flight.node, flight.id, flight.state, event, reason);
            settlements.extend(decided.map(|decided| Settlement { result: result.to_vec(), ..decided }));
        }
    }
    let settled: HashSet<Uuid> = settle::write(db, &settlements, now).await?.into_iter().collect();
    let mut settled_of: HashMap<Uuid, usize> = HashMap::new();
    for settlement in settlements.iter().filter(|it| settled.contains(&it.command)) {
        *settled_of.entry(settlement.node).or_default() += 1;
    }
    let mut replays: HashMap<Uuid, Vec<Delivery>> = HashMap::new();
    // The epoch is raised, so nothing new can be in flight: where there was nothing, there is nothing.
    if !flights.is_empty() {
        for delivery in replay(db, &epochs, now).await? {
            replays.entry(delivery.deliver.node.uuid()).or_default().push(delivery);
        }
    }
    let below = settled_below(db, &nodes).await?;
    let sessions = greetings.iter().map(|greeting| {
        let node = greeting.node.uuid();
        let number = |epoch| unsigned("nodes", "session_epoch", greeting.node, epoch);
        let Some(&epoch) = epochs.get(&node) else {
            return Ok(match newer.get(&node) {
                Some(&newer) => Greeted::Overtaken(number(newer)?),
                None => Greeted::Unknown,
            });
        };
        Ok(Greeted::Open(Session {
            epoch: number(epoch)?,
            settled_below_seq: below.get(&node).copied().unwrap_or(0),
            replay: replays.remove(&node).unwrap_or_default(),
            settled: settled_of.get(&node).copied().unwrap_or(0),
        }))
    });
    sessions.collect()
}

struct Raised {
    /// The epochs of those that may enter.
    epochs: HashMap<Uuid, i64>,
    /// The epochs of those that have had a session which their hello does not know of.
    newer: HashMap<Uuid, i64>,
}

/// Raises the epochs and notes what the nodes say of themselves. Rows are locked in the order of their ids, as claims lock them,
/// so that no two of these wait for each other.
async fn raise(
    db: &mut PgConnection,
    gateway: &str,
    greetings: &[Greeting],
    now: OffsetDateTime,
) -> Result<Raised, Error> {
    let mut columns = Columns::default();
    for greeting in greetings {
        columns.nodes.push(greeting.node.uuid());
        columns.incarnations.push(signed(greeting.incarnation));
        columns.journals.push(greeting.journal.uuid());
        columns.boots.push(greeting.boot.clone());
        columns.roles.push(code::role(greeting.role).to_owned());
        columns.generations.push(signed(greeting.generation));
        columns.versions.push(greeting.bcd_version.clone());
        columns.abis.push(greeting.host_abi.clone());
        columns.kinds.push(serde_json::to_value(&greeting.kinds).expect("text is JSON"));
        columns.last_epochs.push(signed(greeting.last_epoch));
    }
    let locked = sqlx::query!(
        "select id, incarnation, session_epoch from nodes where id = any($1) and deleted_at is null
             and runner_slug is null
         order by id for no key update",
        &columns.nodes
    )
    .fetch_all(&mut *db)
    .await?;
    let said: HashMap<Uuid, &Greeting> = greetings.iter().map(|it| (it.node.uuid(), it)).collect();
    let newer = locked.iter().filter(|row| {
        let greeting = said[&row.id];
        row.incarnation == signed(greeting.incarnation) && row.session_epoch != signed(greeting.last_epoch)
    });
    let newer = newer.map(|row| (row.id, row.session_epoch)).collect();
    let rows = sqlx::query!(
        r#"update nodes n
           set session_epoch = n.session_epoch + 1, journal_id = a.journal, boot_id = a.boot, role = a.role::role,
               spec_generation = a.generation, bcd_version = a.version, host_abi = a.abi, kinds = a.kinds,
               gateway = $11, session_closed_at = null, last_hello_at = $12
           from unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::text[],
                       $8::text[], $9::jsonb[], $10::bigint[])
               as a (id, incarnation, journal, boot, role, generation, version, abi, kinds, last_epoch)
           where n.id = a.id and n.incarnation = a.incarnation and n.session_epoch = a.last_epoch
             and n.deleted_at is null and n.runner_slug is null
           returning n.id, n.session_epoch"#,
        &columns.nodes,
        &columns.incarnations,
        &columns.journals,
        &columns.boots,
        &columns.roles,
        &columns.generations,
        &columns.versions,
        &columns.abis,
        &columns.kinds,
        &columns.last_epochs,
        gateway,
        now,
    )
    .fetch_all(db)
    .await?;
    Ok(Raised { epochs: rows.into_iter().map(|row| (row.id, row.session_epoch)).collect(), newer })
}

/// Greetings, column by column, as UNNEST takes them.
#[derive(Default)]
struct Columns {
    nodes: Vec<Uuid>,
    incarnations: Vec<i64>,
    journals: Vec<Uuid>,
    boots: Vec<String>,
    roles: Vec<String>,
    generations: Vec<i64>,
    versions: Vec<String>,
    abis: Vec<String>,
    kinds: Vec<serde_json::Value>,
    last_epochs: Vec<i64>,
}

/// A command in flight, and the node as it was when it was last sent.
struct Flight {
    node: Uuid,
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

/// Node by node and command by command, each by its key: what the planner knows of `in_flight` is from when it was last
/// looked at, which may have been while it was empty, and then it would read all of it for every node.
async fn flights(db: &mut PgConnection, nodes: &[Uuid]) -> Result<Vec<Flight>, Error> {
    let rows = sqlx::query!(
        r#"select c.id, c.node_id, f.state::text as "state!", k.traits, c.incarnation, f.journal_id, f.boot_id,
                  f.role::text as "role!"
           from unnest($1::uuid[]) as a (node_id)
           cross join lateral (select * from in_flight where in_flight.node_id = a.node_id offset 0) f
           cross join lateral (
               select id, node_id, incarnation, kind_digest from commands
               where commands.node_id = f.node_id and commands.seq = f.seq
               limit 1
           ) c
           join kinds k on k.digest = c.kind_digest
           order by f.node_id, f.seq"#,
        nodes,
    )
    .fetch_all(db)
    .await?;
    let parsed = rows.into_iter().map(|row| {
        let bad = |column| corrupt("in_flight", column, row.id);
        let traits = row.traits.iter().map(|word| code::parse_trait(word).ok_or_else(|| bad("traits")));
        Ok(Flight {
            node: row.node_id,
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

/// Takes all that is in flight over to sessions, with each node's life as it is now; by keys, as [`flights`] does. Rows are
/// locked before their places are used, since marks of the old session can still move them.
async fn replay(
    db: &mut PgConnection,
    sessions: &HashMap<Uuid, i64>,
    now: OffsetDateTime,
) -> Result<Vec<Delivery>, Error> {
    let nodes: Vec<Uuid> = sessions.keys().copied().collect();
    let epochs: Vec<i64> = sessions.values().copied().collect();
    let rows = sqlx::query_as!(
        Row,
        r#"
        with taken as materialized (
            select f.place, a.epoch, n.journal_id, n.boot_id, n.role, n.incarnation
            from unnest($1::uuid[], $2::bigint[]) as a (node_id, epoch)
            cross join lateral (
                select journal_id, boot_id, role, incarnation from nodes
                where nodes.id = a.node_id and nodes.session_epoch = a.epoch
                limit 1
            ) n
            cross join lateral (
                select in_flight.ctid as place from in_flight where in_flight.node_id = a.node_id for no key update
            ) f
        ), moved as (
            update in_flight f set epoch = a.epoch, journal_id = a.journal_id, boot_id = a.boot_id, role = a.role
            from taken a where f.ctid = a.place
            returning f.node_id, f.seq, f.lane, f.cancel_requested_at, f.cancel_signature, f.cancel_worker_key,
                      a.incarnation
        )
        select c.id, c.seq, c.node_id, m.incarnation as "incarnation!", c.kind, c.kind_digest,
               c.payload::text as "payload!", c.not_after,
               case when k.status = 'withdrawn' then $3::bigint else k.timeout_ms end as "timeout_ms!",
               c.min_generation, m.lane::text as "lane!", m.cancel_requested_at is not null as "is_cancelled!",
               c.signature, (select certificate from worker_keys w where w.id = c.worker_key) as worker, c.batch_id,
               c.created_at, m.cancel_requested_at as cancelled_at, m.cancel_signature,
               (select certificate from worker_keys w where w.id = m.cancel_worker_key) as cancel_worker,
               c.upload_object, c.upload_max_bytes
        from moved m
        cross join lateral (
            select * from commands where commands.node_id = m.node_id and commands.seq = m.seq limit 1
        ) c
        join kinds k on k.digest = c.kind_digest
        order by c.node_id, c.seq"#,
        &nodes,
        &epochs,
        signed(UNREGISTERED_TIMEOUT_MS),
    )
    .fetch_all(&mut *db)
    .await?;
    held::attach(db, rows.into_iter().map(Delivery::try_from).collect::<Result<_, _>>()?, now).await
}

/// For each node the lowest seq that is not over, or the next one. Counting up locks the counter until it is committed, so
/// nothing lower appears later.
pub async fn settled_below(db: &mut PgConnection, nodes: &[Uuid]) -> Result<HashMap<Uuid, u64>, Error> {
    let rows = sqlx::query!(
        r#"select s.node_id, least(
               s.next_cmd_seq,
               (select seq from ready r where r.node_id = s.node_id and lane = 'control' order by seq limit 1),
               (select seq from ready r where r.node_id = s.node_id and lane = 'provision' order by seq limit 1),
               (select seq from ready r where r.node_id = s.node_id and lane = 'bulk' order by seq limit 1),
               (select seq from in_flight f where f.node_id = s.node_id order by seq limit 1)
           ) as "below!"
           from node_sequences s where s.node_id = any($1)"#,
        nodes,
    );
    let rows = rows.fetch_all(db).await?;
    let parsed = rows
        .into_iter()
        .map(|row| Ok((row.node_id, unsigned("node_sequences", "next_cmd_seq", row.node_id, row.below)?)));
    parsed.collect()
}
