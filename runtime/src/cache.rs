//! Compiled code on disk: `<dir>/<compatibility>/<sha256>.cwasm`, each file a keyed hash and then wasmtime's artifact.
//!
//! Compiled code is machine code that runs unchecked, so a file counts only if this node wrote it: the directory is private
//! (0700) and each file carries a BLAKE3 MAC, under a key kept beside it, over what it is for and what it holds.
//!
//! **Invariant:** any failure is a miss. Nothing here makes loading a kind fail, and no byte from the network or the plugin
//! directory reaches `deserialize`.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use wasmtime::component::Component;

const KEY_BYTES: usize = blake3::KEY_LEN;

pub(crate) struct Cache {
    dir: PathBuf,
    key: [u8; KEY_BYTES],
    hits: AtomicU64,
    absent: AtomicU64,
    damaged: AtomicU64,
}

/// What the cache did since the engine was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Loads that were answered from disk.
    pub hits: u64,
    /// Loads for which there was no file.
    pub absent: u64,
    /// Loads for which there was a file that could not be used.
    pub damaged: u64,
}

impl Cache {
    /// Opens the cache for this engine's compatibility hash, and makes it private.
    pub(crate) fn open(dir: &Path, engine: &wasmtime::Engine) -> io::Result<Self> {
        let mut compatibility = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut compatibility);
        let versioned = dir.join(format!("{:016x}", compatibility.finish()));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&versioned)?;
        for private in [dir, &versioned] {
            fs::set_permissions(private, fs::Permissions::from_mode(0o700))?;
        }
        let key = read_or_make_key(dir)?;
        let zero = || AtomicU64::new(0);
        Ok(Self { dir: versioned, key, hits: zero(), absent: zero(), damaged: zero() })
    }

    pub(crate) fn counts(&self) -> CacheCounts {
        CacheCounts {
            hits: self.hits.load(Ordering::Relaxed),
            absent: self.absent.load(Ordering::Relaxed),
            damaged: self.damaged.load(Ordering::Relaxed),
        }
    }

    /// The compiled component with this digest, if a usable one is there.
    pub(crate) fn get(&self, engine: &wasmtime::Engine, digest: &str) -> Option<Component> {
        let path = self.path(digest);
        let (outcome, counter, component) = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => ("absent", &self.absent, None),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the compiled-code cache could not be read");
                ("damaged", &self.damaged, None)
            }
            Ok(bytes) => match self.open_sealed(engine, digest, &bytes) {
                Ok(component) => ("hit", &self.hits, Some(component)),
                Err(reason) => {
                    tracing::warn!(path = %path.display(), reason, "a file of the compiled-code cache is not used");
                    ("damaged", &self.damaged, None)
                }
            },
        };
        counter.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("better_compute_kind_cache_lookups_total", "outcome" => outcome).increment(1);
        component
    }

    /// Stores a compiled component; a failure is logged and costs a compilation next time.
    pub(crate) fn put(&self, digest: &str, component: &Component) {
        let stored = component.serialize().map_err(io::Error::other).and_then(|artifact| self.write(digest, &artifact));
        if let Err(error) = stored {
            tracing::warn!(dir = %self.dir.display(), %error, "compiled code was not cached");
        }
    }

    #[expect(unsafe_code, reason = "the bytes carry this node's MAC: they are what wasmtime gave to `put`")]
    fn open_sealed(&self, engine: &wasmtime::Engine, digest: &str, bytes: &[u8]) -> Result<Component, String> {
        let (mac, artifact) = bytes.split_at_checked(blake3::OUT_LEN).ok_or("it is shorter than its MAC")?;
        let mac: [u8; blake3::OUT_LEN] = mac.try_into().expect("split at that length");
        // blake3's Hash compares in constant time.
        if self.mac(digest, artifact) != mac {
            return Err("its MAC is not this node's".into());
        }
        unsafe { Component::deserialize(engine, artifact) }.map_err(|error| error.to_string())
    }

    fn write(&self, digest: &str, artifact: &[u8]) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.dir)?;
        file.write_all(self.mac(digest, artifact).as_bytes())?;
        file.write_all(artifact)?;
        file.as_file().sync_all()?;
        file.persist(self.path(digest))?;
        fs::File::open(&self.dir)?.sync_all()
    }

    /// Over the digest too: a file that is renamed to stand for another kind is damaged.
    fn mac(&self, digest: &str, artifact: &[u8]) -> blake3::Hash {
        blake3::Hasher::new_keyed(&self.key).update(digest.as_bytes()).update(&[0]).update(artifact).finalize()
    }

    fn path(&self, digest: &str) -> PathBuf {
        self.dir.join(digest).with_extension("cwasm")
    }
}

/// The MAC key. Nothing is written where there is one: a full disk takes no cache away. Two processes that start at once
/// agree on the one whose file came first.
fn read_or_make_key(dir: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let path = dir.join("key");
    if let Some(key) = read_key(&path) {
        return Ok(key);
    }
    let mut fresh = [0; KEY_BYTES];
    getrandom::fill(&mut fresh).map_err(io::Error::other)?;
    let mut file = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o600)).tempfile_in(dir)?;
    file.write_all(&fresh)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(&path) {
        Ok(_) => Ok(fresh),
        Err(taken) if taken.error.kind() == io::ErrorKind::AlreadyExists => match read_key(&path) {
            Some(key) => Ok(key),
            // A damaged key makes every file a miss; a new one is as good.
            None => taken.file.persist(&path).map(|_| fresh).map_err(|failed| failed.error),
        },
        Err(failed) => Err(failed.error),
    }
}

fn read_key(path: &Path) -> Option<[u8; KEY_BYTES]> {
    fs::read(path).ok()?.try_into().ok()
}
