//! A private Postgres, started from the machine's own binaries, for `better-compute dev`, the tests and the benchmarks.
//!
//! Everything lies in one folder: `data/`, `log` and the Unix socket. Nothing listens on the network; who may enter the
//! folder may enter the database. Postgres refuses to run as root, so root hands the folder to `postgres`, or to `nobody`
//! where there is no such user.
//!
//! **Invariant:** what was committed is on the disk: `fsync` stays on, and a server that was killed comes back with all of it.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;

/// Where distributions keep Postgres, one folder a major version.
const DISTRIBUTION: &str = "/usr/lib/postgresql";

/// The socket's file name: Postgres derives it from the port, which has no other meaning without a network.
const SOCKET: &str = ".s.PGSQL.5432";

/// The longest path of a Unix socket that Linux takes (`sun_path` less its NUL).
const MAX_SOCKET_PATH: usize = 107;

/// How often a start is tried while processes of a killed predecessor still go away, [`RETRY_WAIT`] apart: 10 s in all. They
/// end by themselves within moments of their postmaster's death.
const ATTEMPTS: u32 = 100;
const RETRY_WAIT: Duration = Duration::from_millis(100);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No binaries.
    #[error(
        "there is no Postgres on this machine: neither initdb in PATH nor {DISTRIBUTION}/*/bin; \
         install the package postgresql (Debian, Ubuntu) or postgresql-server (Fedora)"
    )]
    NotInstalled,
    /// A path that the kernel does not take.
    #[error(
        "the socket's path {path} has {} bytes, Linux takes {MAX_SOCKET_PATH}; use a folder with a shorter path",
        path.as_os_str().len()
    )]
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// The folder cannot be prepared.
    #[error("{} cannot be made ready for Postgres", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A program of Postgres cannot be started.
    #[error("{} cannot be started", program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A program of Postgres failed.
    #[error("{} failed; it said:\n{said}", program.display())]
    Failed {
        /// The program.
        program: PathBuf,
        /// Its output, and the end of the server's log.
        said: String,
    },
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct PrivatePostgres {
    binaries: PathBuf,
    folder: PathBuf,
    user: Option<(u32, u32)>,
    stop_on_drop: bool,
}

impl PrivatePostgres {
    /// Starts the server of a folder, which is created when it is new. A server that already runs there is taken over. Blocks
    /// until connections are accepted.
    pub fn start(folder: &Path) -> Result<Self, Error> {
        let server = Self::prepare(folder)?;
        if server.is_running()? {
            return Ok(server);
        }
        if !server.data().join("PG_VERSION").is_file() {
            server.initialise()?;
        }
        server.launch()?;
        Ok(server)
    }

