//! A gateway whose commands real runners lease: a control plane, a login that may do nothing else, and programs that are scripts.
//!
//! **Invariant:** what ran is written down by the programs themselves, in files that outlive every runner.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bc_host::api::types::{Command, CommandOutput};
use bc_proto::id::CommandId;
use bc_tests::cluster::Cluster;
use bc_tests::cluster::process::Process;
use bc_tests::programs;
use serde_json::{Value, json};
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;
use sqlx::{Connection as _, PgConnection, Row as _};

/// The gateway's slug.
pub(crate) const SLUG: &str = "berlin-1";
pub(crate) const LOGIN: &str = "runner_berlin";

/// Name, arguments, more keys of the file, and the script.
const ACTIONS: [(&str, &str, &str, &str); 9] = [
    ("say", "", "stdin = 'payload'", "echo out; cat; echo err >&2"),
    ("exit", "'{code}'", "", "echo before; exit $1"),
    ("bytes", "", "", r"printf 'a\377b\000c'"),
    ("big", "", "", "head -c 200000000 /dev/zero | tr '\\0' x; echo end"),
    // Its id, and then nothing for a long time; it leaves a child behind that has a session of its own.
    (
        "hang",
        "'{file}'",
        "timeout = '5m'",
        "setsid sleep 1000 & echo $! > $1.child; echo $$ > $1; echo hangs; while :; do sleep 1000; done",
    ),
    ("short", "", "timeout = '1s'", "echo begun; while :; do sleep 1000; done"),
    // Goes on when there is a file.
    ("gate", "'{file}'", "timeout = '5m'", "echo $$ > $1; while [ ! -e $1.go ]; do sleep 0.05; done; echo through"),
    ("line", "'{file}', '{line}'", "", "echo \"$2\" >> $1; sleep 0.05"),
    (
        "auth_device",
        "'{file}', '{way}', 'BCD'",
        "self-reporting = true\ntimeout = '1m'",
        include_str!("auth_device.sh"),
    ),
];

/// The gateway.
pub(crate) struct Gateway {
    pub(crate) cluster: Cluster,
    pub(crate) admin: PgConnection,
    pub(crate) node: String,
}

impl Gateway {
    /// Sets it up as `docs/runner.md` says, with the kind registered.
    pub(crate) async fn start() -> Self {
        let cluster = Cluster::start(1, 0).await;
        cluster.api.register(fs::read(programs::kind("runner.action")).expect("the kind is built")).await;
        let token = cluster.folder().join("join.token");
        fs::write(&token, cluster.api.join_token(None).await).expect("the token is written");
        let mut join = programs::command("bcd");
        join.args(["join", "--name", SLUG, "--role", "gateway", "--gateway", &cluster.replicas[0].gateway_url()]);
        join.arg("--token-file").arg(token).arg("--state-dir").arg(cluster.folder().join("gateway"));
        let said = programs::run(&mut join);
        assert_eq!(said.code, Some(0), "{said:?}");
        let node =
            said.out.split_whitespace().find(|word| word.starts_with("node_")).expect("it says which node it is");
        let node = node.trim_end_matches(',').to_owned();
        let mut admin = PgConnection::connect(&cluster.database.url()).await.expect("a database");
        let sql = format!(
            "update nodes set runner_slug = '{SLUG}', session_epoch = session_epoch + 1 where role = 'gateway';
             create role {LOGIN} login; grant better_compute_runner to {LOGIN};
             insert into runner_logins (login, node_id) select '{LOGIN}', id from nodes where runner_slug = '{SLUG}'"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut admin).await.expect("it is set up");
        let gateway = Self { cluster, admin, node };
        gateway.write_actions();
        gateway
    }

    fn write_actions(&self) {
        let mut config = format!(
            "kind = '{}'\ncache-dir = '{}'\n",
            programs::kind("runner.action").display(),
            std::env::current_exe().expect("a test has a path").with_file_name("compiled-kinds").display(),
        );
        for (name, argv, keys, script) in ACTIONS {
            let file = self.path(name);
            fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("a script is written");
            fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("it may be run");
            // Its PATH does not know where this build lies.
            let argv = argv.replace("BCD", &programs::program("bcd").display().to_string());
            config += &format!("[actions.{name}]\nprogram = '{}'\nargv = [{argv}]\n{keys}\n", file.display());
        }
        fs::write(self.path("runner.toml"), config).expect("the file is written");
    }

    /// A path in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.cluster.folder().join(name)
    }

