//! Where a redirect leads. Pure.
//!
//! **Invariant:** credentials, and headers that may hold some, are not taken along to another server.

use sdk::http::Request;
use sdk::{Failure, Problem};

/// Headers that say nothing of the caller.
const HARMLESS: [&str; 4] = ["accept", "accept-language", "if-none-match", "if-modified-since"];

/// What is wrong with a request beyond its schema.
pub(crate) fn problems<'a>(
    method: &str,
    headers: impl Iterator<Item = &'a String>,
    body: &str,
    max_redirects: usize,
) -> Vec<Problem> {
    let reads = matches!(method, "GET" | "HEAD");
    let mut problems = Vec::new();
    if reads && !body.is_empty() {
        problems.push(Problem::new("/body", format!("a {method} has no body")));
    }
    if !reads && max_redirects > 0 {
        problems.push(Problem::new("/maxRedirects", "only redirects of GET and HEAD are followed"));
    }
    for name in headers {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
            problems.push(Problem::new("/headers", format!("'{}' is not a header's name", name.escape_debug())));
        }
    }
    problems
}

/// The request that a redirect asks for, if the answer is one.
pub(crate) fn next(request: &Request, status: u16, location: Option<&str>) -> Result<Option<Request>, Failure> {
    let (true, Some(location)) = (matches!(status, 301 | 302 | 303 | 307 | 308), location) else { return Ok(None) };
    let wrong = || Failure::new("bad-redirect", format!("{} redirects to '{}'", request.url, location.escape_debug()));
    let url = resolve(&request.url, location).ok_or_else(wrong)?;
    let mut next = Request { url, ..request.clone() };
    if origin(&next.url) != origin(&request.url) {
        next.credentials = None;
        next.headers.retain(|(name, _)| HARMLESS.contains(&name.to_ascii_lowercase().as_str()));
    }
    Ok(Some(next))
}

fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    Some(format!("{scheme}://{}", &rest[..end]).to_ascii_lowercase())
}

/// A location against the address that gave it: whole, from the root, or beside it.
fn resolve(base: &str, location: &str) -> Option<String> {
    if location.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'\\') {
        return None;
    }
    let location = location.split('#').next().unwrap_or(location);
    if location.starts_with("http://") || location.starts_with("https://") {
        return Some(location.to_owned());
    }
    if let Some(rest) = location.strip_prefix("//") {
        return Some(format!("{}://{rest}", base.split_once("://")?.0));
    }
    let origin_end = base.find("://")? + 3;
    let path_start = base[origin_end..].find(['/', '?', '#']).map_or(base.len(), |at| origin_end + at);
    let (origin, path) = base.split_at(path_start);
    if location.starts_with('/') {
        return Some(format!("{origin}{location}"));
    }
    // Before the first `/`, a colon makes a scheme, and only two are followed.
    if location.split('/').next().is_some_and(|first| first.contains(':')) {
        return None;
    }
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if location.starts_with('?') {
        return Some(format!("{origin}{}{location}", if path.is_empty() { "/" } else { path }));
    }
    let folder = path.rfind('/').map_or("/", |at| &path[..=at]);
    Some(format!("{origin}{folder}{location}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_resolved_against_its_address() {
        for (location, url) in [
            ("https://b.example/x", Some("https://b.example/x")),
            ("//b.example/x", Some("https://b.example/x")),
            ("/x?y", Some("https://a.example/x?y")),
            ("x", Some("https://a.example/p/x")),
            ("?z", Some("https://a.example/p/q?z")),
            ("x#f", Some("https://a.example/p/x")),
            ("ftp://b.example", None),
            ("javascript:x", None),
            ("/a b", None),
            ("\\\\b.example", None),
        ] {
            assert_eq!(resolve("https://a.example/p/q?r", location).as_deref(), url, "{location}");
        }
        assert_eq!(resolve("https://a.example", "x").as_deref(), Some("https://a.example/x"));
    }

    #[test]
    fn credentials_stay_with_the_server_that_they_are_for() {
        let mut request = Request::new("GET", "https://a.example/");
        request.credentials = Some("token".into());
        request.headers = vec![("Accept".into(), "x".into()), ("X-Api-Key".into(), "y".into())];
        let same = next(&request, 302, Some("/other")).expect("a redirect").expect("one");
        assert_eq!((same.credentials.as_deref(), same.headers.len()), (Some("token"), 2));
        let other = next(&request, 302, Some("https://b.example/")).expect("a redirect").expect("one");
        assert_eq!((other.credentials, other.headers.len()), (None, 1));
        assert_eq!(next(&request, 200, Some("/other")), Ok(None));
        assert_eq!(next(&request, 302, Some("ftp://b")).map_err(|failure| failure.code), Err("bad-redirect".into()));
    }

    #[test]
    fn a_request_that_makes_no_sense_is_refused() {
        let names = ["ok".to_owned(), "bad name".to_owned()];
        assert_eq!(problems("GET", names.iter(), "x", 1).len(), 2);
        assert_eq!(problems("POST", names[..1].iter(), "x", 1).len(), 1);
    }
}