    fn prepare(folder: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Folder { folder: folder.to_owned(), source };
        let binaries = binaries().ok_or(Error::NotInstalled)?;
        fs::create_dir_all(folder).map_err(failed)?;
        let folder = folder.canonicalize().map_err(failed)?;
        let path = folder.join(SOCKET);
        if path.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(Error::PathTooLong { path });
        }
        let user = unprivileged().map_err(failed)?;
        if let Some((uid, gid)) = user {
            chown(&folder, Some(uid), Some(gid)).map_err(failed)?;
        }
        // Access to the database is access to this folder.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        Ok(Self { binaries, folder, user, stop_on_drop: true })
    }

    /// Creates the cluster beside its place and moves it there, so that a crash on the way leaves nothing half made.
    fn initialise(&self) -> Result<(), Error> {
        let draft = self.folder.join("data.new");
        let failed = |source| Error::Folder { folder: self.folder.clone(), source };
        if draft.exists() {
            fs::remove_dir_all(&draft).map_err(failed)?;
        }
        let mut initdb = self.program("initdb");
        initdb.arg("--pgdata").arg(&draft);
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        expect_success(&mut initdb, "")?;
        fs::rename(&draft, self.data()).map_err(failed)
    }

    fn launch(&self) -> Result<(), Error> {
        let mut attempt = 0;
        loop {
            let log = self.folder.join("log");
            let before = fs::metadata(&log).map_or(0, |metadata| metadata.len());
            let mut start = self.pg_ctl("start");
            start.arg("--log").arg(&log).arg("--options").arg(format!(
                "-c listen_addresses='' -c unix_socket_permissions=0700 -c max_connections=200 -c fsync=on \
                 -c unix_socket_directories='{}'",
                self.folder.display()
            ));
            let output = run(&mut start)?;
            if output.status.success() {
                return Ok(());
            }
            let text = fs::read(&log).unwrap_or_default();
            let said =
                String::from_utf8_lossy(&text[usize::try_from(before).unwrap_or(0).min(text.len())..]).into_owned();
            attempt += 1;
            if self.is_running()? {
                return Ok(());
            }
            let is_predecessor = said.contains("shared memory block") || said.contains("lock file");
            if !is_predecessor || attempt == ATTEMPTS {
                return Err(failure(&start, &output, &said));
            }
            thread::sleep(RETRY_WAIT);
        }
    }

    fn is_running(&self) -> Result<bool, Error> {
        if !self.data().is_dir() {
            return Ok(false);
        }
        // A process that was killed can be there for a moment longer, so its word alone is not enough.
        Ok(run(&mut self.pg_ctl("status"))?.status.success() && UnixStream::connect(self.folder.join(SOCKET)).is_ok())
    }

    /// How to connect to one of its databases; `postgres` is always there.
    pub fn connect_options(&self, database: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass().socket(&self.folder).username("postgres").database(database)
    }

    /// The same as a URL, for other programs.
    pub fn url(&self, database: &str) -> String {
        format!("postgres:///{database}?host={}&user=postgres", self.folder.display())
    }

    /// The folder that holds it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Leaves it running when this value goes away.
    pub fn keep_running(mut self) {
        self.stop_on_drop = false;
    }

    /// Stops it and waits for its end: sessions are cut off and a checkpoint is written; after a minute without one it is
    /// stopped at once, which costs the next start a recovery and loses nothing.
    pub fn stop(mut self) -> Result<(), Error> {
        self.stop_on_drop = false;
        self.halt()
    }

    fn halt(&self) -> Result<(), Error> {
        if run(self.pg_ctl("stop").args(["--mode=fast", "--timeout=60"]))?.status.success() || !self.is_running()? {
            return Ok(());
        }
        expect_success(self.pg_ctl("stop").args(["--mode=immediate", "--timeout=60"]), "")
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn pg_ctl(&self, action: &str) -> Command {
        let mut command = self.program("pg_ctl");
        command.arg(action).arg("--wait").arg("--pgdata").arg(self.data());
        command
    }

    /// One of Postgres' own programs, as the server's user.
    #[expect(clippy::disallowed_methods, reason = "starting Postgres is what this module is for")]
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.binaries.join(name));
        // Its messages are looked at, so they are in no other language; and it has to be able to enter its working directory.
        command.env("LC_ALL", "C").current_dir(&self.folder);
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        if self.stop_on_drop
            && let Err(error) = self.halt()
        {
            tracing::error!(folder = %self.folder.display(), error = &error as &dyn std::error::Error, "Postgres did not stop");
        }
    }
}

/// The folder with the binaries: that of `initdb` in PATH, else of the distribution's highest version. Links are followed,
/// since only their targets stand beside the rest.
fn binaries() -> Option<PathBuf> {
    let has_all = |folder: &PathBuf| ["initdb", "pg_ctl", "postgres"].iter().all(|name| folder.join(name).is_file());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path)
        .filter_map(|folder| Some(folder.join("initdb").canonicalize().ok()?.parent()?.to_owned()))
        .find(has_all);
    in_path.or_else(|| {
        let versions = fs::read_dir(DISTRIBUTION).ok()?.filter_map(Result::ok);
        let installed = versions.filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin"))).filter(|(_, folder)| has_all(folder))
        });
        installed.max().map(|(_, folder)| folder)
    })
}

/// The user and group to run as when this process is root; `None` when it is not, and runs Postgres as itself.
fn unprivileged() -> io::Result<Option<(u32, u32)>> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let found = user(&users, "postgres").or_else(|| user(&users, "nobody"));
    found
        .map(Some)
        .ok_or_else(|| io::Error::other("root may not run Postgres, and there is no user postgres or nobody"))
}

