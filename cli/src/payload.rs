//! A command's payload from the command line: `--payload` and `--set`.
//!
//! **Invariant:** a payload is an object; what does not parse is refused with the word that does not.

use std::io::Read;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

/// The payload: JSON, `@file` or `-` for standard input, `{}` by default; then each `a.b=value` in its place.
pub(crate) fn read(payload: Option<&str>, sets: &[String]) -> anyhow::Result<Value> {
    let (text, origin) = match payload {
        None => ("{}".to_owned(), "--payload".to_owned()),
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("standard input cannot be read")?;
            (text, "standard input".to_owned())
        }
        Some(word) => match word.strip_prefix('@') {
            Some(file) => {
                (std::fs::read_to_string(file).with_context(|| format!("{file} cannot be read"))?, file.to_owned())
            }
            None => (word.to_owned(), "--payload".to_owned()),
        },
    };
    let mut value: Value = serde_json::from_str(&text).with_context(|| format!("{origin} is not JSON"))?;
    for set in sets {
        apply(&mut value, set)?;
    }
    Ok(value)
}

/// Sets `a.b=value`; objects on the way are made. The value is JSON if it parses as JSON, else text.
fn apply(payload: &mut Value, set: &str) -> anyhow::Result<()> {
    let Some((path, value)) = set.split_once('=') else {
        bail!("--set {set:?} has no `=`; write a.b=1");
    };
    if path.is_empty() || path.split('.').any(str::is_empty) {
        bail!("--set {set:?} names no field; write a.b=1");
    }
    let mut place = payload;
    for name in path.split('.') {
        let Value::Object(fields) = place else {
            bail!("--set {set:?} goes through what is no object");
        };
        place = fields.entry(name).or_insert_with(|| Value::Object(Map::new()));
    }
    *place = word(value);
    Ok(())
}

/// JSON if it is JSON, else text.
pub(crate) fn word(value: &str) -> Value {
    serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn made(payload: Option<&str>, sets: &[&str]) -> anyhow::Result<Value> {
        read(payload, &sets.iter().map(|set| (*set).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn fields_are_set_where_their_path_says() {
        assert_eq!(made(None, &[]).expect("a payload"), json!({}));
        let sets = ["a.b=1", "a.c=true", "name=gpu one", "list=[1,2]", "a.b=2", "text=\"3\"", "empty=", "eq=a=b"];
        let whole = made(Some(r#"{"old": null}"#), &sets).expect("a payload");
        assert_eq!(
            whole,
            json!({ "old": null, "a": { "b": 2, "c": true }, "name": "gpu one", "list": [1, 2], "text": "3", "empty": "",
                    "eq": "a=b" })
        );
    }

    #[test]
    fn a_file_is_read() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), r#"{"x": 1}"#).expect("written");
        assert_eq!(made(Some(&format!("@{}", file.path().display())), &[]).expect("a payload"), json!({ "x": 1 }));
        assert!(made(Some("@/nowhere"), &[]).is_err());
    }

    #[test]
    fn what_does_not_parse_is_named() {
        for (payload, sets, part) in [
            (Some("{x: 1}"), &[][..], "--payload is not JSON"),
            (None, &["a"], "has no `=`"),
            (None, &["=1"], "names no field"),
            (None, &["a..b=1"], "names no field"),
            (Some("[]"), &["a=1"], "no object"),
            (None, &["a=1", "a.b=2"], "no object"),
        ] {
            let error = format!("{:#}", made(payload, sets).expect_err("refused"));
            assert!(error.contains(part), "{error}");
        }
    }
}
