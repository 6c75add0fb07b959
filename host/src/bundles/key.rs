//! The keys of bundles.
//!
//! **Invariant:** a node's bundles lie below its own id, and two commands of a node have two keys.

use bc_proto::id::NodeId;
use sha2::{Digest as _, Sha256};

/// The longest name that is kept as it is. The queue's keys of the API have 32 characters.
const LONGEST: usize = 120;

/// The key of the object that a command's file goes to: `support-bundles/{node}/{key}.bundle`, where `key` is the queue's
/// idempotency key without its `api:`. What a URL or a store would read otherwise becomes a dash, and a hash tells it from others.
pub fn support_bundle_key(node: NodeId, idempotency_key: &str) -> String {
    let key = idempotency_key.strip_prefix("api:").unwrap_or(idempotency_key);
    format!("support-bundles/{node}/{}.bundle", name(key))
}

fn name(key: &str) -> String {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !key.is_empty() && key.len() <= LONGEST && key.bytes().all(is_safe) {
        return key.to_owned();
    }
    let shown: String =
        key.bytes().take(LONGEST).map(|byte| if is_safe(byte) { char::from(byte) } else { '-' }).collect();
    // A dot stands in no name that is kept as it is.
    format!("{shown}.{}", hex::encode(&Sha256::digest(key)[..16]))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_key_of_the_queue_has_a_key_of_its_own_that_is_safe_in_a_url() {
        let node: NodeId = "node_00000000000000000000000001".parse().expect("an id");
        let plain = support_bundle_key(node, "api:0123456789abcdef0123456789abcdef");
        assert_eq!(plain, "support-bundles/node_00000000000000000000000001/0123456789abcdef0123456789abcdef.bundle");
        let long = "x".repeat(300);
        let keys = [
            "api:a",
            "wf:1:step",
            "wf:1-step",
            "wf-1-step",
            "..",
            "../../other",
            "a/b",
            "a b",
            "a?b#c",
            "%2e%2e",
            "é",
            "",
            &long,
            &long[1..],
        ];
        let made: HashSet<String> = keys.iter().map(|key| support_bundle_key(node, key)).collect();
        assert_eq!(made.len(), keys.len());
        for key in made {
            let rest = key.strip_prefix("support-bundles/node_00000000000000000000000001/").expect("below its node");
            assert!(rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)), "{key}");
            assert!(!rest.starts_with('.') || rest.len() > 30, "{key}");
            assert!(key.len() < 300, "{key}");
        }
    }
}
