//! One PUT of a spooled file.
//!
//! **Invariant:** the request says its length beforehand, memory is bounded by a few pieces, and no error shows the URL's query.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bc_proto::rules::upload::{Attempt, judge};
use bc_proto::wire::PresignedUrl;
use futures_util::stream;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, Client, Response};

use crate::gateway::chain;

/// What is read of the file at a time.
const PIECE: u64 = 256 * 1024;
/// What is read of a store's answer: errors have a few hundred bytes.
const ANSWER: usize = 16 * 1024;

/// How one PUT ended, and in words why.
pub(super) struct Ended {
    pub(super) attempt: Attempt,
    pub(super) why: String,
}

/// A file to be sent.
pub(super) struct Sent<'a> {
    pub(super) file: File,
    pub(super) bytes: u64,
    pub(super) content_type: &'a str,
}

/// Sends it. Nothing may stand still for longer than `stall`.
pub(super) async fn put(client: &Client, url: &PresignedUrl, sent: Sent<'_>, stall: Duration) -> Ended {
    let went = Arc::new(AtomicU64::new(0));
    let request = client
        .put(url.expose())
        .header(CONTENT_LENGTH, sent.bytes)
        .header(CONTENT_TYPE, sent.content_type)
        .body(body(sent.file, sent.bytes, Arc::clone(&went)));
    let answered = tokio::select! {
        answered = request.send() => answered,
        () = stands_still(&went, stall) => {
            let why = format!("nothing went on for {} s", stall.as_secs());
            return Ended { attempt: Attempt::Failed, why };
        }
    };
    match answered {
        Ok(response) => answer(response, stall).await,
        // Without its URL, which holds the right to write.
        Err(error) => Ended { attempt: Attempt::Failed, why: chain(&error.without_url()) },
    }
}

fn body(file: File, bytes: u64, went: Arc<AtomicU64>) -> Body {
    let file = Arc::new(file);
    Body::wrap_stream(stream::try_unfold(0, move |at| {
        let (file, went) = (Arc::clone(&file), Arc::clone(&went));
        async move {
            let piece = PIECE.min(bytes - at);
            if piece == 0 {
                return Ok(None);
            }
            let read = tokio::task::spawn_blocking(move || {
                let mut bytes = vec![0; usize::try_from(piece).expect("pieces are small")];
                file.read_exact_at(&mut bytes, at).map(|()| bytes)
            });
            let bytes = read.await.map_err(std::io::Error::other)??;
            went.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Some((bytes, at + piece)))
        }
    }))
}

/// Returns when nothing went for that long.
async fn stands_still(went: &AtomicU64, stall: Duration) {
    let mut seen = went.load(Ordering::Relaxed);
    loop {
        tokio::time::sleep(stall).await;
        let now = went.load(Ordering::Relaxed);
        if now == seen {
            return;
        }
        seen = now;
    }
}

async fn answer(mut response: Response, patience: Duration) -> Ended {
    let status = response.status().as_u16();
    let mut text = Vec::new();
    let read = async {
        while let Ok(Some(piece)) = response.chunk().await {
            text.extend_from_slice(&piece[..piece.len().min(ANSWER - text.len())]);
            if text.len() == ANSWER {
                return;
            }
        }
    };
    // What is missing of it costs words and not the answer.
    let _ = tokio::time::timeout(patience, read).await;
    let text = String::from_utf8_lossy(&text);
    let code = code(&text);
    let why = match code {
        Some(code) => format!("HTTP {status}, {code}"),
        None => format!("HTTP {status}"),
    };
    Ended { attempt: judge(status, code), why }
}

/// The code of an S3 error document. Nothing else of the answer is repeated: it may quote the request.
fn code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_name = (1..=64).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_name.then_some(code)
}

#[cfg(test)]
mod tests {
    use super::code;

    #[test]
    fn only_a_code_is_taken_from_an_answer() {
        assert_eq!(code("<?xml?><Error><Code>AccessDenied</Code><Message>x</Message></Error>"), Some("AccessDenied"));
        for text in ["", "<Code>", "<Code></Code>", "<Code>a?X-Amz-Signature=1</Code>", "</Code><Code>"] {
            assert_eq!(code(text), None, "{text}");
        }
    }
}
