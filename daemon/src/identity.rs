//! Who this node is to its control plane: a folder with its key, its certificate, the authority it trusts and where its
//! gateways are. It is made by a join.
//!
//! **Invariant:** the folder appears as a whole, on the disk, or not at all; and what does not read back as it was written is
//! not used.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bc_proto::certificate::NodeCertificate;
use bc_proto::id::NodeId;
use bc_proto::sign::{KeyError, SecretKey};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The folder, below the state directory.
const FOLDER: &str = "identity";
/// The private key (PKCS #8), mode 0600.
const KEY: &str = "key.pem";
/// The node's certificate and its authority's.
const CERTIFICATE: &str = "certificate.pem";
/// The authority's certificate alone.
const AUTHORITY: &str = "authority.pem";
/// [`Card`].
const CARD: &str = "node.json";
/// SHA-256 of the others, as `sha256sum` writes and checks it.
const SUMS: &str = "SHA256SUMS";

/// What the node is, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Card {
    /// The node.
    pub node: NodeId,
    /// Which life of it.
    pub incarnation: u64,
    /// The name that it joined with.
    pub name: String,
    /// Where its gateways are, `https://host:port`.
    pub gateways: Vec<String>,
    /// Server time of the join, milliseconds since the Unix epoch.
    pub joined_ms: u64,
}

/// An identity that was read.
#[derive(Debug)]
pub struct Identity {
    /// What it is.
    pub card: Card,
    /// The private key, PEM.
    pub(crate) key_pem: String,
    /// The certificate chain, PEM.
    pub(crate) chain_pem: String,
    /// The authority.
    pub(crate) authority: CertificateDer<'static>,
    /// The private key, to sign with.
    pub(crate) key: SecretKey,
    /// The certificate's contents.
    pub(crate) certificate: NodeCertificate,
}

impl Identity {
    /// What its certificate says.
    pub fn certificate(&self) -> &NodeCertificate {
        &self.certificate
    }
}

/// Why there is no identity to use.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Unusable {
    #[error(
        "this machine has not joined a control plane: there is no {}\n  \
         → make a join token there (`nodes.createJoinToken`) and run `bcd join --gateway URL --token-file FILE`",
        folder.display()
    )]
    Missing { folder: PathBuf },
    #[error("{} cannot be read: {error}\n  → let the user that bcd runs as read it", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error(
        "{} is damaged: {reason}\n  → restore the folder {FOLDER} from a backup, or join again with a token that was made \
         for this node: `bcd join --again --gateway URL --token-file FILE`",
        path.display()
    )]
    Damaged { path: PathBuf, reason: String },
    #[error(
        "{} is for a key that is not Ed25519, with which results cannot be attested\n  → take a token that was made for this \
         node, and join again: `bcd join --again --gateway URL --token-file FILE`",
        path.display()
    )]
    Outdated { path: PathBuf },
}

/// Where the identity lies.
pub fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join(FOLDER)
}

