//! `kind sign`: a publisher vouches for a component.
//!
//! **Invariant:** what is signed is the file's SHA-256; the component is not read further, and the key goes nowhere.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use bc_daemon::kinds::signature;
use bc_proto::canonical::sha256_hex;
use bc_proto::rules::publishing::KindSignature;
use bc_proto::sign::SecretKey;
use clap::Args;

use crate::output;

/// The arguments.
#[derive(Debug, Args)]
pub struct Sign {
    /// Components that `kind build` wrote; the signature of each goes into FILE.sig beside it
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The publisher's private key, PEM, as `openssl genpkey -algorithm ed25519` writes it
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Print one JSON object a file
    #[arg(long)]
    json: bool,
}

impl Sign {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let name = self.key.display();
        let pem = std::fs::read_to_string(&self.key).with_context(|| format!("{name} cannot be read"))?;
        let key = SecretKey::from_pem(&pem).with_context(|| {
            format!(
                "{name} is no publisher's key; make one with `openssl genpkey -algorithm ed25519 -out publisher.pem`"
            )
        })?;
        for file in &self.files {
            let bytes = read(file)?;
            if !bytes.starts_with(b"\0asm") {
                bail!(
                    "{} is not WebAssembly; give the `.wasm` file that `better-compute kind build` wrote",
                    file.display()
                );
            }
            let signed = KindSignature::sign(&sha256_hex(&bytes), &key);
            let (to, text) = (signature::file(file), serde_json::to_string(&signed)?);
            std::fs::write(&to, format!("{text}\n")).with_context(|| format!("{} cannot be written", to.display()))?;
            let said = format!("{}  sha256:{}  by {}", to.display(), signed.digest, signed.publisher);
            output::say(if self.json { &text } else { &said });
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A component's bytes.
pub(super) fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))
}

/// The signature beside a component, if it is one of these bytes.
pub(super) fn beside(file: &Path, bytes: &[u8]) -> anyhow::Result<Option<KindSignature>> {
    let Some(found) = signature::beside(file)? else { return Ok(None) };
    let digest = sha256_hex(bytes);
    if found.digest != digest {
        bail!(
            "{} is for sha256:{}, and {} has sha256:{digest}; sign it again with `better-compute kind sign`",
            signature::file(file).display(),
            found.digest,
            file.display()
        );
    }
    Ok(Some(found))
}
