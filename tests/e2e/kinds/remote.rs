//! Runs of kinds that ask other servers: real components, the node's real HTTP, and a peer on the loopback.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bc_daemon::capability::http::{Requests, Settings};
use bc_proto::grants::Policy;
use bc_runtime::capability::{Answer, Capabilities, Error, Secrets};
use bc_runtime::v1::wit::log::Level;
use bc_runtime::{Mode, Outcome, Report, Run, Watcher};
use serde_json::Value;

/// What the secret `bmc` holds.
pub(crate) const CREDENTIALS: &str = "operator:correct-horse-battery";

struct Vault;

impl Secrets for Vault {
    fn get(&self, secret_ref: &str) -> Answer<String> {
        match secret_ref {
            "bmc" => Ok(CREDENTIALS.into()),
            _ => Err(Error::new("not-found", "there is no such secret")),
        }
    }
}

struct Clock(Instant);

impl Watcher for Clock {
    fn log(&self, _: Level, _: &str, _: &str, _: &str) {}
    fn progress(&self, _: u64, _: Option<u64>, _: &str, _: &str) {}
    fn now_ms(&self) -> u64 {
        bc_tests::watcher::NOW_MS + u64::try_from(self.0.elapsed().as_millis()).expect("a short test")
    }
    fn role(&self) -> String {
        "site".into()
    }
}

/// A run of a kind on a node whose policy grants these origins.
pub(crate) fn run_of(kind: &str, origins: &[&str], payload: Value) -> (bc_runtime::Kind, Run) {
    let kind = bc_tests::load(&bc_tests::inspected(kind));
    let list = origins.iter().map(|origin| format!("'{origin}'")).collect::<Vec<_>>().join(", ");
    let policy = format!("[grants.'*'.http]\norigins = [{list}]\nwrite = true\ncredentials = ['bmc*']");
    let grants = Policy::from_toml(&policy).expect("a policy").grants_of(&kind.manifest().name);
    let run = Run {
        timeout: Some(Duration::from_secs(30)),
        capabilities: Capabilities {
            http: Some(Arc::new(Requests::new(&Settings::default()).expect("a client"))),
            secrets: Some(Arc::new(Vault)),
            ..Capabilities::default()
        },
        grants: Arc::new(ArcSwap::from_pointee(grants)),
        watcher: Arc::new(Clock(Instant::now())),
        ..bc_tests::run(&kind, payload)
    };
    (kind, run)
}

/// Runs it to its end.
pub(crate) async fn run(kind: &str, origins: &[&str], payload: Value) -> Report {
    let (kind, run) = run_of(kind, origins, payload);
    kind.run(run).await
}

/// What it would do.
pub(crate) async fn plan(kind: &str, origins: &[&str], payload: Value) -> Report {
    let (kind, run) = run_of(kind, origins, payload);
    kind.run(Run { mode: Mode::Plan, ..run }).await
}

pub(crate) fn result(report: &Report) -> &Value {
    let Outcome::Succeeded { result } = &report.outcome else { panic!("{}", report.outcome) };
    result
}

pub(crate) fn code(report: &Report) -> &str {
    let Outcome::GuestFailure(failure) = &report.outcome else { panic!("{}", report.outcome) };
    &failure.code
}
