//! A tree that only grows and is kept elsewhere: which hashes to keep, and which of them a root or a proof is made of.
//!
//! What is kept are the hashes of complete subtrees. They never change, so the keeper only ever adds. Everything else is made of
//! a few of them: as many as the tree is high.
//!
//! **Invariant:** the hash of a [`Node`] depends on its own leaves alone, not on what was added later.

use std::collections::BTreeMap;

use ct_merkle::{indices_for_consistency_proof, indices_for_inclusion_proof};
use sha2::{Digest as _, Sha256};

use super::{Hash, MAX_SIZE};

/// A complete subtree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// It has 2 to the power of this many leaves; 0 is a leaf.
    pub level: u32,
    /// Its place among those of its level, from the left.
    pub index: u64,
}

/// The hash of a leaf.
pub fn leaf_hash(leaf: &[u8]) -> Hash {
    Sha256::new_with_prefix([0]).chain_update(leaf).finalize().into()
}

fn parent_hash(left: &Hash, right: &Hash) -> Hash {
    Sha256::new_with_prefix([1]).chain_update(left).chain_update(right).finalize().into()
}

/// Where a tree grows: the complete subtrees that it is made of, from the left. It takes a few hashes, whatever the tree's size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Hash>,
}

impl Frontier {
    /// The frontier of a tree that is kept; `None` when a hash is missing.
    pub fn of(size: u64, kept: &BTreeMap<Node, Hash>) -> Option<Self> {
        let peaks = complete(0, size).map(|node| kept.get(&node).copied()).collect::<Option<_>>()?;
        Some(Self { size, peaks })
    }

    /// How many leaves the tree has.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Adds a leaf; answers what is to be kept now: the leaf, and every subtree that it completes.
    pub fn push(&mut self, leaf: Hash) -> Vec<(Node, Hash)> {
        let (mut hash, mut node) = (leaf, Node { level: 0, index: self.size });
        let mut complete = vec![(node, hash)];
        // Each trailing one of the size is a peak of the same height as what was just completed.
        for _ in 0..self.size.trailing_ones() {
            let left = self.peaks.pop().expect("a tree has a peak for each one in its size");
            hash = parent_hash(&left, &hash);
            node = Node { level: node.level + 1, index: node.index / 2 };
            complete.push((node, hash));
        }
        self.peaks.push(hash);
        self.size += 1;
        complete
    }

    /// The root; of no leaves the hash of nothing, as RFC 9162 has it.
    pub fn root(&self) -> Hash {
        fold(&self.peaks).unwrap_or_else(|| Sha256::digest([]).into())
    }
}

/// The subtrees that the frontier of a tree of this size is made of.
pub fn frontier(size: u64) -> Vec<Node> {
    complete(0, size).collect()
}

/// Of what a proof is made: hashes, each of one or more complete subtrees from left to right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan(Vec<Vec<Node>>);

impl Plan {
    /// That of a leaf in the tree of so many; `None` past its end.
    pub fn inclusion(index: u64, size: u64) -> Option<Self> {
        (index < size && size <= MAX_SIZE).then(|| Self::of(size, &indices_for_inclusion_proof(size, index)))
    }

    /// That of a tree which continues a smaller one, or an equal one; `None` for a larger one.
    pub fn consistency(from: u64, to: u64) -> Option<Self> {
        match from {
            _ if from > to || to > MAX_SIZE => None,
            0 => Some(Self(Vec::new())),
            _ => Some(Self::of(to, &indices_for_consistency_proof(from, to - from))),
        }
    }

    /// Places as `ct_merkle` counts them (RFC 9420, appendix C): the subtree of height `k` at `j` is `2^(k+1) j + 2^k - 1`.
    fn of(size: u64, places: &[u64]) -> Self {
        let hash = |place: &u64| {
            let level = place.trailing_ones();
            let start = (place >> (level + 1)) << level;
            complete(start, size.min(start + (1 << level))).collect()
        };
        Self(places.iter().map(hash).collect())
    }

    /// The hashes that it takes.
    pub fn nodes(&self) -> impl Iterator<Item = Node> + '_ {
        self.0.iter().flatten().copied()
    }

    /// The proof; `None` when a hash is missing.
    pub fn prove(&self, kept: &BTreeMap<Node, Hash>) -> Option<Vec<u8>> {
        let mut proof = Vec::with_capacity(self.0.len() * size_of::<Hash>());
        for nodes in &self.0 {
            let hashes = nodes.iter().map(|node| kept.get(node).copied()).collect::<Option<Vec<_>>>()?;
            proof.extend(fold(&hashes)?);
        }
        Some(proof)
    }
}

