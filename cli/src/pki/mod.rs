//! `better-compute pki …`: the keys of command signing, made and looked at without a server.
//!
//! **Invariant:** nothing here needs a network. A private key is never printed.

pub mod keys;
mod show;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use bc_proto::sign::{SecretKey, WorkerKey};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::show::Show;
use crate::{output, shell};

/// The root's private key, in the folder that it is made in.
const ROOT: &str = "command-signing.pem";
/// Its public half.
const PUBLIC: &str = "command-signing.pub.pem";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum PkiCommand {
    /// Make a root of command signing: the key that nodes trust
    Init(Init),
    /// Certify a key for a day, so that a server can sign without the root
    IssueWorker(IssueWorker),
    /// Make the next root, and say how nodes get from the one to the other
    Rotate(Rotate),
    /// Show what a key, a certificate, a trust bundle or a server's settings say
    Show(Show),
}

/// Where to.
#[derive(Debug, Args)]
pub struct Init {
    /// The folder for the two files; it is made if there is none
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Which keys.
#[derive(Debug, Args)]
pub struct IssueWorker {
    /// The root's private key, PEM
    #[arg(long, value_name = "FILE")]
    root: PathBuf,
    /// The worker's private key, PEM; it is made if there is none. The certificate goes beside it
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Which keys.
#[derive(Debug, Args)]
pub struct Rotate {
    /// The present root's private key, PEM
    #[arg(long, value_name = "FILE")]
    root: PathBuf,
    /// The folder for the next root's two files; it is made if there is none
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl PkiCommand {
    /// Does it.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Init(Init { out, json }) => {
                let (key, file) = make_root(&out)?;
                let root = key.public();
                say(json, &json!({ "root": root, "keyFile": file }), || {
                    format!(
                        "root {root}\nits private key is {0}: keep a copy offline\n\nserver settings:\n\n[pki]\n\
                         command-signing = \"{0}\"",
                        file.display()
                    )
                });
            }
            Self::IssueWorker(issue) => issue.execute()?,
            Self::Rotate(Rotate { root, out, json }) => {
                let old = keys::secret(&root)?.public();
                let (key, file) = make_root(&out)?;
                let new = key.public();
                let steps = steps(&root, &old.to_string(), &file, &new.to_string());
                say(json, &json!({ "oldRoot": old, "newRoot": new, "keyFile": file, "steps": steps }), || {
                    let steps = steps.iter().enumerate().map(|(at, step)| format!("{}. {step}", at + 1));
                    format!("new root {new}\n\n{}", steps.collect::<Vec<_>>().join("\n\n"))
                });
            }
            Self::Show(show) => show.execute()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl IssueWorker {
    fn execute(&self) -> anyhow::Result<()> {
        let root = keys::secret(&self.root)?;
        if !self.key.exists() {
            keys::write(&self.key, &SecretKey::from_seed(shell::random()))?;
        }
        let now_ms = now_ms();
        let worker = WorkerKey::certify(&root, keys::secret(&self.key)?.public(), now_ms);
        let file = keys::certificate_of(&self.key);
        let text = serde_json::to_string_pretty(&worker)? + "\n";
        fs::write(&file, text).with_context(|| format!("{} cannot be written", file.display()))?;
        say(self.json, &json!({ "worker": worker, "certificateFile": file }), || {
            format!(
                "worker key {} is certified for a day\n\nserver settings:\n\n[pki]\nworker-key = \"{}\"\n\
                 command-signing-roots = [\"{}\"]",
                worker.key,
                self.key.display(),
                worker.root
            )
        });
        Ok(())
    }
}

/// Now, milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    u64::try_from(shell::now().unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}

fn make_root(folder: &std::path::Path) -> anyhow::Result<(SecretKey, PathBuf)> {
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let (key, file) = (SecretKey::from_seed(shell::random()), folder.join(ROOT));
    keys::write(&file, &key)?;
    let public = folder.join(PUBLIC);
    fs::write(&public, key.public().to_pem()).with_context(|| format!("{} cannot be written", public.display()))?;
    Ok((key, file))
}

/// How nodes get from one root to the next.
fn steps(old_file: &std::path::Path, old: &str, new_file: &std::path::Path, new: &str) -> [String; 3] {
    let table = |file: &std::path::Path, roots: &[&str]| {
        let roots = roots.iter().map(|root| format!("\"{root}\"")).collect::<Vec<_>>().join(", ");
        format!("[pki]\ncommand-signing = \"{}\"\ncommand-signing-roots = [{roots}]", file.display())
    };
    [
        format!(
            "Nodes learn the new root by the word of the old one. Give all servers this, and restart them:\n\n{}",
            table(old_file, &[new])
        ),
        format!(
            "The new root signs; the old one is still trusted. Give all servers this:\n\n{}",
            table(new_file, &[old])
        ),
        format!(
            "When every command that the old root's keys signed is over, an hour later at most, nodes forget it:\n\n{}\n\n   \
             A node that was away meanwhile is led through these steps when it comes back. Then destroy {}",
            table(new_file, &[]),
            old_file.display()
        ),
    ]
}

fn say(json: bool, document: &Value, text: impl FnOnce() -> String) {
    output::say(&if json { format!("{document:#}") } else { text() });
}

#[cfg(test)]
mod tests;
