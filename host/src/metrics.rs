//! What a replica counts, and what it looks at when its page of metrics is asked for. `docs/metrics.md` lists all of it.
//!
//! **Invariant:** a label's values are a closed set or names that were registered: never an id, never what a node or a caller
//! chose.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use bc_proto::manifest::Lane;
use bc_proto::rules::accept::Refusal;
use bc_proto::rules::lane::LIMITS;
use bc_telemetry::page::Look;
use metrics::{counter, gauge, histogram};
use sqlx::PgPool;
use strum::IntoEnumIterator as _;
use time::OffsetDateTime;

use crate::gateway::Gateway;
use crate::queue::attest::Reason;
use crate::store::backlog::{self, Backlog};
use crate::store::{Error, code};
use crate::world::World;

/// How long a look at the database may take; its gauges keep their values then.
const PATIENCE: Duration = Duration::from_secs(5);

/// The refusals of nodes that are told apart; a node may say anything.
const REFUSALS: [Refusal; 9] = [
    Refusal::Unsupported,
    Refusal::KindUnavailable,
    Refusal::StaleGeneration,
    Refusal::Expired,
    Refusal::BadSignature,
    Refusal::BatchUnapproved,
    Refusal::UnbatchedLimit,
    Refusal::NoSpace,
    Refusal::Busy,
];

/// What a node says beyond these.
const OTHER: &str = "other";

/// A command has ended, by whatever decided that.
pub(crate) fn settled(kind: &str, state: &str, reason: &str) {
    counter!("better_compute_settled_total", "kind" => kind.to_owned(), "state" => state.to_owned()).increment(1);
    if state == "rejected" {
        counter!("better_compute_rejected_total", "reason" => refusal(reason)).increment(1);
    }
}

fn refusal(reason: &str) -> &'static str {
    REFUSALS.iter().map(|it| it.code()).find(|code| *code == reason).unwrap_or(OTHER)
}

/// A node has said that it has a command, so long after it was sent.
pub(crate) fn acked(lane: Lane, took: Duration) {
    histogram!("better_compute_dispatch_to_ack_seconds", "lane" => code::lane(lane)).record(took);
}

/// The end of a command was written, so long after the node had said that it has it.
pub(crate) fn finished(lane: Lane, took: Duration) {
    histogram!("better_compute_ack_to_settled_seconds", "lane" => code::lane(lane)).record(took);
}

/// Nodes told the ends of commands that were over.
pub(crate) fn absorbed(reports: usize) {
    counter!("better_compute_duplicate_reports_total").increment(reports as u64);
}

/// A result is not believed.
pub(crate) fn refused(reason: Reason) {
    counter!("better_compute_refused_results_total", "reason" => reason.to_string()).increment(1);
}

/// A node has a session.
pub(crate) fn session_opened() {
    counter!("better_compute_sessions_opened_total").increment(1);
}

/// A node got none.
pub(crate) fn not_let_in(code: tonic::Code) {
    counter!("better_compute_sessions_refused_total", "code" => format!("{code:?}")).increment(1);
}

/// Whether this replica hears the others, or looks by itself now and then.
pub(crate) fn hears(hears: bool) {
    gauge!("better_compute_bus_listening").set(f64::from(u8::from(hears)));
}

/// A sweep has ended.
pub(crate) fn swept(ended: usize, now: OffsetDateTime) {
    counter!("better_compute_swept_total").increment(ended as u64);
    gauge!("better_compute_last_sweep_timestamp_seconds").set(now.unix_timestamp() as f64);
}

/// A batch's quorum was met, so long after it was proposed.
pub(crate) fn approved(waited: time::Duration) {
    let waited = Duration::try_from(waited).unwrap_or(Duration::ZERO);
    histogram!("better_compute_approval_wait_seconds").record(waited);
}

