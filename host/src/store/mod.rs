//! The tables that are not the queue itself, a file each, and what all SQL shares.
//!
//! **Invariant:** outside `store` and `queue` nothing speaks SQL. A stored row that does not parse is an error which names it.

pub mod attestations;
pub mod backlog;
pub mod batches;
pub mod code;
pub mod command_lists;
pub mod commands;
pub mod components;
pub mod conditions;
pub mod events;
pub mod facts;
pub mod gateways;
pub mod grants;
pub mod identities;
pub mod join_tokens;
pub mod kinds;
pub mod node_certificates;
pub mod nodes;
pub mod output;
pub mod partitions;
pub mod quarantines;
pub mod releases;
pub mod remediations;
pub mod reservations;
pub mod rollouts;
pub mod runners;
pub mod secret_exchanges;
pub mod specs;
pub mod tenants;
pub mod tokens;
pub mod transparency;
pub mod trust_bundles;
pub mod uploads;
pub mod web_sessions;
pub mod webhook_deliveries;
pub mod webhooks;
pub mod worker_keys;
pub mod workflows;

use sqlx::PgPool;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::PgConnectOptions;
use time::OffsetDateTime;

/// The schema, compiled in.
pub static MIGRATIONS: Migrator = sqlx::migrate!("../migrations");

/// Why something could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database.
    #[error("the database did not do what it was asked")]
    Database(#[from] sqlx::Error),
    /// A row that should not exist.
    #[error("{table}.{column} of {row} holds what no version of this program writes")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The row's key.
        row: String,
    },
}

/// How a replica connects. Its statements find rows by their keys, and take milliseconds. Tables such as `ready` and `in_flight`
/// are empty at one moment and full at the next: a plan that was made while they were empty would read all of them for each row,
/// and an estimate that is far too high would have each of a storm's statements compiled first, which takes longer than it.
pub fn by_keys(options: PgConnectOptions) -> PgConnectOptions {
    options.options([("enable_seqscan", "off"), ("jit", "off")])
}

/// Brings the database's schema up to date. Replicas that start together wait for each other.
pub async fn migrate(pool: &PgPool) -> Result<(), MigrateError> {
    MIGRATIONS.run(pool).await
}

/// Whether the database answers.
pub async fn ping(db: &mut sqlx::PgConnection) -> Result<(), Error> {
    sqlx::query!("select 1 as one").fetch_one(db).await?;
    Ok(())
}

/// Whether the schema lacks a migration that this program was built with. A newer schema lacks none.
pub async fn lacks_migrations(db: &mut sqlx::PgConnection) -> Result<bool, Error> {
    let ours: Vec<i64> = MIGRATIONS.iter().map(|it| it.version).collect();
    // Unchecked by the compiler: the table is sqlx's, and no migration makes it.
    let missing = "select count(*) from unnest($1::bigint[]) as m (version)
                   where not exists (select from _sqlx_migrations s where s.version = m.version and s.success)";
    let missing: i64 = sqlx::query_scalar(missing).bind(ours).fetch_one(db).await?;
    Ok(missing > 0)
}

/// For `map_err` and `ok_or_else`: a column that does not parse.
#[expect(clippy::needless_pass_by_value, reason = "rows are named by ids that are copied, or by text made for it")]
pub(crate) fn corrupt(table: &'static str, column: &'static str, row: impl ToString) -> Error {
    Error::Corrupt { table, column, row: row.to_string() }
}

/// Milliseconds since the Unix epoch, as the rules count; times before 1970 count as 1970.
pub(crate) fn unix_ms(at: OffsetDateTime) -> u64 {
    u64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}

/// A number that the schema keeps from being negative.
pub(crate) fn unsigned(
    table: &'static str,
    column: &'static str,
    row: impl ToString,
    value: i64,
) -> Result<u64, Error> {
    u64::try_from(value).map_err(|_| corrupt(table, column, row))
}

/// A number as Postgres has it. What counts up to 2^63 here never gets there.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
