//! What is in a bundle: a tar, compressed with Zstandard, whose first entry is `manifest.json`.
//!
//! Nodes write it, so nothing in it is believed: names lead nowhere, since nothing is unpacked.
//!
//! **Invariant:** reading takes a fixed amount of memory, and ends with an error once more comes out than a bundle may hold.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tar::{Archive, EntryType};

/// The first entry.
const MANIFEST: &str = "manifest.json";

/// The most bytes of the manifest: some ten thousand files.
const MAX_MANIFEST: u64 = 4 << 20;

/// The most bytes of a name that stands in an entry of its own.
const MAX_NAME: u64 = 64 << 10;

/// The largest window that a frame may ask for, as a power of two: 8 MiB, what RFC 8878 asks of every reader.
const WINDOW_LOG: u32 = 23;

/// What a bundle may come to when it is expanded, as a multiple of what may be uploaded. Logs shrink to a tenth or a thirtieth;
/// a bomb has ratios of thousands.
const EXPANSION: u64 = 64;

/// Bytes in one piece.
const PIECE: usize = 64 << 10;

/// Why a bundle cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Bad {
    /// It is none, or is damaged.
    #[error("the object is no support bundle: {0}")]
    Format(String),
    /// It expands to more than it may.
    #[error("the bundle expands to more than {0} bytes, which no bundle does; it was not read on")]
    Bomb(u64),
    /// The manifest lists no such file.
    #[error("the bundle has no file {0}; bundles.files lists them")]
    NoFile(String),
    /// The store stopped sending.
    #[error("the bundle could not be read to its end: {0}")]
    Source(String),
    /// Whoever wanted it went away.
    #[error("nobody waits for it any more")]
    Gone,
}

/// What a bundle says that it holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// 1.
    pub version: u32,
    /// The files.
    pub files: Vec<File>,
    /// What was left out, and why: `{"path" | "source", "reason"}`.
    #[serde(default)]
    pub skipped: Vec<Value>,
    /// What else went wrong.
    #[serde(default)]
    pub problems: Vec<Value>,
}

/// One file of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// Its name in the bundle.
    pub path: String,
    /// How large it is.
    pub bytes: u64,
    /// Of what is in the bundle, 64 hexadecimal digits.
    #[serde(default)]
    pub sha256: String,
    /// Whether its oldest part was left out.
    #[serde(default)]
    pub truncated: bool,
    /// Where it comes from.
    #[serde(default)]
    pub source: String,
}

/// What a bundle of at most so many bytes may come to.
pub const fn most_expanded(max_bytes: u64) -> u64 {
    max_bytes.saturating_mul(EXPANSION)
}

/// The manifest. No more is read than it takes to get there.
pub fn manifest(bundle: impl Read, most: u64) -> Result<Manifest, Bad> {
    let expanding = Expanding::new(bundle, most)?;
    let limit = expanding.limit.clone();
    let mut archive = Archive::new(expanding);
    first(&mut entries(&mut archive, &limit)?, &limit)
}

/// Finds a file, says what the manifest says of it, and then hands out its bytes in pieces. Either answers whether to go on.
pub fn file(
    bundle: impl Read,
    most: u64,
    path: &str,
    found: impl FnOnce(&File) -> bool,
    mut piece: impl FnMut(Vec<u8>) -> bool,
) -> Result<(), Bad> {
    let expanding = Expanding::new(bundle, most)?;
    let limit = expanding.limit.clone();
    let mut archive = Archive::new(expanding);
    let mut entries = entries(&mut archive, &limit)?;
    let manifest = first(&mut entries, &limit)?;
    let file = manifest.files.into_iter().find(|file| file.path == path);
    let file = file.ok_or_else(|| Bad::NoFile(path.to_owned()))?;
    // What long names say is of the entry that follows.
    let mut name = None;
    for entry in entries {
        let mut entry = entry.map_err(|error| limit.judge(&error))?;
        let header = entry.header();
        match header.entry_type() {
            EntryType::GNULongName => {
                let bytes = bounded(&mut entry, MAX_NAME, &limit)?;
                name = Some(bytes.strip_suffix(b"\0").unwrap_or(&bytes).to_vec());
            }
            EntryType::XHeader => {
                let bytes = bounded(&mut entry, MAX_NAME, &limit)?;
                let extensions = tar::PaxExtensions::new(&bytes);
                let path = extensions.flatten().find(|it| it.key_bytes() == b"path");
                name = path.map(|it| it.value_bytes().to_vec()).or(name);
            }
            EntryType::Regular | EntryType::Continuous => {
                let own = name.take().unwrap_or_else(|| header.path_bytes().into_owned());
                if own != path.as_bytes() {
                    continue;
                }
                let bytes = header.entry_size().map_err(|error| limit.judge(&error))?;
                if bytes != file.bytes {
                    let why = format!("{path} has {bytes} bytes, and its manifest says {}", file.bytes);
                    return Err(Bad::Format(why));
                }
                if !found(&file) {
                    return Err(Bad::Gone);
                }
                return pieces(&mut entry, bytes, &limit, &mut piece);
            }
            _ => name = None,
        }
    }
    Err(Bad::Format(format!("its manifest lists {path}, but it is not there")))
}

