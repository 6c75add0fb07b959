//! `webhooks.create`, `list`, `get`, `update`, `delete`, `rotateSecret`, `deliveries`, `redeliver` and `test`.
//!
//! **Invariant:** who makes a webhook or has it send elsewhere may read all that is sent. A secret leaves in the answer that made it.

use axum::Json;
use axum::extract::State;
use bc_proto::id::{DeliveryId, TenantId, WebhookId};
use bc_proto::rules::webhook::{MAX_TOPICS, MAX_URL_BYTES, is_pattern};
use serde_json::json;
use sqlx::{Connection as _, PgTransaction};
use time::Duration;

use super::App;
use super::auth::{Caller, EVENTS_READ, WEBHOOKS_READ, WEBHOOKS_WRITE};
use super::cursor;
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::types::{
    self, CreateWebhook, ListDeliveries, ListWebhooks, NewWebhook, Page, Redeliver, Redelivered, RotateWebhookSecret,
    RotatedWebhookSecret, UpdateWebhook, WebhookRef,
};
use crate::bus::Signal;
use crate::store::webhook_deliveries::{self as deliveries, Delivery, NewDelivery};
use crate::store::webhooks::{self, Change, State as Standing, Webhook};
use crate::webhooks::{Secret, Settings, judged, message};

/// The most webhooks of a tenant.
const MAX_WEBHOOKS: u64 = 50;

/// The longest that two secrets sign, seconds: a week. By default a day.
const OVERLAP: (u64, u64) = (7 * 24 * 3600, 24 * 3600);

/// The most deliveries in a page.
const MAX_PAGE: u32 = 200;

/// The topic of tests.
const TEST: &str = "webhook.test";

/// Have events sent to a URL.
///
/// It gets what happens from now on. The answer holds the secret that verifies deliveries; it is shown this once.
#[utoipa::path(post, path = "/v1/webhooks.create", operation_id = "webhooks.create", tag = "webhooks",
    request_body = CreateWebhook, responses((status = 200, description = "The webhook and its secret", body = NewWebhook), Errors))]
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<CreateWebhook>,
) -> Result<Json<NewWebhook>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    url(&mut rules, &ask.url, &app);
    topics(&mut rules, &ask.topics);
    rules.text("description", &ask.description, 0, 200);
    rules.check()?;
    caller.on_tenant(WEBHOOKS_WRITE, tenant)?;
    caller.on_tenant(EVENTS_READ, tenant)?;
    let settings = settings(&app)?;
    let (id, now) = (WebhookId::from_uuid(app.world.uuid()), app.now());
    let secret = Secret::new(app.world.bytes());
    let webhook = Webhook {
        id,
        tenant,
        url: ask.url,
        description: ask.description,
        topics: ask.topics,
        state: Standing::Enabled,
        reason: String::new(),
        secret: settings.key.seal(id, &secret, app.world.bytes()),
        previous: None,
        failing_since: None,
        created_by: caller.holder.name.clone(),
        created_at: now,
        updated_at: now,
    };
    let mut db = app.db().await?;
    let mut tx = db.begin().await?;
    webhooks::lock_position(&mut tx).await?;
    if webhooks::count(&mut tx, tenant).await? >= MAX_WEBHOOKS {
        return Err(Failure::state(
            "too-many",
            format!("a tenant has at most {MAX_WEBHOOKS} webhooks; delete one first"),
        ));
    }
    webhooks::insert(&mut tx, &webhook).await?;
    tx.commit().await?;
    app.bus.tell(Signal::Events);
    Ok(Json(NewWebhook { webhook: document(webhook), secret: secret.shown() }))
}

/// List the tenant's webhooks, oldest first.
#[utoipa::path(post, path = "/v1/webhooks.list", operation_id = "webhooks.list", tag = "webhooks",
    request_body = ListWebhooks, responses((status = 200, description = "All of them", body = Page<types::Webhook>), Errors))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ListWebhooks>,
) -> Result<Json<Page<types::Webhook>>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    rules.check()?;
    caller.on_tenant(WEBHOOKS_READ, tenant)?;
    let found = webhooks::list(&mut *app.db().await?, tenant).await?;
    Ok(Json(Page { items: found.into_iter().map(document).collect(), next_cursor: None }))
}

/// Get a webhook.
#[utoipa::path(post, path = "/v1/webhooks.get", operation_id = "webhooks.get", tag = "webhooks",
    request_body = WebhookRef, responses((status = 200, description = "The webhook", body = types::Webhook), Errors))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<WebhookRef>,
) -> Result<Json<types::Webhook>, Failure> {
    let (tenant, id) = named(&ask.tenant_id, &ask.webhook_id)?;
    caller.on_tenant(WEBHOOKS_READ, tenant)?;
    let found = webhooks::find(&mut *app.db().await?, tenant, id).await?;
    found.map(|it| Json(document(it))).ok_or_else(|| Failure::not_found("webhook", id))
}

