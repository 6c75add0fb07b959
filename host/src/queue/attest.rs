//! Judging the results of attested kinds before they move anything.
//!
//! **Invariant:** a report of an attested command settles it only with the signature of a key that is certified for the node's
//! present life, is not revoked and not over. Reports of other kinds cost a look into memory.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use bc_proto::rules::attest;
use bc_proto::rules::state::State;
use bc_proto::sign::{self, PublicKey};
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::settle::Report;
use crate::store::kinds::Digest;
use crate::store::node_certificates::Fingerprint;
use crate::store::{Error, corrupt, signed};

/// More signatures than this are checked off the threads that serve sessions: each takes some 50 µs.
const INLINE: usize = 8;

/// Why a result is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display, strum::EnumIter)]
#[strum(serialize_all = "kebab-case")]
pub enum Reason {
    /// It has none.
    SignatureMissing,
    /// It is no signature at all.
    SignatureSize,
    /// It is over another command, end or result, or by another key.
    SignatureWrong,
    /// The node has no certificate that could attest anything.
    NoKey,
}

/// A report that changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Its place among the reports.
    pub index: usize,
    /// Why.
    pub reason: Reason,
}

/// What became of reports.
#[derive(Debug)]
pub struct Judged<'a> {
    /// Those that may settle their commands; the attested ones say by which certificate.
    pub kept: Cow<'a, [Report]>,
    /// The others.
    pub refused: Vec<Refused>,
    /// What was found out of components: whether they are attested.
    pub learned: Vec<(Digest, bool)>,
}

/// Judges reports. `is_attested` is what is known of each one's kind; what is not is looked up, in one statement.
pub async fn judge<'a>(
    db: &mut PgConnection,
    reports: &'a [Report],
    is_attested: &[Option<bool>],
    now: OffsetDateTime,
) -> Result<Judged<'a>, Error> {
    let unknown: Vec<&Report> =
        reports.iter().zip(is_attested).filter(|(_, known)| known.is_none()).map(|(report, _)| report).collect();
    let Found { commands, learned } = if unknown.is_empty() { Found::default() } else { look_up(db, &unknown).await? };
    let attested =
        |report: &Report, known: Option<bool>| known.unwrap_or_else(|| commands.contains(&report.command.uuid()));
    let attested: Vec<bool> = reports.iter().zip(is_attested).map(|(report, known)| attested(report, *known)).collect();
    let nodes: HashSet<Uuid> =
        reports.iter().zip(&attested).filter(|(_, is)| **is).map(|(report, _)| report.node.uuid()).collect();
    if nodes.is_empty() {
        return Ok(Judged { kept: Cow::Borrowed(reports), refused: Vec::new(), learned });
    }
    let keys = keys(db, &nodes.into_iter().collect::<Vec<_>>(), now).await?;
    let signatures = attested.iter().filter(|is| **is).count();
    let reports = reports.to_vec();
    let check = move || check(reports, &attested, &keys);
    let (kept, refused) = if signatures > INLINE {
        tokio::task::spawn_blocking(check).await.expect("checking signatures does not panic")
    } else {
        check()
    };
    Ok(Judged { kept: Cow::Owned(kept), refused, learned })
}

type Keys = HashMap<Uuid, Vec<(PublicKey, Fingerprint)>>;

fn check(reports: Vec<Report>, attested: &[bool], keys: &Keys) -> (Vec<Report>, Vec<Refused>) {
    let (mut kept, mut refused) = (Vec::new(), Vec::new());
    for (index, (mut report, is_attested)) in reports.into_iter().zip(attested).enumerate() {
        if *is_attested {
            match attesting(&report, keys.get(&report.node.uuid()).map_or(&[], Vec::as_slice)) {
                Ok(by) => report.attested_by = Some(by),
                Err(reason) => {
                    refused.push(Refused { index, reason });
                    continue;
                }
            }
        }
        kept.push(report);
    }
    (kept, refused)
}

/// The certificate whose key signed a report.
fn attesting(report: &Report, keys: &[(PublicKey, Fingerprint)]) -> Result<Fingerprint, Reason> {
    let state = State::Dispatched.on(report.event).map_err(|_| Reason::SignatureWrong)?;
    let of = keys.iter().map(|(key, _)| key);
    match attest::verify(of, report.command, state, &report.result, &report.node_sig) {
        Ok(by) => {
            let found = keys.iter().find(|(key, _)| *key == by);
            found.map(|(_, fingerprint)| *fingerprint).ok_or(Reason::NoKey)
        }
        Err(sign::Error::Missing) => Err(Reason::SignatureMissing),
        Err(sign::Error::Truncated(_)) => Err(Reason::SignatureSize),
        Err(_) if keys.is_empty() => Err(Reason::NoKey),
        Err(_) => Err(Reason::SignatureWrong),
    }
}