fn pieces(
    entry: &mut impl Read,
    bytes: u64,
    limit: &Limit,
    piece: &mut impl FnMut(Vec<u8>) -> bool,
) -> Result<(), Bad> {
    let mut left = bytes;
    while left > 0 {
        let mut bytes = Vec::with_capacity(PIECE);
        let read = entry.by_ref().take(PIECE as u64).read_to_end(&mut bytes).map_err(|error| limit.judge(&error))?;
        if read == 0 {
            return Err(Bad::Format("it ends in the middle of a file".into()));
        }
        left = left.saturating_sub(read as u64);
        if !piece(bytes) {
            return Err(Bad::Gone);
        }
    }
    Ok(())
}

type Entries<'a, R> = tar::Entries<'a, Expanding<R>>;

/// The entries as they stand: what the crate makes of long names would be read whole, whatever length they claim.
fn entries<'a, R: Read>(archive: &'a mut Archive<Expanding<R>>, limit: &Limit) -> Result<Entries<'a, R>, Bad> {
    Ok(archive.entries().map_err(|error| limit.judge(&error))?.raw(true))
}

fn first<R: Read>(entries: &mut Entries<'_, R>, limit: &Limit) -> Result<Manifest, Bad> {
    let entry = entries.next().ok_or_else(|| Bad::Format("it is empty".into()))?;
    let mut entry = entry.map_err(|error| limit.judge(&error))?;
    if entry.header().path_bytes().as_ref() != MANIFEST.as_bytes() {
        return Err(Bad::Format(format!("its first entry is not {MANIFEST}")));
    }
    let bytes = bounded(&mut entry, MAX_MANIFEST, limit)?;
    let manifest: Manifest = serde_json::from_slice(&bytes)
        .map_err(|error| Bad::Format(format!("its {MANIFEST} cannot be read: {error}")))?;
    if manifest.version != 1 {
        return Err(Bad::Format(format!("it is of version {}, and this server reads version 1", manifest.version)));
    }
    Ok(manifest)
}

fn bounded(entry: &mut impl Read, most: u64, limit: &Limit) -> Result<Vec<u8>, Bad> {
    let mut bytes = Vec::new();
    entry.take(most + 1).read_to_end(&mut bytes).map_err(|error| limit.judge(&error))?;
    if bytes.len() as u64 > most {
        return Err(Bad::Format(format!("an entry that describes others has more than {most} bytes")));
    }
    Ok(bytes)
}

/// Whether the limit was reached, or the source failed: errors on their way through the readers lose that.
#[derive(Clone)]
struct Limit {
    most: u64,
    is_reached: Arc<AtomicBool>,
    is_cut: Arc<AtomicBool>,
}

impl Limit {
    fn judge(&self, error: &io::Error) -> Bad {
        if self.is_reached.load(Ordering::Relaxed) {
            Bad::Bomb(self.most)
        } else if self.is_cut.load(Ordering::Relaxed) {
            Bad::Source(error.to_string())
        } else {
            Bad::Format(error.to_string())
        }
    }
}

/// What is compressed, expanded up to the limit.
struct Expanding<R: Read> {
    decoder: zstd::Decoder<'static, io::BufReader<Source<R>>>,
    left: u64,
    limit: Limit,
}

impl<R: Read> Expanding<R> {
    fn new(bundle: R, most: u64) -> Result<Self, Bad> {
        let limit = Limit { most, is_reached: Arc::default(), is_cut: Arc::default() };
        let source = Source { source: bundle, is_cut: limit.is_cut.clone() };
        let mut decoder = zstd::Decoder::new(source).map_err(|error| limit.judge(&error))?;
        decoder.window_log_max(WINDOW_LOG).map_err(|error| limit.judge(&error))?;
        Ok(Self { decoder, left: most, limit })
    }
}

impl<R: Read> Read for Expanding<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            self.limit.is_reached.store(true, Ordering::Relaxed);
            return Err(io::Error::other("it expands to too much"));
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.decoder.read(&mut buffer[..most])?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Where the bytes come from; it notes that they stopped coming.
struct Source<R> {
    source: R,
    is_cut: Arc<AtomicBool>,
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.source.read(buffer).inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                self.is_cut.store(true, Ordering::Relaxed);
            }
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
