//! The SQLite file: opening it, checking it, and setting it aside.
//!
//! **Invariant:** trouble with the machine (no permission, a full or failing disk, another daemon) is an error and leaves the
//! file alone; anything else that keeps it from reading back is damage. So is being a copy: a journal that was restored from
//! a backup, or cloned with its machine, does not know what its original ran since.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bc_proto::id::{CommandId, JournalId};
use bc_proto::rules::daemon::Book;
use sha2::{Digest, Sha256};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteLockingMode, SqliteSynchronous};
use sqlx::{Connection, SqliteConnection};

use super::row::{Row, Wrong};
use super::{SetAside, Unusable, log};

/// What the tables are. A file with other ones is not this journal.
const TABLES: [(&str, &str); 3] = [
    // One row: which journal this is, and which file it was made as.
    (
        "journal",
        "CREATE TABLE journal (id TEXT NOT NULL, inode INTEGER NOT NULL, checksum BLOB NOT NULL, opened INTEGER NOT NULL) \
         STRICT",
    ),
    // Facts about commands in the order they became durable; `body` is JSON and names the fact, `result` holds a result's
    // bytes as they are reported, `checksum` is SHA-256 over the others.
    (
        "record",
        "CREATE TABLE record (n INTEGER PRIMARY KEY, command_id TEXT NOT NULL, body TEXT NOT NULL, result BLOB, \
         checksum BLOB NOT NULL) STRICT",
    ),
    ("record_command", "CREATE INDEX record_command ON record (command_id)"),
];

/// The format, in SQLite's `user_version`.
const FORMAT: i64 = 3;

pub(super) struct OpenFile {
    pub(super) connection: SqliteConnection,
    pub(super) id: JournalId,
    pub(super) next: i64,
    pub(super) book: Book,
}

/// Tells a file from its copies: its inode, which stays the same when it is renamed.
pub type Inode = fn(&Path) -> io::Result<i64>;

/// What the file system says.
pub(super) fn inode(path: &Path) -> io::Result<i64> {
    fs::metadata(path).map(|file| file.ino().cast_signed())
}

/// What keeps a file from being used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("{0}")]
    Content(String),
}

impl From<Wrong> for Trouble {
    fn from(wrong: Wrong) -> Self {
        Self::Content(wrong.to_string())
    }
}

/// SQLite's result codes that are about the machine, not about what is in the file.
const MACHINE: [i32; 8] = [3, 5, 6, 7, 9, 10, 13, 14];
/// A read that ended early: the file is cut.
const SHORT_READ: i32 = 522;

impl Trouble {
    fn is_damage(&self) -> bool {
        match self {
            Self::Content(_) => true,
            Self::Database(error) => {
                code(error).is_none_or(|code| code == SHORT_READ || !MACHINE.contains(&(code & 0xff)))
            }
        }
    }
}

fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// Whether a write failed for want of room.
pub(super) fn is_full(error: &sqlx::Error) -> bool {
    // SQLITE_FULL, and SQLITE_IOERR_WRITE for file systems that promise more than they have.
    code(error).is_some_and(|code| code & 0xff == 13 || code == 778)
}

/// Opens the file; a damaged one is renamed after the journal that follows it.
pub(super) async fn open_or_set_aside(
    path: &Path,
    id: JournalId,
    inode: Inode,
) -> Result<(OpenFile, Option<SetAside>), Unusable> {
    let unusable = |error| Unusable::File { path: path.to_owned(), error };
    let database = |trouble| match trouble {
        Trouble::Database(error) => Unusable::Database { path: path.to_owned(), error },
        Trouble::Content(text) => unusable(io::Error::other(text)),
    };
    let exists = path.try_exists().map_err(unusable)?;
    let reason = if exists {
        // A file that may not be written is the machine's trouble; SQLite says the same of some damaged ones.
        File::options().read(true).write(true).open(path).map_err(unusable)?;
        let log = match fs::read(beside(path, "-wal")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            log => log.map_err(unusable)?,
        };
        let opened = match log::damage(&log) {
            Some(damage) => Err(Trouble::Content(damage)),
            None => open(path, inode).await,
        };
        match opened {
            Ok(file) => return Ok((file, None)),
            Err(trouble) if trouble.is_damage() => trouble.to_string(),
            Err(trouble) => return Err(database(trouble)),
        }
    } else if beside(path, "-wal").exists() {
        "the file is gone and its write-ahead log is not".to_owned()
    } else {
        return Ok((create(path, id, inode).await.map_err(database)?, None));
    };
    let aside = set_aside(path, id).map_err(unusable)?;
    tracing::error!(reason, path = %aside.display(), "the journal is damaged: it is set aside, and a new one begins");
    let file = create(path, id, inode).await.map_err(database)?;
    Ok((file, Some(SetAside { path: aside, reason })))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn set_aside(path: &Path, id: JournalId) -> io::Result<PathBuf> {
    let aside = beside(path, &format!(".before-{id}"));
    for suffix in ["", "-wal", "-shm"] {
        match fs::rename(beside(path, suffix), beside(&aside, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        File::open(folder)?.sync_all()?;
    }
    Ok(aside)
}

async fn connect(path: &Path, create: bool) -> Result<SqliteConnection, sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(create)
        .page_size(log::PAGE_BYTES)
        // One daemon has it, and the log's index is in memory rather than in a file that could be damaged too.
        .locking_mode(SqliteLockingMode::Exclusive)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(std::time::Duration::ZERO)
        .pragma("cell_size_check", "ON")
        .pragma("trusted_schema", "OFF");
    SqliteConnection::connect_with(&options).await
}

async fn create(path: &Path, id: JournalId, inode: Inode) -> Result<OpenFile, Trouble> {
    let mut connection = connect(path, true).await?;
    let inode = of(path, inode)?;
    let mut transaction = connection.begin().await?;
    for (_, statement) in TABLES {
        sqlx::query(statement).execute(&mut *transaction).await?;
    }
    sqlx::query("INSERT INTO journal (id, inode, checksum, opened) VALUES (?, ?, ?, 0)")
        .bind(id.to_string())
        .bind(inode)
        .bind(checksum(&id.to_string(), inode))
        .execute(&mut *transaction)
        .await?;
    sqlx::query("PRAGMA user_version = 3").execute(&mut *transaction).await?;
    transaction.commit().await?;
    // The id is in the file itself from here on, so that a lost log cannot take it along.
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await?;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| Trouble::Database(sqlx::Error::Io(error)))?;
    }
    Ok(OpenFile { connection, id, next: 1, book: Book::default() })
}

