//! Bindings: whether a node's word that it holds a GPU is to be believed.
//!
//! **Invariant:** a binding counts only for the reservation, the node and the life that it names, under the spec that asked for it
//! or a later one, and with the signature of a key that the authority has certified for that life.

use bc_proto::certificate::NodeCertificate;
use bc_proto::id::NodeId;
use bc_proto::sign::PublicKey;
use bc_proto::wire::Bound;

use crate::store::reservations::{Asked, State};

/// What to do with a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It makes the reservation active.
    Activate,
    /// It says what is known: nothing changes.
    Known,
    /// The reservation was given back meanwhile: nothing changes.
    Late,
}

/// Why a binding is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Nobody reserved that.
    #[error("there is no such reservation")]
    Unknown,
    /// It names another node than the reservation does.
    #[error("the reservation is of another node")]
    OtherNode,
    /// It came from another node than it names.
    #[error("it names another node than the one that says it")]
    OtherSession,
    /// It names another GPU than the reservation does.
    #[error("the reservation is of another GPU")]
    OtherGpu,
    /// It was signed in another life of the node.
    #[error("it is of life {said} of the node, which lives its {present}.")]
    OtherLife {
        /// What it says.
        said: u64,
        /// The present one.
        present: u64,
    },
    /// The spec of that generation did not ask for it.
    #[error("the spec of generation {said} did not ask for it, that of {asked} did")]
    TooEarly {
        /// What it says.
        said: u64,
        /// The one that asked.
        asked: u64,
    },
    /// The node has no key that signs.
    #[error("the node has no Ed25519 key; let it join again")]
    NoKey,
    /// Not the node's.
    #[error("the signature is not the node's")]
    Signature,
}

/// Decides about a binding that came on a node's session. `asked` is the reservation that it names.
pub fn judge(session: NodeId, bound: &Bound, asked: Option<&Asked>) -> Result<Verdict, Refused> {
    let body = &bound.body;
    let asked = asked.filter(|asked| asked.id == body.allocation).ok_or(Refused::Unknown)?;
    if body.node != session {
        return Err(Refused::OtherSession);
    }
    if asked.node != body.node {
        return Err(Refused::OtherNode);
    }
    if !asked.gpu.eq_ignore_ascii_case(&body.gpu) {
        return Err(Refused::OtherGpu);
    }
    if body.incarnation != asked.incarnation {
        return Err(Refused::OtherLife { said: body.incarnation, present: asked.incarnation });
    }
    if body.generation < asked.generation {
        return Err(Refused::TooEarly { said: body.generation, asked: asked.generation });
    }
    let keys: Vec<PublicKey> =
        asked.certificates.iter().filter_map(|der| NodeCertificate::read(der).ok()?.key).collect();
    if keys.is_empty() {
        return Err(Refused::NoKey);
    }
    if !keys.iter().any(|key| key.verify(body, &bound.signature).is_ok()) {
        return Err(Refused::Signature);
    }
    Ok(match asked.state {
        State::Requested => Verdict::Activate,
        State::Active => Verdict::Known,
        State::Released => Verdict::Late,
    })
}

