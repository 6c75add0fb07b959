//! Documents of reservations.
//!
//! **Invariant:** a reservation that is shown as active comes with what the node signed.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

/// `reservations.create`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateReservation {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// The UUID of a GPU, or of a MIG instance.
    pub gpu: String,
    /// A share of it, where it is shared by time; absent for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// Scoped to tenant, caller and node; 1–200 characters.
    pub idempotency_key: String,
}

/// `reservations.get` and `reservations.release`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReservationRef {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// `alloc_…`
    pub reservation_id: String,
}

/// `reservations.list`: newest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListReservations {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// Only those that are `requested`, `active` or `released`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// At most as many, 1–200; 100 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `nextCursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A GPU that is reserved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reservation {
    /// `alloc_…`
    pub id: String,
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// The UUID of the GPU, or of the MIG instance.
    pub gpu: String,
    /// A share of it; absent for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// `requested`, `active` or `released`.
    pub state: String,
    /// The generation of the node's spec that asks for it.
    pub generation: u64,
    /// What the node signed, exactly as it came: canonical JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// The node's signature, 128 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_sig: Option<String>,
    /// When it was asked for.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// By whom: an identity, or a module.
    pub created_by: String,
    /// Since when the node holds it.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub active_at: Option<OffsetDateTime>,
    /// When it was given back.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub released_at: Option<OffsetDateTime>,
}
