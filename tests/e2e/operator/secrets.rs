//! A secret, and all that a run with it leaves behind.
//!
//! The kind hands the secret on wherever it can, and a text that is no secret in the same ways: what finds the one would find the
//! other.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use bc_runtime::capability::{Answer, Capabilities, Secrets};
use bc_runtime::effect::ReportOnly;
use bc_runtime::v1::wit::log::Level;
use bc_runtime::{Config, Engine, Inspected, Mode, Run, Watcher};
use bc_tests::cluster::Cluster;
use bc_tests::programs;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio_util::sync::CancellationToken;

/// Characters that JSON escapes, and some that take two bytes.
const VALUE: &str = "s3cr\"t\\-Zwölf-8fK2q9-xyzzy";
const CONTROL: &str = "c0ntr\"l\\-Zwölf-7hJ3w1-plugh";
const REF: &str = "test.password";

/// The ways in which a text may have been written.
struct Forms(Vec<Vec<u8>>);

impl Forms {
    fn of(text: &str) -> Self {
        let quoted = json!(text).to_string();
        let escaped = &quoted[1..quoted.len() - 1];
        let twice = json!(escaped).to_string();
        let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut forms =
            vec![text.into(), escaped.into(), twice[1..twice.len() - 1].into(), hex(text).to_uppercase(), hex(text)];
        forms.extend((0..3).map(|before| base64(text, before)));
        // As Postgres shows the bytes of a result, which is JSON.
        forms.push(hex(escaped));
        Self(forms.into_iter().map(String::into_bytes).collect())
    }

    fn are_in(&self, bytes: &[u8]) -> bool {
        self.0.iter().any(|form| bytes.windows(form.len()).any(|window| window == form))
    }
}

/// The characters of a text's base64 that depend on nothing else, with so many bytes before it.
fn base64(text: &str, before: usize) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes = [&vec![0; before][..], text.as_bytes()].concat();
    let digit = |at: usize| {
        let bit = at * 6;
        let pair = (u16::from(bytes[bit / 8]) << 8) | u16::from(*bytes.get(bit / 8 + 1).unwrap_or(&0));
        char::from(DIGITS[usize::from((pair >> (10 - bit % 8)) & 63)])
    };
    ([0, 2, 3][before]..bytes.len() / 3 * 4).map(digit).collect()
}

/// Files below a folder that hold one of the forms; those in `except` are not looked at.
fn files(folder: &Path, forms: &Forms, except: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("the folder is there").filter_map(Result::ok) {
        let path = entry.path();
        let kind = entry.file_type().expect("a type");
        if path == except {
            continue;
        }
        if kind.is_dir() {
            files(&path, forms, except, found);
        } else if kind.is_file() && fs::read(&path).is_ok_and(|bytes| forms.are_in(&bytes)) {
            found.push(path.display().to_string());
        }
    }
}

