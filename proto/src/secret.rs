//! Secrets: how commands name them, and how a value travels from the vault to the node that may have it.
//!
//! A payload holds `secretRefs`, an object: a name of the kind's own → a reference. The value is sealed with HPKE (RFC 9180, base
//! mode, X25519 with HKDF-SHA256 and ChaCha20-Poly1305) to a key that the node made for this one request.
//!
//! **Invariant:** a sealed value opens only for the command, node and reference that it was sealed for, and only with the one-time
//! key; that key is used up by opening.

use std::convert::Infallible;
use std::fmt;

use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::rand_core::{TryCryptoRng, TryRng};
use hpke::{Deserializable, Kem, OpModeR, OpModeS, Serializable};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::canonical;
use crate::id::{CommandId, NodeId};

/// The field of a payload that names secrets.
pub const FIELD: &str = "secretRefs";

/// The least that a value may have, bytes: what is shorter cannot be told from other text, so that it could not be kept out of
/// results and logs.
pub const MIN_BYTES: usize = 8;

/// The most that a value may have, bytes.
pub const MAX_BYTES: usize = 32 * 1024;

/// The longest reference, bytes.
const MAX_REF_BYTES: usize = 63;

/// Whether text is a reference: `[a-z0-9][a-z0-9._-]{0,62}`. So it is also a file's name that leads nowhere else.
pub fn is_ref(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let begins = text.bytes().next().is_some_and(is_plain);
    begins && text.len() <= MAX_REF_BYTES && text.bytes().all(|byte| is_plain(byte) || b"._-".contains(&byte))
}

/// Whether a payload names this reference.
pub fn names(payload: &Value, secret_ref: &str) -> bool {
    let refs = payload.get(FIELD).and_then(Value::as_object);
    refs.is_some_and(|refs| refs.values().any(|it| it.as_str() == Some(secret_ref)))
}

/// What a value is sealed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Purpose<'a> {
    /// The command that names it.
    pub command: CommandId,
    /// The node that runs the command.
    pub node: NodeId,
    /// The reference.
    pub secret_ref: &'a str,
}

impl Purpose<'_> {
    /// HPKE's `info`: the canonical JSON.
    fn info(&self) -> Vec<u8> {
        canonical::to_vec(self).expect("text has canonical bytes")
    }
}

/// A sealed value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// 32 bytes.
    pub encapsulated_key: Vec<u8>,
    /// The value and 16 bytes of authentication.
    pub ciphertext: Vec<u8>,
}

impl Sealed {
    /// SHA-256 of encapsulated key and ciphertext, 64 hexadecimal digits: what is signed.
    pub fn sha256_hex(&self) -> String {
        hex::encode(Sha256::new().chain_update(&self.encapsulated_key).chain_update(&self.ciphertext).finalize())
    }
}

/// Why nothing was sealed or opened. It never says more: neither keys nor values are anybody's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The one-time key is none.
    #[error("the one-time key is no X25519 key")]
    BadKey,
    /// It was sealed to another key or for another purpose, or it was changed.
    #[error("the sealed value does not open: it is for another key, command, node or reference, or it was changed")]
    DoesNotOpen,
    /// What was sealed is no value of a secret.
    #[error("a secret's value is text of {MIN_BYTES} to {MAX_BYTES} bytes")]
    NotAValue,
}

/// The value of a secret. It is wiped when it is dropped, and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(Zeroizing<String>);

impl SecretValue {
    /// Takes bytes that are one: UTF-8 of [`MIN_BYTES`] to [`MAX_BYTES`] bytes. One line break at the end does not belong to it.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        let bytes = Zeroizing::new(bytes);
        let text = std::str::from_utf8(&bytes).map_err(|_| Error::NotAValue)?;
        let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
        if !(MIN_BYTES..=MAX_BYTES).contains(&text.len()) {
            return Err(Error::NotAValue);
        }
        Ok(Self(Zeroizing::new(text.to_owned())))
    }

    /// The value itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

/// A key that one value is sealed to. Wiped when it is dropped, and never shown.
pub struct OneTimeKey {
    secret: <X25519HkdfSha256 as Kem>::PrivateKey,
    public: [u8; 32],
}

impl fmt::Debug for OneTimeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OneTimeKey(of {})", hex::encode(self.public))
    }
}

impl OneTimeKey {
    /// Makes one of 32 random bytes.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let (secret, public) = X25519HkdfSha256::derive_keypair(seed);
        Self { secret, public: public.to_bytes().into() }
    }

    /// The public half.
    pub const fn public(&self) -> &[u8; 32] {
        &self.public
    }

    /// Opens what was sealed to it for this purpose.
    pub fn open(self, sealed: &Sealed, purpose: Purpose<'_>) -> Result<SecretValue, Error> {
        let encapsulated = <X25519HkdfSha256 as Kem>::EncappedKey::from_bytes(&sealed.encapsulated_key)
            .map_err(|_| Error::DoesNotOpen)?;
        let opened = hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &OpModeR::Base,
            &self.secret,
            &encapsulated,
            &purpose.info(),
            &sealed.ciphertext,
            b"",
        );
        SecretValue::from_bytes(opened.map_err(|_| Error::DoesNotOpen)?)
    }
}

