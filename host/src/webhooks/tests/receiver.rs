//! A real HTTP server that receives deliveries.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::stream;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

use crate::tls::{Https, TlsAcceptor};

/// How long a test waits for what must come: only one that fails waits.
const PATIENCE: Duration = Duration::from_mins(1);

/// What it answers.
#[derive(Debug, Clone)]
pub(super) enum Behaviour {
    /// This status, with a short body.
    Status(u16),
    /// 503, and it asks for so many seconds.
    Busy(u64),
    /// A redirect to elsewhere.
    Redirect(String),
    /// 200, and a body that never ends.
    Endless,
    /// Nothing, until it is let go.
    Hang,
}

/// What came.
#[derive(Debug, Clone)]
pub(super) struct Got {
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl Got {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub(super) fn id(&self) -> String {
        self.header("webhook-id").to_owned()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    /// Whether one of its signatures is by this secret, as another implementation computes it.
    pub(super) fn is_signed_by(&self, secret: &str) -> bool {
        let webhook = standardwebhooks::Webhook::new(secret).expect("a secret");
        let at = self.header("webhook-timestamp").parse().expect("seconds");
        let expected = webhook.sign(&self.id(), at, self.body.as_bytes()).expect("text");
        self.header("webhook-signature").split(' ').any(|it| it == expected)
    }
}

struct Shared {
    behaviour: Mutex<Behaviour>,
    got: watch::Sender<Vec<Got>>,
    gate: Semaphore,
}

/// The server; it ends with this.
pub(super) struct Receiver {
    pub(super) url: String,
    shared: Arc<Shared>,
    task: AbortHandle,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiver {
    pub(super) async fn new(behaviour: Behaviour) -> Self {
        Self::over(behaviour, None).await
    }

    pub(super) async fn over(behaviour: Behaviour, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (got, _) = watch::channel(Vec::new());
        let shared = Arc::new(Shared { behaviour: Mutex::new(behaviour), got, gate: Semaphore::new(0) });
        let router = Router::new().fallback(receive).with_state(Arc::clone(&shared));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let task = tokio::spawn(async move {
            let served = match tls {
                None => axum::serve(listener, router).await,
                Some(acceptor) => axum::serve(Https::listen(listener, acceptor).expect("a listener"), router).await,
            };
            served.expect("it serves");
        });
        Self { url: format!("{scheme}://{address}/hook?key=in-the-url"), shared, task: task.abort_handle() }
    }

    pub(super) fn behave(&self, behaviour: Behaviour) {
        *self.shared.behaviour.lock().expect("nobody panicked") = behaviour;
    }

    /// Lets one go that hangs.
    pub(super) fn let_go(&self) {
        self.shared.gate.add_permits(1);
    }

    pub(super) fn got(&self) -> Vec<Got> {
        self.shared.got.borrow().clone()
    }

    /// What has come, once it is so much.
    pub(super) async fn wait(&self, count: usize) -> Vec<Got> {
        let mut got = self.shared.got.subscribe();
        let waited = tokio::time::timeout(PATIENCE, got.wait_for(|got| got.len() >= count)).await;
        waited.expect("it comes in time").expect("the server is there").clone()
    }
}

async fn receive(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let body = String::from_utf8(body.to_vec()).expect("text");
    shared.got.send_modify(|got| got.push(Got { headers, body }));
    let behaviour = shared.behaviour.lock().expect("nobody panicked").clone();
    let answer = |status: u16| Response::builder().status(status);
    match behaviour {
        Behaviour::Status(status) => answer(status).body(Body::from(format!("said {status}\0"))),
        Behaviour::Busy(seconds) => answer(503).header("retry-after", seconds).body(Body::empty()),
        Behaviour::Redirect(to) => answer(307).header("location", to).body(Body::empty()),
        Behaviour::Endless => {
            let chunk = || Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 4096]));
            answer(200).body(Body::from_stream(stream::repeat_with(chunk)))
        }
        Behaviour::Hang => {
            shared.gate.acquire().await.expect("it is open").forget();
            answer(200).body(Body::empty())
        }
    }
    .expect("an answer")
}
