//! `web_sessions`: browsers that logged in.
//!
//! **Invariant:** the hash of a session's secret alone is stored; a session says whose token it stands for and nothing of what
//! that may do, which is looked up anew for every page.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::tokens;
use super::{Error, corrupt};

/// SHA-256 of a session's secret.
pub type Hash = [u8; 32];

/// A session that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// The token that it stands for.
    pub token: tokens::Hash,
    /// When a person last used it, to the minute.
    pub seen_at: OffsetDateTime,
}

/// Adds a session.
pub async fn create(
    db: &mut PgConnection,
    hash: Hash,
    token: tokens::Hash,
    now: OffsetDateTime,
    expires_at: OffsetDateTime,
) -> Result<(), Error> {
    sqlx::query!(
        "insert into web_sessions (hash, token_hash, created_at, seen_at, expires_at) values ($1, $2, $3, $3, $4)",
        &hash[..],
        &token[..],
        now,
        expires_at,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The session with a hash, if it is not over at `now` and was used after `idle_since`.
pub async fn find(
    db: &mut PgConnection,
    hash: Hash,
    now: OffsetDateTime,
    idle_since: OffsetDateTime,
) -> Result<Option<Session>, Error> {
    let row = sqlx::query!(
        "select token_hash, seen_at from web_sessions where hash = $1 and expires_at > $2 and seen_at > $3",
        &hash[..],
        now,
        idle_since,
    )
    .fetch_optional(db)
    .await?;
    row.map(|row| {
        let token = row.token_hash.try_into().map_err(|_| corrupt("web_sessions", "token_hash", hex::encode(hash)))?;
        Ok(Session { token, seen_at: row.seen_at })
    })
    .transpose()
}

/// Notes that a person used it.
pub async fn touch(db: &mut PgConnection, hash: Hash, now: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!("update web_sessions set seen_at = $2 where hash = $1 and seen_at < $2", &hash[..], now)
        .execute(db)
        .await?;
    Ok(())
}

/// Ends a session. Ending it again changes nothing.
pub async fn delete(db: &mut PgConnection, hash: Hash) -> Result<(), Error> {
    sqlx::query!("delete from web_sessions where hash = $1", &hash[..]).execute(db).await?;
    Ok(())
}

/// Deletes those that are over.
pub async fn delete_over(db: &mut PgConnection, now: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!("delete from web_sessions where expires_at <= $1", now).execute(db).await?;
    Ok(())
}