/// Change a webhook: what is absent stays as it is.
///
/// Pending deliveries go to a new URL as well. One that is enabled again gets what happens from then on, and what was pending.
#[utoipa::path(post, path = "/v1/webhooks.update", operation_id = "webhooks.update", tag = "webhooks",
    request_body = UpdateWebhook, responses((status = 200, description = "The webhook", body = types::Webhook), Errors))]
pub(super) async fn update(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<UpdateWebhook>,
) -> Result<Json<types::Webhook>, Failure> {
    let mut rules = Rules::default();
    let (tenant, id) = (rules.tenant(&ask.tenant_id), rules.id("webhookId", &ask.webhook_id));
    if let Some(text) = &ask.url {
        url(&mut rules, text, &app);
    }
    if let Some(patterns) = &ask.topics {
        topics(&mut rules, patterns);
    }
    if let Some(text) = &ask.description {
        rules.text("description", text, 0, 200);
    }
    rules.check()?;
    caller.on_tenant(WEBHOOKS_WRITE, tenant)?;
    // Whoever turns one off need not be able to read events.
    let sends_more = ask.url.is_some() || ask.topics.is_some() || ask.enabled == Some(true);
    if sends_more {
        caller.on_tenant(EVENTS_READ, tenant)?;
        settings(&app)?;
    }
    let mut db = app.db().await?;
    let mut tx = db.begin().await?;
    if ask.enabled == Some(true) {
        // Before the webhook's own row, as who reads the outbox does.
        webhooks::lock_position(&mut tx).await?;
    }
    let mut webhook = locked(&mut tx, tenant, id).await?;
    let before = webhook.clone();
    webhook.url = ask.url.unwrap_or(webhook.url);
    webhook.topics = ask.topics.unwrap_or(webhook.topics);
    webhook.description = ask.description.unwrap_or(webhook.description);
    match ask.enabled {
        Some(true) if webhook.state == Standing::Disabled => {
            (webhook.state, webhook.reason, webhook.failing_since) = (Standing::Enabled, String::new(), None);
        }
        Some(false) if webhook.state == Standing::Enabled => {
            (webhook.state, webhook.reason) = (Standing::Disabled, "asked".to_owned());
        }
        _ => {}
    }
    if webhook == before {
        return Ok(Json(document(webhook)));
    }
    webhook.updated_at = app.now();
    let change = match (before.state, webhook.state) {
        (Standing::Disabled, Standing::Enabled) => Change::Enabled,
        (Standing::Enabled, Standing::Disabled) => Change::Disabled,
        _ => Change::Plain,
    };
    webhooks::update(&mut tx, &webhook, change).await?;
    tx.commit().await?;
    app.bus.tell(Signal::Events);
    Ok(Json(document(webhook)))
}

/// Delete a webhook, with all its deliveries.
#[utoipa::path(post, path = "/v1/webhooks.delete", operation_id = "webhooks.delete", tag = "webhooks",
    request_body = WebhookRef, responses((status = 200, description = "The webhook as it was", body = types::Webhook), Errors))]
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<WebhookRef>,
) -> Result<Json<types::Webhook>, Failure> {
    let (tenant, id) = named(&ask.tenant_id, &ask.webhook_id)?;
    caller.on_tenant(WEBHOOKS_WRITE, tenant)?;
    let mut db = app.db().await?;
    let mut tx = db.begin().await?;
    // Who reads the outbox writes deliveries of webhooks that are there.
    webhooks::lock_position(&mut tx).await?;
    let webhook = locked(&mut tx, tenant, id).await?;
    webhooks::delete(&mut tx, &webhook, app.now()).await?;
    tx.commit().await?;
    app.bus.tell(Signal::Events);
    Ok(Json(document(webhook)))
}

/// Make another secret for a webhook. It is shown this once.
///
/// Deliveries carry the signatures of both secrets for a while.
#[utoipa::path(post, path = "/v1/webhooks.rotateSecret", operation_id = "webhooks.rotateSecret", tag = "webhooks",
    request_body = RotateWebhookSecret,
    responses((status = 200, description = "The secret", body = RotatedWebhookSecret), Errors))]