/// The complete subtrees of a range of leaves, from the left, largest first. The range begins where a subtree does that could
/// hold all of it.
fn complete(start: u64, end: u64) -> impl Iterator<Item = Node> {
    let mut at = start;
    std::iter::from_fn(move || {
        let level = end.checked_sub(at)?.checked_ilog2()?;
        let node = Node { level, index: at >> level };
        at += 1 << level;
        Some(node)
    })
}

/// One hash of those of neighbours that grow smaller to the right.
fn fold(hashes: &[Hash]) -> Option<Hash> {
    let (last, rest) = hashes.split_last()?;
    Some(rest.iter().rev().fold(*last, |right, left| parent_hash(left, &right)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Error, Tree, verify, verify_consistency};
    use super::*;

    fn leaf(index: u64) -> Vec<u8> {
        format!("leaf {index}").into_bytes()
    }

    /// What a keeper has after so many leaves.
    fn kept(size: u64) -> (Frontier, BTreeMap<Node, Hash>) {
        let (mut frontier, mut kept) = (Frontier::default(), BTreeMap::new());
        for index in 0..size {
            for (node, hash) in frontier.push(leaf_hash(&leaf(index))) {
                assert_eq!(kept.insert(node, hash), None, "each is kept once");
            }
        }
        (frontier, kept)
    }

    fn only(kept: &BTreeMap<Node, Hash>, nodes: impl IntoIterator<Item = Node>) -> BTreeMap<Node, Hash> {
        nodes.into_iter().filter_map(|node| Some((node, *kept.get(&node)?))).collect()
    }

    #[test]
    fn every_proof_of_every_small_tree_is_that_of_the_tree_in_memory() {
        let (_, all) = kept(70);
        for size in 1..=70 {
            let tree = Tree::new((0..size).map(leaf));
            let here = Frontier::of(size, &only(&all, frontier(size))).expect("all is kept");
            assert_eq!((here.root(), &here), (tree.root(), &kept(size).0), "{size}");
            for index in 0..size {
                let plan = Plan::inclusion(index, size).expect("it is in there");
                let proof = plan.prove(&only(&all, plan.nodes()));
                assert_eq!(proof, tree.prove(index), "{index} of {size}");
            }
            for from in 0..=size {
                let old = Tree::new((0..from).map(leaf)).root();
                let plan = Plan::consistency(from, size).expect("it is no larger");
                let proof = plan.prove(&only(&all, plan.nodes())).expect("all is kept");
                assert_eq!(verify_consistency(from, &old, size, &tree.root(), &proof), Ok(()), "{from} to {size}");
            }
            assert_eq!((Plan::inclusion(size, size), Plan::consistency(size + 1, size)), (None, None));
        }
    }

    #[test]
    fn a_tree_without_leaves_has_the_root_of_the_standard() {
        let root = hex::encode(Frontier::default().root());
        assert_eq!(root, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    proptest! {
        #[test]
        fn a_tree_with_another_beginning_continues_nothing(
            from in 1_u64..60, more in 0_u64..60, at in any::<u64>(), flip in any::<usize>(),
        ) {
            let (size, at) = (from + more, at % from);
            let (frontier, kept) = kept(size);
            let old = Tree::new((0..from).map(leaf)).root();
            let plan = Plan::consistency(from, size).expect("it is no larger");
            let proof = plan.prove(&kept).expect("all is kept");
            let changed = |index| if index == at { b"other".to_vec() } else { leaf(index) };
            let other = Tree::new((0..from).map(changed)).root();
            prop_assert_eq!(
                verify_consistency(from, &other, size, &frontier.root(), &proof),
                Err(Error::Rewritten { from, to: size })
            );
            if !proof.is_empty() {
                let mut damaged = proof.clone();
                damaged[flip % proof.len()] ^= 1;
                prop_assert!(verify_consistency(from, &old, size, &frontier.root(), &damaged).is_err());
                let short = &proof[..proof.len() - 32];
                prop_assert_eq!(
                    verify_consistency(from, &old, size, &frontier.root(), short),
                    Err(Error::NotBetween { from, to: size })
                );
            }
            let missing: BTreeMap<_, _> = plan.nodes().skip(1).filter_map(|it| Some((it, *kept.get(&it)?))).collect();
            prop_assert!(plan.nodes().next().is_none() || plan.prove(&missing).is_none());
            let proof = Plan::inclusion(at, size).and_then(|it| it.prove(&kept)).expect("it is in there");
            prop_assert_eq!(verify(&frontier.root(), size, b"other", at, &proof), Err(Error::OtherLeaf));
        }
    }
}