/// Arguments and environments of all processes that hold one of the forms.
fn processes(forms: &Forms) -> Vec<String> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").expect("Linux").filter_map(Result::ok) {
        for file in ["cmdline", "environ"] {
            let path = process.path().join(file);
            if fs::read(&path).is_ok_and(|bytes| forms.are_in(&bytes)) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

/// Tables with a row that holds one of the forms.
async fn tables(db: &mut PgConnection, forms: &Forms) -> Vec<String> {
    let names = "select tablename::text from pg_tables where schemaname = 'public'";
    let names: Vec<String> = sqlx::query_scalar(names).fetch_all(&mut *db).await.expect("a catalogue");
    let mut found = Vec::new();
    for name in names {
        let rows = format!("select row_to_json(t)::text from {name} t");
        let rows: Vec<String> = sqlx::query_scalar(AssertSqlSafe(rows)).fetch_all(&mut *db).await.expect("rows");
        if rows.iter().any(|row| forms.are_in(row.as_bytes())) {
            found.push(format!("table {name}"));
        }
    }
    found
}

/// Every place that holds one of the forms.
async fn everywhere(cluster: &mut Cluster, answers: &[Value], forms: &Forms) -> Vec<String> {
    let mut found = processes(forms);
    let secrets = cluster.replicas[0].secrets_dir();
    files(cluster.folder(), forms, &secrets, &mut found);
    let mut db = PgConnection::connect(&cluster.database.url()).await.expect("a database");
    found.extend(tables(&mut db, forms).await);
    for replica in &mut cluster.replicas {
        found.extend(forms.are_in(replica.process().said().as_bytes()).then(|| "a replica's log".to_owned()));
    }
    for node in &mut cluster.nodes {
        found.extend(forms.are_in(node.process().said().as_bytes()).then(|| "a daemon's log".to_owned()));
    }
    let answered = answers.iter().any(|answer| forms.are_in(answer.to_string().as_bytes()));
    found.extend(answered.then(|| "an answer of the API".to_owned()));
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_nowhere_in_all_that_a_run_leaves_behind() {
    let mut cluster = Cluster::start(1, 1).await;
    let folder = cluster.replicas[0].secrets_dir().join(cluster.api.tenant());
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(REF), format!("{VALUE}\n")).expect("a file");
    fs::set_permissions(folder.join(REF), Permissions::from_mode(0o600)).expect("its owner may");
    cluster.api.register(fs::read(programs::kind("test.secret")).expect("it is built")).await;

    let node = cluster.nodes[0].id.clone();
    let mut answers = Vec::new();
    for how in ["result", "failure", "panic", "denied"] {
        let payload = json!({ "how": how, "control": CONTROL, "secretRefs": { "password": REF } });
        let command = cluster.api.run(&node, "test.secret", how, payload).await;
        let settled = cluster.api.settled(&command).await;
        let answer = serde_json::to_value(&settled).expect("JSON");
        let text = answer.to_string();
        assert!(text.contains("[secret test.password]"), "{how}: it had it, and was not let go on with it: {text}");
        if how == "result" {
            assert_eq!(answer["result"]["length"], VALUE.len(), "{text}");
        }
        answers.push(answer);
    }
    let gone = json!({ "how": "result", "secretRefs": { "password": "test.gone" } });
    let command = cluster.api.run(&node, "test.secret", "gone", gone).await;
    let settled = serde_json::to_value(cluster.api.settled(&command).await).expect("JSON");
    assert!(settled.to_string().contains("the control plane has no such secret"), "{settled}");
    answers.push(cluster.api.call("commands.list", json!({ "nodeId": node })).await);

    let mut db = PgConnection::connect(&cluster.database.url()).await.expect("a database");
    sqlx::query("checkpoint").execute(&mut db).await.expect("all of it is on the disk");
    let control = everywhere(&mut cluster, &answers, &Forms::of(CONTROL)).await;
    for place in
        ["/node-0/state/journal.sqlite", "/pg/data/", "table commands", "table settled", "an answer of the API"]
    {
        assert!(control.iter().any(|found| found.contains(place)), "what is no secret is in {place}: {control:?}");
    }
    assert!(!processes(&Forms::of(&node_flag(&cluster))).is_empty(), "arguments are looked at");
    let found = everywhere(&mut cluster, &answers, &Forms::of(VALUE)).await;
    assert!(found.is_empty(), "the secret is in {found:?}");
}

/// What stands in the arguments of a daemon.
fn node_flag(cluster: &Cluster) -> String {
    cluster.nodes[0].path("bcd.toml").display().to_string()
}

/// Gives the secret to whoever asks.
struct Open;

impl Secrets for Open {
    fn get(&self, _: &str) -> Answer<String> {
        Ok(VALUE.into())
    }
}

/// Writes down what it hears.
#[derive(Default)]
struct Heard(Mutex<String>);

impl Heard {
    fn add(&self, text: &[&str]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += &text.join("\n");
    }
}

impl Watcher for Heard {
    fn log(&self, _: Level, target: &str, message: &str, fields: &str) {
        self.add(&[target, message, fields]);
    }

    fn progress(&self, _: u64, _: Option<u64>, unit: &str, message: &str) {
        self.add(&[unit, message]);
    }

    fn now_ms(&self) -> u64 {
        0
    }

    fn role(&self) -> String {
        "host".into()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_in_no_transcript_no_log_line_and_no_report() {
    let component = Inspected::read(&programs::kind("test.secret")).expect("it is built");
    let kind = Engine::new(&Config::default()).expect("an engine").load(&component).expect("it loads");
    for how in ["result", "failure", "panic", "denied"] {
        let heard = Arc::new(Heard::default());
        let payload = json!({ "how": how, "control": CONTROL, "secretRefs": { "password": REF } });
        let run = |mode, heard: &Arc<Heard>| Run {
            command_id: "cmd_1".into(),
            node_id: "node_1".into(),
            attempt: 1,
            payload: payload.clone(),
            timeout: None,
            mode,
            record: true,
            capabilities: Capabilities { secrets: Some(Arc::new(Open)), ..Capabilities::default() },
            grants: Arc::new(ArcSwap::from_pointee(component.manifest.capabilities.clone())),
            journal: Arc::new(ReportOnly),
            cancel: CancellationToken::new(),
            slot: None,
            watcher: heard.clone(),
        };
        let report = kind.run(run(Mode::Live, &heard)).await;
        let transcript = serde_json::to_string(&report.transcript).expect("JSON");
        let outcome = serde_json::to_string(&report.outcome).expect("JSON");
        let log = heard.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (place, text) in [("transcript", &transcript), ("log", &log), ("outcome", &outcome)] {
            assert!(!Forms::of(VALUE).are_in(text.as_bytes()), "{how}: the secret is in the {place}: {text}");
            let is_told = place != "outcome" || how != "denied";
            assert_eq!(Forms::of(CONTROL).are_in(text.as_bytes()), is_told, "{how}: what is no secret, in the {place}");
            assert!(text.contains("[secret test.password]"), "{how}: {place}: {text}");
        }
        assert!(!format!("{report:?}").contains("8fK2q9"));
        let again = kind.run(run(Mode::Replay(report.transcript.expect("it was recorded")), &heard)).await;
        assert_eq!(again.outcome.name(), report.outcome.name(), "{how}: a replay takes the same way");
    }
}
