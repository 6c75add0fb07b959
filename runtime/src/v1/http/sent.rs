//! Sending behind the gate: with the credentials that the guest named, and an answer without them.
//!
//! **Invariant:** an answer that shows the credentials, in whatever form [`Known`] finds, does not reach the guest with them.

use std::sync::Arc;

use super::message::{Body, Credentials, Request, Response};
use crate::capability::{Answer, Error, Http, Secrets};
use crate::redact::Known;

pub(super) async fn perform(
    http: Option<Arc<dyn Http>>,
    secrets: Option<Arc<dyn Secrets>>,
    mut request: Request,
    credentials: Option<String>,
) -> Answer<Response> {
    let http = http.ok_or_else(|| Error::new("not-offered", "this node has nothing behind `http`"))?;
    let Some(secret_ref) = credentials else { return http.send(request).await };
    let secrets = secrets.ok_or_else(|| Error::new("not-offered", "this node has nothing behind `secrets`"))?;
    let asked = secret_ref.clone();
    let value = tokio::task::spawn_blocking(move || secrets.get(&asked).map(zeroize::Zeroizing::new)).await;
    let value = value.map_err(|panic| Error::new("host-panicked", panic.to_string()))??;
    let mut known = Known::default();
    known.add(&secret_ref, &value);
    if let Some((_, password)) = value.split_once(':') {
        known.add(&secret_ref, password);
    }
    request.credentials = Some(Credentials::from_secret(&value));
    let answer = http.send(request).await;
    answer
        .map(|response| without(response, &known))
        .map_err(|error| Error { message: known.text(&error.message).into_owned(), ..error })
}

fn without(response: Response, known: &Known) -> Response {
    let clean = |text: String| known.text(&text).into_owned();
    Response {
        headers: response.headers.into_iter().map(|(name, value)| (clean(name), clean(value))).collect(),
        body: match response.body {
            Body::Text(text) => Body::Text(clean(text)),
            // Bytes that are no text are taken as they look: what shows the credentials is replaced whole.
            Body::Base64(text) => Body::Base64(clean(text)),
        },
        ..response
    }
}
