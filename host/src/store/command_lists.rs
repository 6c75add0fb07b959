//! Which commands are on a page of a list that spans nodes, or is narrowed by more than a state.
//!
//! **Invariant:** a page reads a bounded piece of one index, whatever there is beside and below it: a filter that finds little ends
//! the page early, with the place to go on from.

use bc_proto::id::{BatchId, CommandId, NodeId, TenantId};
use bc_proto::rules::state::State;
use sqlx::PgConnection;
use sqlx::types::Uuid;

use super::commands::Command;
use super::{Error, commands};

/// How many commands are looked at for a page that a filter narrows. Each costs a look into the three places where a command
/// can stand, some microseconds.
pub const WINDOW: u32 = 5_000;

/// Where to look, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// All commands of the tenant.
    Tenant,
    /// Those of one node.
    Node(NodeId),
    /// Those of one batch.
    Batch(BatchId),
}

/// What narrows it; each field that is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this kind.
    pub kind: Option<String>,
    /// Only this state.
    pub state: Option<State>,
    /// Only those of gateways whose runners lease them.
    pub is_leased: bool,
}

impl Filter {
    fn is_open(&self) -> bool {
        *self == Self::default()
    }
}

/// A piece of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The commands, newest first.
    pub commands: Vec<Command>,
    /// The next piece is below this; `None` where this one reaches the end.
    pub next: Option<CommandId>,
}

/// The commands with ids below `below` (all for `None`): at most `limit`, and fewer where the window holds no more.
pub async fn page(
    db: &mut PgConnection,
    tenant: TenantId,
    within: Within,
    filter: &Filter,
    below: Option<CommandId>,
    limit: u32,
) -> Result<Piece, Error> {
    let below = below.map_or(Uuid::max(), |id| id.uuid());
    // One more than asked says whether there is another page.
    let window = (limit + 1).max(if filter.is_open() { 0 } else { WINDOW });
    let looked = match within {
        Within::Tenant => of_tenant(db, tenant, below, window).await?,
        Within::Node(node) => of_node(db, tenant, node, below, window).await?,
        Within::Batch(batch) => of_batch(db, tenant, batch, below, window).await?,
    };
    let mut ids = if filter.is_open() { looked.clone() } else { matching(db, &looked, filter, limit + 1).await? };
    let next = if ids.len() > limit as usize {
        ids.truncate(limit as usize);
        ids.last().copied()
    } else {
        // What the filter left over is all of the window; behind it there may be more.
        looked.last().copied().filter(|_| looked.len() >= window as usize)
    };
    let ids: Vec<CommandId> = ids.into_iter().map(CommandId::from_uuid).collect();
    Ok(Piece { commands: commands::of_ids(db, tenant, &ids).await?, next: next.map(CommandId::from_uuid) })
}

async fn of_tenant(db: &mut PgConnection, tenant: TenantId, below: Uuid, window: u32) -> Result<Vec<Uuid>, Error> {
    let ids = sqlx::query_scalar!(
        "select id from commands where tenant_id = $1 and id < $2 order by tenant_id desc, id desc limit $3",
        tenant.uuid(),
        below,
        i64::from(window),
    );
    Ok(ids.fetch_all(db).await?)
}

/// By seq, which grows as ids do but for what two replicas queue in the same moment; so the place is the seq of the id.
async fn of_node(
    db: &mut PgConnection,
    tenant: TenantId,
    node: NodeId,
    below: Uuid,
    window: u32,
) -> Result<Vec<Uuid>, Error> {
    let ids = sqlx::query_scalar!(
        "select id from commands
         where node_id = $2 and tenant_id = $1
           and seq < coalesce((select seq from commands where id = $3 and node_id = $2), 9223372036854775807)
         order by node_id desc, seq desc limit $4",
        tenant.uuid(),
        node.uuid(),
        below,
        i64::from(window),
    );
    Ok(ids.fetch_all(db).await?)
}

async fn of_batch(
    db: &mut PgConnection,
    tenant: TenantId,
    batch: BatchId,
    below: Uuid,
    window: u32,
) -> Result<Vec<Uuid>, Error> {
    let ids = sqlx::query_scalar!(
        "select id from commands where batch_id = $2 and tenant_id = $1 and id < $3 order by id desc limit $4",
        tenant.uuid(),
        batch.uuid(),
        below,
        i64::from(window),
    );
    Ok(ids.fetch_all(db).await?)
}

/// Those of the ids that a filter takes, in their order, the first so many.
async fn matching(db: &mut PgConnection, ids: &[Uuid], filter: &Filter, limit: u32) -> Result<Vec<Uuid>, Error> {
    let found = sqlx::query_scalar!(
        r#"select c.id
           from unnest($1::uuid[]) with ordinality looked (id, place)
           cross join lateral (select id, node_id, seq, kind from commands k where k.id = looked.id offset 0) c
           where ($2::text is null or c.kind = $2)
             and (not $4 or exists (select from nodes n where n.id = c.node_id and n.runner_slug is not null))
             and ($3::text is null or $3 = (
               select s.state from command_states s where s.node_id = c.node_id and s.seq = c.seq))
           order by looked.place limit $5"#,
        ids,
        filter.kind,
        filter.state.map(|state| state.to_string()),
        filter.is_leased,
        i64::from(limit),
    );
    Ok(found.fetch_all(db).await?)
}

#[cfg(test)]
mod tests {
    use bc_proto::manifest::Lane;
    use serde_json::Value;
    use sqlx::AssertSqlSafe;

