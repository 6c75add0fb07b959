//! `kind inspect`.

use std::path::PathBuf;
use std::process::ExitCode;

use bc_proto::rules::admission::Obstacle;
use bc_proto::rules::publishing::KindSignature;
use bc_proto::sign::body::KindBody;
use bc_runtime::Inspected;
use clap::Args;
use serde_json::json;

use super::{REFUSED, sign};
use crate::output;

/// The arguments.
#[derive(Debug, Args)]
pub struct Inspect {
    /// The component
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let component = Inspected::read(&self.file)?;
        let faults = component.faults();
        let signature = sign::beside(&self.file, &component.bytes)?.as_ref().map(verified).transpose()?;
        let signature = signature.as_deref();
        let text =
            if self.json { as_json(&component, &faults, signature) } else { as_text(&component, &faults, signature) };
        output::say(&text);
        Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) })
    }
}

/// Who signed it. Whether they are trusted is for control plane and nodes to say.
fn verified(signed: &KindSignature) -> anyhow::Result<String> {
    signed.publisher.verify(&KindBody { digest: &signed.digest }, &signed.signature)?;
    Ok(signed.publisher.to_string())
}

fn as_json(component: &Inspected, faults: &[Obstacle], publisher: Option<&str>) -> String {
    let mut document = json!({
        "sha256": component.digest,
        "bytes": component.bytes.len(),
        "manifest": component.manifest,
        "imports": component.imports,
        "exports": component.exports,
        "faults": faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    if let Some(publisher) = publisher {
        document["publisher"] = publisher.into();
    }
    format!("{document:#}")
}

fn as_text(component: &Inspected, faults: &[Obstacle], publisher: Option<&str>) -> String {
    let manifest = &component.manifest;
    let word = |value| serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
    let words = |list: Vec<String>| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    let traits =
        manifest.traits.iter().map(|t| serde_json::to_value(t).ok().and_then(|v| v.as_str().map(str::to_owned)));
    let capabilities = manifest.capabilities.capabilities().into_iter().map(|c| c.interface().to_owned()).collect();
    let mut text = format!(
        "{} {}: {}\n  module        {}\n  lane          {}\n  timeout       {}\n  roles         {}\n  traits        {}\n  \
         capabilities  {}\n  limits        {} of memory, {} of CPU time\n  sha256        {}\n  bytes         {}\n  imports",
        manifest.name,
        manifest.version,
        manifest.summary,
        manifest.module,
        word(manifest.lane),
        manifest.timeout,
        words(manifest.roles.iter().map(ToString::to_string).collect()),
        words(traits.flatten().collect()),
        words(capabilities),
        manifest.limits.memory,
        manifest.limits.cpu,
        component.digest,
        component.bytes.len(),
    );
    if let Some(publisher) = publisher {
        text = text.replace("\n  imports", &format!("\n  publisher     {publisher}\n  imports"));
    }
    text.extend(component.imports.iter().map(|import| format!("\n    {import}")));
    for example in &manifest.examples {
        text += &format!("\n  example       {}\n    {}", example.summary, example.payload);
    }
    text.extend(faults.iter().map(|fault| format!("\n  fault: {fault}\n    → {}", fault.remedy())));
    text
}
