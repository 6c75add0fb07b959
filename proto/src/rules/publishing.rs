//! Who may publish kinds: a component counts by its digest and a publisher's signature, before anybody looks into it.
//!
//! **Invariant:** the decision needs the digest and nothing else of the component: no byte of one that nobody vouches for is
//! parsed, compiled or run.

use serde::{Deserialize, Serialize};

use super::trust::Publisher;
use crate::sign::body::KindBody;
use crate::sign::{PublicKey, SecretKey, Signature};

/// A publisher's signature of a component: what stands in `NAME.wasm.sig`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KindSignature {
    /// SHA-256 of the component, 64 hexadecimal digits.
    pub digest: String,
    /// Who signed it.
    pub publisher: PublicKey,
    /// The signature, [`crate::sign::Purpose::Kind`].
    pub signature: Signature,
}

impl KindSignature {
    /// Signs a component.
    pub fn sign(digest: &str, publisher: &SecretKey) -> Self {
        let signature = publisher.sign(&KindBody { digest });
        Self { digest: digest.to_owned(), publisher: publisher.public(), signature }
    }
}

/// Nobody who counts vouches for a component.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// It is not signed.
    #[error("sha256:{digest} is not signed, and only signed kinds are taken here")]
    Unsigned {
        /// The component.
        digest: String,
    },
    /// The signature is one of another component.
    #[error("the signature beside sha256:{digest} is for sha256:{signed}")]
    OtherDigest {
        /// The component.
        digest: String,
        /// What was signed.
        signed: String,
    },
    /// Its publisher is not trusted, or no longer.
    #[error("sha256:{digest} is signed by {publisher}, who is no publisher that is trusted here")]
    UnknownPublisher {
        /// The component.
        digest: String,
        /// Who signed it.
        publisher: PublicKey,
    },
    /// The signature is not the publisher's.
    #[error("sha256:{digest} has a signature that is not {publisher}'s")]
    BadSignature {
        /// The component.
        digest: String,
        /// Whose it should be: the publisher's name.
        publisher: String,
    },
}

impl Untrusted {
    /// A stable word for programs.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unsigned { .. } => "unsigned",
            Self::OtherDigest { .. } => "other-digest",
            Self::UnknownPublisher { .. } => "unknown-publisher",
            Self::BadSignature { .. } => "bad-signature",
        }
    }

    /// What to do about it.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Unsigned { .. } | Self::OtherDigest { .. } => {
                "let a publisher sign it: `better-compute kind sign FILE --key KEY`"
            }
            Self::UnknownPublisher { .. } => {
                "take one that a trusted publisher signed, or let the operator add this publisher to `publishers`"
            }
            Self::BadSignature { .. } => "sign it again; if nobody changed the file, find out who did",
        }
    }
}

/// Who vouches for a component; `None` where no publishers are named, and anything is taken.
pub fn check<'a>(
    publishers: &'a [Publisher],
    digest: &str,
    signature: Option<&KindSignature>,
) -> Result<Option<&'a Publisher>, Untrusted> {
    if publishers.is_empty() {
        return Ok(None);
    }
    let digest_of = || digest.to_owned();
    let signature = signature.ok_or_else(|| Untrusted::Unsigned { digest: digest_of() })?;
    if signature.digest != digest {
        return Err(Untrusted::OtherDigest { digest: digest_of(), signed: signature.digest.clone() });
    }
    let publisher = publishers.iter().find(|it| it.key == signature.publisher);
    let unknown = || Untrusted::UnknownPublisher { digest: digest_of(), publisher: signature.publisher };
    let publisher = publisher.ok_or_else(unknown)?;
    match publisher.key.verify(&KindBody { digest }, &signature.signature) {
        Ok(()) => Ok(Some(publisher)),
        Err(_) => Err(Untrusted::BadSignature { digest: digest_of(), publisher: publisher.name.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> SecretKey {
        SecretKey::from_seed([seed; 32])
    }

    fn publisher(seed: u8) -> Publisher {
        Publisher { name: format!("publisher {seed}"), key: key(seed).public() }
    }

    #[test]
    fn only_a_trusted_publisher_s_own_signature_of_this_component_counts() {
        let (this, other) = ("aa".repeat(32), "bb".repeat(32));
        let trusted = [publisher(1), publisher(2)];
        for seed in [1, 2] {
            let signed = KindSignature::sign(&this, &key(seed));
            let by = check(&trusted, &this, Some(&signed)).expect("it counts").expect("there are publishers");
            assert_eq!(by.name, format!("publisher {seed}"));
        }
        let by_one = KindSignature::sign(&this, &key(1));
        let stolen = KindSignature { publisher: key(2).public(), ..by_one.clone() };
        let relabelled = KindSignature { digest: other.clone(), ..by_one.clone() };
        let cases = [
            (&this, None, "unsigned"),
            (&other, Some(&by_one), "other-digest"),
            (&this, Some(&KindSignature::sign(&this, &key(3))), "unknown-publisher"),
            (&this, Some(&stolen), "bad-signature"),
            (&other, Some(&relabelled), "bad-signature"),
        ];
        for (digest, signature, reason) in cases {
            let refused = check(&trusted, digest, signature).expect_err(reason);
            assert_eq!(refused.reason(), reason);
            assert!(refused.to_string().contains(digest.as_str()), "it names the digest: {refused}");
        }
        assert_eq!(check(&[], &this, None), Ok(None), "without publishers anything is taken");
    }

    #[test]
    fn a_flipped_bit_of_a_signature_file_never_counts() {
        let digest = "aa".repeat(32);
        let good = serde_json::to_vec(&KindSignature::sign(&digest, &key(1))).expect("JSON");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            if let Ok(read) = serde_json::from_slice::<KindSignature>(&bad) {
                assert!(check(&[publisher(1)], &digest, Some(&read)).is_err(), "byte {at}");
            }
        }
    }
}
