//! Documents of webhooks.
//!
//! **Invariant:** a secret stands in the answer of the call that made it, and in no other document.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

/// `webhooks.create`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateWebhook {
    /// `tenant_…`
    pub tenant_id: String,
    /// Where events are sent: `https://…`, at most 2000 bytes.
    pub url: String,
    /// Which events, 1 to 50: topics, beginnings of topics that end in `.*`, or `*` for all.
    pub topics: Vec<String>,
    /// What it is for, for people; at most 200 characters.
    #[serde(default)]
    pub description: String,
}

/// `webhooks.list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListWebhooks {
    /// `tenant_…`
    pub tenant_id: String,
}

/// Names a webhook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookRef {
    /// `tenant_…`
    pub tenant_id: String,
    /// `webhook_…`
    pub webhook_id: String,
}

/// `webhooks.update`: what is absent stays as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateWebhook {
    /// `tenant_…`
    pub tenant_id: String,
    /// `webhook_…`
    pub webhook_id: String,
    /// Where events are sent from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Which events from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topics: Option<Vec<String>>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether anything is sent. One that is enabled again gets what happens from then on, and what was pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// `webhooks.rotateSecret`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RotateWebhookSecret {
    /// `tenant_…`
    pub tenant_id: String,
    /// `webhook_…`
    pub webhook_id: String,
    /// How long the secret before signs as well: 0 to 604800 seconds, a day where it is absent. With 0 it counts no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_seconds: Option<u64>,
}

/// A webhook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// `webhook_…`
    pub id: String,
    /// Where events are sent.
    pub url: String,
    /// Which events.
    pub topics: Vec<String>,
    /// What it is for.
    pub description: String,
    /// `enabled` or `disabled`.
    pub state: String,
    /// Why it is disabled: `asked`, `gone` (it answered 410) or `failing` (for five days); empty while enabled.
    pub reason: String,
    /// Since when no attempt has succeeded; absent where the last one did.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub failing_since: Option<OffsetDateTime>,
    /// Until when the secret before signs as well; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub previous_secret_until: Option<OffsetDateTime>,
    /// Who made it.
    pub created_by: String,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was changed last.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

/// A webhook that was made, with its secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewWebhook {
    /// The webhook.
    pub webhook: Webhook,
    /// `whsec_…`; it is shown this once.
    pub secret: String,
}

/// A webhook's new secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RotatedWebhookSecret {
    /// `whsec_…`; it is shown this once.
    pub secret: String,
    /// Until when the secret before signs as well; absent where it counts no more.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub previous_secret_until: Option<OffsetDateTime>,
}

/// `webhooks.deliveries`: newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListDeliveries {
    /// `tenant_…`
    pub tenant_id: String,
    /// `webhook_…`
    pub webhook_id: String,
    /// Only those that are `pending`, `delivered` or `dead`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The most items of a page: 1 to 200, 100 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `nextCursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// An event on its way to a webhook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// `delivery_…`, which is the header `webhook-id` of each attempt.
    pub id: String,
    /// The event's topic; `webhook.test` for a test.
    pub topic: String,
    /// `pending`, `delivered` or `dead`.
    pub state: String,
    /// How many attempts were begun since it was asked for.
    pub attempts: u32,
    /// When it is to be sent next, where it is pending.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_attempt_at: Option<OffsetDateTime>,
    /// When it was sent last.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_attempt_at: Option<OffsetDateTime>,
    /// The HTTP status of the last answer; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_status: Option<u16>,
    /// The first KiB of the last answer, or why there was none.
    pub last_answer: String,
    /// When the event was found.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was delivered or given up.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<OffsetDateTime>,
}

/// `webhooks.redeliver`: one of `deliveryId` and `since`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Redeliver {
    /// `tenant_…`
    pub tenant_id: String,
    /// `webhook_…`
    pub webhook_id: String,
    /// `delivery_…`: this one, whatever became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<String>,
    /// All that were given up and whose events were found since then.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<OffsetDateTime>,
}

/// How many are sent again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Redelivered {
    /// How many.
    pub count: u64,
}
