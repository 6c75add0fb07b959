//! `node_certificates`: the certificates that were issued to nodes.
//!
//! **Invariant:** a certificate that is not here opens no session, whoever signed it.

use std::collections::HashMap;

use bc_proto::id::NodeId;
use bc_proto::sign::PublicKey;
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgTransaction};
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
    /// The Ed25519 key in it.
    pub key: PublicKey,
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
         insert into node_certificates (fingerprint, node_id, incarnation, certificate, allowed_kinds, not_before, not_after,
                                        public_key)
         values ($1, $2, $3, $4, $5, $7, $6, $8)",
        &new.fingerprint[..],
        new.node.uuid(),
        signed(new.incarnation),
        new.der,
        new.allowed_kinds as Option<&[String]>,
        new.not_after,
        now,
        &new.key.as_bytes()[..],
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

/// A certificate as its operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// The life that it is for.
    pub incarnation: u64,
    /// Its key; `None` for one that is not Ed25519.
    pub key: Option<Vec<u8>>,
    /// The only kinds that it allows; `None` for all.
    pub allowed_kinds: Option<Vec<String>>,
    /// When it was issued.
    pub not_before: OffsetDateTime,
    /// The end of its validity.
    pub not_after: OffsetDateTime,
    /// Since when it is revoked.
    pub revoked_at: Option<OffsetDateTime>,
}

/// The certificates of a node, the newest first; at most a thousand of them.
pub async fn list(db: &mut PgConnection, node: NodeId) -> Result<Vec<Listed>, Error> {
    let rows = sqlx::query!(
        "select fingerprint, incarnation, public_key, allowed_kinds, not_before, not_after, revoked_at
         from node_certificates where node_id = $1 order by not_before desc, fingerprint limit 1000",
        node.uuid(),
    )
    .fetch_all(db)
    .await?;
    let parsed = rows.into_iter().map(|row| {
        let bad = |_| corrupt("node_certificates", "fingerprint", node);
        Ok(Listed {
            fingerprint: Fingerprint::try_from(row.fingerprint).map_err(bad)?,
            incarnation: unsigned("node_certificates", "incarnation", node, row.incarnation)?,
            key: row.public_key,
            allowed_kinds: row.allowed_kinds,
            not_before: row.not_before,
            not_after: row.not_after,
            revoked_at: row.revoked_at,
        })
    });
    parsed.collect()
}

/// Keeps a node's certificates from being revoked, and its life from ending, until the transaction ends. Returns whether the node
/// is there.
pub async fn hold(db: &mut PgTransaction<'_>, node: NodeId) -> Result<bool, Error> {
    let found = sqlx::query_scalar!(
        r#"select true as "found!" from nodes where id = $1 and deleted_at is null for share"#,
        node.uuid(),
    );
    Ok(found.fetch_optional(&mut **db).await?.is_some())
}

/// Revokes one certificate of a node, or all that count, and fences off the node's session: what it says after the commit has no
/// effect, whichever replica holds it. A node with another certificate opens a new one. Returns what was revoked by this call.
pub async fn revoke(
    db: &mut PgTransaction<'_>,
    node: NodeId,
    fingerprint: Option<Fingerprint>,
    now: OffsetDateTime,
) -> Result<Vec<Fingerprint>, Error> {
    // First, so that a renewal that is under way is waited for and found.
    sqlx::query!(
        "update nodes set session_epoch = session_epoch + 1, session_closed_at = coalesce(session_closed_at, $2)
         where id = $1",
        node.uuid(),
        now,
    )
    .execute(&mut **db)
    .await?;
    let revoked = sqlx::query_scalar!(
        "update node_certificates set revoked_at = $3
         where node_id = $1 and revoked_at is null and ($2::bytea is null or fingerprint = $2)
         returning fingerprint",
        node.uuid(),
        fingerprint.map(|it| it.to_vec()) as Option<Vec<u8>>,
        now,
    )
    .fetch_all(&mut **db)
    .await?;
    let parsed =
        revoked.into_iter().map(|it| it.try_into().map_err(|_| corrupt("node_certificates", "fingerprint", node)));
    parsed.collect()
}
