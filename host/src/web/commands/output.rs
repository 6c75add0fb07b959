//! What a command's programs write, on its page: what there is when the page is made, and what follows.
//!
//! **Invariant:** the page says how far it shows each stream, to the byte; whoever goes on from there shows each byte once.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::Path;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::api::error::Failure;
use crate::api::types::{CommandOutput, OutputPiece, OutputPlace, ReadOutput};
use crate::web::page::Fault;
use crate::web::query;
use crate::web::visitor::Visitor;

/// How long a request for more waits, seconds: less than the API's own limit, and than proxies have patience.
const WAIT: u32 = 20;

/// The most that a page holds at first, in answers of about 256 KiB.
const FIRST: usize = 8;

/// What is shown of it.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Pieces of text, with `stdout` or `stderr`.
    pub(super) pieces: Vec<(String, String)>,
    /// What follows them.
    pub(super) next: OutputPlace,
    /// Whether nothing does.
    pub(super) is_over: bool,
}

/// What there is now.
pub(super) async fn first(visitor: &Visitor, node: &str, command: &str) -> Result<Shown, Failure> {
    let mut shown = Shown::default();
    let mut text = Text::default();
    for _ in 0..FIRST {
        let said = read(visitor, node, command, shown.next, 0).await?;
        shown.next = said.next;
        shown.is_over = said.is_over;
        let is_last = said.pieces.is_empty() || said.is_over;
        for piece in &said.pieces {
            let words = text.take(piece);
            shown.pieces.push((piece.stream.clone(), words));
        }
        if is_last {
            break;
        }
    }
    // Characters that are not whole yet are left to whoever goes on.
    if shown.is_over {
        shown.pieces.extend(text.rest());
    } else {
        shown.next.stdout -= text.held(shown.next.attempt, "stdout");
        shown.next.stderr -= text.held(shown.next.attempt, "stderr");
    }
    Ok(shown)
}

async fn read(
    visitor: &Visitor,
    node: &str,
    command: &str,
    after: OutputPlace,
    wait: u32,
) -> Result<CommandOutput, Failure> {
    let ask = ReadOutput {
        tenant_id: visitor.tenant(),
        node_id: node.to_owned(),
        command_id: command.to_owned(),
        after,
        wait_seconds: Some(wait),
    };
    visitor.call("commands.output", &ask).await
}

/// `GET /commands/{node}/{command}/output?attempt=…&stdout=…&stderr=…`: what follows, when there is something.
pub(super) async fn follow(
    visitor: Visitor,
    Path((node, command)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, Fault> {
    let asked = query::read(&uri);
    let number = |name: &str| match asked.text(name) {
        None => Ok(0),
        Some(text) => text.parse().map_err(|_| Failure::field(name, "must be a number")),
    };
    let after = OutputPlace { attempt: number("attempt")?, stdout: number("stdout")?, stderr: number("stderr")? };
    Ok(Json(read(&visitor, &node, &command, after, WAIT).await?).into_response())
}

/// Bytes of several streams as text; a character that comes in two pieces is kept until it is whole.
#[derive(Debug, Default)]
struct Text {
    held: BTreeMap<(u64, String), Vec<u8>>,
}

impl Text {
    fn take(&mut self, piece: &OutputPiece) -> String {
        let held = self.held.entry((piece.attempt, piece.stream.clone())).or_default();
        held.extend(BASE64_STANDARD.decode(&piece.bytes).unwrap_or_default());
        let whole = whole(held);
        let text = String::from_utf8_lossy(&held[..whole]).into_owned();
        held.drain(..whole);
        text
    }

    fn held(&self, attempt: u64, stream: &str) -> u64 {
        self.held.get(&(attempt, stream.to_owned())).map_or(0, |bytes| bytes.len() as u64)
    }

    fn rest(self) -> impl Iterator<Item = (String, String)> {
        let held = self.held.into_iter().filter(|(_, bytes)| !bytes.is_empty());
        held.map(|((_, stream), bytes)| (stream, String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// How many of the bytes are whole characters; what can never be one counts as such.
fn whole(bytes: &[u8]) -> usize {
    for back in 1..=3.min(bytes.len()) {
        let at = bytes.len() - back;
        let length = match bytes[at] {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => 1,
        };
        return if length > back { at } else { bytes.len() };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_in_two_pieces_is_shown_once_and_whole() {
        let bytes = "né € 🦀".as_bytes();
        for cut in 0..=bytes.len() {
            let mut text = Text::default();
            let piece = |bytes: &[u8]| OutputPiece {
                attempt: 1,
                stream: "stdout".into(),
                offset: 0,
                bytes: BASE64_STANDARD.encode(bytes),
            };
            let first = text.take(&piece(&bytes[..cut]));
            assert!(!first.contains('\u{fffd}') && text.held(1, "stdout") < 4, "{cut}: {first}");
            assert_eq!(first + &text.take(&piece(&bytes[cut..])), "né € 🦀");
        }
        assert_eq!(whole(b"\xff\xff"), 2, "what is no text is not waited for");
    }
}
