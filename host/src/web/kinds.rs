//! `/kinds`: what nodes can be asked to run, and what each may do to them.
//!
//! **Invariant:** what a kind may do is told from its manifest, which stands in the component that was signed and registered.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::http::Uri;
use axum::routing::get;
use bc_proto::grants::{Capability, Grants};
use bc_proto::manifest::{Limits, Manifest};
use bc_proto::rules::diff::Diff;
use serde_json::{Value, json};

use super::page::{self, Answer, Page};
use super::query;
use super::visitor::Visitor;
use crate::api::auth::NODES_EXEC;
use crate::api::error::Failure;
use crate::api::types;
use crate::words::{distance, instant, rough};

/// Their paths.
pub(super) fn routes() -> Router {
    Router::new().route("/kinds", get(list)).route("/kinds/{kind}", get(show))
}

/// Where a kind is shown.
pub(crate) fn path(kind: &str) -> String {
    format!("/kinds/{}", query::encoded(kind))
}

#[derive(Template)]
#[template(path = "kinds.html")]
struct List {
    page: Page,
    rows: Vec<Row>,
}

/// A kind's line.
struct Row {
    path: String,
    summary: String,
    kind: types::Kind,
    /// How many versions it has.
    versions: usize,
}

/// `GET /kinds`
async fn list(visitor: Visitor) -> Answer {
    let page = Page::live(&visitor, "kinds", "Kinds", &[]).await?;
    let found = all(&visitor).await?;
    let mut rows: Vec<Row> = Vec::new();
    for kind in found {
        if let Some(row) = rows.iter_mut().find(|row| row.kind.name == kind.name) {
            row.versions += 1;
            // The one that takes new commands stands for its name.
            if kind.status == "active" {
                row.summary = summary(&kind);
                row.kind = kind;
            }
            continue;
        }
        rows.push(Row { path: path(&kind.name), summary: summary(&kind), versions: 1, kind });
    }
    page::html(&List { page, rows })
}

fn summary(kind: &types::Kind) -> String {
    kind.manifest["summary"].as_str().unwrap_or_default().to_owned()
}

/// All versions of all kinds that the visitor may see.
async fn all(visitor: &Visitor) -> Result<Vec<types::Kind>, Failure> {
    let found: types::Page<types::Kind> = visitor.call("kinds.list", &json!({ "all": true })).await?;
    Ok(found.items)
}