fn checksum(id: &str, inode: i64) -> Vec<u8> {
    Sha256::digest(format!("{id} {inode}")).to_vec()
}

fn of(path: &Path, inode: Inode) -> Result<i64, Trouble> {
    inode(path).map_err(|error| Trouble::Database(sqlx::Error::Io(error)))
}

async fn open(path: &Path, inode: Inode) -> Result<OpenFile, Trouble> {
    let mut connection = connect(path, false).await?;
    match check(&mut connection, of(path, inode)?).await {
        Ok((id, book, next)) => Ok(OpenFile { connection, id, next, book }),
        Err(trouble) => {
            // Not closed in the ordinary way: that would write into a file which is to be kept as it was found.
            let _ = connection.close_hard().await;
            Err(trouble)
        }
    }
}

async fn check(connection: &mut SqliteConnection, inode: i64) -> Result<(JournalId, Book, i64), Trouble> {
    let content = |text: String| Err(Trouble::Content(text));
    let found: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(3)").fetch_all(&mut *connection).await?;
    if found != ["ok"] {
        return content(found.join("; "));
    }
    let format: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *connection).await?;
    if format != FORMAT {
        return content(format!("its format is {format}, not {FORMAT}"));
    }
    let tables: Vec<(String, String)> =
        sqlx::query_as("SELECT name, sql FROM sqlite_schema ORDER BY rowid").fetch_all(&mut *connection).await?;
    if !tables.iter().map(|(name, sql)| (name.as_str(), sql.as_str())).eq(TABLES) {
        return content("its tables are not a journal's".into());
    }
    let ids: Vec<(String, i64, Vec<u8>)> =
        sqlx::query_as("SELECT id, inode, checksum FROM journal").fetch_all(&mut *connection).await?;
    let [(id, made_as, sum)] = &ids[..] else { return content(format!("it has {} ids", ids.len())) };
    let Some(id) = id.parse::<JournalId>().ok().filter(|_| *sum == checksum(id, *made_as)) else {
        return content("its id is damaged".into());
    };
    if *made_as != inode {
        return content(format!("it is a copy: it was made as inode {made_as} and is inode {inode}"));
    }
    let (book, next) = read(connection).await?;
    // It must take a write now, rather than fail when the first command comes.
    sqlx::query("UPDATE journal SET opened = opened + 1").execute(&mut *connection).await?;
    Ok((id, book, next))
}

/// Reads all records; answers the next record's number too.
pub(super) async fn read(connection: &mut SqliteConnection) -> Result<(Book, i64), Trouble> {
    let rows: Vec<Row> = sqlx::query_as("SELECT n, command_id, body, result, checksum FROM record ORDER BY n")
        .fetch_all(&mut *connection)
        .await?;
    let next = rows.last().map_or(1, |row| row.n + 1);
    let mut book = Book::default();
    for row in rows {
        book.add(row.record()?).map_err(|error| Trouble::Content(error.to_string()))?;
    }
    Ok((book, next))
}

pub(super) async fn insert(connection: &mut SqliteConnection, row: &Row) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO record (n, command_id, body, result, checksum) VALUES (?, ?, ?, ?, ?)")
        .bind(row.n)
        .bind(&row.command_id)
        .bind(&row.body)
        .bind(&row.result)
        .bind(&row.checksum)
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn forget(connection: &mut SqliteConnection, command: CommandId) -> Result<(), sqlx::Error> {
    let command = command.to_string();
    sqlx::query("DELETE FROM record WHERE command_id = ?").bind(command).execute(connection).await?;
    Ok(())
}
