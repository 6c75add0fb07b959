//! Keeping a run's secrets out of what the run leaves behind.
//!
//! A kind that got a secret may do with it what it is for, and may not hand it on: wherever its value stands in a result, a
//! failure, a log line, a progress message, a panic's message, an effect or a transcript, `[secret <ref>]` stands in its place.
//! It is found as it is, in JSON's escapes, in hexadecimal digits and in base64. A guest that encodes it in a way of its own is
//! not found out; who signs a kind answers for that.
//!
//! **Invariant:** what a gate lets out of a run that got a secret went through [`Known`] first.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use bc_proto::secret::MIN_BYTES;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use zeroize::Zeroizing;

/// The shortest form that is looked for, bytes: what is shorter turns up by chance.
const MIN_FORM: usize = MIN_BYTES;

/// A line of a value, such as a private key's, is looked for by itself from this length on, bytes.
const MIN_LINE: usize = 16;

/// The secrets that a run got.
#[derive(Default)]
pub(crate) struct Known {
    /// Each with what stands in its place; the longest form first, so that no rest of a form stays.
    forms: Vec<(Zeroizing<String>, String)>,
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Known({} forms)", self.forms.len())
    }
}

impl Known {
    /// Adds a secret that the guest now has.
    pub(crate) fn add(&mut self, secret_ref: &str, value: &str) {
        let mark = mark(secret_ref);
        if value.len() < MIN_FORM || self.forms.iter().any(|(form, known)| **form == value && *known == mark) {
            return;
        }
        for form in forms(value) {
            if form.len() >= MIN_FORM && !self.forms.iter().any(|(known, _)| *known == form) {
                self.forms.push((form, mark.clone()));
            }
        }
        self.forms.sort_by_key(|(form, _)| std::cmp::Reverse(form.len()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// Text without them.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for (form, mark) in &self.forms {
            if text.contains(form.as_str()) {
                text = Cow::Owned(text.replace(form.as_str(), mark));
            }
        }
        text
    }

    /// A JSON value without them, in keys, in text and in numbers.
    pub(crate) fn json(&self, value: Value) -> Value {
        if self.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.text(&text).into_owned()),
            Value::Number(number) => match self.text(&number.to_string()) {
                Cow::Borrowed(_) => Value::Number(number),
                Cow::Owned(text) => Value::String(text),
            },
            Value::Array(items) => self.array(items),
            Value::Object(fields) => {
                let clean = |(name, value): (String, Value)| (self.text(&name).into_owned(), self.json(value));
                Value::Object(fields.into_iter().map(clean).collect())
            }
            plain @ (Value::Null | Value::Bool(_)) => plain,
        }
    }

    /// Bytes are an array of numbers in JSON, and may be text for all that.
    fn array(&self, items: Vec<Value>) -> Value {
        let byte = |item: &Value| item.as_u64().and_then(|byte| u8::try_from(byte).ok());
        let bytes: Option<Vec<u8>> = items.iter().map(byte).collect();
        if let Some(bytes) = bytes.filter(|bytes| bytes.len() >= MIN_FORM)
            && let Cow::Owned(text) = self.text(&String::from_utf8_lossy(&bytes))
            && text.contains("[secret ")
            && self.forms.iter().any(|(form, _)| holds(&bytes, form.as_bytes()))
        {
            return Value::String(text);
        }
        Value::Array(items.into_iter().map(|item| self.json(item)).collect())
    }

    /// Anything that has a JSON form, without them.
    pub(crate) fn within<T: Serialize + DeserializeOwned>(&self, it: T) -> Result<T, serde_json::Error> {
        if self.is_empty() { Ok(it) } else { serde_json::from_value(self.json(serde_json::to_value(it)?)) }
    }
}

/// What stands in a secret's place.
pub(crate) fn mark(secret_ref: &str) -> String {
    format!("[secret {secret_ref}]")
}

fn holds(bytes: &[u8], form: &[u8]) -> bool {
    bytes.windows(form.len()).any(|window| window == form)
}