#[derive(Default)]
struct Found {
    /// The attested commands.
    commands: HashSet<Uuid>,
    learned: Vec<(Digest, bool)>,
}

async fn look_up(db: &mut PgConnection, reports: &[&Report]) -> Result<Found, Error> {
    let nodes: Vec<Uuid> = reports.iter().map(|report| report.node.uuid()).collect();
    let commands: Vec<Uuid> = reports.iter().map(|report| report.command.uuid()).collect();
    let rows = sqlx::query!(
        r#"select c.id, k.digest, 'attested' = any(k.traits) as "is_attested!"
           from unnest($1::uuid[], $2::uuid[]) as a (node_id, id)
           -- By its id alone: with a plain `=` the planner may walk through all commands that the node ever had.
           join commands c on c.id = a.id and c.node_id is not distinct from a.node_id
           join kinds k on k.digest = c.kind_digest"#,
        &nodes,
        &commands,
    )
    .fetch_all(db)
    .await?;
    let mut found = Found::default();
    for row in rows {
        if row.is_attested {
            found.commands.insert(row.id);
        }
        let digest = row.digest.try_into().map_err(|_| corrupt("kinds", "digest", row.id))?;
        found.learned.push((digest, row.is_attested));
    }
    Ok(found)
}

/// The keys that attest for nodes now, the newest first.
async fn keys(db: &mut PgConnection, nodes: &[Uuid], now: OffsetDateTime) -> Result<Keys, Error> {
    let rows = sqlx::query!(
        r#"select c.node_id, c.fingerprint, c.public_key as "public_key!" from node_certificates c
           join nodes n on n.id = c.node_id and n.incarnation = c.incarnation
           where c.node_id = any($1) and c.revoked_at is null and c.not_after > $2 and c.public_key is not null
           order by c.not_before desc, c.fingerprint"#,
        nodes,
        now,
    )
    .fetch_all(db)
    .await?;
    let mut keys = Keys::new();
    for row in rows {
        let key: Option<[u8; 32]> = row.public_key.try_into().ok();
        let key = key.and_then(|bytes| PublicKey::from_bytes(bytes).ok());
        let key = key.ok_or_else(|| corrupt("node_certificates", "public_key", row.node_id))?;
        let fingerprint = row.fingerprint.try_into();
        let fingerprint = fingerprint.map_err(|_| corrupt("node_certificates", "fingerprint", row.node_id))?;
        keys.entry(row.node_id).or_default().push((key, fingerprint));
    }
    Ok(keys)
}

/// Tells of refusals, each once for a command and reason, and only of what came on the node's newest session. Returns how many are
/// new.
pub async fn note(
    db: &mut PgConnection,
    reports: &[Report],
    refused: &[Refused],
    now: OffsetDateTime,
) -> Result<u64, Error> {
    if refused.is_empty() {
        return Ok(0);
    }
    let of = || refused.iter().map(|it| &reports[it.index]);
    let nodes: Vec<Uuid> = of().map(|report| report.node.uuid()).collect();
    let commands: Vec<Uuid> = of().map(|report| report.command.uuid()).collect();
    let epochs: Vec<i64> = of().map(|report| signed(report.epoch)).collect();
    let reasons: Vec<String> = refused.iter().map(|it| it.reason.to_string()).collect();
    let told = sqlx::query!(
        "with first as (
            insert into result_refusals (command_id, reason, node_id, at)
            select c.id, a.reason, c.node_id, $5
            from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[]) as a (node_id, id, epoch, reason)
            join commands c on c.id = a.id and c.node_id is not distinct from a.node_id
            join nodes n on n.id = a.node_id and n.session_epoch = a.epoch
            on conflict do nothing
            returning command_id, reason
         )
         insert into events (tenant_id, node_id, command_id, topic, body, at)
         select c.tenant_id, c.node_id, c.id, 'command.result-refused',
                jsonb_build_object('kind', c.kind, 'reason', f.reason), $5
         from first f join commands c on c.id = f.command_id",
        &nodes,
        &commands,
        &epochs,
        &reasons,
        now,
    )
    .execute(db)
    .await?;
    Ok(told.rows_affected())
}
