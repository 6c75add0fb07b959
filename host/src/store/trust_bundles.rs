//! `trust_bundles`: what nodes were told to trust, version by version.
//!
//! **Invariant:** a version means one document for good.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{Error, signed, unsigned};

/// A bundle as it is relayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its version.
    pub version: u64,
    /// The signed bundle, JSON, exactly as nodes get it.
    pub document: Vec<u8>,
    /// The replica whose settings it was made of.
    pub replica: String,
}

/// Keeps others from adding one until the transaction is over.
pub async fn lock(db: &mut PgConnection) -> Result<(), Error> {
    sqlx::query!("lock table trust_bundles in share row exclusive mode").execute(db).await?;
    Ok(())
}

/// Those above a version, lowest first.
pub async fn above(db: &mut PgConnection, version: u64) -> Result<Vec<Stored>, Error> {
    let rows = sqlx::query!(
        "select version, document, replica from trust_bundles where version > $1 order by version",
        signed(version),
    );
    let rows = rows.fetch_all(db).await?.into_iter().map(|row| {
        let version = unsigned("trust_bundles", "version", row.version, row.version)?;
        Ok(Stored { version, document: row.document, replica: row.replica })
    });
    rows.collect()
}

/// The one that counts: the highest.
pub async fn latest(db: &mut PgConnection) -> Result<Option<Stored>, Error> {
    let row = sqlx::query!("select version, document, replica from trust_bundles order by version desc limit 1");
    let row = row.fetch_optional(db).await?;
    row.map(|row| {
        let version = unsigned("trust_bundles", "version", row.version, row.version)?;
        Ok(Stored { version, document: row.document, replica: row.replica })
    })
    .transpose()
}

/// Adds one.
pub async fn create(db: &mut PgConnection, bundle: &Stored, now: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!(
        "insert into trust_bundles (version, document, replica, created_at) values ($1, $2, $3, $4)",
        signed(bundle.version),
        bundle.document,
        bundle.replica,
        now,
    )
    .execute(db)
    .await?;
    Ok(())
}
