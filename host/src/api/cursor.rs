//! Where a page ends, as text that callers hand back and do not read.
//!
//! **Invariant:** what this program did not seal does not open; a cursor holds a place in a list and no authority.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a caller is told of a cursor that does not open.
pub(super) const RULE: &str = "must be nextCursor of the page before";

/// A place, as text.
pub(super) fn seal(place: &impl Serialize) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(place).expect("a place is plain data"))
}

/// The place that a text means.
pub(super) fn open<P: DeserializeOwned>(text: &str) -> Option<P> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}
