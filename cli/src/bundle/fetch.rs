//! Bytes from the API to a file or to standard output.
//!
//! **Invariant:** a file has its name only when all of it is there, and is what the node told of it where it told that.

use std::io::{IsTerminal, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bc_proto::rules::backoff::Backoff;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use reqwest::StatusCode;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::client::{CallError, Client};
use crate::{output, shell};

/// Between attempts.
const BACKOFF: Backoff = Backoff { min: Duration::from_millis(250), max: Duration::from_secs(5) };

/// How long the server may send nothing.
const SILENCE: Duration = Duration::from_mins(1);

/// Where bytes go.
#[derive(Debug)]
pub(super) enum Target {
    /// Standard output.
    Out,
    /// A file.
    File(PathBuf),
}

impl Target {
    /// `-` or a file.
    pub(super) fn of(path: PathBuf, is_json: bool) -> anyhow::Result<Self> {
        if path != Path::new("-") {
            return Ok(Self::File(path));
        }
        ensure!(!is_json, "--json: standard output takes the file itself; name a file with -o FILE");
        Ok(Self::Out)
    }
}

/// What arrived.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) bytes: u64,
    /// SHA-256 of it, 64 hexadecimal digits.
    pub(super) sha256: String,
    /// Whether the server told the same.
    pub(super) is_verified: bool,
}

/// What to fetch.
pub(super) struct Fetch<'a> {
    pub(super) client: &'a Client,
    pub(super) method: &'static str,
    pub(super) query: Value,
    /// Whether the method takes a range.
    pub(super) resumes: bool,
}

/// Why an attempt ended.
enum Cut {
    /// Another may do better.
    Transient(CallError),
    /// It began past the end of what is there.
    Past,
    /// No other will.
    Final(anyhow::Error),
}

impl Fetch<'_> {
    pub(super) async fn to(&self, target: &Target) -> anyhow::Result<Fetched> {
        match target {
            Target::Out => self.all(&mut Sink::new(std::io::stdout(), 0)).await,
            Target::File(path) => self.file(path).await,
        }
    }

    async fn file(&self, path: &Path) -> anyhow::Result<Fetched> {
        let part = path.with_added_extension("part");
        let fetched = loop {
            let mut sink = self.begun(&part)?;
            let was_begun = sink.bytes > 0;
            match self.all(&mut sink).await {
                Ok(fetched) => {
                    sink.out.sync_all().with_context(|| format!("{} cannot be written", part.display()))?;
                    break fetched;
                }
                // What was there is of something else: an earlier bundle under this name, or a damaged part.
                Err(error) if was_begun && error.is::<Foreign>() => {
                    output::complain(&format!(
                        "{} does not go on where the bundle does; it is fetched anew",
                        part.display()
                    ));
                    std::fs::remove_file(&part).with_context(|| format!("{} cannot be removed", part.display()))?;
                }
                Err(error) => return Err(error),
            }
        };
        std::fs::rename(&part, path).with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(fetched)
    }

    /// The part that is there, read once more for its hash.
    fn begun(&self, part: &Path) -> anyhow::Result<Sink<std::fs::File>> {
        let open = || -> std::io::Result<Sink<std::fs::File>> {
            let mut file =
                std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(!self.resumes).open(part)?;
            let mut hash = Sha256::new();
            let bytes = std::io::copy(&mut file, &mut Hashing(&mut hash))?;
            file.seek(SeekFrom::End(0))?;
            Ok(Sink { out: file, bytes, hash })
        };
        open().with_context(|| format!("{} cannot be written", part.display()))
    }

    /// All of it, in as many attempts as it takes.
    async fn all<W: Write>(&self, sink: &mut Sink<W>) -> anyhow::Result<Fetched> {
        let bar = Bar::new();
        let mut attempt = 0;
        loop {
            let before = sink.bytes;
            let error = match self.once(sink, &bar).await {
                Ok(told) => {
                    bar.finish();
                    return sink.checked(told.as_deref());
                }
                Err(Cut::Final(error)) => return Err(error),
                Err(Cut::Past) => bail!(Foreign),
                Err(Cut::Transient(error)) => error,
            };
            attempt = if sink.bytes > before { 1 } else { attempt + 1 };
            // Without ranges, what was printed cannot be taken back.
            if attempt >= self.client.patience().attempts || (sink.bytes > 0 && !self.resumes) {
                return Err(error.into());
            }
            tokio::time::sleep(BACKOFF.wait(attempt - 1, shell::jitter())).await;
        }
    }

    /// One attempt, from where the last one ended; the SHA-256 that the server told.
    async fn once<W: Write>(&self, sink: &mut Sink<W>, bar: &Bar) -> Result<Option<String>, Cut> {
        let mut answer = match self.client.open(self.method, &self.query, sink.bytes).await {
            Ok(answer) => answer,
            Err(CallError::Refused(refusal)) if sink.bytes > 0 && names_range(&refusal.details) => {
                return Err(Cut::Past);
            }
            Err(error) if error.is_transient() => return Err(Cut::Transient(error)),
            Err(error) => return Err(Cut::Final(error.into())),
        };
        if sink.bytes > 0 && answer.status() != StatusCode::PARTIAL_CONTENT {
            return Err(Cut::Past);
        }
        let told = answer.headers().get("repr-digest").and_then(|value| value.to_str().ok()).and_then(sha256);
        bar.begin(sink.bytes, answer.content_length());
        loop {
            let piece = match tokio::time::timeout(SILENCE, answer.chunk()).await {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => return Ok(told),
                Ok(Err(source)) => return Err(Cut::Transient(self.client.unreachable(source))),
                Err(_) => return Err(Cut::Final(anyhow::anyhow!("the server sent nothing for a minute; try again"))),
            };
            sink.write(&piece).context("what arrives cannot be written").map_err(Cut::Final)?;
            bar.at(sink.bytes);
        }
    }
}

