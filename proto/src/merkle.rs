//! Merkle trees over lists (RFC 6962, as RFC 9162 has it): one root for many leaves, and short proofs that a leaf is one of them.
//!
//! **Invariant:** a proof is for one leaf at one place of a tree of one size; for any other it fails.

pub mod stored;

use std::fmt;

use ct_merkle::mem_backed_tree::MemoryBackedTree;
use ct_merkle::{ConsistencyProof, InclusionProof, RootHash};
use sha2::Sha256;

/// The hash of a whole tree: 32 bytes, written as 64 hexadecimal digits.
pub type Hash = [u8; 32];

/// The most leaves of a tree that proofs are looked at for. Beyond it the places of inner nodes do not fit into 64 bits, and no
/// tree here comes near.
const MAX_SIZE: u64 = 1 << 48;

/// Why a proof does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Its length is not a whole number of hashes, or not that of a proof for this place and size.
    #[error("this is no proof for leaf {index} of {size}")]
    Malformed {
        /// The leaf's place.
        index: u64,
        /// How many leaves the tree has.
        size: u64,
    },
    /// It leads to another root.
    #[error("the proof does not lead from this leaf to the root")]
    OtherLeaf,
    /// Its length is not that of a proof between trees of these sizes.
    #[error("this is no proof that a tree of {to} leaves continues one of {from}")]
    NotBetween {
        /// How many leaves the earlier tree has.
        from: u64,
        /// How many the later one has.
        to: u64,
    },
    /// The later tree does not begin with the earlier one.
    #[error("the tree of {to} leaves does not continue the one of {from}: what stood in it was changed")]
    Rewritten {
        /// How many leaves the earlier tree has.
        from: u64,
        /// How many the later one has.
        to: u64,
    },
}

/// A tree that is held in memory.
pub struct Tree(MemoryBackedTree<Sha256, Vec<u8>>);

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tree(of {})", self.0.len())
    }
}

impl Tree {
    /// The tree of these leaves, in their order.
    pub fn new(leaves: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut tree = MemoryBackedTree::new();
        for leaf in leaves {
            tree.push(leaf);
        }
        Self(tree)
    }

    /// Its root.
    pub fn root(&self) -> Hash {
        (*self.0.root().as_bytes()).into()
    }

    /// The proof for the leaf at a place: the hashes beside its way to the root, from the bottom. `None` past the end.
    pub fn prove(&self, index: u64) -> Option<Vec<u8>> {
        let place = usize::try_from(index).ok().filter(|_| index < self.0.len())?;
        Some(self.0.prove_inclusion(place).as_bytes().to_vec())
    }
}

/// Whether `leaf` stands at `index` in the tree of `size` leaves with this root.
pub fn verify(root: &Hash, size: u64, leaf: &[u8], index: u64, proof: &[u8]) -> Result<(), Error> {
    let malformed = Error::Malformed { index, size };
    if size > MAX_SIZE || index >= size {
        return Err(malformed);
    }
    let proof = InclusionProof::<Sha256>::try_from_bytes(proof.to_vec()).map_err(|_| malformed)?;
    let root = RootHash::<Sha256>::new((*root).into(), size);
    root.verify_inclusion(&leaf, index, &proof).map_err(|error| match error {
        ct_merkle::InclusionVerifError::IncorrectHash => Error::OtherLeaf,
        _ => malformed,
    })
}

/// Whether the tree of `to` leaves with one root continues that of `from` leaves with another. Every tree continues the empty one.
pub fn verify_consistency(from: u64, from_root: &Hash, to: u64, to_root: &Hash, proof: &[u8]) -> Result<(), Error> {
    let not_between = Error::NotBetween { from, to };
    if from > to || to > MAX_SIZE {
        return Err(not_between);
    }
    if from == 0 {
        return if proof.is_empty() { Ok(()) } else { Err(not_between) };
    }
    let proof = ConsistencyProof::<Sha256>::try_from_bytes(proof.to_vec()).map_err(|_| not_between)?;
    let (old, new) = (RootHash::new((*from_root).into(), from), RootHash::<Sha256>::new((*to_root).into(), to));
    new.verify_consistency(&old, &proof).map_err(|error| match error {
        ct_merkle::ConsistencyVerifError::VerificationFailure => Error::Rewritten { from, to },
        _ => not_between,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_proof_holds_for_its_leaf_and_place_alone(count in 1_u64..40, pick in any::<u64>(), flip in any::<usize>()) {
            let leaf = |n: u64| format!("leaf {n}").into_bytes();
            let tree = Tree::new((0..count).map(leaf));
            let index = pick % count;
            let proof = tree.prove(index).expect("it is there");
            let root = tree.root();
            prop_assert_eq!(verify(&root, count, &leaf(index), index, &proof), Ok(()));
            prop_assert!(verify(&root, count, &leaf(index + 1), index, &proof).is_err());
            if count > 1 {
                prop_assert!(verify(&root, count, &leaf(index), (index + 1) % count, &proof).is_err());
                let mut other = proof.clone();
                let at = flip % other.len();
                other[at] ^= 1;
                prop_assert!(verify(&root, count, &leaf(index), index, &other).is_err());
                prop_assert!(verify(&root, count, &leaf(index), index, &proof[..proof.len() - 1]).is_err());
            }
            prop_assert_eq!(tree.prove(count), None);
        }
    }

    #[test]
    fn sizes_that_no_tree_has_are_refused() {
        let (hash, size) = ([0; 32], u64::MAX);
        assert_eq!(verify(&hash, size, b"x", 0, &[]), Err(Error::Malformed { index: 0, size }));
        assert_eq!(verify_consistency(1, &hash, size, &hash, &[]), Err(Error::NotBetween { from: 1, to: size }));
        assert_eq!(verify_consistency(2, &hash, 1, &hash, &[]), Err(Error::NotBetween { from: 2, to: 1 }));
    }

    /// RFC 9162, 2.1.1: the root of one leaf is the hash of a zero byte and the leaf.
    #[test]
    fn hashes_are_those_of_the_standard() {
        let root = hex::encode(Tree::new([Vec::new()]).root());
        assert_eq!(root, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
    }
}
