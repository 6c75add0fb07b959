//! The node's durable memory: what it accepted, started, did, and what came of it. One SQLite file.
//!
//! Records are only ever added, each with a checksum over all of it, and deleted when the control plane has settled their
//! command for good. Reading them in order gives a [`Book`].
//!
//! **Invariant:** what [`Journal::save`] and the effect methods return for is on the disk. A file that does not read back as
//! it was written is never used and never deleted: it is set aside, and a journal with another id begins.

mod file;
mod log;
mod reserve;
mod row;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bc_proto::id::{CommandId, JournalId};
use bc_proto::rules::daemon::{Book, Record};
use bc_runtime::effect::{Effect, EffectJournal};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::Mutex;

pub use self::file::Inode;
use self::reserve::Reserve;
use self::row::Row;
use crate::faults::crash_at;
use crate::metrics;

/// Room that is kept for terminal records, in bytes: the results of all workers (8 + 4 + 2) at their largest (1 MiB each,
/// and what says how they ended), once in the write-ahead log and once in the file.
pub const RESERVE_BYTES: u64 = 32 * 1024 * 1024;

/// Why the journal cannot be used. A damaged file is no error: it is set aside.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Unusable {
    #[error("the journal {} cannot be used: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("the journal {} cannot be opened: {error}", path.display())]
    Database { path: PathBuf, error: sqlx::Error },
}

/// A record that did not become durable.
#[derive(Debug, thiserror::Error)]
#[error("the journal did not take a record: {0}")]
pub struct NotSaved(#[from] sqlx::Error);

/// A file that did not read back as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// Where it is now.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// What opening gives.
pub struct Opened {
    /// The journal.
    pub journal: Journal,
    /// What is in it.
    pub book: Book,
    /// The damaged file that was there before.
    pub set_aside: Option<SetAside>,
}

/// The journal; clones are handles to one.
#[derive(Clone)]
pub struct Journal(Arc<Inner>);

struct Inner {
    id: JournalId,
    writer: Mutex<Writer>,
    reserve: Reserve,
}

struct Writer {
    connection: SqliteConnection,
    /// The next record's number.
    next: i64,
}

impl Journal {
    /// Opens the journal, or makes it. `random` makes the id of a new one; `reserve_bytes` are kept for terminal records.
    pub async fn open(path: &Path, random: [u8; 16], reserve_bytes: u64) -> Result<Opened, Unusable> {
        Self::open_as(path, random, reserve_bytes, file::inode).await
    }

    /// As [`Journal::open`], where `inode` tells a file from its copies: for an image of a disk, whose files have other numbers.
    pub async fn open_as(path: &Path, random: [u8; 16], reserve_bytes: u64, inode: Inode) -> Result<Opened, Unusable> {
        let id = JournalId::from_uuid(uuid::Builder::from_random_bytes(random).into_uuid());
        let (file, set_aside) = file::open_or_set_aside(path, id, inode).await?;
        let reserve = Reserve::new(Self::reserve(path), reserve_bytes);
        let writer = Mutex::new(Writer { connection: file.connection, next: file.next });
        let journal = Self(Arc::new(Inner { id: file.id, writer, reserve }));
        Ok(Opened { journal, book: file.book, set_aside })
    }

    /// The file whose blocks are kept for terminal records, beside the journal: there while they are kept.
    pub fn reserve(journal: &Path) -> PathBuf {
        journal.with_extension("reserve")
    }

    /// Which life of the node's memory this is.
    pub fn id(&self) -> JournalId {
        self.0.id
    }

    /// Whether room is kept for the terminal record of one more command. Asks the file system only when it was not.
    pub fn has_room(&self) -> bool {
        self.0.reserve.keep()
    }

    /// Returns when all of the records are durable, or none of them is. A full disk gets the reserve.
    pub async fn save(&self, records: &[Record]) -> Result<(), NotSaved> {
        if records.is_empty() {
            return Ok(());
        }
        let mut writer = self.0.writer.lock().await;
        let began = Instant::now();
        let saved = self.save_by(&mut writer, records).await;
        metrics::saved(began.elapsed(), saved.is_ok());
        saved
    }

    async fn save_by(&self, writer: &mut Writer, records: &[Record]) -> Result<(), NotSaved> {
        let first = match writer.save(records).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if !file::is_full(&first) || !self.0.reserve.give_back() {
            return Err(NotSaved(first));
        }
        tracing::warn!("the disk is full: the journal writes into its reserve, and no more commands are accepted");
        Ok(writer.save(records).await?)
    }

    /// Where the effects of one attempt at one command are written down.
    pub fn effects_of(&self, command: CommandId, attempt: u32) -> Arc<dyn EffectJournal> {
        Arc::new(Effects { journal: self.clone(), command, attempt })
    }

    /// Reads the journal back, as a restart would.
    pub async fn read(&self) -> Result<Book, String> {
        let mut writer = self.0.writer.lock().await;
        file::read(&mut writer.connection).await.map(|(book, _)| book).map_err(|trouble| trouble.to_string())
    }

    /// Closes the file, when this is the last handle.
    pub async fn close(self) {
        if let Some(inner) = Arc::into_inner(self.0)
            && let Err(error) = inner.writer.into_inner().connection.close().await
        {
            tracing::warn!(%error, "the journal was not closed");
        }
    }
}

impl Writer {
    async fn save(&mut self, records: &[Record]) -> Result<(), sqlx::Error> {
        let mut next = self.next;
        let mut transaction = self.connection.begin().await?;
        for record in records {
            match record {
                Record::Forgotten { command } => {
                    file::forget(&mut transaction, *command).await?;
                    continue;
                }
                // The newest one says it all.
                Record::ReplayFloor { .. } => file::forget(&mut transaction, record.command()).await?,
                _ => {}
            }
            file::insert(&mut transaction, &Row::of(next, record)).await?;
            next += 1;
        }
        transaction.commit().await?;
        self.next = next;
        Ok(())
    }
}

struct Effects {
    journal: Journal,
    command: CommandId,
    attempt: u32,
}

impl Effects {
    async fn save(&self, effect: &Effect) -> Result<(), String> {
        let record = Record::Effect {
            command: self.command,
            attempt: self.attempt,
            seq: effect.seq,
            effect: serde_json::to_value(effect).map_err(|error| error.to_string())?,
        };
        self.journal.save(&[record]).await.map_err(|error| error.to_string())
    }
}

#[async_trait]
impl EffectJournal for Effects {
    async fn intent(&self, effect: &Effect) -> Result<(), String> {
        crash_at("effect.before-intent");
        self.save(effect).await?;
        crash_at("effect.after-intent");
        Ok(())
    }

    async fn outcome(&self, effect: &Effect) -> Result<(), String> {
        crash_at("effect.before-outcome");
        self.save(effect).await?;
        crash_at("effect.after-outcome");
        Ok(())
    }
}