pub(super) async fn rotate_secret(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<RotateWebhookSecret>,
) -> Result<Json<RotatedWebhookSecret>, Failure> {
    let mut rules = Rules::default();
    let (tenant, id) = (rules.tenant(&ask.tenant_id), rules.id("webhookId", &ask.webhook_id));
    let overlap = rules.number("overlapSeconds", ask.overlap_seconds, 0, OVERLAP.0, OVERLAP.1);
    rules.check()?;
    caller.on_tenant(WEBHOOKS_WRITE, tenant)?;
    // Who has the secret can forge events, and reads none with it.
    let settings = settings(&app)?;
    let mut db = app.db().await?;
    let mut tx = db.begin().await?;
    let mut webhook = locked(&mut tx, tenant, id).await?;
    let now = app.now();
    let until = now + Duration::seconds(i64::try_from(overlap).unwrap_or(0));
    let secret = Secret::new(app.world.bytes());
    let before = std::mem::replace(&mut webhook.secret, settings.key.seal(id, &secret, app.world.bytes()));
    webhook.previous = (overlap > 0).then_some((before, until));
    webhook.updated_at = now;
    webhooks::update(&mut tx, &webhook, Change::Plain).await?;
    tx.commit().await?;
    app.bus.tell(Signal::Events);
    let previous_secret_until = webhook.previous.map(|(_, until)| until);
    Ok(Json(RotatedWebhookSecret { secret: secret.shown(), previous_secret_until }))
}

/// List a webhook's deliveries, newest first.
#[utoipa::path(post, path = "/v1/webhooks.deliveries", operation_id = "webhooks.deliveries", tag = "webhooks",
    request_body = ListDeliveries, responses((status = 200, description = "A page of them", body = Page<types::Delivery>), Errors))]
pub(super) async fn deliveries(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ListDeliveries>,
) -> Result<Json<Page<types::Delivery>>, Failure> {
    let mut rules = Rules::default();
    let (tenant, id) = (rules.tenant(&ask.tenant_id), rules.id("webhookId", &ask.webhook_id));
    let limit = rules.number("limit", ask.limit, 1, MAX_PAGE, super::DEFAULT_PAGE);
    let state = ask.state.as_deref().map(str::parse::<deliveries::State>);
    rules.rule(!matches!(state, Some(Err(_))), "state", "must be pending, delivered or dead");
    let before = ask.cursor.as_deref().map(cursor::open::<u64>);
    rules.rule(before != Some(None), "cursor", cursor::RULE);
    rules.check()?;
    caller.on_tenant(WEBHOOKS_READ, tenant)?;
    let mut db = app.db().await?;
    webhooks::find(&mut db, tenant, id).await?.ok_or_else(|| Failure::not_found("webhook", id))?;
    let mut found = deliveries::list(&mut db, id, state.and_then(Result::ok), before.flatten(), limit + 1).await?;
    let has_more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next_cursor = found.last().filter(|_| has_more).map(|it| cursor::seal(&it.seq));
    Ok(Json(Page { items: found.into_iter().map(of_delivery).collect(), next_cursor }))
}

/// Send a delivery again, or all that were given up since a time.
///
/// Each keeps its id, and has all its attempts again.
#[utoipa::path(post, path = "/v1/webhooks.redeliver", operation_id = "webhooks.redeliver", tag = "webhooks",
    request_body = Redeliver, responses((status = 200, description = "How many", body = Redelivered), Errors))]
pub(super) async fn redeliver(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<Redeliver>,
) -> Result<Json<Redelivered>, Failure> {
    let mut rules = Rules::default();
    let (tenant, id) = (rules.tenant(&ask.tenant_id), rules.id("webhookId", &ask.webhook_id));
    let delivery: Option<DeliveryId> = ask.delivery_id.as_deref().map(|text| rules.id("deliveryId", text));
    let is_one = delivery.is_some() != ask.since.is_some();
    rules.rule(is_one, "deliveryId", "either this or since must be given, and not both");
    rules.check()?;
    caller.on_tenant(WEBHOOKS_WRITE, tenant)?;
    settings(&app)?;
    let mut db = app.db().await?;
    let mut tx = db.begin().await?;
    enabled(&mut tx, tenant, id).await?;
    let count = match (delivery, ask.since) {
        (Some(delivery), _) => {
            if !deliveries::redeliver(&mut tx, id, delivery, app.now()).await? {
                return Err(Failure::not_found("delivery", delivery));
            }
            1
        }
        (None, since) => {
            deliveries::redeliver_since(&mut tx, id, since.unwrap_or_else(|| app.now()), app.now()).await?
        }
    };
    tx.commit().await?;
    app.bus.tell(Signal::Events);
    Ok(Json(Redelivered { count }))
}

/// Send an event that is none, `webhook.test`, to see whether the receiver takes it.
#[utoipa::path(post, path = "/v1/webhooks.test", operation_id = "webhooks.test", tag = "webhooks",
    request_body = WebhookRef, responses((status = 200, description = "The delivery, not yet sent", body = types::Delivery), Errors))]
