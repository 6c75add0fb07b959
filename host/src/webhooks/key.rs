//! Signing secrets, and the key that seals them at rest.
//!
//! **Invariant:** the database holds secrets sealed, each for its own webhook, and the key is not in it: who reads the database can
//! forge nothing. No debug output holds a key or a secret.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bc_proto::id::WebhookId;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{Key, KeyInit as _, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// What a secret begins with, as the Standard Webhooks specification has it.
const PREFIX: &str = "whsec_";

/// What a sealed secret begins with: how it was sealed.
const SEALED: u8 = 1;

/// Bytes of a nonce: long enough to be drawn.
const NONCE_BYTES: usize = 24;

/// The key of the deployment. All replicas have the same.
#[derive(Clone, PartialEq, Eq)]
pub struct SealingKey([u8; 32]);

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealingKey").finish_non_exhaustive()
    }
}

impl SealingKey {
    /// The key of these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key as files hold it; `None` for text that is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text.trim(), &mut bytes).ok()?;
        Some(Self(bytes))
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&Key::from(self.0))
    }

    /// A webhook's secret as the database holds it.
    pub(crate) fn seal(&self, webhook: WebhookId, secret: &Secret, nonce: [u8; NONCE_BYTES]) -> Vec<u8> {
        let webhook = webhook.to_string();
        let payload = Payload { msg: &secret.0, aad: webhook.as_bytes() };
        let sealed = self.cipher().encrypt(&XNonce::from(nonce), payload).expect("32 bytes are not too many");
        [&[SEALED], &nonce[..], &sealed].concat()
    }

    /// The secret that was sealed for a webhook; `None` where it was with another key, for another one, or not at all.
    pub(crate) fn open(&self, webhook: WebhookId, sealed: &[u8]) -> Option<Secret> {
        let (nonce, sealed) = sealed.strip_prefix(&[SEALED])?.split_first_chunk::<NONCE_BYTES>()?;
        let webhook = webhook.to_string();
        let payload = Payload { msg: sealed, aad: webhook.as_bytes() };
        let opened = self.cipher().decrypt(&XNonce::from(*nonce), payload).ok()?;
        Some(Secret(opened.try_into().ok()?))
    }
}

/// What signs deliveries; the receiver has it as well.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

impl Secret {
    /// The secret of these random bytes.
    pub(crate) const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// As its receiver gets it, once.
    pub(crate) fn shown(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(self.0))
    }

    /// The signature of a message, as the header has it.
    pub(crate) fn sign(&self, id: &str, unix_s: i64, body: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length will do");
        mac.update(format!("{id}.{unix_s}.{body}").as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::uuid;

    #[test]
    fn a_sealed_secret_opens_with_its_key_for_its_webhook_alone() {
        let (id, other) = (WebhookId::from_uuid(uuid()), WebhookId::from_uuid(uuid()));
        let (key, secret) = (SealingKey::new([1; 32]), Secret::new([2; 32]));
        let sealed = key.seal(id, &secret, [3; 24]);
        assert!(!sealed.windows(8).any(|window| window == [2; 8]));
        assert_eq!(key.open(id, &sealed), Some(secret));
        assert_eq!(key.open(other, &sealed), None);
        assert_eq!(SealingKey::new([9; 32]).open(id, &sealed), None);
        for end in 0..sealed.len() {
            assert_eq!(key.open(id, &sealed[..end]), None, "{end}");
        }
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(key.open(id, &changed), None, "{place}");
        }
    }

    #[test]
    fn a_key_is_64_hexadecimal_digits() {
        let text = "0123456789abcdef".repeat(4);
        assert!(SealingKey::parse(&format!("{text}\n")).is_some());
        for other in ["", "x", &text[1..], &format!("{text}0"), &text.replace('0', "g")] {
            assert!(SealingKey::parse(other).is_none(), "{other}");
        }
    }

    #[test]
    fn an_independent_implementation_verifies_a_signature() {
        let secret = Secret::new([7; 32]);
        let webhook = standardwebhooks::Webhook::new(&secret.shown()).expect("a secret");
        let expected = webhook.sign("delivery_1", 1_700_000_000, b"{}").expect("a signature");
        assert_eq!(secret.sign("delivery_1", 1_700_000_000, "{}"), expected);
    }

    #[test]
    fn no_debug_output_holds_a_secret() {
        let shown = format!("{:?} {:?}", SealingKey::new([77; 32]), Secret::new([78; 32]));
        assert!(!shown.contains("77") && !shown.contains("78"), "{shown}");
    }
}