/// All ways of writing a value that are looked for.
fn forms(value: &str) -> Vec<Zeroizing<String>> {
    let mut plain = vec![Zeroizing::new(value.to_owned())];
    plain.extend(value.lines().filter(|line| line.len() >= MIN_LINE).map(|line| Zeroizing::new(line.to_owned())));
    let mut forms = Vec::new();
    for text in &plain {
        // JSON within JSON escapes twice.
        let once = escaped(text);
        forms.push(escaped(&once));
        forms.push(once);
        forms.push(Zeroizing::new(hex::encode(text.as_bytes())));
        forms.push(Zeroizing::new(hex::encode_upper(text.as_bytes())));
        for engine in [&STANDARD, &URL_SAFE] {
            for before in 0..3 {
                let mut bytes = Zeroizing::new(vec![0; before]);
                bytes.extend_from_slice(text.as_bytes());
                let encoded = Zeroizing::new(engine.encode(&*bytes));
                // The first and last characters also hold bits of what stands before and after it.
                let whole = bytes.len() / 3 * 4;
                let first = [0, 2, 3][before];
                forms.push(Zeroizing::new(encoded[first..whole].to_owned()));
            }
        }
    }
    forms.extend(plain);
    forms
}

/// Text as it stands between the quotes of a JSON string.
fn escaped(text: &str) -> Zeroizing<String> {
    let quoted = Zeroizing::new(serde_json::to_string(text).expect("text is JSON"));
    Zeroizing::new(quoted[1..quoted.len() - 1].to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VALUE: &str = "p\"ss\\wörd-4711-x";

    fn known() -> Known {
        let mut known = Known::default();
        known.add("db.password", VALUE);
        known
    }

    #[test]
    fn every_form_of_a_value_is_found_wherever_it_stands() {
        let known = known();
        for (before, after) in [("", ""), ("a", "b"), ("ab", "cd"), ("abc", "def")] {
            let text = format!("{before}{VALUE}{after}");
            let json = serde_json::to_string(&text).expect("text");
            let twice = serde_json::to_string(&json).expect("text");
            for written in [
                text.clone(),
                json,
                twice,
                hex::encode(&text),
                hex::encode_upper(&text),
                STANDARD.encode(&text),
                URL_SAFE.encode(&text),
                base64::engine::general_purpose::STANDARD_NO_PAD.encode(&text),
            ] {
                let clean = known.text(&written);
                assert!(clean.contains("[secret db.password]"), "{written} → {clean}");
                assert!(!clean.contains("4711"), "{written} → {clean}");
            }
        }
        assert!(matches!(known.text("nothing of it"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_is_cleaned_in_keys_text_bytes_and_numbers() {
        let mut known = known();
        known.add("pin", "1234567890");
        let dirty = json!({
            VALUE: [VALUE, { "inner": format!("<{VALUE}>") }],
            "bytes": VALUE.as_bytes(),
            "number": 1_234_567_890_u64,
            "plain": [1, 2, 3, null, true, "text"],
        });
        let clean = json!({
            "[secret db.password]": ["[secret db.password]", { "inner": "<[secret db.password]>" }],
            "bytes": "[secret db.password]",
            "number": "[secret pin]",
            "plain": [1, 2, 3, null, true, "text"],
        });
        assert_eq!(known.json(dirty), clean);
    }

    #[test]
    fn the_lines_of_a_value_are_found_one_by_one() {
        let mut known = Known::default();
        known.add("key", "-----BEGIN KEY-----\nMC4CAQAwBQYDK2VwBCIEIA\n-----END KEY-----");
        assert_eq!(known.text("it is MC4CAQAwBQYDK2VwBCIEIA."), "it is [secret key].");
    }

    #[test]
    fn of_two_values_the_longer_one_goes_first_and_nothing_is_shown() {
        let mut known = Known::default();
        known.add("short", "abcdefgh");
        known.add("long", "abcdefgh-ijkl");
        assert_eq!(known.text("abcdefgh-ijkl abcdefgh"), "[secret long] [secret short]");
        assert!(!format!("{known:?}").contains("abcd"));
    }
}
