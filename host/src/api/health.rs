//! `GET /healthz` and `/readyz`, for whoever restarts replicas and sends them requests.
//!
//! **Invariant:** a replica without its database is alive and not ready: restarting it would not help.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::App;
use super::error::Failure;
use super::openapi::Errors;
use super::types::Code;
use crate::store;

/// How a replica is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok`.
    status: &'static str,
}

const OK: Json<Health> = Json(Health { status: "ok" });

/// Whether this replica is alive.
#[utoipa::path(get, path = "/healthz", operation_id = "healthz", tag = "health", security(()),
    responses((status = 200, description = "It is", body = Health)))]
pub(super) async fn healthz() -> Json<Health> {
    OK
}

/// Whether this replica can serve: it reaches its database, whose schema is this program's or newer, and does not stop.
#[utoipa::path(get, path = "/readyz", operation_id = "readyz", tag = "health", security(()),
    responses((status = 200, description = "It can", body = Health), Errors))]
pub(super) async fn readyz(State(app): State<App>) -> Result<Json<Health>, Failure> {
    if app.stop.is_cancelled() {
        return Err(Failure::new(Code::Unavailable, "this replica is stopping"));
    }
    let mut db = app.db().await?;
    store::ping(&mut db).await?;
    if store::lacks_migrations(&mut db).await? {
        let words = "the database's schema is older than this program: it was restored from a copy, or is another one. \
                     Restart this replica, which brings it up to date";
        return Err(Failure::new(Code::Unavailable, words));
    }
    Ok(OK)
}