    /// The same as a word of a payload.
    pub(crate) fn word(&self, name: &str) -> String {
        self.path(name).to_str().expect("paths of tests are text").to_owned()
    }

    /// Starts a runner of this name. It never polls, so whatever it finds it was told of.
    pub(crate) fn runner(&self, name: &str, arguments: &[&str]) -> Process {
        Process::start(name, &mut self.command(name, SLUG, arguments))
    }

    /// A runner that is not started.
    pub(crate) fn command(&self, name: &str, slug: &str, arguments: &[&str]) -> std::process::Command {
        let url = self.path("runner.url");
        let text = self.cluster.database.url().replace("user=postgres", &format!("user={LOGIN}"));
        fs::write(&url, text).expect("the URL is written");
        let mut command = programs::command("bcd");
        command.args(["runner", "--gateway", slug, "--name", name]).args(arguments);
        if !arguments.contains(&"--poll") {
            command.args(["--poll", "1h"]);
        }
        command.arg("--config").arg(self.path("runner.toml")).arg("--database-url-file").arg(url);
        command
    }

    /// Queues an action as the UI does.
    pub(crate) async fn queue(&mut self, action: &str, payload: Value) -> Command {
        let sql = "insert into agent_commands (gateway_slug, action, payload) values ($1, $2, $3) returning id";
        let row = sqlx::query_scalar(sql).bind(SLUG).bind(action).bind(payload).fetch_one(&mut self.admin);
        let id: Uuid = row.await.expect("it is queued");
        let command = CommandId::from_uuid(id).to_string();
        self.cluster.api.call("commands.get", json!({ "nodeId": self.node, "commandId": command })).await
    }

    /// A command's row when it is over.
    pub(crate) async fn over(&mut self, command: &Command) -> Over {
        let settled = self.cluster.api.settled(command).await;
        let id: CommandId = settled.id.parse().expect("an id");
        // The database may have been started anew.
        self.admin = PgConnection::connect(&self.cluster.database.url()).await.expect("a database");
        let row = sqlx::query("select * from agent_commands where id = $1").bind(id.uuid());
        Over { row: row.fetch_one(&mut self.admin).await.expect("it is there"), settled }
    }

    /// Has every lease of a runner run out, as `docs/runner.md` says for one that is stuck.
    pub(crate) async fn run_out(&mut self, runner: &str) {
        let sql = "update runner_leases set expires_at = now() where ended_at is null and leased_by like $1";
        sqlx::query(sql).bind(format!("%bcd-runner {runner}")).execute(&mut self.admin).await.expect("a database");
    }

    /// What a command has written so far, once that satisfies; waits for it while the command runs.
    pub(crate) async fn output(&self, command: &Command, is_enough: impl Fn(&str) -> bool) -> String {
        let (mut after, mut text) = (json!({}), String::new());
        loop {
            let body = json!({ "nodeId": self.node, "commandId": command.id, "after": after, "waitSeconds": 20 });
            let output: CommandOutput = self.cluster.api.call("commands.output", body).await;
            for piece in &output.pieces {
                let bytes = BASE64_STANDARD.decode(&piece.bytes).expect("base64");
                text += &String::from_utf8_lossy(&bytes);
            }
            if is_enough(&text) || output.is_over {
                return text;
            }
            after = json!(output.next);
        }
    }
}

/// A command that is over.
pub(crate) struct Over {
    row: PgRow,
    pub(crate) settled: Command,
}

impl Over {
    pub(crate) fn text(&self, column: &str) -> String {
        self.row.get::<Option<String>, _>(column).unwrap_or_default()
    }

    pub(crate) fn number(&self, column: &str) -> i64 {
        self.row.get(column)
    }

    pub(crate) fn says(&self, column: &str) -> bool {
        self.row.get(column)
    }

    /// Status, exit code, and the beginning of the error up to its code.
    pub(crate) fn ending(&self) -> (String, Option<i32>, String) {
        let error = self.text("error");
        let code = error.split(':').next().unwrap_or_default().to_owned();
        (self.text("status"), self.row.get("exit_code"), code)
    }
}

/// The process id that a script wrote.
pub(crate) fn pid(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    text.ends_with('\n').then(|| text.trim().to_owned())
}

/// Whether a process runs.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}
