//! Queries of pages, read and written.
//!
//! **Invariant:** a value that goes into a path or a query is encoded, so that it stays one.

use crate::web::form::Form;
use axum::http::Uri;

/// What stands in an address behind `?`.
pub(crate) fn read(uri: &Uri) -> Form {
    Form::parse(uri.query().unwrap_or_default().as_bytes())
}

/// A path with those fields that are not empty.
pub(crate) fn path<'a>(path: &str, fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
        query.append_pair(name, value);
    }
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// A piece of a path. Ids need nothing done to them, so this is for what is none.
pub(crate) fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}
