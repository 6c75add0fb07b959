//! From a command's JSON text to the kind's payload type.
//!
//! **Invariant:** every refusal names its place as an RFC 6901 pointer, so that a caller sees which value to change.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_path_to_error::{Path, Segment};

use crate::Problem;

/// Parses a whole payload, or says what is wrong and where. A payload is a JSON object: serde would read a struct from a
/// list, too, and one whose fields are all optional from an empty list.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    if text.trim_start().starts_with('[') {
        return Err(Problem::new("", "invalid type: list, expected an object"));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| Problem::new(pointer(error.path()), error.inner().to_string()))?;
    json.end().map_err(|error| Problem::new("", error.to_string()))?;
    Ok(value)
}

/// For fields that may be absent but not `null`, as in a JSON Schema whose `required` leaves them out:
/// `#[serde(default, deserialize_with = "sdk::payload::present")]`.
pub fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        let name = match segment {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } => key.replace('~', "~0").replace('/', "~1"),
            Segment::Enum { variant } => variant.clone(),
            // The parser knows no more than that the value is somewhere in here.
            Segment::Unknown => break,
        };
        pointer.push('/');
        pointer.push_str(&name);
    }
    pointer
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Payload {
        #[serde(default)]
        list: Vec<Item>,
        #[serde(default)]
        map: BTreeMap<String, u8>,
        #[serde(default, deserialize_with = "present")]
        count: Option<u32>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case", deny_unknown_fields)]
    enum Item {
        Plain,
        Wrapped { depth: u8 },
    }

    fn check(text: &str, pointer: &str, message: &str) {
        let problem = parse::<Payload>(text).expect_err(text);
        assert_eq!(problem.pointer, pointer, "{text}: {}", problem.message);
        assert!(problem.message.contains(message), "{text}: {}", problem.message);
    }

    #[test]
    fn what_fits_parses() {
        let payload = parse::<Payload>(r#"{"list":["plain",{"wrapped":{"depth":1}}],"map":{"a":1},"count":3}"#);
        let Payload { list, map, count } = payload.expect("fits");
        assert!(matches!(list[..], [Item::Plain, Item::Wrapped { depth: 1 }]));
        assert_eq!((map["a"], count), (1, Some(3)));
        assert_eq!(parse::<Payload>("{}").expect("all optional").count, None);
    }

    #[test]
    fn a_refusal_names_its_place() {
        check(r#"{"list":["plain","other"]}"#, "/list/1", "unknown variant `other`");
        check(r#"{"list":[{"wrapped":{"depth":-1}}]}"#, "/list/0/wrapped/depth", "expected u8");
        check(r#"{"map":{"a/b~c":300}}"#, "/map/a~1b~0c", "expected u8");
        check(r#"{"count":null}"#, "/count", "invalid type: null");
        check(r#"{"extra":1}"#, "/extra", "unknown field `extra`");
        check("[]", "", "expected an object");
        check("7", "", "invalid type: integer");
        check("", "", "EOF");
        check("{} {}", "", "trailing characters");
    }
}
