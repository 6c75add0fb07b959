//! Which binaries of the daemon a node may run: those that a publisher vouches for, whom the node trusts.
//!
//! **Invariant:** what nobody vouches for is not run, even where no publishers are named; unless the node's own operator says so.

use super::trust::Publisher;
use crate::sign::body::ReleaseBody;
use crate::sign::{PublicKey, SecretKey, Signature};

/// The most bytes of a binary.
pub const MAX_BYTES: u64 = 512 * 1024 * 1024;

/// A publisher's signature of a binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseSignature {
    /// Who signed it.
    pub publisher: PublicKey,
    /// The signature, [`crate::sign::Purpose::Release`].
    pub signature: Signature,
}

impl ReleaseSignature {
    /// Signs a binary.
    pub fn sign(body: &ReleaseBody<'_>, publisher: &SecretKey) -> Self {
        Self { publisher: publisher.public(), signature: publisher.sign(body) }
    }
}

/// Nobody who counts vouches for a binary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// It is not signed.
    #[error("the release is not signed, and only signed ones are taken here: push it again with --key")]
    Unsigned,
    /// Nobody is trusted to sign releases.
    #[error(
        "no publishers are trusted here, so nobody can vouch for a release: name publishers in the trust bundle, or allow it with \
         `allow-unsigned` below [upgrade] in bcd.toml"
    )]
    NoPublishers,
    /// Its publisher is not trusted, or no longer.
    #[error(
        "the release is signed by {0}, who is no publisher that is trusted here: sign it with the key of one that is"
    )]
    UnknownPublisher(PublicKey),
    /// The signature is not the publisher's, or for another version, file or target.
    #[error(
        "the signature is not {0}'s for this version, file and target: if nobody changed the file, find out who did"
    )]
    BadSignature(String),
}

/// Who vouches for a binary; `None` where nobody has to.
pub fn check<'a>(
    publishers: &'a [Publisher],
    body: &ReleaseBody<'_>,
    signature: Option<&ReleaseSignature>,
    allow_unsigned: bool,
) -> Result<Option<&'a Publisher>, Untrusted> {
    if publishers.is_empty() {
        return if allow_unsigned { Ok(None) } else { Err(Untrusted::NoPublishers) };
    }
    let signature = signature.ok_or(Untrusted::Unsigned)?;
    let publisher = publishers.iter().find(|it| it.key == signature.publisher);
    let publisher = publisher.ok_or(Untrusted::UnknownPublisher(signature.publisher))?;
    match publisher.key.verify(body, &signature.signature) {
        Ok(()) => Ok(Some(publisher)),
        Err(_) => Err(Untrusted::BadSignature(publisher.name.clone())),
    }
}

/// Whether these words could name what a binary runs on: `x86_64-unknown-linux-gnu`.
pub fn is_target(text: &str) -> bool {
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    text.len() <= 64 && (3..=4).contains(&text.split('-').count()) && text.split('-').all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> SecretKey {
        SecretKey::from_seed([seed; 32])
    }

    #[test]
    fn only_a_trusted_publisher_s_signature_of_this_version_file_and_target_counts() {
        let (one, other) = ("aa".repeat(32), "bb".repeat(32));
        let body = ReleaseBody { version: "1.2.3", sha256: &one, target: "x86_64-unknown-linux-gnu" };
        let trusted = [Publisher { name: "maker".into(), key: key(1).public() }];
        let good = ReleaseSignature::sign(&body, &key(1));
        let by = check(&trusted, &body, Some(&good), false).expect("it counts").expect("there are publishers");
        assert_eq!(by.name, "maker");
        let bad = Untrusted::BadSignature("maker".into());
        for other in [
            ReleaseBody { version: "1.2.4", ..body },
            ReleaseBody { sha256: &other, ..body },
            ReleaseBody { target: "aarch64-unknown-linux-gnu", ..body },
        ] {
            assert_eq!(check(&trusted, &other, Some(&good), true), Err(bad.clone()), "{other:?}");
        }
        let foreign = ReleaseSignature::sign(&body, &key(2));
        let unknown = Err(Untrusted::UnknownPublisher(key(2).public()));
        assert_eq!(check(&trusted, &body, Some(&foreign), true), unknown);
        assert_eq!(check(&trusted, &body, None, true), Err(Untrusted::Unsigned), "where there are publishers");
        assert_eq!(check(&[], &body, Some(&good), false), Err(Untrusted::NoPublishers), "nobody is asked");
        assert_eq!(check(&[], &body, None, true), Ok(None));
    }

    #[test]
    fn a_target_is_three_or_four_words() {
        for (text, holds) in [
            ("x86_64-unknown-linux-gnu", true),
            ("aarch64-apple-darwin", true),
            ("linux", false),
            ("a-b--c", false),
            ("a-b-c/d", false),
            ("a-b-c-d-e", false),
        ] {
            assert_eq!(is_target(text), holds, "{text}");
        }
    }
}