/// A call of the API was answered.
pub(crate) fn answered(method: Option<&str>, status: StatusCode, took: Duration) {
    let method = method.unwrap_or("unknown").trim_start_matches("/v1/").to_owned();
    let code = status.as_str().to_owned();
    histogram!("better_compute_api_request_seconds", "method" => method, "code" => code).record(took);
}

/// What is looked at.
#[derive(Debug, Clone)]
pub(crate) struct States {
    pub(crate) pool: PgPool,
    pub(crate) gateway: Gateway,
    pub(crate) world: World,
}

impl States {
    /// Looks at all of it.
    pub(crate) fn look(self) -> Look {
        // So that each is on the page before it first happens: Prometheus takes no notice of a counter that begins at 1.
        absorbed(0);
        for reason in Reason::iter() {
            counter!("better_compute_refused_results_total", "reason" => reason.to_string()).increment(0);
        }
        for reason in REFUSALS.iter().map(|it| it.code()).chain([OTHER]) {
            counter!("better_compute_rejected_total", "reason" => reason).increment(0);
        }
        counter!("better_compute_sessions_opened_total").increment(0);
        Arc::new(move || {
            let states = self.clone();
            Box::pin(async move { states.look_once().await })
        })
    }

    async fn look_once(&self) {
        let outstanding = self.gateway.outstanding();
        let sessions = self.gateway.sessions();
        gauge!("better_compute_sessions").set(sessions as f64);
        for lane in Lane::ALL {
            let name = code::lane(lane);
            gauge!("better_compute_credits_in_use", "lane" => name).set(f64::from(outstanding.get(lane)));
            let all = sessions as f64 * f64::from(LIMITS.get(lane));
            gauge!("better_compute_credits", "lane" => name).set(all);
        }
        let (size, idle) = (self.pool.size(), self.pool.num_idle());
        gauge!("better_compute_pool_connections", "state" => "idle").set(idle as f64);
        gauge!("better_compute_pool_connections", "state" => "used").set(f64::from(size) - idle as f64);
        gauge!("better_compute_pool_connections_max").set(f64::from(self.pool.options().get_max_connections()));
        let read = tokio::time::timeout(PATIENCE, self.read());
        let is_read = match read.await {
            Ok(Ok(backlog)) => {
                show(&backlog);
                true
            }
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "what waits cannot be measured");
                false
            }
            Err(_) => {
                tracing::warn!(patience_s = PATIENCE.as_secs(), "what waits cannot be measured in time");
                false
            }
        };
        gauge!("better_compute_database_up").set(f64::from(u8::from(is_read)));
    }

    async fn read(&self) -> Result<Backlog, Error> {
        let mut db = self.pool.acquire().await?;
        backlog::read(&mut db, self.world.now()).await
    }
}

fn show(backlog: &Backlog) {
    for lane in Lane::ALL {
        let name = code::lane(lane);
        let pending = backlog.pending.iter().find(|it| it.lane == name);
        gauge!("better_compute_pending", "lane" => name).set(pending.map_or(0.0, |it| it.commands as f64));
        gauge!("better_compute_oldest_pending_seconds", "lane" => name).set(pending.map_or(0.0, |it| it.oldest_s));
        let in_flight = backlog.in_flight.iter().find(|it| it.lane == name);
        gauge!("better_compute_in_flight", "lane" => name).set(in_flight.map_or(0.0, |it| it.commands as f64));
    }
    gauge!("better_compute_sweep_lag_seconds").set(backlog.sweep_lag_s);
    gauge!("better_compute_batches_waiting").set(backlog.batches as f64);
    gauge!("better_compute_oldest_batch_waiting_seconds").set(backlog.oldest_batch_s);
    gauge!("better_compute_outbox_held_back_seconds").set(backlog.outbox_held_back_s);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_says_of_a_rejection_makes_no_label() {
        assert_eq!(refusal("NO_SPACE"), "NO_SPACE");
        for said in ["", "no_space", "NO_SPACE\n", "anything that a node\u{0}says"] {
            assert_eq!(refusal(said), OTHER);
        }
    }
}
