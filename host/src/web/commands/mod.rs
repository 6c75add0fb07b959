//! The pages of commands: the list, one command, and the form that runs another.
//!
//! **Invariant:** what is shown of a command is the API's document; what is offered to do with it is what the visitor may.

mod bundle;
mod fields;
pub(crate) mod list;
mod output;
pub(crate) mod result;
mod run;
mod show;

use axum::Router;
use axum::routing::{get, post};

use super::query;

/// Their paths.
pub(super) fn routes() -> Router {
    Router::new()
        .route("/commands", get(list::show))
        .route("/commands/run", get(run::ask).post(run::send))
        .route("/commands/{node}/{command}", get(show::show))
        .route("/commands/{node}/{command}/cancel", post(show::cancel))
        .route("/commands/{node}/{command}/output", get(output::follow))
        .route("/commands/{node}/{command}/bundle", get(bundle::download))
        .route("/commands/{node}/{command}/file", get(bundle::read))
}

/// Where a command is shown.
pub(crate) fn path(node: &str, command: &str) -> String {
    format!("/commands/{}/{}", query::encoded(node), query::encoded(command))
}
