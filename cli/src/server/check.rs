//! What a server's settings come to, looked at without starting it: for `better-compute doctor`.
//!
//! **Invariant:** it reads; a database that is not there is not made, and one that is behind is not migrated.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use bc_host::store;
use bc_proto::rules::doctor::{self, Finding};
use sqlx::postgres::PgPoolOptions;

use super::config::{Database, Decided, Settings};
use super::{CONNECTIONS, acceptor};
use crate::shell;

/// All that can be seen from here.
pub(crate) async fn findings(settings: Settings) -> Vec<Finding> {
    const CHECK: &str = "server settings";
    let decided = match settings.decide() {
        Ok(decided) => decided,
        Err(error) => {
            return vec![Finding::fail(
                CHECK,
                format!("{error:#}"),
                "correct that key; docs/operators.md has all of them",
            )];
        }
    };
    let mut findings = vec![Finding::ok(CHECK, "read, and they fit each other")];
    findings.extend(files(&decided));
    findings.extend(database(&decided.database).await);
    findings
}

fn files(decided: &Decided) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &decided.state_dir {
        Some(folder) => findings.extend(authority(folder)),
        None => findings.push(Finding::fail(
            "state folder",
            "none is named",
            "set state-dir: the nodes' certificate authority lies there",
        )),
    }
    if let Some(pair) = &decided.api_tls {
        findings.push(match acceptor(pair) {
            Ok(_) => Finding::ok("API's certificate", "certificate and key fit"),
            Err(error) => {
                Finding::fail("API's certificate", format!("{error:#}"), "correct api-tls-cert and api-tls-key")
            }
        });
    } else if decided.config.serves_api && !decided.api_listen.ip().is_loopback() {
        let remedy = "set api-tls-cert and api-tls-key, unless a proxy in front of it speaks TLS";
        findings.push(Finding::warn("API's certificate", "the API listens to the network in plain text", remedy));
    }
    if !decided.config.pki.signs() && decided.config.serves_api {
        let remedy = "better-compute pki init, and the table [pki]; docs/trust.md says how";
        findings.push(Finding::warn("command signing", "commands are not signed", remedy));
    }
    findings
}

/// The authority's files: there or still to be made, and nobody else's.
fn authority(folder: &Path) -> Vec<Finding> {
    let key = folder.join("authority.key");
    let name = key.display().to_string();
    match (fs::metadata(&key), folder.join("authority.pem").exists()) {
        (Ok(metadata), true) => vec![doctor::private("certificate authority", &name, metadata.permissions().mode())],
        (Err(_), true) => vec![Finding::fail(
            "certificate authority",
            format!("{name} cannot be read"),
            "restore it from a backup, or let this user read it",
        )],
        (_, false) => vec![Finding::warn(
            "certificate authority",
            format!("{} holds none", folder.display()),
            "the first start makes one; copy it to other replicas",
        )],
    }
}

async fn database(database: &Database) -> Vec<Finding> {
    let url = match database {
        Database::Url(url) => url,
        Database::Private(folder) => return vec![Finding::ok("database", format!("private, in {}", folder.display()))],
    };
    let Ok(options) = url.parse() else {
        return vec![Finding::fail("database", "its URL cannot be read", "write postgres://user@host/name")];
    };
    let pool = match PgPoolOptions::new().max_connections(1).connect_with(store::by_keys(options)).await {
        Ok(pool) => pool,
        Err(error) => {
            return vec![Finding::fail(
                "database",
                error.to_string(),
                "look at address, user, password and pg_hba.conf",
            )];
        }
    };
    let asked = store::facts::read(&pool).await;
    pool.close().await;
    match asked {
        Ok(facts) => {
            let mut findings = vec![Finding::ok("database", "reached")];
            findings.extend(doctor::database(&facts, CONNECTIONS, store::MIGRATIONS.iter().count(), shell::now_ms()));
            findings
        }
        Err(error) => vec![Finding::fail("database", error.to_string(), "let this user read its own schema")],
    }
}
