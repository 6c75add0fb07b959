//! `secret_exchanges`: requests of nodes for secrets, between gateway and vault.
//!
//! **Invariant:** no value stands in a row, and none of them outlives its few seconds: the gateway that made it deletes it, and
//! each new one takes a few expired ones with it.

use bc_proto::id::{CommandId, NodeId, TenantId};
use bc_proto::secret::Sealed;
use bc_proto::sign::WorkerSignature;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::node_certificates::Fingerprint;
use super::{Error, corrupt};

/// The most requests that a vault takes at once.
const TAKE: i64 = 64;

/// A request, as a gateway passes it on.
#[derive(Debug, Clone)]
pub struct NewExchange<'a> {
    /// A new id.
    pub id: Uuid,
    /// Who asks, by its certificate.
    pub node: NodeId,
    /// The command that names the secret.
    pub command: CommandId,
    /// The reference.
    pub secret_ref: &'a str,
    /// What to seal to.
    pub one_time_key: &'a [u8],
    /// The node's signature.
    pub node_sig: &'a [u8],
    /// The certificate whose key signed.
    pub fingerprint: Fingerprint,
    /// When nobody waits any more.
    pub expires_at: OffsetDateTime,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The sealed value, and a worker key's signature over it where there is one.
    Sealed(Sealed, Option<Box<WorkerSignature>>),
    /// There is no value.
    Failed(Failure),
}

/// Why there is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum Failure {
    /// The tenant has no such secret.
    NotFound,
    /// The request is not to be believed, or the secret's file not to be used; the vault's log says why.
    Refused,
}

/// A request, as a vault finds it, with what the database knows of it.
#[derive(Debug, Clone)]
pub struct Open {
    /// Its id.
    pub id: Uuid,
    /// Who asks.
    pub node: NodeId,
    /// For which command.
    pub command: CommandId,
    /// For which secret.
    pub secret_ref: String,
    /// What to seal to.
    pub one_time_key: Vec<u8>,
    /// The node's signature.
    pub node_sig: Vec<u8>,
    /// The node's certificate, DER; `None` unless it counts.
    pub certificate: Option<Vec<u8>>,
    /// The command's tenant and payload; `None` unless it is in flight at that node, and of the node's tenant.
    pub command_of: Option<(TenantId, Value)>,
}

/// What a gateway looks at before it passes a request on.
#[derive(Debug, Clone)]
pub struct InFlight {
    /// The command's payload.
    pub payload: Value,
    /// How many requests of the node are open.
    pub open: u64,
}

/// A command that is in flight at a node.
pub async fn in_flight(db: &mut PgConnection, node: NodeId, command: CommandId) -> Result<Option<InFlight>, Error> {
    let row = sqlx::query!(
        r#"select c.payload::text as "payload!",
             (select count(*) from secret_exchanges e where e.node_id = c.node_id) as "open!"
           from commands c join in_flight f on f.node_id = c.node_id and f.seq = c.seq
           where c.id = $1 and c.node_id = $2"#,
        command.uuid(),
        node.uuid(),
    )
    .fetch_optional(db)
    .await?;
    row.map(|row| {
        let payload = parse(command.uuid(), &row.payload)?;
        Ok(InFlight { payload, open: u64::try_from(row.open).unwrap_or(0) })
    })
    .transpose()
}

fn parse(command: Uuid, payload: &str) -> Result<Value, Error> {
    serde_json::from_str(payload).map_err(|_| corrupt("commands", "payload", command))
}

/// Adds a request, and takes some expired ones away.
pub async fn create(db: &mut PgConnection, new: NewExchange<'_>, now: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!(
        "with expired as (
            delete from secret_exchanges
            where id in (select id from secret_exchanges where expires_at < $9 order by id limit 100 for update skip locked)
         )
         insert into secret_exchanges (id, node_id, command_id, secret_ref, one_time_key, node_sig, fingerprint, expires_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8)",
        new.id,
        new.node.uuid(),
        new.command.uuid(),
        new.secret_ref,
        new.one_time_key,
        new.node_sig,
        &new.fingerprint[..],
        new.expires_at,
        now,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The answer to a request, once there is one.
