//! What is said about a set-up: facts in, findings out. `better-compute doctor` and `bcd doctor` gather the facts.
//!
//! **Invariant:** what could not be asked is never `ok`, and everything that is not `ok` says what to do.

use std::time::Duration;

use serde::Serialize;

/// A certificate that ends sooner than this is worth a word, although it is renewed by itself: it should have been.
pub const EXPIRY_WARNING: Duration = Duration::from_hours(7 * 24);

/// A clock that is off by more is worth a word. No decision depends on it, but logs and certificates of others do.
pub const SKEW_WARNING: Duration = Duration::from_secs(30);

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, or may work; look at it.
    Warn,
    /// It does not work.
    Fail,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What was looked at, `identity` for example.
    pub check: String,
    /// How it ended.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn ok(check: &str, found: impl Into<String>) -> Self {
        Self { check: check.into(), level: Level::Ok, found: found.into(), remedy: None }
    }

    /// Worth a look.
    pub fn warn(check: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check: check.into(), level: Level::Warn, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// It does not work.
    pub fn fail(check: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check: check.into(), level: Level::Fail, found: found.into(), remedy: Some(remedy.into()) }
    }
}

/// The worst of all; `Ok` for none.
pub fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|it| it.level).max().unwrap_or(Level::Ok)
}

/// A certificate's validity at a time, all in milliseconds since the Unix epoch.
pub fn certificate(check: &str, not_before_ms: u64, not_after_ms: u64, now_ms: u64, renew: &str) -> Finding {
    if now_ms >= not_after_ms {
        return Finding::fail(check, format!("it ended {} ago", days(now_ms - not_after_ms)), renew);
    }
    if now_ms < not_before_ms {
        let ahead = days(not_before_ms - now_ms);
        return Finding::warn(
            check,
            format!("it begins in {ahead} only"),
            "compare this machine's clock with the server's",
        );
    }
    let left = not_after_ms - now_ms;
    let found = format!("it is good for {} more", days(left));
    if u128::from(left) < EXPIRY_WARNING.as_millis() {
        Finding::warn(check, found, renew)
    } else {
        Finding::ok(check, found)
    }
}

/// A clock beside another one, milliseconds since the Unix epoch.
pub fn clock(check: &str, here_ms: u64, there_ms: u64, whose: &str) -> Finding {
    let skew = Duration::from_millis(here_ms.abs_diff(there_ms));
    if skew < SKEW_WARNING {
        return Finding::ok(check, format!("within {} s of {whose}", SKEW_WARNING.as_secs()));
    }
    let side = if here_ms > there_ms { "ahead of" } else { "behind" };
    Finding::warn(
        check,
        format!("this machine's clock is {} s {side} {whose}", skew.as_secs()),
        "let a time service such as chrony or systemd-timesyncd set it",
    )
}

/// Whether a disk has room, in bytes.
pub fn room(check: &str, free: u64, needed: u64) -> Finding {
    let found = format!("{} MiB are free", free >> 20);
    if free >= needed {
        Finding::ok(check, found)
    } else {
        let remedy = format!("free at least {} MiB: without that, commands are refused as NO_SPACE", needed >> 20);
        Finding::fail(check, found, remedy)
    }
}

/// A file or folder that nobody but its owner may look into, by its mode.
pub fn private(check: &str, name: &str, mode: u32) -> Finding {
    /// The bits that let others than the owner do something.
    const OTHERS: u32 = 0o077;
    if mode & OTHERS == 0 {
        Finding::ok(check, format!("{name} is its owner's alone"))
    } else {
        let found = format!("{name} can be read by others than its owner (mode {:04o})", mode & 0o7777);
        Finding::fail(check, found, format!("chmod go-rwx {name}"))
    }
}

/// A database server, as it describes itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Database {
    /// `server_version_num`: 150004 for 15.4.
    pub version: u32,
    /// How many connections it takes from those that are no superusers.
    pub connections: u32,
    /// How many migrations it has seen.
    pub migrations: usize,
    /// Whether it has the role that runners need.
    pub has_runner_role: bool,
    /// Its clock, milliseconds since the Unix epoch.
    pub now_ms: u64,
}

/// What to say about it, where one replica takes up to `pool` connections and this version has `migrations`.
pub fn database(facts: &Database, pool: u32, migrations: usize, now_ms: u64) -> Vec<Finding> {
    let version = format!("Postgres {}.{}", facts.version / 10_000, facts.version % 10_000);
    let mut findings = vec![if facts.version >= 150_000 {
        Finding::ok("database version", version)
    } else {
        Finding::fail("database version", version, "use Postgres 15 or newer")
    }];
    findings.push(if facts.connections > pool {
        Finding::ok("database connections", format!("{} are allowed, a replica takes up to {pool}", facts.connections))
    } else {
        Finding::warn(
            "database connections",
            format!("{} are allowed, a replica takes up to {pool}", facts.connections),
            "raise max_connections above the sum of all replicas and runners",
        )
    });
    findings.push(match facts.migrations.cmp(&migrations) {
        std::cmp::Ordering::Equal => Finding::ok("database schema", format!("up to date ({migrations} migrations)")),
        std::cmp::Ordering::Less => Finding::warn(
            "database schema",
            format!("{} of {migrations} migrations are done", facts.migrations),
            "start a replica of this version: it does the others",
        ),
        std::cmp::Ordering::Greater => Finding::fail(
            "database schema",
            format!("it has {} migrations, this version knows {migrations}", facts.migrations),
            "use the version that the other replicas run, or a newer one",
        ),
    });
    if facts.migrations > 0 && !facts.has_runner_role {
        findings.push(Finding::warn(
            "runner role",
            "there is no role better_compute_runner",
            "as an administrator of the database server: create role better_compute_runner nologin",
        ));
    }
    findings.push(clock("database clock", now_ms, facts.now_ms, "the database"));
    findings
}

fn days(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..3600 => format!("{} min", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000;

    #[test]
    fn a_certificate_is_judged_by_what_is_left_of_it() {
        let level = |now_ms| certificate("certificate", DAY, 30 * DAY, now_ms, "renew it").level;
        assert_eq!(
            [level(0), level(2 * DAY), level(25 * DAY), level(30 * DAY)],
            [Level::Warn, Level::Ok, Level::Warn, Level::Fail]
        );
    }

    #[test]
    fn everything_that_is_not_ok_says_what_to_do() {
        let facts = Database { version: 140_009, connections: 20, migrations: 3, has_runner_role: false, now_ms: 0 };
        let mut findings = database(&facts, 32, 5, 90_000);
        findings.extend([
            certificate("a", 0, 1, 2, "renew"),
            clock("b", 0, 60_000, "the server"),
            room("c", 1, 2),
            private("d", "/key", 0o100_640),
        ]);
        assert!(findings.iter().all(|it| it.level != Level::Ok && it.remedy.as_ref().is_some_and(|it| !it.is_empty())));
        assert_eq!(worst(&findings), Level::Fail);
    }

    #[test]
    fn a_database_that_fits_is_ok_and_a_newer_one_is_not_touched() {
        let facts = Database { version: 150_004, connections: 97, migrations: 5, has_runner_role: true, now_ms: 5 };
        assert_eq!(worst(&database(&facts, 32, 5, 5)), Level::Ok);
        assert_eq!(worst(&database(&facts, 32, 4, 5)), Level::Fail);
    }
}
