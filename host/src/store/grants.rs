//! `grants`: what identities may do.
//!
//! **Invariant:** a grant is added or it is there; adding it twice changes nothing.

use bc_proto::rules::permission::Grant;
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::Error;

/// What an identity may do, in a stable order.
pub async fn of(db: &mut PgConnection, identity: Uuid) -> Result<Vec<Grant>, Error> {
    let grants = sqlx::query_as!(
        Grant,
        "select permission, resource from grants where identity_id = $1 order by permission, resource",
        identity,
    )
    .fetch_all(db)
    .await?;
    Ok(grants)
}

/// Lets an identity do more.
pub async fn add(db: &mut PgConnection, identity: Uuid, grants: &[Grant], now: OffsetDateTime) -> Result<(), Error> {
    let permissions: Vec<_> = grants.iter().map(|grant| grant.permission.clone()).collect();
    let resources: Vec<_> = grants.iter().map(|grant| grant.resource.clone()).collect();
    sqlx::query!(
        "insert into grants (identity_id, permission, resource, created_at)
         select $1, permission, resource, $4 from unnest($2::text[], $3::text[]) as asked (permission, resource)
         on conflict do nothing",
        identity,
        &permissions,
        &resources,
        now,
    )
    .execute(db)
    .await?;
    Ok(())
}