pub async fn answer(db: &mut PgConnection, id: Uuid) -> Result<Option<Answer>, Error> {
    let row = sqlx::query!(
        "select encapsulated_key, ciphertext, signature, failure from secret_exchanges where id = $1",
        id,
    )
    .fetch_optional(db)
    .await?;
    let Some(row) = row else { return Ok(Some(Answer::Failed(Failure::Refused))) };
    let bad = |column| corrupt("secret_exchanges", column, id);
    if let Some(failure) = row.failure {
        return Ok(Some(Answer::Failed(failure.parse().map_err(|_| bad("failure"))?)));
    }
    let (Some(encapsulated_key), Some(ciphertext)) = (row.encapsulated_key, row.ciphertext) else { return Ok(None) };
    let signature = row.signature.map(|it| serde_json::from_slice(&it).map_err(|_| bad("signature"))).transpose()?;
    Ok(Some(Answer::Sealed(Sealed { encapsulated_key, ciphertext }, signature)))
}

/// Removes a request.
pub async fn delete(db: &mut PgConnection, id: Uuid) -> Result<(), Error> {
    sqlx::query!("delete from secret_exchanges where id = $1", id).execute(db).await?;
    Ok(())
}

/// Requests that wait for an answer, and are this vault's until the transaction ends.
pub async fn take(db: &mut PgConnection, now: OffsetDateTime) -> Result<Vec<Open>, Error> {
    let rows = sqlx::query!(
        r#"select e.id, e.node_id, e.command_id, e.secret_ref, e.one_time_key, e.node_sig,
             case when n.id is not null then k.certificate end as "certificate?",
             case when f.node_id is not null then c.payload::text end as "payload?", c.tenant_id as "tenant_id?"
           from (
             select * from secret_exchanges where ciphertext is null and failure is null and expires_at > $1
             order by id limit $2 for update skip locked
           ) e
           left join node_certificates k
             on k.fingerprint = e.fingerprint and k.node_id = e.node_id and k.revoked_at is null and k.not_after > $1
           left join nodes n on n.id = k.node_id and n.incarnation = k.incarnation and n.deleted_at is null
           left join commands c on c.id = e.command_id and c.node_id = n.id and c.tenant_id = n.tenant_id
           left join in_flight f on f.node_id = c.node_id and f.seq = c.seq"#,
        now,
        TAKE,
    )
    .fetch_all(db)
    .await?;
    let parsed = rows.into_iter().map(|row| {
        let command_of = match (row.tenant_id, row.payload) {
            (Some(tenant), Some(payload)) => Some((TenantId::from_uuid(tenant), parse(row.command_id, &payload)?)),
            _ => None,
        };
        Ok(Open {
            id: row.id,
            node: NodeId::from_uuid(row.node_id),
            command: CommandId::from_uuid(row.command_id),
            secret_ref: row.secret_ref,
            one_time_key: row.one_time_key,
            node_sig: row.node_sig,
            certificate: row.certificate,
            command_of,
        })
    });
    parsed.collect()
}

/// Writes answers to requests that were taken, in one statement.
pub async fn answer_many(db: &mut PgConnection, answers: &[(Uuid, Answer)]) -> Result<(), Error> {
    let ids: Vec<Uuid> = answers.iter().map(|(id, _)| *id).collect();
    let (mut keys, mut ciphertexts, mut signatures, mut failures) = (vec![], vec![], vec![], vec![]);
    for (_, answer) in answers {
        let (sealed, signature, failure) = match answer {
            Answer::Sealed(sealed, signature) => (Some(sealed), signature.as_ref(), None),
            Answer::Failed(failure) => (None, None, Some(failure.to_string())),
        };
        keys.push(sealed.map(|it| it.encapsulated_key.clone()));
        ciphertexts.push(sealed.map(|it| it.ciphertext.clone()));
        signatures.push(signature.map(|it| serde_json::to_vec(it).expect("keys and signatures are JSON")));
        failures.push(failure);
    }
    sqlx::query!(
        "update secret_exchanges e
         set encapsulated_key = a.encapsulated_key, ciphertext = a.ciphertext, signature = a.signature, failure = a.failure
         from unnest($1::uuid[], $2::bytea[], $3::bytea[], $4::bytea[], $5::text[])
           as a (id, encapsulated_key, ciphertext, signature, failure)
         where e.id = a.id",
        &ids,
        &keys as &[Option<Vec<u8>>],
        &ciphertexts as &[Option<Vec<u8>>],
        &signatures as &[Option<Vec<u8>>],
        &failures as &[Option<String>],
    )
    .execute(db)
    .await?;
    Ok(())
}