/// Reads it.
pub fn read(state_dir: &Path) -> Result<Identity, Unusable> {
    let folder = folder(state_dir);
    match fs::metadata(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unusable::Missing { folder }),
        Err(error) => return Err(Unusable::Unreadable { path: folder, error }),
        Ok(_) => {}
    }
    let damaged = |name: &str, reason: String| Unusable::Damaged { path: folder.join(name), reason };
    let text = |name: &str| -> Result<String, Unusable> {
        let path = folder.join(name);
        match fs::read(&path) {
            Ok(bytes) => String::from_utf8(bytes).map_err(|_| damaged(name, "it is not text".into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(damaged(name, "it is gone".into())),
            Err(error) => Err(Unusable::Unreadable { path, error }),
        }
    };
    let sums = text(SUMS)?;
    let checked = |name: &str| {
        let text = text(name)?;
        if sums.lines().any(|line| line == sum(name, text.as_bytes())) {
            Ok(text)
        } else {
            Err(damaged(name, format!("it is not as it was written, by {SUMS}")))
        }
    };
    let (key_pem, chain_pem) = (checked(KEY)?, checked(CERTIFICATE)?);
    let authority = CertificateDer::from_pem_slice(checked(AUTHORITY)?.as_bytes())
        .map_err(|error| damaged(AUTHORITY, error.to_string()))?;
    let card: Card = serde_json::from_str(&checked(CARD)?).map_err(|error| damaged(CARD, error.to_string()))?;
    fits(&key_pem, &chain_pem).map_err(|reason| damaged(CERTIFICATE, reason))?;
    let own = CertificateDer::from_pem_slice(chain_pem.as_bytes());
    let own = own.map_err(|error| damaged(CERTIFICATE, error.to_string()))?;
    let certificate = NodeCertificate::read(&own).map_err(|error| damaged(CERTIFICATE, error.to_string()))?;
    if (certificate.node, certificate.incarnation) != (card.node, card.incarnation) {
        return Err(damaged(CERTIFICATE, format!("it is for another node or life than {CARD}")));
    }
    let key = match SecretKey::from_pem(&key_pem) {
        Ok(key) if certificate.key == Some(key.public()) => key,
        Err(error) if error != KeyError::WrongType => return Err(damaged(KEY, error.to_string())),
        _ => return Err(Unusable::Outdated { path: folder.join(CERTIFICATE) }),
    };
    Ok(Identity { card, key_pem, chain_pem, authority, key, certificate })
}

/// Whether the certificate is one for the key.
pub(crate) fn fits(key_pem: &str, chain_pem: &str) -> Result<(), String> {
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|error| error.to_string())?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain_pem.as_bytes()).collect();
    let chain = chain.map_err(|error| error.to_string())?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map(drop).map_err(|error| error.to_string())
}

fn sum(name: &str, bytes: &[u8]) -> String {
    format!("{}  {name}", hex::encode(Sha256::digest(bytes)))
}

/// An identity in the making: a folder beside the place where it will be, with the key in it. Removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Draft {
    folder: PathBuf,
    place: PathBuf,
    /// The state directory, locked: of a join and a renewal only one is under way.
    _lock: File,
}

impl Draft {
    /// Makes the folder. The key is written down before anybody certifies it, so that a disk which does not take it costs no
    /// token.
    pub(crate) fn begin(state_dir: &Path, key_pem: &str) -> io::Result<Self> {
        fs::create_dir_all(state_dir)?;
        let lock = File::open(state_dir)?;
        lock.try_lock().map_err(|_| io::Error::other("another join or renewal is under way"))?;
        let draft = Self { folder: state_dir.join(format!("{FOLDER}.new")), place: folder(state_dir), _lock: lock };
        match fs::remove_dir_all(&draft.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(&draft.folder)?,
        }
        draft.write(KEY, key_pem.as_bytes())?;
        Ok(draft)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.folder.join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    /// Completes it and puts it in its place, over the one that is there.
    pub(crate) fn commit(self, key_pem: &str, chain_pem: &str, authority_pem: &str, card: &Card) -> io::Result<()> {
        let card = serde_json::to_string_pretty(card)? + "\n";
        let others = [(CERTIFICATE, chain_pem), (AUTHORITY, authority_pem), (CARD, card.as_str())];
        let mut sums = sum(KEY, key_pem.as_bytes()) + "\n";
        for (name, text) in others {
            self.write(name, text.as_bytes())?;
            sums += &(sum(name, text.as_bytes()) + "\n");
        }
        self.write(SUMS, sums.as_bytes())?;
        File::open(&self.folder)?.sync_all()?;
        if self.place.exists() {
            // The two change places at once. What is then at the draft's is the old one, and goes with the draft.
            renameat_with(CWD, &self.folder, CWD, &self.place, RenameFlags::EXCHANGE)?;
        } else {
            fs::rename(&self.folder, &self.place)?;
        }
        match self.place.parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %self.folder.display(), "what a join left behind was not removed");
            }
            _ => {}
        }
    }
}
