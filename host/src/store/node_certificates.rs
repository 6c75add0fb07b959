//! `node_certificates`: the certificates that were issued to nodes.
//!
//! **Invariant:** a certificate that is not here opens no session, whoever signed it.

use std::collections::HashMap;

use bc_proto::id::NodeId;
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::{Error, corrupt, signed, unsigned};

/// SHA-256 of a certificate.
pub type Fingerprint = [u8; 32];

/// A certificate to record.
#[derive(Debug, Clone)]
pub struct NewCertificate<'a> {
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// Whose it is.
    pub node: NodeId,
    /// For which life.
    pub incarnation: u64,
    /// X.509, DER.
    pub der: &'a [u8],
    /// The only kinds that it allows; `None` for all.
    pub allowed_kinds: Option<&'a [String]>,
    /// The end of its validity.
    pub not_after: OffsetDateTime,
}

/// A certificate that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Whose it is.
    pub node: NodeId,
    /// For which life.
    pub incarnation: u64,
    /// The only kinds that it allows; `None` for all.
    pub allowed_kinds: Option<Vec<String>>,
}

/// Records a certificate, and revokes those of earlier lives of the node.
pub async fn create(db: &mut PgConnection, new: NewCertificate<'_>, now: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!(
        "with revoked as (
            update node_certificates set revoked_at = $7
            where node_id = $2 and incarnation < $3 and revoked_at is null
         )
         insert into node_certificates (fingerprint, node_id, incarnation, certificate, allowed_kinds, not_before, not_after)
         values ($1, $2, $3, $4, $5, $7, $6)",
        &new.fingerprint[..],
        new.node.uuid(),
        signed(new.incarnation),
        new.der,
        new.allowed_kinds as Option<&[String]>,
        new.not_after,
        now,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Those of these certificates that count: recorded, not revoked, and of the node's present life.
pub async fn find_many(
    db: &mut PgConnection,
    fingerprints: &[Fingerprint],
) -> Result<HashMap<Fingerprint, Certificate>, Error> {
    let asked: Vec<Vec<u8>> = fingerprints.iter().map(|it| it.to_vec()).collect();
    let rows = sqlx::query!(
        "select c.fingerprint, c.node_id, c.incarnation, c.allowed_kinds
         from node_certificates c
         join nodes n on n.id = c.node_id and n.incarnation = c.incarnation and n.deleted_at is null
         where c.fingerprint = any($1) and c.revoked_at is null",
        &asked,
    )
    .fetch_all(db)
    .await?;
    let parsed = rows.into_iter().map(|row| {
        let node: Uuid = row.node_id;
        let bad = |_| corrupt("node_certificates", "fingerprint", node);
        let certificate = Certificate {
            node: NodeId::from_uuid(node),
            incarnation: unsigned("node_certificates", "incarnation", node, row.incarnation)?,
            allowed_kinds: row.allowed_kinds,
        };
        Ok((Fingerprint::try_from(row.fingerprint).map_err(bad)?, certificate))
    });
    parsed.collect()
}
