//! A runner's side of the SQL contract in `docs/runner.md`.
//!
//! **Invariant:** each call but `lease` can be repeated with its token and changes nothing the second time; so whatever got no answer
//! is asked again.

use std::str::FromStr;
use std::time::Duration;

use bc_proto::rules::lease::{CANCEL_CHANNEL, CHANNEL, Refusal};
use serde_json::Value;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions, PgRow};
use sqlx::{Row, types::Uuid};
use tokio::time::{Instant, timeout};

/// How long a call may take. The database answers in milliseconds; this is for one that is gone without a word.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a call did nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    /// The database says no, by the contract.
    #[error("{1}")]
    Refused(Refusal, String),
    /// Nobody knows: the database is away, or answers nothing of the contract. Ask again.
    #[error("{0}")]
    Away(String),
}

/// A command that is this runner's.
#[derive(Debug, Clone)]
pub(super) struct Leased {
    pub(super) id: Uuid,
    pub(super) action: String,
    pub(super) payload: Value,
    pub(super) token: i64,
    /// Until when the lease counts at the least: it was asked for before the database began to count.
    pub(super) until: Instant,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum End {
    /// With 0.
    Done,
    /// Otherwise.
    Failed { exit_code: Option<i32>, error: String },
}

/// What wakes a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// There may be a command, or there may have been word of one while nobody listened.
    Command,
    /// A command was called off.
    Cancel(Uuid),
    /// Nothing that concerns it.
    Nothing,
}

/// The database.
#[derive(Debug, Clone)]
pub(super) struct Database {
    pool: PgPool,
    slug: String,
}

/// Hears what the database tells.
pub(super) struct Listener {
    listener: PgListener,
    slug: String,
}

impl Database {
    /// Connects when it is first asked. `connections`: how many calls go on at once.
    pub(super) fn new(url: &str, slug: &str, name: &str, connections: u32) -> anyhow::Result<Self> {
        // The URL holds a password, so the error does not repeat it.
        let options = PgConnectOptions::from_str(url)
            .map_err(|_| {
                anyhow::anyhow!(
                    "the database's URL is none: postgres://LOGIN:PASSWORD@HOST/DATABASE?sslmode=verify-full"
                )
            })?
            .application_name(&format!("bcd-runner {name}"));
        // One more is the listener's.
        let pool = PgPoolOptions::new()
            .max_connections(connections + 1)
            .acquire_timeout(CALL_TIMEOUT)
            .connect_lazy_with(options);
        Ok(Self { pool, slug: slug.to_owned() })
    }

    /// Listens. Errors while the database is away.
    pub(super) async fn listen(&self) -> Result<Listener, Failed> {
        let connected = async {
            let mut listener = PgListener::connect_with(&self.pool).await?;
            listener.listen_all([CHANNEL, CANCEL_CHANNEL]).await?;
            Ok(listener)
        };
        Ok(Listener { listener: answered(connected).await?, slug: self.slug.clone() })
    }

    /// Claims the next command, if there is one.
    pub(super) async fn lease(&self, lease: Duration) -> Result<Option<Leased>, Failed> {
        let until = Instant::now() + lease;
        let call = sqlx::query("select id, action, payload, lease_token from lease_command($1, $2)");
        let row = answered(call.bind(&self.slug).bind(seconds(lease)).fetch_optional(&self.pool)).await?;
        row.map(|row| Self::leased(&row, until)).transpose().map_err(|error| Failed::Away(error.to_string()))
    }

    fn leased(row: &PgRow, until: Instant) -> sqlx::Result<Leased> {
        Ok(Leased {
            id: row.try_get("id")?,
            action: row.try_get("action")?,
            payload: row.try_get("payload")?,
            token: row.try_get("lease_token")?,
            until,
        })
    }

    /// Says that a command is about to run.
    pub(super) async fn start(&self, of: &Leased) -> Result<(), Failed> {
        let call = sqlx::query("select 1 from start_command($1, $2)").bind(of.id).bind(of.token);
        answered(call.fetch_one(&self.pool)).await.map(drop)
    }

    /// The heartbeat: until when the lease counts now, and whether the command was called off.
    pub(super) async fn renew(&self, of: &Leased, lease: Duration) -> Result<(Instant, bool), Failed> {
        let until = Instant::now() + lease;
        let call = sqlx::query("select cancel_requested_at is not null as off from renew_lease($1, $2, $3)");
        let row = answered(call.bind(of.id).bind(seconds(lease)).bind(of.token).fetch_one(&self.pool)).await?;
        row.try_get("off").map(|off| (until, off)).map_err(|error| Failed::Away(error.to_string()))
    }

    /// Tells a piece of output.
    pub(super) async fn append(&self, of: &Leased, stream: &str, offset: u64, bytes: &[u8]) -> Result<(), Failed> {
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        let call = sqlx::query("select append_output($1, $2, $3, $4, $5)");
        let call = call.bind(of.id).bind(stream).bind(offset).bind(bytes).bind(of.token);
        answered(call.execute(&self.pool)).await.map(drop)
    }

    /// Ends a command. `output`: what is kept of stdout and stderr.
    pub(super) async fn settle(&self, of: &Leased, end: &End, output: &[Value; 2]) -> Result<(), Failed> {
        let [stdout, stderr] = output;
        let call = match end {
            End::Done => sqlx::query("select 1 from complete_command_cut($1, 0, $2, $3, $4)")
                .bind(of.id)
                .bind(stdout)
                .bind(stderr)
                .bind(of.token),
            End::Failed { exit_code, error } => sqlx::query("select 1 from fail_command_cut($1, $2, $3, $4, $5, $6)")
                .bind(of.id)
                .bind(exit_code)
                .bind(stdout)
                .bind(stderr)
                .bind(error.replace('\0', "\u{fffd}"))
                .bind(of.token),
        };
        answered(call.fetch_one(&self.pool)).await.map(drop)
    }
}

impl Listener {
    /// What it hears next. After a connection that broke it is heard again, and what was said meanwhile is not: look for commands.
    pub(super) async fn hear(&mut self) -> Result<Told, Failed> {
        let heard = self.listener.try_recv().await.map_err(|error| failed(&error))?;
        let Some(heard) = heard else { return Ok(Told::Command) };
        Ok(match (heard.channel(), heard.payload()) {
            (CHANNEL, slug) if slug == self.slug => Told::Command,
            (CANCEL_CHANNEL, id) => id.parse().map_or(Told::Nothing, Told::Cancel),
            _ => Told::Nothing,
        })
    }
}

async fn answered<T>(call: impl Future<Output = sqlx::Result<T>>) -> Result<T, Failed> {
    match timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => answer.map_err(|error| failed(&error)),
        Err(_) => Err(Failed::Away(format!("the database does not answer within {CALL_TIMEOUT:?}"))),
    }
}

fn failed(error: &sqlx::Error) -> Failed {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    match code.and_then(|code| Refusal::of(&code)) {
        Some(refusal) => Failed::Refused(refusal, error.to_string()),
        None => Failed::Away(error.to_string()),
    }
}

fn seconds(lease: Duration) -> i32 {
    i32::try_from(lease.as_secs()).unwrap_or(i32::MAX)
}
