//! Ed25519 keys and signatures, and the forms in which they are kept.
//!
//! **Invariant:** a secret key is never printed: it has no `Display`, and its `Debug` shows the public half.

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey, spki};
use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Body, Error, signed_bytes};

/// Why something is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Another algorithm's key.
    #[error("this is not an Ed25519 key")]
    WrongType,
    /// Not PEM, or not a key of this sort.
    #[error("this is no {0} in PEM")]
    NotPem(&'static str),
    /// Not 64 hexadecimal digits.
    #[error("a public key is written as 64 hexadecimal digits")]
    NotHex,
    /// 32 bytes that are no point of the curve.
    #[error("these 32 bytes are no Ed25519 public key")]
    NotAPoint,
}

/// A public key: 32 bytes, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Checks that it is one.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self, KeyError> {
        VerifyingKey::from_bytes(&bytes).map_err(|_| KeyError::NotAPoint)?;
        Ok(Self(bytes))
    }

    /// Reads a PEM `PUBLIC KEY` (SubjectPublicKeyInfo, RFC 8410).
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let key = VerifyingKey::from_public_key_pem(pem).map_err(|error| match error {
            spki::Error::OidUnknown { .. } => KeyError::WrongType,
            _ => KeyError::NotPem("PUBLIC KEY"),
        })?;
        Ok(Self(key.to_bytes()))
    }

    /// The same, as PEM.
    pub fn to_pem(self) -> String {
        let key = VerifyingKey::from_bytes(&self.0).expect("it was checked");
        key.to_public_key_pem(ed25519_dalek::pkcs8::spki::der::pem::LineEnding::LF).expect("32 bytes fit")
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether the signature is this key's, for this body.
    pub fn verify<B: Body>(&self, body: &B, signature: &Signature) -> Result<(), Error> {
        let key = VerifyingKey::from_bytes(&self.0).map_err(|_| Error::Wrong(B::PURPOSE))?;
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        key.verify_strict(&signed_bytes(body), &signature).map_err(|_| Error::Wrong(B::PURPOSE))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = hex::decode(text).ok().and_then(|bytes| bytes.try_into().ok()).ok_or(KeyError::NotHex)?;
        Self::from_bytes(bytes)
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// A signature: 64 bytes, written as 128 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature([u8; 64]);

impl Signature {
    /// Reads one off the wire or out of a row.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.is_empty() {
            return Err(Error::Missing);
        }
        bytes.try_into().map(Self).map_err(|_| Error::Truncated(bytes.len()))
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({}…)", hex::encode(&self.0[..4]))
    }
}

impl Serialize for Signature {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex::encode(self.0))
    }
}

impl<'de> Deserialize<'de> for Signature {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes = hex::decode(String::deserialize(from)?).map_err(D::Error::custom)?;
        Self::from_slice(&bytes).map_err(D::Error::custom)
    }
}

/// A secret key.
#[derive(Clone)]
pub struct SecretKey(SigningKey);

impl SecretKey {
    /// Makes one of 32 random bytes.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&seed))
    }

    /// Reads a PEM `PRIVATE KEY` (PKCS #8, RFC 8410), as `openssl genpkey -algorithm ed25519` writes it.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let wrong = |error| match error {
            ed25519_dalek::pkcs8::Error::PublicKey(spki::Error::OidUnknown { .. })
            | ed25519_dalek::pkcs8::Error::KeyMalformed(_) => KeyError::WrongType,
            _ => KeyError::NotPem("PRIVATE KEY"),
        };
        SigningKey::from_pkcs8_pem(pem).map(Self).map_err(wrong)
    }

    /// The same, as PEM. Whoever writes it to a file does so for its owner alone.
    pub fn to_pem(&self) -> String {
        let pem = self.0.to_pkcs8_pem(ed25519_dalek::pkcs8::spki::der::pem::LineEnding::LF);
        pem.expect("32 bytes fit").to_string()
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Signs a body.
    pub fn sign<B: Body>(&self, body: &B) -> Signature {
        Signature(self.0.sign(&signed_bytes(body)).to_bytes())
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of {})", self.public())
    }
}