pub(super) async fn test(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<WebhookRef>,
) -> Result<Json<types::Delivery>, Failure> {
    let (tenant, id) = named(&ask.tenant_id, &ask.webhook_id)?;
    caller.on_tenant(WEBHOOKS_WRITE, tenant)?;
    settings(&app)?;
    let mut db = app.db().await?;
    let mut tx = db.begin().await?;
    enabled(&mut tx, tenant, id).await?;
    let (delivery, now) = (DeliveryId::from_uuid(app.world.uuid()), app.now());
    let data = types::Event {
        id: delivery.to_string(),
        topic: TEST.to_owned(),
        tenant_id: tenant.to_string(),
        node_id: None,
        body: json!({ "webhookId": id.to_string(), "requestedBy": caller.holder.name }),
        at: now,
    };
    let body = message(TEST, now, &data);
    let new = NewDelivery { id: delivery, webhook: id, event: None, topic: TEST.to_owned(), body };
    deliveries::insert(&mut tx, &[new], now, now).await?;
    let written =
        deliveries::find(&mut tx, id, delivery).await?.ok_or_else(|| Failure::not_found("delivery", delivery))?;
    tx.commit().await?;
    app.bus.tell(Signal::Events);
    Ok(Json(of_delivery(written)))
}

/// What this server sends with, or how to get it.
fn settings(app: &App) -> Result<&Settings, Failure> {
    app.config.webhooks.as_ref().ok_or_else(|| {
        let message = "this server has no key that seals webhooks' secrets, so it sends nothing. Its operator makes one with \
                       `better-compute webhook new-key FILE` and names it in the server's settings: `[webhooks]` with \
                       `key-file = \"FILE\"`, the same for all replicas";
        Failure::state("webhooks-off", message)
    })
}

fn named(tenant: &str, webhook: &str) -> Result<(TenantId, WebhookId), Failure> {
    let mut rules = Rules::default();
    let named = (rules.tenant(tenant), rules.id("webhookId", webhook));
    rules.check()?;
    Ok(named)
}

async fn locked(tx: &mut PgTransaction<'_>, tenant: TenantId, id: WebhookId) -> Result<Webhook, Failure> {
    webhooks::lock(tx, tenant, id).await?.ok_or_else(|| Failure::not_found("webhook", id))
}

/// One that sends.
async fn enabled(tx: &mut PgTransaction<'_>, tenant: TenantId, id: WebhookId) -> Result<(), Failure> {
    let webhook = locked(tx, tenant, id).await?;
    if webhook.state == Standing::Enabled {
        return Ok(());
    }
    let message = format!("{id} is disabled ({}); enable it first with webhooks.update", webhook.reason);
    Err(Failure::state("disabled", message))
}

fn url(rules: &mut Rules, text: &str, app: &App) {
    rules.rule(text.len() <= MAX_URL_BYTES, "url", format!("must have at most {MAX_URL_BYTES} bytes"));
    let allow = app.config.webhooks.as_ref().map(|it| it.allow.clone()).unwrap_or_default();
    if let Err(rule) = judged(text, &allow) {
        rules.rule(false, "url", rule);
    }
}

fn topics(rules: &mut Rules, patterns: &[String]) {
    rules.rule((1..=MAX_TOPICS).contains(&patterns.len()), "topics", format!("must have 1 to {MAX_TOPICS} items"));
    for (place, pattern) in patterns.iter().enumerate().take(MAX_TOPICS) {
        rules.rule(
            is_pattern(pattern),
            &format!("topics[{place}]"),
            "must be a topic such as command.settled, the beginning of topics such as command.*, or *",
        );
    }
}

fn document(webhook: Webhook) -> types::Webhook {
    types::Webhook {
        id: webhook.id.to_string(),
        url: webhook.url,
        topics: webhook.topics,
        description: webhook.description,
        state: webhook.state.to_string(),
        reason: webhook.reason,
        failing_since: webhook.failing_since,
        previous_secret_until: webhook.previous.map(|(_, until)| until),
        created_by: webhook.created_by,
        created_at: webhook.created_at,
        updated_at: webhook.updated_at,
    }
}

fn of_delivery(delivery: Delivery) -> types::Delivery {
    types::Delivery {
        id: delivery.id.to_string(),
        topic: delivery.topic,
        state: delivery.state.to_string(),
        attempts: delivery.attempts,
        next_attempt_at: delivery.next_attempt_at,
        last_attempt_at: delivery.last_attempt_at,
        last_status: delivery.last_status,
        last_answer: delivery.last_answer,
        created_at: delivery.created_at,
        ended_at: delivery.ended_at,
    }
}