/// Seals a value to a one-time key. `random` fills bytes with random ones.
pub fn seal(
    value: &SecretValue,
    one_time_key: &[u8],
    purpose: Purpose<'_>,
    random: impl FnMut(&mut [u8]),
) -> Result<Sealed, Error> {
    let key = <X25519HkdfSha256 as Kem>::PublicKey::from_bytes(one_time_key).map_err(|_| Error::BadKey)?;
    let sealed = hpke::single_shot_seal_with_rng::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
        &OpModeS::Base,
        &key,
        &purpose.info(),
        value.expose().as_bytes(),
        b"",
        &mut Random(random),
    );
    let (encapsulated, ciphertext) = sealed.map_err(|_| Error::BadKey)?;
    Ok(Sealed { encapsulated_key: encapsulated.to_bytes().to_vec(), ciphertext })
}

/// The caller's randomness, as HPKE asks for it.
struct Random<F>(F);

impl<F: FnMut(&mut [u8])> TryRng for Random<F> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        (self.0)(&mut bytes);
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        (self.0)(&mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        (self.0)(bytes);
        Ok(())
    }
}

impl<F: FnMut(&mut [u8])> TryCryptoRng for Random<F> {}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    const VALUE: &str = "correct horse battery staple";

    fn purpose(command: u128, node: u128, secret_ref: &str) -> Purpose<'_> {
        let (command, node) = (Uuid::from_u128(command), Uuid::from_u128(node));
        Purpose { command: CommandId::from_uuid(command), node: NodeId::from_uuid(node), secret_ref }
    }

    fn key(seed: u8) -> OneTimeKey {
        OneTimeKey::from_seed(&[seed; 32])
    }

    fn sealed() -> Sealed {
        let value = SecretValue::from_bytes(VALUE.into()).expect("a value");
        seal(&value, key(1).public(), purpose(1, 2, "db"), |bytes| bytes.fill(7)).expect("a key")
    }

    #[test]
    fn a_value_opens_for_its_key_and_purpose_alone() {
        assert_eq!(key(1).open(&sealed(), purpose(1, 2, "db")).expect("it is for it").expose(), VALUE);
        for (key, purpose) in [
            (key(2), purpose(1, 2, "db")),
            (key(1), purpose(3, 2, "db")),
            (key(1), purpose(1, 3, "db")),
            (key(1), purpose(1, 2, "dc")),
        ] {
            assert_eq!(key.open(&sealed(), purpose), Err(Error::DoesNotOpen), "{purpose:?}");
        }
    }

    #[test]
    fn a_byte_that_was_changed_is_noticed() {
        let sealed = sealed();
        for at in 0..sealed.encapsulated_key.len() + sealed.ciphertext.len() {
            let mut changed = sealed.clone();
            match at.checked_sub(changed.encapsulated_key.len()) {
                Some(at) => changed.ciphertext[at] ^= 1,
                None => changed.encapsulated_key[at] ^= 1,
            }
            assert_eq!(key(1).open(&changed, purpose(1, 2, "db")), Err(Error::DoesNotOpen), "byte {at}");
            assert_ne!(changed.sha256_hex(), sealed.sha256_hex());
        }
        for cut in [0, 1, 31] {
            let cut = Sealed { encapsulated_key: sealed.encapsulated_key[..cut].to_vec(), ..sealed.clone() };
            assert_eq!(key(1).open(&cut, purpose(1, 2, "db")), Err(Error::DoesNotOpen));
        }
    }

    #[test]
    fn what_is_no_key_is_not_sealed_to() {
        let value = SecretValue::from_bytes(VALUE.into()).expect("a value");
        for bad in [&[][..], &[1; 31], &[1; 33], &[0; 32]] {
            let refused = seal(&value, bad, purpose(1, 2, "db"), |bytes| bytes.fill(7));
            assert_eq!(refused, Err(Error::BadKey), "{bad:?}");
        }
    }

    #[test]
    fn a_value_is_text_of_some_length_and_shows_itself_to_nobody() {
        for (bytes, expected) in [
            (b"12345678".to_vec(), Some("12345678")),
            (b"12345678\n".to_vec(), Some("12345678")),
            (b"12345678\r\n".to_vec(), Some("12345678")),
            (b"1234567\n\n".to_vec(), Some("1234567\n")),
            (b"1234567\n".to_vec(), None),
            (vec![0xff; 8], None),
            (vec![b'x'; MAX_BYTES + 1], None),
        ] {
            let value = SecretValue::from_bytes(bytes);
            assert_eq!(value.as_ref().ok().map(SecretValue::expose), expected);
        }
        let shown = format!("{:?} {:?}", SecretValue::from_bytes(VALUE.into()), key(1));
        assert!(!shown.contains("horse"), "{shown}");
    }

    #[test]
    fn a_reference_is_a_plain_name_that_leads_nowhere_else() {
        for good in ["a", "0", "db.password", "a-b_c.9", &"x".repeat(63)] {
            assert!(is_ref(good), "{good}");
        }
        for bad in ["", ".", "..", ".a", "-a", "_a", "A", "a/b", "../a", "a\\b", "a\0", "é", "a b", &"x".repeat(64)] {
            assert!(!is_ref(bad), "{bad}");
        }
    }

    #[test]
    fn a_payload_names_what_stands_in_its_secret_refs() {
        let payload = json!({ "secretRefs": { "password": "db.password", "n": 1 }, "other": { "x": "hidden" } });
        assert!(names(&payload, "db.password"));
        for not in ["password", "hidden", "1", ""] {
            assert!(!names(&payload, not), "{not}");
        }
        assert!(!names(&json!({ "secretRefs": ["a"] }), "a") && !names(&json!("a"), "a"));
    }
}