    use super::*;
    use crate::testing::{Fleet, at};

    /// How many commands another tenant, and this one, have.
    const MANY: i64 = 100_000;

    /// Fills the tables as a long history does: ids in order, nearly all of it over.
    async fn history(fleet: &Fleet) -> NodeId {
        let (node, kind) = (fleet.node().await, fleet.kind(Lane::Control, &[]).await);
        let commands = "insert into commands (node_id, seq, id, tenant_id, idempotency_key, kind, kind_digest, lane, payload, payload_hash,
                            incarnation, not_after, created_at, requested_by)
                        select case when i % 2 = 0 then $1 else gen_random_uuid() end, i, lpad(to_hex(i), 32, '0')::uuid,
                            case when i % 2 = 0 then $2 else gen_random_uuid() end, i::text,
                            case when i % 50000 = 0 then 'rare' else 'test.control' end, $3, 'control', '{}', sha256(''), 1, $4, $4, 'x'
                        from generate_series(1, 2 * $5) i";
        let settled = "insert into settled (node_id, seq, state, reason, result, settled_at)
                       select node_id, seq, 'succeeded', '', '{}', created_at from commands where seq <= 2 * $1 - 100";
        let ready = "insert into ready (node_id, lane, seq, not_before, not_after)
                     select node_id, lane, seq, '-infinity', not_after from commands where seq > 2 * $1 - 100";
        let mut db = fleet.db().await;
        let done =
            sqlx::query(commands).bind(node.uuid()).bind(fleet.tenant.uuid()).bind(&kind[..]).bind(at(0)).bind(MANY);
        done.execute(&mut *db).await.expect("commands");
        for sql in [settled, ready] {
            sqlx::query(sql).bind(MANY).execute(&mut *db).await.expect("their places");
        }
        for sql in ["vacuum analyze commands", "vacuum analyze settled", "vacuum analyze ready"] {
            sqlx::query(sql).execute(&mut *db).await.expect("what a history of some hours has had done by itself");
        }
        node
    }

    /// All steps of a plan, with the rows that each has read.
    fn steps(plan: &Value, into: &mut Vec<(String, f64)>) {
        let name = format!(
            "{} {}",
            plan["Node Type"].as_str().unwrap_or_default(),
            plan["Relation Name"].as_str().unwrap_or_default()
        );
        let rows = plan["Actual Rows"].as_f64().unwrap_or_default()
            + plan["Rows Removed by Filter"].as_f64().unwrap_or_default();
        into.push((name, rows * plan["Actual Loops"].as_f64().unwrap_or(1.0)));
        for inner in plan["Plans"].as_array().into_iter().flatten() {
            steps(inner, into);
        }
    }

    #[tokio::test]
    async fn a_page_of_a_long_list_reads_as_little_as_one_of_a_short_list() {
        let fleet = Fleet::new().await;
        let node = history(&fleet).await;
        let mut db = fleet.db().await;
        let rare = Filter { kind: Some("rare".into()), ..Filter::default() };
        let pending = Filter { state: Some(State::Pending), ..Filter::default() };
        let cases = [
            (Within::Tenant, Filter::default(), 50),
            (Within::Tenant, pending.clone(), 50),
            (Within::Tenant, rare.clone(), 1),
            (Within::Node(node), Filter { kind: Some("test.control".into()), ..pending }, 49),
            (Within::Node(node), rare, 1),
        ];
        for (within, filter, expected) in cases {
            let first = page(&mut db, fleet.tenant, within, &filter, None, 50).await.expect("a page");
            assert_eq!(first.commands.len(), expected, "{within:?} {filter:?}");
            assert!(first.next.is_some(), "{within:?} {filter:?}: it goes on");
            let second = page(&mut db, fleet.tenant, within, &filter, first.next, 50).await.expect("a page");
            assert!(second.commands.iter().all(|it| Some(it.id) < first.next), "{within:?} {filter:?}");
        }
        // The statements themselves, as this connection has prepared them.
        let prepared: Vec<(String, String)> = sqlx::query_as("select name, statement from pg_prepared_statements")
            .fetch_all(&mut *db)
            .await
            .expect("a catalogue");
        let (tenant, deep) = (fleet.tenant.uuid(), Uuid::from_u128(70_000));
        let window = WINDOW;
        let calls = [
            ("order by tenant_id desc", format!("('{tenant}', '{}', {window})", Uuid::max())),
            ("order by tenant_id desc", format!("('{tenant}', '{deep}', {window})")),
            ("order by node_id desc", format!("('{tenant}', '{}', '{deep}', {window})", node.uuid())),
            ("order by looked.place", format!("(array['{deep}'::uuid], 'x', 'failed', false, 50)")),
            ("order by wanted.place", format!("('{tenant}', array['{deep}'::uuid])")),
        ];
        for (part, arguments) in calls {
            let (name, _) = prepared.iter().find(|(_, statement)| statement.contains(part)).expect("it was prepared");
            let sql = format!("explain (analyze, format json) execute {name}{arguments}");
            let plan: Value = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut *db).await.expect("a plan");
            let mut all = Vec::new();
            steps(&plan[0]["Plan"], &mut all);
            for (step, rows) in all {
                let is_large = ["commands", "settled"].iter().any(|it| step.contains(it));
                assert!(!(step.starts_with("Seq Scan") && is_large), "{part}{arguments}: {step} in {plan:#}");
                assert!(rows <= f64::from(window), "{part}{arguments}: {step} reads {rows} in {plan:#}");
            }
        }
    }
}
