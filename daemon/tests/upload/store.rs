//! A store that answers as a test says, and otherwise as S3 does: it knows no chunked bodies, and forbids URLs that are over by its own
//! clock.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bc_proto::wire::{PresignedUrl, Upload};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How far a store's clock may be from a URL's beginning.
const SKEW_MS: u64 = 15 * 60_000;

/// What happens to one request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// The whole body is read, and this is the answer.
    Status(u16, &'static str),
    /// The connection is cut after so many bytes of the body.
    Cut(usize),
    /// The body is read, and nothing is said ever.
    Silence,
    /// The body is not even read.
    Deaf,
    /// The answer leads elsewhere.
    Redirect(SocketAddr),
}

/// A request as it was seen.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) head: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    pub(crate) status: u16,
}

#[derive(Default)]
struct State {
    /// For the next requests.
    faults: Vec<Fault>,
    now_ms: u64,
    seen: Vec<Seen>,
}

pub(crate) struct Store {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    requests: watch::Receiver<usize>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// One whose clock says so.
    pub(crate) async fn start(now_ms: u64, faults: &[Fault]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let faults = faults.iter().rev().copied().collect();
        let state = Arc::new(Mutex::new(State { faults, now_ms, seen: Vec::new() }));
        let (came, requests) = watch::channel(0);
        let serving = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, came) = (Arc::clone(&serving), came.clone());
                tokio::spawn(async move { serve(stream, &state, &came).await });
            }
        });
        Self { address, state, requests }
    }

    pub(crate) fn object(&self) -> String {
        format!("http://{}/bucket/support-bundles/node/key.bundle", self.address)
    }

    /// A destination whose URL is good from `from_ms` to `until_ms`.
    pub(crate) fn upload(&self, from_ms: u64, until_ms: u64) -> Upload {
        let object = self.object();
        let url = PresignedUrl::new(format!("{object}?from={from_ms}&until={until_ms}&X-Amz-Signature=topsecret"));
        Upload { object, max_bytes: 1 << 30, url, url_expires_ms: until_ms }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        lock(&self.state).seen.clone()
    }

    /// Returns when so many requests have come, whatever became of them.
    pub(crate) async fn came(&self, count: usize) {
        self.requests.clone().wait_for(|seen| *seen >= count).await.expect("it serves");
    }
}

async fn serve(mut stream: TcpStream, state: &Mutex<State>, came: &watch::Sender<usize>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let fault = lock(state).faults.pop();
    came.send_modify(|count| *count += 1);
    let header = |name: &str| {
        let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let length: Option<usize> = header("content-length").and_then(|length| length.parse().ok());
    let most = match fault {
        Some(Fault::Cut(most)) => most,
        Some(Fault::Deaf) => std::future::pending().await,
        _ => length.unwrap_or(0),
    };
    let (mut hash, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; 64 * 1024]);
    while bytes < most.min(length.unwrap_or(0)) {
        let wanted = piece.len().min(most - bytes);
        match stream.read(&mut piece[..wanted]).await {
            Ok(count) if count > 0 => {
                hash.update(&piece[..count]);
                bytes += count;
            }
            _ => return,
        }
    }
    let query = |name: &str| -> u64 {
        let (_, rest) = head.split_once(&format!("{name}=")).expect("the URL has it");
        rest.split(|letter: char| !letter.is_ascii_digit()).next().and_then(|text| text.parse().ok()).expect("a time")
    };
    let now_ms = lock(state).now_ms;
    let (status, code) = match fault {
        Some(Fault::Cut(_)) => return,
        Some(Fault::Silence) => std::future::pending().await,
        Some(Fault::Redirect(_)) => (307, "TemporaryRedirect"),
        Some(Fault::Status(status, code)) => (status, code),
        _ if header("transfer-encoding").is_some() => (501, "NotImplemented"),
        _ if length.is_none() => (411, "MissingContentLength"),
        _ if !head.starts_with("PUT ") => (405, "MethodNotAllowed"),
        _ if now_ms >= query("until") => (403, "AccessDenied"),
        _ if now_ms + SKEW_MS < query("from") => (403, "RequestTimeTooSkewed"),
        _ => (200, ""),
    };
    let seen = Seen { head, bytes: bytes as u64, sha256: hex::encode(hash.finalize()), status };
    lock(state).seen.push(seen);
    let body = if code.is_empty() { String::new() } else { format!("<Error><Code>{code}</Code></Error>") };
    let location = match fault {
        Some(Fault::Redirect(to)) => format!("Location: http://{to}/elsewhere\r\n"),
        _ => String::new(),
    };
    let answer = format!("HTTP/1.1 {status} X\r\n{location}Content-Length: {}\r\n\r\n{body}", body.len());
    let _ = stream.write_all(answer.as_bytes()).await;
}
