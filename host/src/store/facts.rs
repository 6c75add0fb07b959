//! What a database server says of itself.
//!
//! **Invariant:** it is asked without changing anything, also where the schema is not there yet.

use bc_proto::rules::doctor::Database;
use sqlx::PgPool;

use super::Error;

/// Asks.
pub async fn read(pool: &PgPool) -> Result<Database, Error> {
    let row = sqlx::query!(
        r#"select current_setting('server_version_num')::int as "version!",
                  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as "connections!",
                  (extract(epoch from clock_timestamp()) * 1000)::bigint as "now_ms!",
                  to_regrole('better_compute_runner') is not null as "has_runner_role!",
                  to_regclass('_sqlx_migrations') is not null as "is_migrated!""#
    )
    .fetch_one(pool)
    .await?;
    // The migrator makes this table itself, so no migration holds it, and nothing can be checked when this is compiled.
    let migrations = if row.is_migrated {
        sqlx::query_scalar::<_, i64>("select count(*) from _sqlx_migrations where success").fetch_one(pool).await?
    } else {
        0
    };
    Ok(Database {
        version: row.version.try_into().unwrap_or(0),
        connections: row.connections.try_into().unwrap_or(0),
        migrations: migrations.try_into().unwrap_or(0),
        has_runner_role: row.has_runner_role,
        now_ms: row.now_ms.try_into().unwrap_or(0),
    })
}
