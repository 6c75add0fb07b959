//! Canonical JSON (RFC 8785): one byte string per value, so that it can be hashed and signed.
//!
//! **Invariant:** two values that are equal have the same canonical bytes, whatever order their keys were written in.

use serde::Serialize;
use sha2::{Digest, Sha256};

/// The canonical bytes of a value. Errors when the value is not JSON (a map with keys that are not strings, a number that
/// is not finite).
pub fn to_vec(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    serde_json_canonicalizer::to_vec(value)
}

/// SHA-256 of bytes, as 64 lower-case hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn keys_are_sorted_and_space_is_gone() {
        let bytes = to_vec(&json!({"b": 1, "a": [true, null, 1.5], "é": "\u{1}"})).expect("it is JSON");
        assert_eq!(String::from_utf8_lossy(&bytes), r#"{"a":[true,null,1.5],"b":1,"é":"\u0001"}"#);
    }

    proptest! {
        #[test]
        fn canonical_bytes_survive_a_round_trip(map in prop::collection::btree_map(".*", any::<i32>(), 0..8)) {
            let first = to_vec(&map).expect("string keys");
            let parsed: Value = serde_json::from_slice(&first).expect("canonical JSON is JSON");
            prop_assert_eq!(first, to_vec(&parsed).expect("string keys"));
        }
    }
}
