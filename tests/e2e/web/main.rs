//! The pages in a real browser: Chromium, headless, over a control plane and nodes that are processes of their own.
//!
//! What a person does stands in `tests/browser/*.test.js`. Here is the fleet that they look at, and a door at which those tests ask
//! for what no page can do: that a node goes away or comes back, or that the server is killed and starts again.
//!
//! **Invariant:** what the pages show was done by the programs themselves; nothing is written into the database for them.

mod fleet;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use bc_tests::programs;
use tokio::sync::Mutex;

use self::fleet::Fleet;

/// Where Debian's package `chromium` puts the browser.
const CHROMIUM: &str = "/usr/bin/chromium";

type Shared = Arc<Mutex<Fleet>>;

/// `POST /<what>`: does it, and answers when it is done.
async fn act(State(fleet): State<Shared>, Path(what): Path<String>) -> StatusCode {
    let mut fleet = fleet.lock().await;
    let cluster = &mut fleet.cluster;
    match what.as_str() {
        "server-down" => cluster.replicas[0].kill(),
        "server-up" => cluster.replicas[0].restart().await,
        "node-down" => cluster.nodes[0].kill(),
        "node-up" => {
            cluster.nodes[0].start();
            cluster.nodes[0].process().has_said("a session is open").await;
        }
        _ => return StatusCode::NOT_FOUND,
    }
    StatusCode::NO_CONTENT
}

/// The folder of the tests in the browser, with what they need installed.
fn folder() -> PathBuf {
    let folder = programs::repository().join("tests/browser");
    let is_installed = folder.join("node_modules/playwright-core").is_dir();
    assert!(is_installed, "playwright-core is missing; cargo xtask setup installs it");
    assert!(
        std::env::var_os("CHROMIUM").is_some() || std::path::Path::new(CHROMIUM).exists(),
        "chromium is missing: apt-get install chromium, or name one in CHROMIUM"
    );
    folder
}

/// Runs one file of tests, and shows what it said when it fails.
#[expect(clippy::disallowed_methods, reason = "these tests are about programs")]
async fn browse(file: &str) {
    let folder = folder();
    let fleet = Fleet::start().await;
    let mut node = Command::new("node");
    node.current_dir(&folder).args(["--test-reporter=spec", file]).stdin(Stdio::null());
    node.env("CHROMIUM", std::env::var_os("CHROMIUM").unwrap_or_else(|| CHROMIUM.into()));
    for (name, value) in fleet.facts() {
        node.env(name, value);
    }
    let door = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
    node.env("DOOR", format!("http://{}", door.local_addr().expect("it is bound")));
    let shared = Arc::new(Mutex::new(fleet));
    let app = Router::new().route("/{what}", post(act)).with_state(Arc::clone(&shared));
    let served = tokio::spawn(async move { axum::serve(door, app).await });
    let said = tokio::task::spawn_blocking(move || node.output()).await.expect("it does not panic");
    let said = said.expect("node runs; cargo xtask setup says what is missing");
    served.abort();
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{file} failed:\n{out}\n{err}");
    assert!(out.contains("# fail 0") || out.contains("ℹ fail 0"), "{file} did not say how it went:\n{out}\n{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_accessible_at_every_width_and_asks_nobody_else() {
    browse("every.test.js").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_runs_follows_and_stops_commands_in_the_browser() {
    browse("person.test.js").await;
}
