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
