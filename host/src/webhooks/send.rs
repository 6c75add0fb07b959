//! Sending one delivery.
//!
//! **Invariant:** a connection goes to an address that was judged: names are looked up here, what may not be reached is left out, and
//! the connection is made to what is left and to nothing else. No redirect is followed, no proxy is asked, and of an answer no
//! more is kept than its beginning.

use std::sync::Arc;
use std::time::Duration;

use bc_proto::rules::webhook::{Allow, Outcome, Target, check};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};

use super::BadSettings;

/// How much of an answer is kept for people, bytes.
const KEPT: usize = 1024;

/// How long a connection may take to open.
const CONNECT: Duration = Duration::from_secs(10);

/// A message that is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) url: String,
    pub(super) id: String,
    pub(super) unix_s: i64,
    /// The value of the header: signatures with a space between.
    pub(super) signatures: String,
    pub(super) body: String,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) outcome: Outcome,
    /// The beginning of the answer, or why there was none.
    pub(super) answer: String,
}

impl Sent {
    /// Nothing was sent, and why.
    pub(super) fn not(why: impl Into<String>) -> Self {
        Self { outcome: Outcome::Unanswered, answer: kept(why.into().as_bytes()) }
    }
}

/// Sends. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    http: reqwest::Client,
    allow: Arc<Allow>,
}

impl Sender {
    pub(super) fn new(allow: Allow, ca_pem: Option<&[u8]>, timeout: Duration) -> Result<Self, BadSettings> {
        // Fails only when somebody did it before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let allow = Arc::new(allow);
        let builder = || {
            reqwest::Client::builder()
                .user_agent(concat!("better-compute/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(CONNECT.min(timeout))
                .timeout(timeout)
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .dns_resolver(Guarded(Arc::clone(&allow)))
        };
        let http = match ca_pem {
            Some(pem) => {
                let certificates = reqwest::Certificate::from_pem_bundle(pem).unwrap_or_default();
                if certificates.is_empty() {
                    return Err(BadSettings { key: "ca-file", rule: "must hold certificates in PEM".into() });
                }
                builder().tls_certs_only(certificates).build()
            }
            // Without authorities of the system no certificate holds, and http:// still works where it is allowed.
            None => builder().build().or_else(|error| {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "no webhook's certificate can be verified here"
                );
                builder().tls_certs_only([]).build()
            }),
        };
        let http =
            http.map_err(|error| BadSettings { key: "ca-file", rule: format!("no client can be made: {error}") })?;
        Ok(Self { http, allow })
    }

    pub(super) async fn send(&self, message: Message) -> Sent {
        let url = match judged(&message.url, &self.allow) {
            Ok(url) => url,
            Err(rule) => return Sent::not(format!("nothing was sent: the URL {rule}")),
        };
        let request = self
            .http
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", message.id)
            .header("webhook-timestamp", message.unix_s.to_string())
            .header("webhook-signature", message.signatures)
            .body(message.body);
        let mut answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => return Sent::not(words(error)),
        };
        let header = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let outcome =
            Outcome::Answered { status: answer.status().as_u16(), retry_after: header.map(Duration::from_secs) };
        let mut bytes = Vec::new();
        // The status says what came of it; a body that does not come whole changes nothing.
        while bytes.len() < KEPT
            && let Ok(Some(chunk)) = answer.chunk().await
        {
            bytes.extend_from_slice(&chunk[..chunk.len().min(KEPT - bytes.len())]);
        }
        Sent { outcome, answer: kept(&bytes) }
    }
}

/// A URL that events may be sent to, as far as that is known without looking its host up; otherwise the rule that it breaks.
pub(crate) fn judged(text: &str, allow: &Allow) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|_| "must be a URL, such as https://hooks.example/events".to_owned())?;
    let target = Target {
        scheme: url.scheme(),
        host: url.host_str().unwrap_or_default(),
        has_credentials: !url.username().is_empty() || url.password().is_some(),
        has_fragment: url.fragment().is_some(),
    };
    check(target, allow).map_err(|refused| refused.to_string())?;
    Ok(url)
}

/// The beginning of a text, as people read it and the database takes it.
fn kept(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(KEPT)]);
    let shown = |c: char| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(shown).collect()
}

/// An error and its sources, without the URL: its path is often a secret.
fn words(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let error = error.without_url();
    let mut text = error.to_string();
    let mut next = std::error::Error::source(&error);
    while let Some(source) = next {
        text += &format!(": {source}");
        next = source.source();
    }
    text
}

/// Looks names up, and leaves out what may not be reached.
struct Guarded(Arc<Allow>);

/// A name without an address that may be reached.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} has no address of the public internet; the server's operator can allow it with `allow = [\"{0}\"]` under [webhooks]"
)]
struct NoAddress(String);

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let allow = Arc::clone(&self.0);
        Box::pin(async move {
            let host = name.as_str();
            let found = tokio::net::lookup_host((host, 0)).await?;
            let reached: Vec<_> = found.filter(|address| allow.reaches(host, address.ip())).collect();
            if reached.is_empty() {
                return Err(NoAddress(host.to_owned()).into());
            }
            Ok(Box::new(reached.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_judged_as_they_are_read_not_as_they_are_written() {
        let none = Allow::default();
        for text in [
            "https://127.1/",
            "https://0x7f.0.0.1/",
            "https://2130706433/",
            "https://0177.0.0.1/",
            "https://[::ffff:7f00:1]/",
            "https://１２７.0.0.1/",
            "https://169.254.169.254/latest/meta-data",
            "https://localhost/",
            "https://LOCALHOST./",
            "https://user@hooks.example/",
            "https://:secret@hooks.example/",
            "https://hooks.example/#a",
            "http://hooks.example/",
            "file:///etc/passwd",
            "gopher://hooks.example/",
            "hooks.example",
            "https://",
            "",
        ] {
            assert!(judged(text, &none).is_err(), "{text}");
        }
        for text in ["https://hooks.example/a?b=c", "https://8.8.8.8:8443/", "HTTPS://Hooks.Example"] {
            assert!(judged(text, &none).is_ok(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_is_refused_when_it_is_looked_up() {
        // Judged by what the name turns out to be: the resolver of every system knows this one.
        let resolve = |allow: Allow| async move {
            let found = Guarded(Arc::new(allow)).resolve("localhost".parse().expect("a name")).await;
            found.map(Iterator::count).map_err(|error| error.to_string())
        };
        let refused = resolve(Allow::default()).await.expect_err("it is this machine");
        assert!(refused.contains("public internet"), "{refused}");
        for words in [["localhost"].as_slice(), &["127.0.0.0/8", "::1"]] {
            let allow = Allow::parse(words.iter().copied()).expect("words");
            assert!(resolve(allow).await.expect("it is allowed") > 0);
        }
    }

    #[test]
    fn of_an_answer_the_beginning_is_kept_without_what_a_database_does_not_take() {
        assert_eq!(kept(b"a\0b\n\xffc\x1b"), "a\u{fffd}b\n\u{fffd}c\u{fffd}");
        assert_eq!(kept(&[b'x'; 5000]).len(), KEPT);
    }
}
