//! Sessions of browsers: a random secret in a cookie, and its hash in the database beside the token that was given.
//!
//! **Invariant:** a session counts only while its token does, 12 hours at most and two hours after the last time that a person
//! used it; the secret stands in the cookie alone, and no script can read it.

use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use time::Duration;

use super::Web;
use super::visitor::Visitor;
use crate::api::auth::Caller;
use crate::api::error::Failure;
use crate::store::web_sessions::{self, Hash};

/// How long a session lasts at most: a working day.
const LIFE: Duration = Duration::hours(12);

/// How long it lasts without being used.
const IDLE: Duration = Duration::hours(2);

/// How exactly its last use is kept.
const SEEN: Duration = Duration::MINUTE;

/// The header that requests of a page's own script carry: nobody asked for them.
const BY_ITSELF: &str = "x-live";

/// A session's secret.
#[derive(Clone)]
pub(super) struct Secret([u8; 32]);

impl Secret {
    /// The one that a request brings, if it brings any.
    pub(super) fn of(headers: &HeaderMap, is_tls: bool) -> Option<Self> {
        let name = cookie_name(is_tls);
        let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let (_, text) = pairs.find(|(known, _)| *known == name)?;
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self)
    }

    fn hash(&self) -> Hash {
        Sha256::digest(self.0).into()
    }

    /// What forms of this session carry: it follows from the secret, and the secret does not follow from it.
    fn csrf(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(b"better-compute csrf\0");
        hash.update(self.0);
        URL_SAFE_NO_PAD.encode(hash.finalize())
    }

    /// The header that gives it to the browser.
    fn cookie(&self, is_tls: bool) -> HeaderValue {
        let (name, secure) = (cookie_name(is_tls), if is_tls { "; Secure" } else { "" });
        let (text, life) = (URL_SAFE_NO_PAD.encode(self.0), LIFE.whole_seconds());
        let cookie = format!("{name}={text}; Path=/; Max-Age={life}; HttpOnly; SameSite=Strict{secure}");
        HeaderValue::try_from(cookie).expect("it is plain ASCII")
    }
}

/// The header that takes the cookie away.
pub(super) fn no_cookie(is_tls: bool) -> HeaderValue {
    let (name, secure) = (cookie_name(is_tls), if is_tls { "; Secure" } else { "" });
    let cookie = format!("{name}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::try_from(cookie).expect("it is plain ASCII")
}

/// With TLS the name itself forbids that another host or an unprotected page set it.
const fn cookie_name(is_tls: bool) -> &'static str {
    if is_tls { "__Host-better-compute" } else { "better-compute" }
}

/// Whether two secrets are the same, in time that does not depend on where they differ.
pub(super) fn is_same(a: &str, b: &str) -> bool {
    Sha256::digest(a) == Sha256::digest(b)
}

/// The visitor that a request's cookie stands for; `None` where no session counts.
pub(super) async fn visitor(web: &Web, headers: &HeaderMap, is_tls: bool) -> Result<Option<Visitor>, Failure> {
    let Some(secret) = Secret::of(headers, is_tls) else { return Ok(None) };
    let now = web.app.now();
    let mut db = web.app.db().await?;
    let Some(session) = web_sessions::find(&mut db, secret.hash(), now, now - IDLE).await? else { return Ok(None) };
    if !headers.contains_key(BY_ITSELF) && now - session.seen_at >= SEEN {
        web_sessions::touch(&mut db, secret.hash(), now).await?;
    }
    drop(db);
    let caller = Caller::of(&web.app, session.token).await?;
    Ok(caller.map(|caller| Visitor::new(web.clone(), caller, secret.csrf())))
}

/// Begins a session; answers its visitor and the cookie.
pub(super) async fn begin(web: &Web, caller: Caller, is_tls: bool) -> Result<(Visitor, HeaderValue), Failure> {
    let secret = Secret(web.app.world.bytes());
    let now = web.app.now();
    let mut db = web.app.db().await?;
    web_sessions::delete_over(&mut db, now).await?;
    web_sessions::create(&mut db, secret.hash(), caller.token_hash(), now, now + LIFE).await?;
    let cookie = secret.cookie(is_tls);
    Ok((Visitor::new(web.clone(), caller, secret.csrf()), cookie))
}

/// Ends the session that a request's cookie stands for.
pub(super) async fn end(web: &Web, headers: &HeaderMap, is_tls: bool) -> Result<(), Failure> {
    if let Some(secret) = Secret::of(headers, is_tls) {
        web_sessions::delete(&mut *web.app.db().await?, secret.hash()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_of_another_name_or_form_is_no_secret() {
        let secret = Secret([7; 32]);
        for is_tls in [false, true] {
            let set = secret.cookie(is_tls);
            let text = set.to_str().expect("ASCII");
            let pair = text.split(';').next().expect("a pair");
            let headers = |value: String| HeaderMap::from_iter([(header::COOKIE, value.parse().expect("a value"))]);
            let found = Secret::of(&headers(format!("a=b; {pair}")), is_tls).expect("it is there");
            assert_eq!(found.0, secret.0);
            assert!(Secret::of(&headers(pair.to_owned()), !is_tls).is_none(), "{pair}");
            assert!(Secret::of(&headers(format!("{pair}A")), is_tls).is_none());
            assert!(!text.contains(&secret.csrf()) && text.contains("HttpOnly; SameSite=Strict"), "{text}");
            assert_eq!(text.starts_with("__Host-") && text.ends_with("; Secure"), is_tls, "{text}");
        }
    }
}
