//! `/`: where one begins. The commands are what most come for.
//!
//! **Invariant:** it shows nothing itself, so that there is one page for each thing.

use axum::response::Redirect;

/// On to the commands.
pub(super) async fn show() -> Redirect {
    Redirect::to("/commands")
}
