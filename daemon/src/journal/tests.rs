use std::collections::BTreeSet;
use std::fs;

use bc_proto::id::NodeId;
use bc_proto::manifest::{Lane, Trait};
use bc_proto::wire::{Deliver, Report, Update};
use bc_runtime::effect::State;
use serde_json::json;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;

const RESERVE: u64 = 64 * 1024;

fn id(seq: u64) -> CommandId {
    CommandId::from_uuid(Uuid::from_u128(u128::from(seq)))
}

fn records(seq: u64) -> Vec<Record> {
    let deliver = Deliver {
        command: id(seq),
        seq,
        node: NodeId::from_uuid(Uuid::from_u128(7)),
        incarnation: 1,
        kind: "diag.nvml".into(),
        kind_digest: "ab".repeat(32),
        payload: json!({ "text": "é\u{0}\"", "float": 0.1, "long": "x".repeat(200) }),
        not_after_ms: u64::MAX,
        timeout_ms: 60_000,
        min_generation: Some(3),
        signature: None,
        batch: None,
        approved: None,
        upload: None,
    };
    let update = Update {
        command: id(seq),
        report: Report::Succeeded,
        reason: String::new(),
        result: format!("{{\"b\":1, \"a\":\"{}\"}}", "y".repeat(3_000)).into_bytes(),
        at_ms: 1,
        node_sig: Vec::new(),
    };
    vec![
        Record::Accepted {
            deliver: Box::new(deliver),
            lane: Lane::Bulk,
            traits: BTreeSet::from([Trait::RetrySafe]),
            boot: "boot-1".into(),
            at_ms: 1,
        },
        Record::Started { command: id(seq), attempt: 1, boot: "boot-1".into() },
        Record::CancelRequested { command: id(seq) },
        Record::Finished { update },
        Record::Acknowledged { command: id(seq) },
    ]
}

struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("journal.db")
    }

    /// As if it were the file that it was made as: images of it are written to other places.
    async fn open(&self, random: u8) -> Opened {
        Journal::open_as(&self.path(), [random; 16], RESERVE, |_| Ok(1)).await.expect("it opens")
    }
}

#[tokio::test]
async fn what_is_saved_is_read_back_and_forgotten_commands_are_gone() {
    let bench = Bench::new();
    let Opened { journal, book, set_aside } = bench.open(1).await;
    assert!(book == Book::default() && set_aside.is_none());
    let first = journal.id();
    for seq in 1..=3 {
        journal.save(&records(seq)).await.expect("saved");
    }
    journal.save(&[Record::Forgotten { command: id(2) }]).await.expect("saved");
    journal.close().await;

    let Opened { journal, book, .. } = bench.open(2).await;
    assert_eq!(journal.id(), first, "it is the same journal");
    assert_eq!(book, Book::read(records(1).into_iter().chain(records(3))).expect("in order"));
    assert!(book.find(id(2)).is_none());
    journal.save(&records(4)).await.expect("numbers go on");
    assert_eq!(journal.read().await.expect("it reads").into_entries().len(), 3);
}

#[tokio::test]
async fn a_save_is_whole_or_not_at_all() {
    let bench = Bench::new();
    let Opened { journal, .. } = bench.open(1).await;
    journal.save(&records(1)).await.expect("saved");
    // A number that is taken makes the second record of the next save fail.
    let taken = Row::of(7, &Record::CancelRequested { command: id(1) });
    file::insert(&mut journal.0.writer.lock().await.connection, &taken).await.expect("inserted");
    assert!(journal.save(&records(2)).await.is_err());
    assert!(journal.read().await.expect("it reads").find(id(2)).is_none());
}

#[tokio::test]
async fn an_effect_s_outcome_takes_the_place_of_its_intent() {
    let bench = Bench::new();
    let Opened { journal, .. } = bench.open(1).await;
    journal.save(&records(1)[..2]).await.expect("saved");
    let effects = journal.effects_of(id(1), 1);
    let mut effect = Effect { seq: 0, name: "gpus.reset".into(), args: json!({}), state: State::Ambiguous };
    effects.intent(&effect).await.expect("durable");
    let stored = async || journal.read().await.expect("it reads").find(id(1)).expect("it is there").effects.clone();
    assert_eq!(stored().await, [serde_json::to_value(&effect).expect("JSON")]);
    effect.state = State::Done;
    effects.outcome(&effect).await.expect("durable");
    assert_eq!(stored().await, [serde_json::to_value(&effect).expect("JSON")]);
}

#[tokio::test]
async fn a_second_daemon_is_turned_away_and_the_file_left_alone() {
    let bench = Bench::new();
    let first = bench.open(1).await;
    let second = Journal::open_as(&bench.path(), [2; 16], RESERVE, |_| Ok(1)).await;
    assert!(matches!(second.err(), Some(Unusable::Database { .. })));
    first.journal.save(&records(1)).await.expect("the first goes on");
}

#[tokio::test]
async fn promise_06_room_is_refused_when_the_disk_cannot_promise_it() {
    let bench = Bench::new();
    assert!(bench.open(1).await.journal.has_room());
    let Opened { journal, .. } = {
        let bench = Bench::new();
        Journal::open(&bench.path(), [1; 16], 1 << 60).await.expect("it opens")
    };
    assert!(!journal.has_room());
}

