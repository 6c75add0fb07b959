//! A component's signature, as a file beside it: `NAME.wasm.sig`.
//!
//! **Invariant:** where publishers are trusted, a file's bytes are hashed and nothing else until its signature was verified.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bc_proto::canonical::sha256_hex;
use bc_proto::rules::publishing::{self, KindSignature, Untrusted};
use bc_proto::rules::trust::Publisher;
use bc_runtime::{Inspected, LoadError, Rejected};

/// A signature file has some 300 bytes.
const MAX_BYTES: u64 = 4 * 1024;

/// A signature file that is none.
#[derive(Debug, thiserror::Error)]
#[error("the signature {} cannot be read: {reason}", file.display())]
pub struct Unreadable {
    /// The file.
    pub file: PathBuf,
    /// Why.
    pub reason: String,
}

/// Why a component was not taken.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum NotTaken {
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    #[error(transparent)]
    Signature(#[from] Unreadable),
    #[error(transparent)]
    Rejected(#[from] Rejected),
}

impl NotTaken {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::Untrusted(untrusted) => untrusted.remedy().to_owned(),
            Self::Signature(_) => "sign it again with `better-compute kind sign`, or remove the .sig file".to_owned(),
            Self::Rejected(rejected) => rejected.remedy(),
        }
    }
}

impl From<LoadError> for NotTaken {
    fn from(error: LoadError) -> Self {
        Self::Rejected(error.rejected)
    }
}

/// Where the signature of a component's file is.
pub fn file(component: &Path) -> PathBuf {
    component.with_added_extension("sig")
}

/// The signature beside a component's file; `None` where there is none.
pub fn beside(component: &Path) -> Result<Option<KindSignature>, Unreadable> {
    let file = file(component);
    let unreadable = |reason: String| Unreadable { file: file.clone(), reason };
    match std::fs::metadata(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error.to_string())),
        // A pipe would never end.
        Ok(metadata) if !metadata.is_file() => return Err(unreadable("it is no regular file".into())),
        Ok(_) => {}
    }
    let mut text = Vec::new();
    let read = File::open(&file).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut text));
    read.map_err(|error| unreadable(error.to_string()))?;
    serde_json::from_slice(&text).map(Some).map_err(|error| unreadable(error.to_string()))
}

/// Reads a component's file, once one of the publishers vouches for it; where there are none, anything is read.
pub fn read(component: &Path, publishers: &[Publisher]) -> Result<(Inspected, Option<KindSignature>), NotTaken> {
    if publishers.is_empty() {
        // It is kept for the day on which there are some; a damaged one is no obstacle today.
        return Ok((Inspected::read(component)?, beside(component).ok().flatten()));
    }
    let signature = beside(component)?;
    let bytes = Inspected::read_bytes(component)?;
    publishing::check(publishers, &sha256_hex(&bytes), signature.as_ref())?;
    Ok((Inspected::from_bytes(bytes)?, signature))
}

#[cfg(test)]
mod tests {
    use bc_proto::sign::SecretKey;

    use super::*;

    #[test]
    fn promise_28_a_file_that_nobody_vouches_for_is_not_looked_into() {
        let folder = tempfile::tempdir().expect("a folder");
        let component = folder.path().join("x.wasm");
        // Looked into at all, it would be refused for what it is.
        std::fs::write(&component, b"junk").expect("a file");
        let key = SecretKey::from_seed([1; 32]);
        let trusted = [Publisher { name: "one".into(), key: key.public() }];
        let refused = |publishers: &[Publisher]| read(&component, publishers).map(drop).expect_err("junk");
        let sign = |key: &SecretKey| {
            let signed = KindSignature::sign(&sha256_hex(b"junk"), key);
            std::fs::write(file(&component), serde_json::to_vec(&signed).expect("JSON")).expect("a file");
        };
        assert!(matches!(refused(&[]), NotTaken::Rejected(Rejected::NotWebAssembly)));
        assert!(matches!(refused(&trusted), NotTaken::Untrusted(Untrusted::Unsigned { .. })));
        sign(&SecretKey::from_seed([2; 32]));
        assert!(matches!(refused(&trusted), NotTaken::Untrusted(Untrusted::UnknownPublisher { .. })));
        std::fs::write(file(&component), "junk").expect("a file");
        assert!(matches!(refused(&trusted), NotTaken::Signature(_)));
        sign(&key);
        assert!(matches!(refused(&trusted), NotTaken::Rejected(Rejected::NotWebAssembly)), "now it is");
    }
}