/// What is there does not fit what comes.
#[derive(Debug, thiserror::Error)]
#[error("what arrived is not what the node told of it: its SHA-256 is another")]
struct Foreign;

/// Whether a refusal is about the range that was asked for.
fn names_range(details: &Value) -> bool {
    details["problems"].as_array().is_some_and(|all| all.iter().any(|it| it["field"] == "Range"))
}

/// `sha-256=:…:` of RFC 9530, as hexadecimal digits.
fn sha256(digest: &str) -> Option<String> {
    let encoded = digest.strip_prefix("sha-256=:")?.strip_suffix(':')?;
    Some(hex::encode(STANDARD.decode(encoded).ok()?))
}

/// Where bytes are written, and what was written so far.
struct Sink<W> {
    out: W,
    bytes: u64,
    hash: Sha256,
}

impl<W: Write> Sink<W> {
    fn new(out: W, bytes: u64) -> Self {
        Self { out, bytes, hash: Sha256::new() }
    }

    fn write(&mut self, piece: &[u8]) -> std::io::Result<()> {
        self.out.write_all(piece)?;
        self.hash.update(piece);
        self.bytes += piece.len() as u64;
        Ok(())
    }

    fn checked(&mut self, told: Option<&str>) -> anyhow::Result<Fetched> {
        self.out.flush().context("what arrives cannot be written")?;
        let sha256 = hex::encode(self.hash.clone().finalize());
        if told.is_some_and(|told| told != sha256) {
            bail!(Foreign);
        }
        Ok(Fetched { bytes: self.bytes, is_verified: told.is_some(), sha256 })
    }
}

struct Hashing<'a>(&'a mut Sha256);

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// How far it is, on a terminal.
struct Bar(Option<ProgressBar>);

impl Bar {
    fn new() -> Self {
        Self(std::io::stderr().is_terminal().then(|| {
            let words = "{bytes} of {total_bytes} [{wide_bar}] {bytes_per_sec}, {eta} left";
            let style = ProgressStyle::with_template(words).expect("the template is fixed");
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style)
        }))
    }

    fn begin(&self, at: u64, left: Option<u64>) {
        if let (Some(bar), Some(left)) = (&self.0, left) {
            bar.set_length(at + left);
            bar.set_position(at);
            bar.reset_eta();
        }
    }

    fn at(&self, bytes: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(bytes);
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_rfc_9530_writes_it() {
        let empty = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";
        assert_eq!(sha256(empty).as_deref(), Some("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
        assert_eq!(sha256("sha-512=:AAAA:"), None);
    }
}
