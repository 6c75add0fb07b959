//! Does a node take a command? The checks, in their order.
//!
//! **Invariant:** the order is part of the protocol: a command that several checks would refuse gets the first one's answer,
//! on every node alike.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::manifest::{Lane, Role};
use crate::rules::lane::PerLane;

/// What a delivery says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The node that it names.
    pub node: &'a str,
    /// The life of that node which it is meant for.
    pub incarnation: u64,
    /// The spec generation that it presupposes.
    pub min_generation: Option<u64>,
    /// The end of its welcome, in server time, milliseconds since the Unix epoch.
    pub not_after_ms: u64,
    /// Its lane.
    pub lane: Lane,
}

/// What the node knows of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known<'a> {
    /// It has the component, and these are the roles it is for.
    Loaded(&'a [Role]),
    /// It has no kind of that name and digest, and could not get it.
    Unavailable,
    /// The kind is not known at all, or not allowed here.
    Unsupported,
}

/// What the node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its life.
    pub incarnation: u64,
    /// Its role now.
    pub role: Role,
    /// The generation of the spec that it applied last.
    pub generation: u64,
    /// Server time now, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Free workers.
    pub free: PerLane,
    /// Whether the journal can promise room for the terminal record.
    pub has_room: bool,
}

/// Why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Refusal {
    /// It names another node, or the kind is unknown or not for this role.
    Unsupported,
    /// The component with that digest is not to be had.
    KindUnavailable,
    /// It presupposes a spec that did not come in time.
    StaleGeneration,
    /// Its time is over.
    Expired,
    /// The signature is missing or wrong.
    BadSignature,
    /// Destructive and outside an approved batch.
    BatchUnapproved,
    /// More destructive commands outside batches than the node allows in an hour.
    UnbatchedLimit,
    /// The journal cannot promise room for its result.
    NoSpace,
    /// No free worker: the control plane sends it again later.
    Busy,
}

/// What to do with a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Journal it, acknowledge it, run it.
    Accept,
    /// Ask for the spec, and decide again when it is applied or the time is over.
    AwaitSpec,
    /// Say why not. All but [`Refusal::Busy`] are journaled, so that a duplicate gets the same answer.
    Refuse(Refusal),
}

/// Decides. `signature` and `batch` are what their own checks found, if they are switched on.
pub fn decide(
    delivery: &Delivery<'_>,
    known: Known<'_>,
    node: &Node<'_>,
    signature: Result<(), Refusal>,
    batch: Result<(), Refusal>,
) -> Decision {
    let refuse = Decision::Refuse;
    if delivery.node != node.id || delivery.incarnation != node.incarnation {
        return refuse(Refusal::Unsupported);
    }
    match known {
        Known::Loaded(roles) if roles.contains(&node.role) => {}
        Known::Loaded(_) | Known::Unsupported => return refuse(Refusal::Unsupported),
        Known::Unavailable => return refuse(Refusal::KindUnavailable),
    }
    let expired = node.now_ms >= delivery.not_after_ms;
    if delivery.min_generation.is_some_and(|wanted| wanted > node.generation) {
        return if expired { refuse(Refusal::StaleGeneration) } else { Decision::AwaitSpec };
    }
    if expired {
        return refuse(Refusal::Expired);
    }
    if let Err(refusal) = signature.and(batch) {
        return refuse(refusal);
    }
    if !node.has_room {
        return refuse(Refusal::NoSpace);
    }
    if node.free.get(delivery.lane) == 0 {
        return refuse(Refusal::Busy);
    }
    Decision::Accept
}

impl Refusal {
    /// The code as it travels and as it stands in a command's reason.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unsupported => "UNSUPPORTED",
            Self::KindUnavailable => "KIND_UNAVAILABLE",
            Self::StaleGeneration => "STALE_GENERATION",
            Self::Expired => "EXPIRED",
            Self::BadSignature => "BAD_SIGNATURE",
            Self::BatchUnapproved => "BATCH_UNAPPROVED",
            Self::UnbatchedLimit => "UNBATCHED_LIMIT",
            Self::NoSpace => "NO_SPACE",
            Self::Busy => "BUSY",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::lane::LIMITS;

    const DELIVERY: Delivery<'_> =
        Delivery { node: "node_a", incarnation: 1, min_generation: None, not_after_ms: 100, lane: Lane::Control };
    const NODE: Node<'_> = Node {
        id: "node_a",
        incarnation: 1,
        role: Role::Host,
        generation: 5,
        now_ms: 50,
        free: LIMITS,
        has_room: true,
    };
    const LOADED: Known<'_> = Known::Loaded(&[Role::Host]);

    /// Each step of the order breaks one thing more, from the last check to the first: the answer is always the newest.
    #[test]
    fn the_checks_come_in_their_order() {
        let mut delivery = DELIVERY;
        let mut node = NODE;
        let check = |delivery: &Delivery<'_>, known, node: &Node<'_>, signature, batch| {
            decide(delivery, known, node, signature, batch)
        };
        assert_eq!(check(&delivery, LOADED, &node, Ok(()), Ok(())), Decision::Accept);
        node.free.control = 0;
        assert_eq!(check(&delivery, LOADED, &node, Ok(()), Ok(())), Decision::Refuse(Refusal::Busy));
        node.has_room = false;
        assert_eq!(check(&delivery, LOADED, &node, Ok(()), Ok(())), Decision::Refuse(Refusal::NoSpace));
        let batch = Err(Refusal::BatchUnapproved);
        assert_eq!(check(&delivery, LOADED, &node, Ok(()), batch), Decision::Refuse(Refusal::BatchUnapproved));
        let signature = Err(Refusal::BadSignature);
        assert_eq!(check(&delivery, LOADED, &node, signature, batch), Decision::Refuse(Refusal::BadSignature));
        node.now_ms = 100;
        assert_eq!(check(&delivery, LOADED, &node, signature, batch), Decision::Refuse(Refusal::Expired));
        delivery.min_generation = Some(6);
        assert_eq!(check(&delivery, LOADED, &node, signature, batch), Decision::Refuse(Refusal::StaleGeneration));
        let unavailable = Known::Unavailable;
        assert_eq!(check(&delivery, unavailable, &node, signature, batch), Decision::Refuse(Refusal::KindUnavailable));
        for known in [Known::Unsupported, Known::Loaded(&[Role::Site])] {
            assert_eq!(check(&delivery, known, &node, signature, batch), Decision::Refuse(Refusal::Unsupported));
        }
        delivery.node = "node_b";
        assert_eq!(check(&delivery, LOADED, &node, signature, batch), Decision::Refuse(Refusal::Unsupported));
    }

    #[test]
    fn a_spec_that_is_behind_is_waited_for_until_the_deadline() {
        let delivery = Delivery { min_generation: Some(6), ..DELIVERY };
        assert_eq!(decide(&delivery, LOADED, &NODE, Ok(()), Ok(())), Decision::AwaitSpec);
        let late = Node { now_ms: 100, ..NODE };
        assert_eq!(decide(&delivery, LOADED, &late, Ok(()), Ok(())), Decision::Refuse(Refusal::StaleGeneration));
        let applied = Node { generation: 6, ..NODE };
        assert_eq!(decide(&delivery, LOADED, &applied, Ok(()), Ok(())), Decision::Accept);
    }

    #[test]
    fn promise_15_a_command_for_an_earlier_life_of_the_node_is_not_taken() {
        let reborn = Node { incarnation: 2, ..NODE };
        assert_eq!(decide(&DELIVERY, LOADED, &reborn, Ok(()), Ok(())), Decision::Refuse(Refusal::Unsupported));
    }
}
