//! `webhooks`: where events of a tenant are sent.
//!
//! **Invariant:** secrets pass through here sealed. Whoever makes or enables a webhook has locked the position of the outbox, so no
//! event that comes after it is passed over.

use bc_proto::id::{TenantId, WebhookId};
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::{Error, corrupt, unsigned};

/// Whether anything is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum State {
    /// Events are sent.
    Enabled,
    /// Nothing is sent, and what happens meanwhile is not kept for it.
    Disabled,
}

/// A webhook.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Its id.
    pub id: WebhookId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Where to.
    pub url: String,
    /// What it is for.
    pub description: String,
    /// Which events.
    pub topics: Vec<String>,
    /// Whether anything is sent.
    pub state: State,
    /// Why it is disabled, as a stable code; empty while enabled.
    pub reason: String,
    /// The signing secret, sealed.
    pub secret: Vec<u8>,
    /// The secret before, sealed, and until when it signs as well.
    pub previous: Option<(Vec<u8>, OffsetDateTime)>,
    /// Since when no attempt has succeeded.
    pub failing_since: Option<OffsetDateTime>,
    /// Who made it.
    pub created_by: String,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// When it was changed last.
    pub updated_at: OffsetDateTime,
}

struct Row {
    id: Uuid,
    tenant_id: Uuid,
    url: String,
    description: String,
    topics: Vec<String>,
    state: String,
    reason: String,
    secret: Vec<u8>,
    previous_secret: Option<Vec<u8>>,
    previous_until: Option<OffsetDateTime>,
    failing_since: Option<OffsetDateTime>,
    created_by: String,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
}

impl TryFrom<Row> for Webhook {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let id = WebhookId::from_uuid(row.id);
        Ok(Self {
            tenant: TenantId::from_uuid(row.tenant_id),
            url: row.url,
            description: row.description,
            topics: row.topics,
            state: row.state.parse().map_err(|_| corrupt("webhooks", "state", id))?,
            reason: row.reason,
            secret: row.secret,
            previous: row.previous_secret.zip(row.previous_until),
            failing_since: row.failing_since,
            created_by: row.created_by,
            created_at: row.created_at,
            updated_at: row.updated_at,
            id,
        })
    }
}

/// Waits until nobody reads on in the outbox, and keeps everybody from it until the transaction ends.
pub async fn lock_position(db: &mut PgTransaction<'_>) -> Result<(), Error> {
    sqlx::query!("select xid::text as xid from webhook_position for update").fetch_one(&mut **db).await?;
    Ok(())
}

/// Writes a new webhook, and its event. The position is locked.
pub async fn insert(db: &mut PgTransaction<'_>, webhook: &Webhook) -> Result<(), Error> {
    sqlx::query!(
        "insert into webhooks (id, tenant_id, url, description, topics, state, reason, from_xid, secret, claimed_until,
                               served_at, created_by, created_at, updated_at)
         values ($1, $2, $3, $4, $5, 'enabled', '', pg_snapshot_xmin(pg_current_snapshot()), $6, 'epoch', 'epoch', $7, $8, $8)",
        webhook.id.uuid(),
        webhook.tenant.uuid(),
        webhook.url,
        webhook.description,
        &webhook.topics,
        webhook.secret,
        webhook.created_by,
        webhook.created_at,
    )
    .execute(&mut **db)
    .await?;
    tell(db, webhook, "webhook.created", webhook.created_at).await
}

/// Says what happened to a webhook. Its URL stands in no event: what others are told with a URL's path is often a secret.
async fn tell(db: &mut PgTransaction<'_>, webhook: &Webhook, topic: &str, at: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!(
        "insert into events (tenant_id, topic, body, at)
         values ($1, $2, jsonb_build_object('webhookId', $3::text, 'state', $4::text, 'reason', $5::text), $6)",
        webhook.tenant.uuid(),
        topic,
        webhook.id.to_string(),
        webhook.state.to_string(),
        webhook.reason,
        at,
    )
    .execute(&mut **db)
    .await?;
    Ok(())
}

/// How many a tenant has.
pub async fn count(db: &mut PgConnection, tenant: TenantId) -> Result<u64, Error> {
    let count = sqlx::query_scalar!(r#"select count(*) as "count!" from webhooks where tenant_id = $1"#, tenant.uuid());
    unsigned("webhooks", "id", tenant, count.fetch_one(db).await?)
}

/// Those of a tenant, oldest first. Their number is bounded where they are made.
pub async fn list(db: &mut PgConnection, tenant: TenantId) -> Result<Vec<Webhook>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select id, tenant_id, url, description, topics, state::text as "state!", reason, secret, previous_secret,
                  previous_until, failing_since, created_by, created_at, updated_at
           from webhooks where tenant_id = $1 order by id"#,
        tenant.uuid(),
    );
    rows.fetch_all(db).await?.into_iter().map(Webhook::try_from).collect()
}

