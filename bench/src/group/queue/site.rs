//! The server that all sides of group A share.
//!
//! **Invariant:** every side works on the same server with the same settings, `fsync` on, each in a database of its own.

use anyhow::Context;
use bc_host::postgres::PrivatePostgres;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;

/// Where the data of a whole run lies: `/tmp` can be memory.
const TARGET: &str = "target";

/// A private Postgres, new for each run.
pub(crate) struct Site {
    // In this order: the server is stopped before its folder goes.
    server: PrivatePostgres,
    _folder: TempDir,
}

/// A folder for a run's own data. A quick run's lies where temporary files do.
pub(crate) fn folder(quick: bool, prefix: &str) -> anyhow::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix);
    if quick {
        return Ok(builder.tempdir()?);
    }
    std::fs::create_dir_all(TARGET)?;
    Ok(builder.tempdir_in(TARGET)?)
}

impl Site {
    /// Starts it.
    pub(crate) fn start(quick: bool) -> anyhow::Result<Self> {
        let folder = folder(quick, "bench-postgres-")?;
        Ok(Self { server: PrivatePostgres::start(folder.path())?, _folder: folder })
    }

    /// A new, empty database.
    pub(crate) async fn database(&self, name: &str) -> anyhow::Result<PgConnectOptions> {
        let mut db = self.connect("postgres").await?;
        // Names are this program's own words.
        let create = format!("create database {name}");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut db).await.with_context(|| format!("database {name}"))?;
        Ok(self.server.connect_options(name))
    }

    pub(crate) async fn connect(&self, database: &str) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect_with(&self.server.connect_options(database)).await?)
    }

    /// What other programs connect with.
    pub(crate) fn url(&self, database: &str) -> String {
        self.server.url(database)
    }

    pub(crate) fn server(&self) -> &PrivatePostgres {
        &self.server
    }
}
