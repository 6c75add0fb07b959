//! The page that Prometheus reads: `GET /metrics`, on a listener of its own.
//!
//! Whatever the process counts goes through the facade `metrics`. What is a state and not a count is looked at when the page is
//! asked for, and at most once in [`FRESH`], however many ask.
//!
//! **Invariant:** without a listener no recorder is installed, and every counter in the process is one branch that is not taken.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// For how long a look at states is good enough. Prometheus asks every 15 s and more seldom.
const FRESH: Duration = Duration::from_secs(1);

/// How often what histograms gathered is put into their buckets, so that it does not grow while nobody asks.
const UPKEEP: Duration = Duration::from_secs(5);

/// Upper ends of histograms' buckets, seconds: from a write to a fast disk to a burn-in of hours.
const BUCKETS: [f64; 18] = [
    0.000_25, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 900.0,
    7_200.0,
];

/// The text format that Prometheus reads.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Sets the gauges that are looked at.
pub type Look = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
#[error("metrics cannot be gathered: {0}")]
pub struct NotInstalled(#[from] BuildError);

/// What a process has counted; clones are handles to one.
#[derive(Debug, Clone)]
pub struct Recorder(PrometheusHandle);

impl Recorder {
    /// Gathers from now on what the process counts. Once a process.
    pub fn install() -> Result<Self, NotInstalled> {
        let builder = PrometheusBuilder::new();
        let builder = builder.set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)?;
        Ok(Self(builder.install_recorder()?))
    }

    /// Serves the page until `stop`.
    pub fn serve(self, listener: TcpListener, look: Look, stop: CancellationToken) {
        let handle = self.0.clone();
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            let mut ticks = tokio::time::interval(UPKEEP);
            loop {
                ticks.tick().await;
                handle.run_upkeep();
            }
        }));
        let page = Page { recorder: self, look, looked: Arc::default() };
        let router = Router::new().route("/metrics", get(show)).with_state(page);
        tokio::spawn(async move {
            let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
            if let Err(error) = served {
                tracing::error!(%error, "metrics are not served any more");
            }
        });
    }
}

#[derive(Clone)]
struct Page {
    recorder: Recorder,
    look: Look,
    /// When somebody last looked. Held while somebody does, so that one look serves all who ask meanwhile.
    looked: Arc<Mutex<Option<Instant>>>,
}

async fn show(State(page): State<Page>) -> impl IntoResponse {
    {
        let mut looked = page.looked.lock().await;
        if looked.is_none_or(|at| at.elapsed() >= FRESH) {
            (page.look)().await;
            *looked = Some(Instant::now());
        }
    }
    ([(CONTENT_TYPE, TEXT)], page.recorder.0.render())
}