#[derive(Template)]
#[template(path = "kind.html")]
struct Detail {
    page: Page,
    path: String,
    kind: types::Kind,
    summary: String,
    versions: Vec<Version>,
    shown: String,
    capabilities: Vec<(&'static str, String)>,
    grants: String,
    timeout: String,
    limits: Vec<(&'static str, String)>,
    schema: String,
    result: String,
    examples: Vec<(String, String)>,
    run: Option<String>,
    diff: Option<Result<Compared, String>>,
    from: String,
    to: String,
}

/// A registered component.
struct Version {
    number: String,
    digest: String,
    status: String,
    publisher: String,
    at: String,
    age: String,
    path: String,
}

/// How two versions differ.
struct Compared {
    lines: Vec<String>,
    needs_yes: bool,
}

/// `GET /kinds/{kind}?version=…&from=…&to=…`
async fn show(visitor: Visitor, Path(name): Path<String>, uri: Uri) -> Answer {
    let asked = query::read(&uri);
    let page = Page::live(&visitor, "kinds", name.clone(), &[]).await?;
    let versions: Vec<_> = all(&visitor).await?.into_iter().filter(|kind| kind.name == name).collect();
    let named = |version: &str| versions.iter().find(|kind| kind.version == version);
    let kind = match asked.text("version") {
        Some(version) => named(version),
        None => versions.iter().find(|kind| kind.status == "active").or(versions.first()),
    };
    let kind = kind.cloned().ok_or_else(|| Failure::not_found("kind", &name))?;
    let manifest = &kind.manifest;
    let grants: Grants = serde_json::from_value(manifest["capabilities"].clone()).unwrap_or_default();
    let now = visitor.app().now();
    let path = path(&name);
    let version = |kind: &types::Kind| Version {
        number: kind.version.clone(),
        digest: kind.digest.clone(),
        status: kind.status.clone(),
        publisher: kind.publisher.clone().unwrap_or_default(),
        at: instant(kind.created_at),
        age: distance(kind.created_at, now),
        path: query::path(&path, [("version", kind.version.as_str())]),
    };
    let (from, to) = (asked.text("from").unwrap_or_default(), asked.text("to").unwrap_or_default());
    let diff = (!from.is_empty() && !to.is_empty()).then(|| match (named(from), named(to)) {
        (Some(old), Some(new)) => compare(old, new),
        _ => Err("one of these versions is not registered".to_owned()),
    });
    let limits: Limits = serde_json::from_value(manifest["limits"].clone()).unwrap_or_default();
    let examples = manifest["examples"].as_array().into_iter().flatten();
    page::html(&Detail {
        summary: summary(&kind),
        shown: kind.version.clone(),
        capabilities: words(&grants),
        grants: to_grant(&name, &grants),
        timeout: rough(std::time::Duration::from_millis(kind.timeout_ms)),
        limits: vec![("Memory", limits.memory.to_string()), ("Processor time", limits.cpu.to_string())],
        schema: format!("{:#}", manifest["payload"]),
        result: format!("{:#}", manifest["result"]),
        examples: examples.map(|it| (text(&it["summary"]), format!("{:#}", it["payload"]))).collect(),
        run: (kind.exposed && kind.status == "active" && visitor.may_somewhere(NODES_EXEC))
            .then(|| query::path("/commands/run", [("kind", name.as_str())])),
        versions: versions.iter().map(version).collect(),
        from: from.to_owned(),
        to: to.to_owned(),
        page,
        path,
        kind,
        diff,
    })
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What `kind diff` says.
fn compare(old: &types::Kind, new: &types::Kind) -> Result<Compared, String> {
    let manifest = |kind: &types::Kind| {
        serde_json::from_value::<Manifest>(kind.manifest.clone())
            .map_err(|_| format!("the manifest of {} {} is of another release", kind.name, kind.version))
    };
    let diff = Diff::between(&manifest(old)?, &manifest(new)?);
    Ok(Compared { lines: diff.lines(), needs_yes: diff.needs_yes })
}

/// What a kind may do on a node, for people.
fn words(grants: &Grants) -> Vec<(&'static str, String)> {
    let one = |capability: Capability| (capability.interface(), words_of(grants, capability).unwrap_or_default());
    grants.capabilities().into_iter().map(one).collect()
}

fn words_of(grants: &Grants, capability: Capability) -> Option<String> {
    Some(match capability {
        Capability::Inventory => "read what the machine is made of".to_owned(),
        Capability::Nvml => "ask the GPUs' driver, and read the kernel's GPU errors".to_owned(),
        Capability::Gpus if grants.gpus?.reset => "see which GPUs are in use, and reset GPUs".to_owned(),
        Capability::Gpus => "see which GPUs are in use".to_owned(),
        Capability::System if grants.system?.reboot => "read boot and role, and reboot the node".to_owned(),
        Capability::System => "read boot and role".to_owned(),
        Capability::Process => {
            let programs = &grants.process.as_ref()?.programs;
            let line = |it: &bc_proto::grants::Program| {
                let note = if it.read_only { " (changes nothing)" } else { "" };
                let words: Vec<_> = it.argv.iter().map(ToString::to_string).collect();
                format!("{} {}", it.program, words.join(" ")).trim_end().to_owned() + note
            };
            format!("run programs: {}", programs.iter().map(line).collect::<Vec<_>>().join("; "))
        }
        Capability::Upload => match grants.upload?.max_bytes {
            Some(max) => format!("upload one file of at most {max} to the command's destination"),
            None => "upload one file to the command's destination".to_owned(),
        },
        Capability::BlockDevices => {
            let it = grants.block_devices.as_ref()?;
            let change = match (it.erase, it.write) {
                (true, true) => "erase and write",
                (true, false) => "erase",
                (false, true) => "write",
                (false, false) => return Some("read disks".to_owned()),
            };
            format!("read disks, and {change} {}", list_of(it.devices.iter()))
        }
        Capability::Secrets => format!("read the secrets {}", list_of(grants.secrets.as_ref()?.refs.iter())),
        Capability::Upgrade => "replace the daemon".to_owned(),
        Capability::Files => format!("read files below {}", list_of(grants.files.as_ref()?.folders.iter())),
        Capability::Http => {
            let it = grants.http.as_ref()?;
            let change = if it.write { "ask and change things at" } else { "ask" };
            let with = if it.credentials.is_empty() {
                String::new()
            } else {
                format!(", with the credentials {}", list_of(it.credentials.iter()))
            };
            format!("{change} {}{with}", list_of(it.origins.iter()))
        }
    })
}

fn list_of(items: impl Iterator<Item = impl ToString>) -> String {
    items.map(|it| it.to_string()).collect::<Vec<_>>().join(", ")
}

/// What has to stand in bcd.toml for a node to run it.
fn to_grant(name: &str, grants: &Grants) -> String {
    if *grants == Grants::default() {
        return String::new();
    }
    let table = json!({ "grants": { name: grants } });
    toml::to_string(&table).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(text: &str) -> Grants {
        toml::from_str(text).expect("grants")
    }

    #[test]
    fn every_capability_has_words_that_name_what_it_reaches() {
        let all = grants(
            "inventory = {}\nnvml = {}\ngpus = { reset = true }\nsystem = {}\nupload = { max-bytes = '1MiB' }\nsecrets = { refs = ['s/*'] }\nupgrade = {}\n\
             files = { folders = ['/var/log'] }\nblock-devices = { devices = ['/dev/*'], erase = true }\n\
             http = { origins = ['https://bmc'], write = true, credentials = ['c/*'] }\n\
             process = { programs = [{ program = 'dcgmi', argv = ['diag', '*'], read-only = true }] }\n",
        );
        let told = words(&all);
        assert_eq!(told.len(), Capability::ALL.len());
        for (name, words) in &told {
            assert!(!words.is_empty(), "{name}");
        }
        let joined = told.iter().map(|(_, words)| words.as_str()).collect::<Vec<_>>().join("\n");
        for word in [
            "reset GPUs",
            "/var/log",
            "erase /dev/*",
            "change things at https://bmc",
            "c/*",
            "dcgmi diag * (changes nothing)",
        ] {
            assert!(joined.contains(word), "{word}: {joined}");
        }
    }

    #[test]
    fn what_is_to_be_granted_reads_back_as_what_is_asked() {
        let asked = grants("nvml = {}\nfiles = { folders = ['/var/log'] }");
        let text = to_grant("diag.nvml", &asked);
        let table: Value = toml::from_str(&text).expect("TOML");
        let back: Grants = serde_json::from_value(table["grants"]["diag.nvml"].clone()).expect("grants");
        assert_eq!(back, asked, "{text}");
        assert_eq!(to_grant("x", &Grants::default()), "");
    }
}