fn user(passwd: &str, name: &str) -> Option<(u32, u32)> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next()? == name;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        is_it.then_some((uid, gid))
    })
}

/// Output goes to files that the server does not inherit from here: a pipe would stay open as long as the server runs.
fn run(command: &mut Command) -> Result<Output, Error> {
    let failed = |command: &Command, source| Error::Program { program: command.get_program().into(), source };
    let said = tempfile::tempfile().map_err(|source| failed(command, source))?;
    let both = || said.try_clone();
    let stdout = both().map_err(|source| failed(command, source))?;
    let stderr = both().map_err(|source| failed(command, source))?;
    let status = command.stdin(std::process::Stdio::null()).stdout(stdout).stderr(stderr).status();
    let status = status.map_err(|source| failed(command, source))?;
    let mut text = Vec::new();
    let mut said = said;
    io::Seek::rewind(&mut said)
        .and_then(|()| io::Read::read_to_end(&mut said, &mut text))
        .map_err(|source| failed(command, source))?;
    Ok(Output { status, stdout: text, stderr: Vec::new() })
}

fn expect_success(command: &mut Command, log: &str) -> Result<(), Error> {
    let output = run(command)?;
    if output.status.success() { Ok(()) } else { Err(failure(command, &output, log)) }
}

fn failure(command: &Command, output: &Output, log: &str) -> Error {
    let said = format!("{}{log}", String::from_utf8_lossy(&output.stdout));
    Error::Failed { program: command.get_program().into(), said: said.trim_end().to_owned() }
}

/// Kills the server as a crash of the machine would; its other processes notice and go.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test kills a server")]
pub(crate) fn kill_postmaster(server: &PrivatePostgres) {
    let text = fs::read_to_string(server.data().join("postmaster.pid")).expect("a server runs");
    let pid = text.lines().next().expect("its first line is the process");
    assert!(Command::new("kill").args(["-9", pid]).status().expect("kill is there").success());
    // The signal is on its way; the socket is closed when it has come.
    while UnixStream::connect(server.folder.join(SOCKET)).is_ok() {
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection, PgConnection};

    use super::*;

    async fn connect(server: &PrivatePostgres) -> PgConnection {
        PgConnection::connect_with(&server.connect_options("postgres")).await.expect("the server accepts connections")
    }

    #[tokio::test]
    async fn a_killed_server_comes_back_with_all_that_was_committed() {
        let folder = tempfile::tempdir().expect("a folder");
        let server = PrivatePostgres::start(folder.path()).expect("it starts");
        let mut connection = connect(&server).await;
        sqlx::raw_sql("create table t (n int); insert into t values (1)").execute(&mut connection).await.expect("SQL");
        kill_postmaster(&server);
        server.keep_running();

        let server = PrivatePostgres::start(folder.path()).expect("it starts again");
        let mut connection = connect(&server).await;
        let n: i32 = sqlx::query_scalar("select n from t").fetch_one(&mut connection).await.expect("the row is there");
        assert_eq!(n, 1);
        let fsync: String = sqlx::query_scalar("show fsync").fetch_one(&mut connection).await.expect("a setting");
        assert_eq!(fsync, "on");
        server.stop().expect("it stops");
        assert!(!folder.path().join("data/postmaster.pid").exists(), "nothing is left running");
    }

    #[test]
    fn a_server_that_runs_is_taken_over_and_stops_when_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        PrivatePostgres::start(folder.path()).expect("it starts").keep_running();
        let again = PrivatePostgres::start(folder.path()).expect("the same server");
        assert!(again.is_running().expect("pg_ctl answers"));
        drop(again);
        assert!(!folder.path().join("data/postmaster.pid").exists(), "nothing is left running");
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = PrivatePostgres::start(&folder.path().join("x".repeat(100))).expect_err("it cannot work");
        assert!(error.to_string().contains("Linux takes 107"), "{error}");
    }

    #[test]
    fn users_are_found_by_their_whole_name() {
        let passwd = "postgresql:x:1:2::/:/bin/sh\npostgres:x:101:104:PostgreSQL:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(user(passwd, "postgres"), Some((101, 104)));
        assert_eq!(user(passwd, "nobody"), None);
    }
}
