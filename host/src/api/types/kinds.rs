//! `kinds.activate`.
//!
//! **Invariant:** as in [`super`].

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `kinds.activate`: the component by its digest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ActivateKind {
    /// The kind's name, if it is to be checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// SHA-256 of its component, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Activate it although it may do more than the one in service, or is watched less.
    #[serde(default)]
    pub accept_wider: bool,
    /// Where a quorum is configured and it may do more: the approved batch that holds its activation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<String>,
}
