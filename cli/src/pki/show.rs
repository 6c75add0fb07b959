//! `better-compute pki show FILE`.
//!
//! **Invariant:** of a private key only the public half is shown.

use std::path::PathBuf;

use anyhow::{Context, bail};
use bc_proto::rules::trust::{SignedBundle, TrustBundle};
use bc_proto::sign::{PublicKey, SecretKey, WorkerKey};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::output;
use crate::server::pki::Pki;

/// What to show.
#[derive(Debug, Args)]
pub struct Show {
    /// A key (PEM), a worker key's certificate, a signed trust bundle or a node's `trust.json`, or a server's settings (TOML)
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A server's settings, less what is of no interest here.
#[derive(Debug, Deserialize)]
struct Settings {
    pki: Option<Pki>,
}

/// What a node keeps.
#[derive(Debug, Deserialize)]
struct Kept {
    signed: SignedBundle,
}

impl Show {
    pub(super) fn execute(&self) -> anyhow::Result<()> {
        let name = self.file.display();
        let text = std::fs::read_to_string(&self.file).with_context(|| format!("{name} cannot be read"))?;
        let shown = describe(&text, super::now_ms()).with_context(|| name.to_string())?;
        output::say(&if self.json { format!("{shown:#}") } else { lines(&shown) });
        Ok(())
    }
}

/// What a file says, whichever of the forms it has.
pub(super) fn describe(text: &str, now_ms: u64) -> anyhow::Result<Value> {
    if text.contains("PRIVATE KEY-----") {
        return Ok(json!({ "is": "private key", "publicKey": SecretKey::from_pem(text)?.public() }));
    }
    if text.contains("PUBLIC KEY-----") {
        return Ok(json!({ "is": "public key", "publicKey": PublicKey::from_pem(text)? }));
    }
    if text.trim_start().starts_with('{') {
        // A node's file has its checksum on the line after.
        let mut documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let document = documents.next().context("it is empty")??;
        if let Ok(worker) = WorkerKey::deserialize(&document) {
            let believed = worker.verify(&[worker.root]).map_err(|error| error.to_string()).err();
            let holds = worker.not_before_ms <= now_ms && now_ms < worker.not_after_ms;
            return Ok(json!({
                "is": "worker key", "key": worker.key, "root": worker.root, "notBefore": moment(worker.not_before_ms),
                "notAfter": moment(worker.not_after_ms), "holdsNow": holds && believed.is_none(), "wrong": believed,
            }));
        }
        let signed = SignedBundle::deserialize(&document).or_else(|_| Kept::deserialize(&document).map(|it| it.signed));
        let Ok(signed) = signed else { bail!("it is neither a certificate nor a trust bundle") };
        let bundle = serde_json::to_value(&signed.bundle)?;
        let signatures = signed.signatures.iter().map(|by| {
            let wrong = by.root.verify(&signed.bundle, &by.signature).map_err(|error| error.to_string()).err();
            json!({ "root": by.root, "wrong": wrong })
        });
        return Ok(json!({ "is": "trust bundle", "bundle": bundle, "signedBy": signatures.collect::<Vec<_>>() }));
    }
    let settings: Settings = toml::from_str(text).context("it is no key, certificate, trust bundle or settings")?;
    let settings = settings.pki.unwrap_or_default().checked(now_ms)?;
    let signer = settings.command_signing.as_ref().map(SecretKey::public);
    let worker = settings.worker.as_ref().map(|(worker, _)| worker.key);
    let bundle = settings.bundle().unwrap_or(TrustBundle::NONE);
    Ok(json!({
        "is": "server settings", "signs": signer.is_some() || worker.is_some(), "signingRoot": signer, "workerKey": worker,
        "trustVersion": settings.trust_version, "bundle": bundle,
    }))
}

fn moment(ms: u64) -> String {
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms)).to_string()
}

/// A document for people: a fact a line.
fn lines(document: &Value) -> String {
    let mut lines = Vec::new();
    facts("", document, &mut lines);
    lines.join("\n")
}

fn facts(path: &str, value: &Value, lines: &mut Vec<String>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Null => {}
        Value::Object(fields) => fields.iter().for_each(|(key, value)| facts(&below(key), value, lines)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| facts(&below(&at.to_string()), item, lines));
        }
        Value::String(text) => lines.push(format!("{path}: {text}")),
        other => lines.push(format!("{path}: {other}")),
    }
}
