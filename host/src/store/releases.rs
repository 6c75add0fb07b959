//! `releases` and `release_chunks`: binaries of the daemon.
//!
//! **Invariant:** a release whose row is there has all of its pieces, and together they have its digest.

use bc_proto::rules::releases::ReleaseSignature;
use bc_proto::sign::{PublicKey, Signature};
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::kinds::Digest;
use super::{Error, corrupt, signed, unsigned};

/// The size of a piece, bytes: well below every limit of a message.
pub const CHUNK_BYTES: usize = 512 * 1_024;

/// A binary of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// SHA-256 of the file.
    pub sha256: Digest,
    /// Its version, semver.
    pub version: String,
    /// What it runs on.
    pub target: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its publisher's signature; `None` for one that is not signed.
    pub signature: Option<ReleaseSignature>,
    /// Who pushed it.
    pub pushed_by: String,
    /// When it was pushed.
    pub pushed_at: OffsetDateTime,
}

struct Row {
    sha256: Vec<u8>,
    version: String,
    target: String,
    size_bytes: i64,
    publisher: Option<Vec<u8>>,
    publisher_sig: Option<Vec<u8>>,
    pushed_by: String,
    pushed_at: OffsetDateTime,
}

impl TryFrom<Row> for Release {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let named = hex::encode(&row.sha256);
        let signature = row.publisher.zip(row.publisher_sig).map(|(publisher, signature)| {
            let publisher = publisher.try_into().ok().and_then(|key| PublicKey::from_bytes(key).ok());
            let publisher = publisher.ok_or_else(|| corrupt("releases", "publisher", &named))?;
            let signature = Signature::from_slice(&signature);
            let signature = signature.map_err(|_| corrupt("releases", "publisher_sig", &named))?;
            Ok::<_, Error>(ReleaseSignature { publisher, signature })
        });
        Ok(Self {
            sha256: row.sha256.try_into().map_err(|_| corrupt("releases", "sha256", &named))?,
            version: row.version,
            target: row.target,
            size_bytes: unsigned("releases", "size_bytes", &named, row.size_bytes)?,
            signature: signature.transpose()?,
            pushed_by: row.pushed_by,
            pushed_at: row.pushed_at,
        })
    }
}

/// Keeps others from pushing a version for a target until the transaction ends.
pub async fn lock(db: &mut PgTransaction<'_>, version: &str, target: &str) -> Result<(), Error> {
    let name = format!("release/{version}/{target}");
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended($1, 0))", name).execute(&mut **db).await?;
    Ok(())
}

/// The file of a version for a target.
pub async fn of_version(db: &mut PgConnection, version: &str, target: &str) -> Result<Option<Release>, Error> {
    let row = sqlx::query_as!(
        Row,
        "select sha256, version, target, size_bytes, publisher, publisher_sig, pushed_by, pushed_at
         from releases where version = $1 and target = $2",
        version,
        target,
    );
    row.fetch_optional(db).await?.map(Release::try_from).transpose()
}

/// The release with a digest.
pub async fn find(db: &mut PgConnection, sha256: Digest) -> Result<Option<Release>, Error> {
    let row = sqlx::query_as!(
        Row,
        "select sha256, version, target, size_bytes, publisher, publisher_sig, pushed_by, pushed_at
         from releases where sha256 = $1",
        &sha256[..],
    );
    row.fetch_optional(db).await?.map(Release::try_from).transpose()
}

/// The newest so many of them.
pub async fn list(db: &mut PgConnection, limit: u32) -> Result<Vec<Release>, Error> {
    let rows = sqlx::query_as!(
        Row,
        "select sha256, version, target, size_bytes, publisher, publisher_sig, pushed_by, pushed_at
         from releases order by pushed_at desc, sha256 limit $1",
        i64::from(limit),
    );
    rows.fetch_all(db).await?.into_iter().map(Release::try_from).collect()
}

/// Writes a piece of a release whose row follows.
pub async fn insert_chunk(db: &mut PgTransaction<'_>, sha256: Digest, seq: i32, bytes: &[u8]) -> Result<(), Error> {
    sqlx::query!("insert into release_chunks (sha256, seq, bytes) values ($1, $2, $3)", &sha256[..], seq, bytes,)
        .execute(&mut **db)
        .await?;
    Ok(())
}

/// Writes a release all of whose pieces were written in this transaction, and checked.
pub async fn insert(db: &mut PgTransaction<'_>, release: &Release) -> Result<(), Error> {
    sqlx::query!(
        "insert into releases (sha256, version, target, size_bytes, publisher, publisher_sig, pushed_by, pushed_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8)",
        &release.sha256[..],
        release.version,
        release.target,
        signed(release.size_bytes),
        release.signature.as_ref().map(|it| it.publisher.as_bytes().to_vec()),
        release.signature.as_ref().map(|it| it.signature.as_bytes().to_vec()),
        release.pushed_by,
        release.pushed_at,
    )
    .execute(&mut **db)
    .await?;
    Ok(())
}

/// A piece of a release; `None` past its last.
pub async fn chunk(db: &mut PgConnection, sha256: Digest, seq: i32) -> Result<Option<Vec<u8>>, Error> {
    let bytes =
        sqlx::query_scalar!("select bytes from release_chunks where sha256 = $1 and seq = $2", &sha256[..], seq);
    Ok(bytes.fetch_optional(db).await?)
}
