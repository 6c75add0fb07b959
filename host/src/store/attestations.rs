//! The signed results in `settled`, with the certificates that they were verified with.
//!
//! **Invariant:** what is read here is not believed yet: [`crate::attestation::verify`] checks it anew.

use bc_proto::id::{CommandId, NodeId};
use bc_proto::rules::state::State;
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::node_certificates::Fingerprint;
use super::{Error, code, corrupt};

/// A result with its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedResult {
    /// The command.
    pub command: CommandId,
    /// The node that it was for.
    pub node: NodeId,
    /// How it ended.
    pub state: State,
    /// The result exactly as the node stored it; empty for none.
    pub result: Vec<u8>,
    /// The node's signature, as it was received.
    pub node_sig: Vec<u8>,
    /// When it was settled.
    pub settled_at: OffsetDateTime,
    /// SHA-256 of the certificate that it was verified with.
    pub fingerprint: Fingerprint,
    /// That certificate, X.509, DER; `None` if it is gone.
    pub certificate: Option<Vec<u8>>,
    /// Since when it is revoked.
    pub revoked_at: Option<OffsetDateTime>,
}

/// Those of these commands that ended with a signature.
pub async fn find_many(db: &mut PgConnection, commands: &[CommandId]) -> Result<Vec<SignedResult>, Error> {
    let ids: Vec<Uuid> = commands.iter().map(CommandId::uuid).collect();
    let rows = sqlx::query!(
        r#"select c.id, c.node_id, s.state::text as "state!", s.result as "result!", s.node_sig as "node_sig!",
                  s.settled_at as "settled_at!", s.attested_by as "attested_by!", k.certificate as "certificate?",
                  k.revoked_at as "revoked_at?"
           from commands c
           cross join lateral (
               select * from settled where settled.node_id = c.node_id and settled.seq = c.seq limit 1
           ) s
           left join node_certificates k on k.fingerprint = s.attested_by
           where c.id = any($1) and s.node_sig is not null"#,
        &ids,
    )
    .fetch_all(db)
    .await?;
    let parsed = rows.into_iter().map(|row| {
        let command = CommandId::from_uuid(row.id);
        Ok(SignedResult {
            command,
            node: NodeId::from_uuid(row.node_id),
            state: code::parse_state(&row.state).ok_or_else(|| corrupt("settled", "state", command))?,
            result: row.result,
            node_sig: row.node_sig,
            settled_at: row.settled_at,
            fingerprint: row.attested_by.try_into().map_err(|_| corrupt("settled", "attested_by", command))?,
            certificate: row.certificate,
            revoked_at: row.revoked_at,
        })
    });
    parsed.collect()
}