#[cfg(test)]
mod tests {
    use bc_proto::canonical;
    use bc_proto::certificate::NODE_SCHEME;
    use bc_proto::id::AllocationId;
    use bc_proto::sign::body::AllocationBoundBody;
    use bc_proto::sign::{SecretKey, Signature};
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SanType};
    use sqlx::types::Uuid;

    use super::*;

    fn node(n: u128) -> NodeId {
        NodeId::from_uuid(Uuid::from_u128(n))
    }

    fn key(algorithm: &'static rcgen::SignatureAlgorithm) -> (Vec<u8>, KeyPair) {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let mut params = CertificateParams::default();
        let name = format!("{NODE_SCHEME}{}/3", node(2));
        params.subject_alt_names = vec![SanType::URI(name.try_into().expect("ASCII"))];
        let certificate = params.self_signed(&key).expect("a certificate");
        (certificate.der().to_vec(), key)
    }

    fn asked(certificates: Vec<Vec<u8>>) -> Asked {
        Asked {
            id: AllocationId::from_uuid(Uuid::from_u128(1)),
            node: node(2),
            incarnation: 3,
            gpu: "GPU-a".into(),
            state: State::Requested,
            generation: 4,
            certificates,
        }
    }

    fn body() -> AllocationBoundBody {
        let Asked { id, node, incarnation, gpu, generation, .. } = asked(Vec::new());
        AllocationBoundBody { allocation: id, node, incarnation, gpu, generation, bound_at_ms: 5 }
    }

    fn signed(body: AllocationBoundBody, key: &SecretKey) -> Bound {
        let signature = key.sign(&body);
        Bound { bytes: canonical::to_vec(&body).expect("JSON"), body, signature }
    }

    #[test]
    fn a_binding_counts_for_what_it_names_alone() {
        let (der, key) = key(&PKCS_ED25519);
        let secret = SecretKey::from_pem(&key.serialize_pem()).expect("an Ed25519 key");
        let asked = asked(vec![der]);
        let judge = |bound: &Bound| judge(node(2), bound, Some(&asked));
        assert_eq!(judge(&signed(body(), &secret)), Ok(Verdict::Activate));
        assert_eq!(judge(&signed(AllocationBoundBody { generation: 9, ..body() }, &secret)), Ok(Verdict::Activate));
        let other = AllocationId::from_uuid(Uuid::from_u128(9));
        for (claim, refused) in [
            (AllocationBoundBody { allocation: other, ..body() }, Refused::Unknown),
            (AllocationBoundBody { node: node(8), ..body() }, Refused::OtherSession),
            (AllocationBoundBody { gpu: "GPU-b".into(), ..body() }, Refused::OtherGpu),
            (AllocationBoundBody { incarnation: 2, ..body() }, Refused::OtherLife { said: 2, present: 3 }),
            (AllocationBoundBody { generation: 3, ..body() }, Refused::TooEarly { said: 3, asked: 4 }),
        ] {
            assert_eq!(judge(&signed(claim, &secret)), Err(refused));
        }
        assert_eq!(super::judge(node(2), &signed(body(), &secret), None), Err(Refused::Unknown));
        let mine = AllocationBoundBody { node: node(7), ..body() };
        assert_eq!(super::judge(node(7), &signed(mine, &secret), Some(&asked)), Err(Refused::OtherNode));
    }

    #[test]
    fn a_binding_that_another_key_signed_or_that_was_changed_is_forged() {
        let (der, key) = key(&PKCS_ED25519);
        let secret = SecretKey::from_pem(&key.serialize_pem()).expect("an Ed25519 key");
        let asked = asked(vec![der]);
        let judge = |bound: &Bound| judge(node(2), bound, Some(&asked));
        assert_eq!(judge(&signed(body(), &SecretKey::from_seed([1; 32]))), Err(Refused::Signature));
        let good = signed(body(), &secret);
        for at in 0..64 {
            let mut bytes = *good.signature.as_bytes();
            bytes[at] ^= 1;
            let signature = Signature::from_slice(&bytes).expect("64 bytes");
            assert_eq!(judge(&Bound { signature, ..good.clone() }), Err(Refused::Signature), "byte {at}");
        }
        let later = AllocationBoundBody { bound_at_ms: 6, ..body() };
        assert_eq!(judge(&Bound { body: later, ..good }), Err(Refused::Signature));
    }

    #[test]
    fn a_node_with_another_sort_of_key_binds_nothing() {
        let bound = signed(body(), &SecretKey::from_seed([1; 32]));
        for certificates in [vec![], vec![key(&PKCS_ECDSA_P256_SHA256).0], vec![b"no certificate".to_vec()]] {
            assert_eq!(judge(node(2), &bound, Some(&asked(certificates))), Err(Refused::NoKey));
        }
    }

    #[test]
    fn what_is_known_or_given_back_stays_as_it_is_and_a_forgery_is_one_all_the_same() {
        let (der, key) = key(&PKCS_ED25519);
        let secret = SecretKey::from_pem(&key.serialize_pem()).expect("an Ed25519 key");
        for (state, verdict) in [(State::Active, Verdict::Known), (State::Released, Verdict::Late)] {
            let asked = Asked { state, ..asked(vec![der.clone()]) };
            assert_eq!(judge(node(2), &signed(body(), &secret), Some(&asked)), Ok(verdict));
            let forged = signed(body(), &SecretKey::from_seed([1; 32]));
            assert_eq!(judge(node(2), &forged, Some(&asked)), Err(Refused::Signature));
        }
    }
}
