//! `kinds`: the registered components.
//!
//! **Invariant:** a component is never changed or deleted, since commands are bound to its digest; at most one of a name is
//! active.

use bc_proto::manifest::Manifest;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{Error, code, signed};

/// SHA-256 of a component.
pub type Digest = [u8; 32];

/// Registers a component and makes it the active one of its name; registering the same again changes nothing else. In a
/// transaction of the caller's: two statements.
pub async fn activate(
    db: &mut PgConnection,
    digest: Digest,
    manifest: &Manifest,
    component: &[u8],
    now: OffsetDateTime,
) -> Result<(), Error> {
    sqlx::query!(
        "update kinds set status = 'retired' where name = $1 and status = 'active' and digest <> $2",
        manifest.name,
        &digest[..],
    )
    .execute(&mut *db)
    .await?;
    let traits: Vec<String> = manifest.traits.iter().map(|&it| code::trait_of_kind(it).to_owned()).collect();
    let json = serde_json::to_value(manifest).expect("a manifest has string keys and finite numbers");
    let timeout_ms = u64::try_from(manifest.timeout.0.as_millis()).unwrap_or(u64::MAX);
    sqlx::query!(
        "insert into kinds (digest, name, version, lane, timeout_ms, traits, manifest, component, status, created_at)
         values ($1, $2, $3, $4::text::lane, $5, $6, $7, $8, 'active', $9)
         on conflict (digest) do update set status = 'active'",
        &digest[..],
        manifest.name,
        manifest.version.to_string(),
        code::lane(manifest.lane),
        signed(timeout_ms),
        &traits,
        json,
        component,
        now,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Takes a name out of service: no new commands, and those bound to its components get the timeout of a kind that is no
/// longer registered when they are sent.
pub async fn withdraw(db: &mut PgConnection, name: &str) -> Result<bool, Error> {
    let done = sqlx::query!("update kinds set status = 'withdrawn' where name = $1 and status <> 'withdrawn'", name)
        .execute(db)
        .await?;
    Ok(done.rows_affected() > 0)
}
