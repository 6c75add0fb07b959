//! `test.secret`: gets a secret and hands it on wherever a guest can, in every form that it can think of. That is what no kind is
//! to do; a test looks for it in all that the run leaves behind.
//!
//! **Invariant:** a run that ends with a result says how long the secret is, which it knows only if it really had it.

use std::fmt::Write as _;

use sdk::{Context, Failure, Kind, nvml, progress, secrets, tracing};
use serde::Deserialize;
use serde_json::{Value, json};

struct Secret;

/// What is sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Payload {
    how: How,
    #[serde(default)]
    control: String,
    secret_refs: Refs,
}

/// How it ends.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum How {
    Result,
    Failure,
    Panic,
    Denied,
}

/// Which secrets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refs {
    password: String,
}

impl Kind for Secret {
    type Payload = Payload;
    type Output = Value;

    fn run(_: &Context, payload: Payload) -> Result<Value, Failure> {
        let value = secrets::get(&payload.secret_refs.password)?;
        for told in [&value, &payload.control] {
            hand_on(told);
        }
        match payload.how {
            How::Result => Ok(json!({
                "length": value.len(),
                "secret": everything(&value),
                "control": everything(&payload.control),
            })),
            How::Failure => {
                let message = format!("{value} {}", payload.control);
                Err(Failure::new(value.clone(), message).with_details(&everything(&value)))
            }
            How::Panic => panic!("{value} {}", payload.control),
            // Not granted, and named in the refusal.
            How::Denied => Ok(json!(secrets::get(&value)?)),
        }
    }
}

/// In whatever has no end of its own.
fn hand_on(text: &str) {
    for form in forms(text) {
        tracing::info!(form = form.as_str(), "{form}");
        progress::report(1, Some(2), &form, &format!("<{form}>"));
    }
    // A transcript holds what it asked for, and what it heard.
    let _ = nvml::pcie_link(text);
}

fn everything(text: &str) -> Value {
    let forms = forms(text);
    json!({ "forms": forms, text: text, "within": json!({ "text": text }).to_string(), "bytes": text.as_bytes() })
}

/// As it is, in JSON, in hexadecimal digits and in base64.
fn forms(text: &str) -> Vec<String> {
    let hex = text.bytes().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let mut forms = vec![text.to_owned(), json!(text).to_string(), hex.to_uppercase(), hex];
    for before in ["", "a", "ab"] {
        forms.push(base64(format!("{before}{text}").as_bytes()));
    }
    forms
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let at = |n: usize| u32::from(group.get(n).copied().unwrap_or(0));
        let bits = (at(0) << 16) | (at(1) << 8) | at(2);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit <= group.len() { char::from(DIGITS[index as usize]) } else { '=' });
        }
    }
    text
}

sdk::export!(Secret);
