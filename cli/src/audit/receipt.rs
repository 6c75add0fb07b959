//! `audit verify --receipt`: a receipt, with nothing but the file and the roots.
//!
//! **Invariant:** no server is asked.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bc_host::audit::certificate;
use bc_host::words;
use bc_proto::id::NodeId;
use bc_proto::receipt::Receipt;
use bc_proto::rules::receipt::{self, Proven, Trusted};
use bc_proto::sign::PublicKey;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::{exit, output, shell};

/// Verifies a receipt and prints what it proves.
pub(super) fn verify(
    file: &Path,
    roots: &[PublicKey],
    node_authority: Option<&Path>,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let bytes = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let authority = node_authority.map(authority).transpose()?;
    let now_ms = u64::try_from(shell::now().unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
    match proven(&bytes, roots, authority.as_deref(), now_ms) {
        Ok(proven) => {
            output::say(&if as_json {
                document(&proven).to_string()
            } else {
                words::receipt::proven(&proven).join("\n")
            });
            Ok(ExitCode::SUCCESS)
        }
        Err(why) => {
            if as_json {
                output::say(&json!({ "ok": false, "error": why }).to_string());
            }
            output::complain(&format!("error: this receipt proves nothing: {why}"));
            Ok(ExitCode::from(exit::NOT_TRUE))
        }
    }
}

fn authority(file: &Path) -> anyhow::Result<Vec<u8>> {
    let pem = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let der = CertificateDer::from_pem_slice(&pem);
    Ok(der.with_context(|| format!("{} holds no certificate in PEM", file.display()))?.to_vec())
}

fn proven(bytes: &[u8], roots: &[PublicKey], authority: Option<&[u8]>, now_ms: u64) -> Result<Proven, String> {
    let receipt = Receipt::parse(bytes).map_err(|error| error.to_string())?;
    let trusted = Trusted { roots, node: None, now_ms };
    let proven = receipt::verify(&receipt, trusted).map_err(|error| error.to_string())?;
    let node = match (authority, &receipt.node_certificate, &proven.outcome) {
        (Some(authority), Some(text), Some(outcome)) => Some(node(authority, text, outcome.at_ms)?),
        _ => return Ok(proven),
    };
    receipt::verify(&receipt, Trusted { node, ..trusted }).map_err(|error| error.to_string())
}

fn node(authority: &[u8], certificate: &str, at_ms: u64) -> Result<(NodeId, PublicKey), String> {
    let der = STANDARD.decode(certificate).map_err(|error| error.to_string())?;
    certificate::node_key(authority, &der, at_ms).map_err(|error| format!("nodeCertificate: {error}"))
}

fn document(proven: &Proven) -> Value {
    let outcome = proven.outcome.as_ref().map(|it| {
        json!({
            "state": it.state, "reason": it.reason, "decidedBy": it.decided_by.to_string(),
            "attested": it.attested.to_string(), "atMs": it.at_ms,
        })
    });
    json!({
        "ok": true, "command": proven.command, "tenant": proven.tenant, "node": proven.node, "kind": proven.kind,
        "queuedAtMs": proven.queued_at_ms, "headSigned": proven.is_head_signed, "commandSigned": proven.is_command_signed,
        "batch": proven.batch, "approvers": proven.approvers, "outcome": outcome,
    })
}
