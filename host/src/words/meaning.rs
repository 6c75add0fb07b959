//! What a command's reason means.
//!
//! **Invariant:** every code that a node or the queue gives has its words.

/// What a reason means; `None` for one that is empty or not known here.
pub fn meaning(reason: &str) -> Option<&'static str> {
    Some(match reason {
        // The node's refusals, in the order of its checks.
        "UNSUPPORTED" => {
            "the node does not take this: the kind is not known there or not for its role, or the command was meant for \
             another node or an earlier life of it"
        }
        "KIND_UNAVAILABLE" => {
            "the node has other versions of the kind than the one the payload was checked with, and could not get that one"
        }
        "STALE_GENERATION" => "the node had not applied the spec that the command presupposes before its deadline",
        "EXPIRED" => "the deadline had passed when the command reached the node; it did not run",
        "BAD_SIGNATURE" => {
            "the node takes only commands signed by its command-signing root, and this one's signature is not"
        }
        "BATCH_UNAPPROVED" => "the node runs destructive kinds only in a batch that was approved, and this one was not",
        "UNBATCHED_LIMIT" => "the node has run as many destructive commands outside of batches as one hour allows",
        "NO_SPACE" => {
            "the node's journal cannot promise room for the result; free space below the node's state directory"
        }
        "BUSY" => "all workers of the lane were taken; it is sent again later",
        // How commands end without the node's word.
        "not_after" => "the node did not take it before its deadline; it never ran",
        "timeout" => {
            "the node took it and reported no end within deadline and timeout; whether it ran is not known: look at the node"
        }
        "batch-rejected" => "somebody who may approve rejected its batch before it was sent; it never ran",
        "batch-expired" => "the time of its batch was over before it was sent; it never ran",
        "node-deleted" => "the node was deleted; it never ran",
        "node-replaced" => "the machine was enrolled again, and this command was not to reach its new life",
        "journal-lost" => {
            "the node lost its journal while it had the command; whether it ran is not known, and repeating it could do harm"
        }
        "interrupted" => "the node's daemon ended before or while it ran, and the kind is not safe to repeat",
        "lease-lost" => "the runner that had it went silent; whether it ran to its end is not known",
        // How runs end on the node.
        "guest-failure" => "the kind says why it did not reach its goal",
        "invalid-payload" => "the kind does not take this payload; nothing ran",
        "denied" => "the kind asked for what the node's policy does not grant",
        "deadline" => "the run took longer than its timeout and was stopped",
        "cpu" => "the run used up its CPU time and was stopped",
        "memory" => "the run wanted more memory than its limit and was stopped",
        "trap" => "the kind crashed; this is a defect of the kind",
        "diverged" => "a replay did something else than the recorded run",
        "host-failure" => "the node could not do its part; the kind is not to blame",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use bc_proto::rules::accept::Refusal;

    use super::*;

    #[test]
    fn every_refusal_has_a_meaning() {
        let refusals = [
            Refusal::Unsupported,
            Refusal::KindUnavailable,
            Refusal::StaleGeneration,
            Refusal::Expired,
            Refusal::BadSignature,
            Refusal::BatchUnapproved,
            Refusal::UnbatchedLimit,
            Refusal::NoSpace,
            Refusal::Busy,
        ];
        for refusal in refusals {
            assert!(meaning(refusal.code()).is_some(), "{refusal}");
        }
        assert_eq!((meaning(""), meaning("from-the-future")), (None, None));
    }
}