/// The one of a tenant with an id.
pub async fn find(db: &mut PgConnection, tenant: TenantId, id: WebhookId) -> Result<Option<Webhook>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select id, tenant_id, url, description, topics, state::text as "state!", reason, secret, previous_secret,
                  previous_until, failing_since, created_by, created_at, updated_at
           from webhooks where tenant_id = $1 and id = $2"#,
        tenant.uuid(),
        id.uuid(),
    );
    row.fetch_optional(db).await?.map(Webhook::try_from).transpose()
}

/// The same, locked.
pub async fn lock(db: &mut PgTransaction<'_>, tenant: TenantId, id: WebhookId) -> Result<Option<Webhook>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select id, tenant_id, url, description, topics, state::text as "state!", reason, secret, previous_secret,
                  previous_until, failing_since, created_by, created_at, updated_at
           from webhooks where tenant_id = $1 and id = $2 for no key update"#,
        tenant.uuid(),
        id.uuid(),
    );
    row.fetch_optional(&mut **db).await?.map(Webhook::try_from).transpose()
}

/// What is changed of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Neither of the others.
    Plain,
    /// It is enabled, and gets what is to come; the position is locked.
    Enabled,
    /// It is disabled.
    Disabled,
}

/// Writes what was changed of one that is locked, and its event.
pub async fn update(db: &mut PgTransaction<'_>, webhook: &Webhook, change: Change) -> Result<(), Error> {
    let (previous, until) = webhook.previous.clone().unzip();
    sqlx::query!(
        "update webhooks set url = $2, description = $3, topics = $4, state = $5::text::webhook_state, reason = $6,
             secret = $7, previous_secret = $8, previous_until = $9, failing_since = $10, updated_at = $11,
             from_xid = case when $12 then pg_snapshot_xmin(pg_current_snapshot()) else from_xid end
         where id = $1",
        webhook.id.uuid(),
        webhook.url,
        webhook.description,
        &webhook.topics,
        webhook.state.to_string(),
        webhook.reason,
        webhook.secret,
        previous,
        until,
        webhook.failing_since,
        webhook.updated_at,
        change == Change::Enabled,
    )
    .execute(&mut **db)
    .await?;
    let topic = if change == Change::Disabled { "webhook.disabled" } else { "webhook.changed" };
    tell(db, webhook, topic, webhook.updated_at).await
}

/// Deletes one that is locked, with all its deliveries.
pub async fn delete(db: &mut PgTransaction<'_>, webhook: &Webhook, now: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!("delete from webhooks where id = $1", webhook.id.uuid()).execute(&mut **db).await?;
    tell(db, webhook, "webhook.deleted", now).await
}

/// The one that somebody serves under a claim, locked; `None` where the claim is no longer theirs, or it is gone.
pub async fn claimed(db: &mut PgTransaction<'_>, id: WebhookId, claim: Uuid) -> Result<Option<Webhook>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select id, tenant_id, url, description, topics, state::text as "state!", reason, secret, previous_secret,
                  previous_until, failing_since, created_by, created_at, updated_at
           from webhooks where id = $1 and claim = $2 for no key update"#,
        id.uuid(),
        claim,
    );
    row.fetch_optional(&mut **db).await?.map(Webhook::try_from).transpose()
}

/// Those that have something to send and that nobody serves, from now on under this claim; who has waited longest first.
pub async fn claim(
    db: &mut PgConnection,
    claim: Uuid,
    now: OffsetDateTime,
    until: OffsetDateTime,
    limit: u32,
) -> Result<Vec<WebhookId>, Error> {
    let ids = sqlx::query_scalar!(
        "with free as (
             select w.id from webhooks w
             where w.state = 'enabled' and w.claimed_until <= $2
               and exists (select from webhook_deliveries d
                           where d.webhook_id = w.id and d.state = 'pending' and d.next_attempt_at <= $2)
             order by w.served_at limit $4 for no key update skip locked
         )
         update webhooks w set claim = $1, claimed_until = $3, served_at = $2 from free where w.id = free.id returning w.id",
        claim,
        now,
        until,
        i64::from(limit),
    );
    Ok(ids.fetch_all(db).await?.into_iter().map(WebhookId::from_uuid).collect())
}

/// Keeps a claim until then; lets it go where that is now.
pub async fn keep(db: &mut PgConnection, id: WebhookId, claim: Uuid, until: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!("update webhooks set claimed_until = $3 where id = $1 and claim = $2", id.uuid(), claim, until)
        .execute(db)
        .await?;
    Ok(())
}

/// Writes since when one that is locked fails; without an event.
pub async fn mark_failing(db: &mut PgConnection, id: WebhookId, since: Option<OffsetDateTime>) -> Result<(), Error> {
    sqlx::query!(
        "update webhooks set failing_since = $2 where id = $1 and failing_since is distinct from $2",
        id.uuid(),
        since
    )
    .execute(db)
    .await?;
    Ok(())
}