/// A journal's files as bytes: the database, and its log if there is one.
#[derive(Clone)]
struct Image {
    database: Vec<u8>,
    log: Vec<u8>,
}

impl Image {
    /// `in_log`: the records are still in the write-ahead log, as after a crash.
    async fn of_five_commands(in_log: bool) -> Self {
        let bench = Bench::new();
        let Opened { journal, .. } = bench.open(1).await;
        for seq in 1..=5 {
            journal.save(&records(seq)).await.expect("saved");
        }
        if !in_log {
            journal.close().await;
        }
        let log = fs::read(file_beside(&bench.path())).unwrap_or_default();
        Self { database: fs::read(bench.path()).expect("it is there"), log }
    }

    /// Opens it. The journal holds at least so many of its commands, or was set aside whole and another began.
    async fn check(&self, at_least: usize, what: &str) {
        let bench = Bench::new();
        fs::write(bench.path(), &self.database).expect("written");
        if !self.log.is_empty() {
            fs::write(file_beside(&bench.path()), &self.log).expect("written");
        }
        let Opened { journal, book, set_aside } = bench.open(9).await;
        let untouched = JournalId::from_uuid(uuid::Builder::from_random_bytes([1; 16]).into_uuid());
        if let Some(aside) = set_aside {
            assert_ne!(journal.id(), untouched, "{what}");
            assert!(book == Book::default(), "{what}");
            assert!(aside.path.exists(), "{what}: it is kept");
            assert!(!aside.reason.is_empty(), "{what}");
        } else {
            assert_eq!(journal.id(), untouched, "{what}");
            let found = book.into_entries().len();
            assert!(found >= at_least, "{what}: {found} commands are left");
            let expected = (1..=found as u64).flat_map(records);
            let expected = Book::read(expected).expect("in order").into_entries();
            assert_eq!(journal.read().await.expect("it reads").into_entries(), expected, "{what}");
        }
        journal.save(&records(77)).await.expect("it takes records");
        let book = journal.read().await.expect("it reads");
        assert!(book.find(id(77)).is_some(), "{what}");
    }
}

fn file_beside(path: &Path) -> PathBuf {
    path.with_file_name("journal.db-wal")
}

#[tokio::test]
async fn promise_07_any_byte_of_the_file_may_be_damaged() {
    let image = Image::of_five_commands(false).await;
    assert!(image.log.is_empty());
    image.check(5, "whole").await;
    let header = 0..100;
    let rest = (100..image.database.len()).step_by(331);
    for at in header.chain(rest) {
        let mut damaged = image.clone();
        damaged.database[at] ^= 1 << (at % 8);
        damaged.check(5, &format!("byte {at} flipped")).await;
    }
    for length in [0, 1, 16, 99, 100].into_iter().chain((512..image.database.len()).step_by(3_001)) {
        let mut cut = image.clone();
        cut.database.truncate(length);
        cut.check(5, &format!("cut to {length} bytes")).await;
    }
}

#[tokio::test]
async fn promise_07_any_byte_of_the_write_ahead_log_may_be_damaged() {
    let image = Image::of_five_commands(true).await;
    assert!(image.log.len() > 10_000);
    image.check(5, "whole").await;
    let frame_headers = (32..image.log.len()).step_by(4096 + 24).flat_map(|frame| (frame..frame + 24).step_by(5));
    let sampled = (56..image.log.len()).step_by(997);
    for at in (0..32).chain(frame_headers).chain(sampled) {
        let mut damaged = image.clone();
        damaged.log[at] ^= 1 << (at % 8);
        damaged.check(4, &format!("byte {at} of the log flipped")).await;
    }
    // What was cut off cannot be told from what never reached the disk.
    for length in (1..image.log.len()).step_by(3_001) {
        let mut cut = image.clone();
        cut.log.truncate(length);
        cut.check(0, &format!("log cut to {length} bytes")).await;
    }
}

#[tokio::test]
async fn promise_02_a_copy_is_not_the_journal_and_a_renamed_one_is() {
    let open = async |path: &Path, random| Journal::open(path, [random; 16], RESERVE).await.expect("it opens");
    let bench = Bench::new();
    let Opened { journal, .. } = open(&bench.path(), 1).await;
    let id = journal.id();
    journal.save(&records(1)).await.expect("saved");
    journal.close().await;

    let copy = bench.folder.path().join("copy.db");
    fs::copy(bench.path(), &copy).expect("it is copied");
    // The original goes on, and the copy does not know of it.
    let Opened { journal, book, set_aside } = open(&copy, 2).await;
    assert_ne!(journal.id(), id);
    assert_eq!(book.into_entries(), []);
    assert!(set_aside.expect("it is set aside").reason.contains("it is a copy"));

    let moved = bench.folder.path().join("moved.db");
    fs::rename(bench.path(), &moved).expect("it is renamed");
    let Opened { journal, book, set_aside } = open(&moved, 3).await;
    assert_eq!((journal.id(), set_aside), (id, None));
    assert_eq!(book.into_entries().len(), 1);
}
