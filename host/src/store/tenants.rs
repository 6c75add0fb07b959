//! `tenants`: who owns nodes and commands.
//!
//! **Invariant:** a tenant's name and id both mean that tenant alone.

use bc_proto::id::TenantId;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::Error;

/// Creates a tenant. Errors when the name is taken.
pub async fn create(db: &mut PgConnection, id: TenantId, name: &str, now: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!("insert into tenants (id, name, created_at) values ($1, $2, $3)", id.uuid(), name, now)
        .execute(db)
        .await?;
    Ok(())
}

/// The tenant of a name; it is created, with this id, if there is none.
pub async fn ensure(db: &mut PgConnection, id: TenantId, name: &str, now: OffsetDateTime) -> Result<TenantId, Error> {
    // The update changes nothing; without one, a row that was there is not returned.
    let id = sqlx::query_scalar!(
        "insert into tenants (id, name, created_at) values ($1, $2, $3)
         on conflict (name) do update set name = excluded.name returning id",
        id.uuid(),
        name,
        now,
    )
    .fetch_one(db)
    .await?;
    Ok(TenantId::from_uuid(id))
}
