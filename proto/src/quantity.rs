//! Quantities as people write them and as programs store them.
//!
//! **Invariant:** reading what was written gives the same quantity: nothing is rounded.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes. Read from an integer or from text such as `32MiB`; written as an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `n` mebibytes.
    pub const fn mib(n: u64) -> Self {
        Self(n * 1024 * 1024)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bytesize::ByteSize(self.0).display().iec().fmt(f)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(bytesize::ByteSize::deserialize(deserializer)?.0))
    }
}

/// A span of time, read and written as text such as `15m` or `1h 30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map(Self).map_err(|error| {
            de::Error::custom(format_args!("'{text}' is not a duration such as \"60s\" or \"15m\": {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantities_survive_a_round_trip(bytes: u64, seconds in 0u64..1_000_000, millis in 0u64..1000) {
            let bytes = Bytes(bytes);
            let text = serde_json::to_string(&bytes).expect("a number");
            prop_assert_eq!(serde_json::from_str::<Bytes>(&text).ok(), Some(bytes));
            let span = Span(Duration::from_millis(seconds * 1000 + millis));
            let text = serde_json::to_string(&span).expect("a string");
            prop_assert_eq!(serde_json::from_str::<Span>(&text).ok(), Some(span));
        }
    }

    #[test]
    fn text_with_units_is_read() {
        assert_eq!(serde_json::from_str::<Bytes>("\"32MiB\"").ok(), Some(Bytes::mib(32)));
        assert_eq!(serde_json::from_str::<Span>("\"2m\"").ok(), Some(Span(Duration::from_mins(2))));
        let error = serde_json::from_str::<Span>("\"soon\"").expect_err("not a duration").to_string();
        assert!(error.contains("'soon' is not a duration"), "{error}");
    }
}
