//! May this HTTP request be put to a server at all, and by what name does a grant know that server?
//!
//! A grant's pattern is compared with an origin's text. So one server must have one text, and none must be readable as two.
//!
//! **Invariant:** text that [`origin`] gives names the same server to whoever connects; what could be read otherwise is refused.

use core::net::{Ipv4Addr, Ipv6Addr};

/// The header in which a kind names the secret that the host is to add as credentials.
pub const CREDENTIALS: &str = "better-compute-credentials";

/// The header by which a kind knows that its request was planned and not sent.
pub const PLANNED: &str = "better-compute-planned";

/// The header in which a kind says how many bytes of an answer it takes; what is longer is cut off instead of being an error.
pub const MAX_BYTES: &str = "better-compute-max-bytes";

/// The header by which a kind knows that an answer was cut off.
pub const TRUNCATED: &str = "better-compute-truncated";

/// What the names of this project's own headers begin with. A server cannot say them.
pub const OWN: &str = "better-compute-";

/// Longest name of a host, as in the DNS.
const MAX_HOST_BYTES: usize = 253;

/// Why a request is not put.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Neither http nor https.
    #[error("the scheme '{0}' is not http or https")]
    Scheme(String),
    /// A user's name or password in the address.
    #[error("an address must not hold a user or password; name a secret in `{CREDENTIALS}` instead")]
    UserInfo,
    /// No plain host.
    #[error(
        "'{0}' is not a host: a name of letters, digits, '-', '_' and '.', an IPv4 address, or an IPv6 address in brackets"
    )]
    Host(String),
    /// No port.
    #[error("'{0}' is not a port from 1 to 65535")]
    Port(String),
    /// Not to be used by kinds.
    #[error("the method {0} is not for kinds")]
    Method(String),
    /// The host sets it.
    #[error("the header `{0}` is not a kind's to set")]
    Header(String),
}

/// Scheme, lower-case host, and the port where it is not the scheme's own: `https://bmc-1.example`.
pub fn origin(scheme: &str, authority: &str) -> Result<String, Refused> {
    let scheme = scheme.to_ascii_lowercase();
    let own_port = match scheme.as_str() {
        "http" => 80,
        "https" => 443,
        _ => return Err(Refused::Scheme(scheme)),
    };
    if authority.contains('@') {
        return Err(Refused::UserInfo);
    }
    let (host, port) = match authority.rfind(']') {
        Some(end) => (&authority[..=end], &authority[end + 1..]),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let host = canonical_host(host).ok_or_else(|| Refused::Host(host.to_owned()))?;
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => own_port,
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| Refused::Port(digits.to_owned()))?
        }
        _ => return Err(Refused::Port(port.to_owned())),
    };
    Ok(if port == own_port { format!("{scheme}://{host}") } else { format!("{scheme}://{host}:{port}") })
}

fn canonical_host(host: &str) -> Option<String> {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().ok().map(|address| format!("[{address}]"));
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let labels: Vec<_> = host.split('.').collect();
    if host.len() > MAX_HOST_BYTES || labels.iter().any(|label| label.is_empty() || !label.bytes().all(is_plain)) {
        return None;
    }
    // What ends in a number is read as an IPv4 address by whoever connects, in whatever form: only the usual one is taken.
    let last = labels.last()?.to_ascii_lowercase();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if is_number {
        return host.parse::<Ipv4Addr>().ok().map(|address| address.to_string());
    }
    Some(host.to_ascii_lowercase())
}

/// Whether a request by this method may change something. Errs for methods that kinds may not use: one makes a tunnel, the other
/// has the server say the credentials.
pub fn may_write(method: &str) -> Result<bool, Refused> {
    match method {
        "GET" | "HEAD" => Ok(false),
        "CONNECT" | "TRACE" => Err(Refused::Method(method.to_owned())),
        _ => Ok(true),
    }
}

/// Whether a request that ended with this code, and not with an answer, may have reached its server all the same.
pub fn may_have_arrived(code: &str) -> bool {
    matches!(code, "timeout" | "cut-off" | "no-answer" | "response-too-large")
}

/// Whether a header, by its lower-case name, is the host's to set: who is asked, as whom, and where the message ends.
pub fn is_the_hosts(name: &str) -> bool {
    matches!(
        name,
        "authorization"
            | "connection"
            | "content-length"
            | "expect"
            | "host"
            | "http2-settings"
            | "keep-alive"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    ) || name.starts_with("proxy-")
}

/// Whether a header's value is kept out of journals and transcripts.
pub fn is_private(name: &str) -> bool {
    matches!(
        name.to_ascii_lowercase().as_str(),
        "authorization" | "cookie" | "set-cookie" | "x-auth-token" | "www-authenticate" | "proxy-authorization"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_server_has_one_text() {
        for (scheme, authority, text) in [
            ("https", "BMC-1.Example", "https://bmc-1.example"),
            ("HTTPS", "bmc-1.example:443", "https://bmc-1.example"),
            ("http", "bmc-1.example:443", "http://bmc-1.example:443"),
            ("http", "127.0.0.1:08080", "http://127.0.0.1:8080"),
            ("https", "[2001:DB8::0:1]:443", "https://[2001:db8::1]"),
            ("https", "a_b.c", "https://a_b.c"),
        ] {
            assert_eq!(origin(scheme, authority).as_deref(), Ok(text), "{authority}");
        }
    }

    #[test]
    fn what_could_be_read_otherwise_is_refused() {
        for authority in [
            "",
            ".",
            "a..b",
            "a.b.",
            "user@host",
            "user:pw@host",
            "bmc:0",
            "bmc:65536",
            "bmc:",
            "bmc:+80",
            "bmc:80:81",
            "2130706433",
            "0x7f000001",
            "127.1",
            "10.0.0.0x1",
            "010.0.0.1",
            "[::1",
            "::1",
            "[::1%eth0]",
            "[::1]80",
            "a b",
            "a/b",
            "a\\b",
            "a#b",
            "a?b",
            "bücher.example",
            "a%2eb",
        ] {
            assert!(origin("https", authority).is_err(), "{authority}: {:?}", origin("https", authority));
        }
        assert_eq!(origin("ftp", "host"), Err(Refused::Scheme("ftp".into())));
    }

    #[test]
    fn a_request_that_may_change_something_is_told_from_one_that_reads() {
        assert_eq!((may_write("GET"), may_write("HEAD")), (Ok(false), Ok(false)));
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get", "PURGE"] {
            assert_eq!(may_write(method), Ok(true), "{method}");
        }
        assert!(may_write("TRACE").is_err() && may_write("CONNECT").is_err());
    }

    #[test]
    fn who_is_asked_as_whom_and_where_the_message_ends_is_the_hosts() {
        for name in ["authorization", "host", "content-length", "transfer-encoding", "connection", "proxy-anything"] {
            assert!(is_the_hosts(name), "{name}");
        }
        assert!(!is_the_hosts("if-match") && !is_the_hosts(CREDENTIALS));
        assert!(is_private("X-Auth-Token") && !is_private("etag"));
    }

    proptest! {
        #[test]
        fn an_origin_is_its_own_origin(scheme in "https?", authority in ".{0,40}") {
            if let Ok(text) = origin(&scheme, &authority) {
                let (scheme, authority) = text.split_once("://").expect("it has a scheme");
                prop_assert_eq!(origin(scheme, authority), Ok(text.clone()));
            }
        }
    }
}
