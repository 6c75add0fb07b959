//! `webhook_deliveries` and `webhook_position`: events on their way to webhooks.
//!
//! **Invariant:** an attempt is counted before anything is sent, and only who holds the webhook's claim begins or ends one. The
//! position moves in the transaction that writes the deliveries up to it.

use bc_proto::id::{DeliveryId, TenantId, WebhookId};
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::events::Cursor;
use super::{Error, corrupt, signed, unsigned};

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum State {
    /// To be sent, or sent again.
    Pending,
    /// Answered with 2xx.
    Delivered,
    /// Given up, until somebody asks for it again.
    Dead,
}

/// A delivery, less what is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its id, which is the header `webhook-id`.
    pub id: DeliveryId,
    /// The order in which they came.
    pub seq: u64,
    /// The event's topic.
    pub topic: String,
    /// Where it stands.
    pub state: State,
    /// How many attempts were begun since it was asked for.
    pub attempts: u32,
    /// When it is to be sent, where it is pending.
    pub next_attempt_at: Option<OffsetDateTime>,
    /// When it was sent last.
    pub last_attempt_at: Option<OffsetDateTime>,
    /// The HTTP status of the last answer.
    pub last_status: Option<u16>,
    /// The beginning of the last answer, or why there was none.
    pub last_answer: String,
    /// When the event was found.
    pub created_at: OffsetDateTime,
    /// When it was delivered or given up.
    pub ended_at: Option<OffsetDateTime>,
}

/// How far of the outbox has become deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Up to here.
    pub cursor: Cursor,
    /// When the last of them were due.
    pub due_at: OffsetDateTime,
}

/// The position, locked; `None` where somebody else has it.
pub async fn position(db: &mut PgTransaction<'_>) -> Result<Option<Position>, Error> {
    let row =
        sqlx::query!(r#"select xid::text::bigint as "xid!", id, due_at from webhook_position for update skip locked"#);
    let Some(row) = row.fetch_optional(&mut **db).await? else { return Ok(None) };
    let number = |column, value| unsigned("webhook_position", column, "the one", value);
    Ok(Some(Position { cursor: Cursor::new(number("xid", row.xid)?, number("id", row.id)?), due_at: row.due_at }))
}

/// Moves the position.
pub async fn advance(db: &mut PgTransaction<'_>, to: Position) -> Result<(), Error> {
    let (xid, id) = to.cursor.parts();
    sqlx::query!(
        "update webhook_position set xid = $1::text::xid8, id = $2, due_at = $3",
        xid.to_string(),
        signed(id),
        to.due_at,
    )
    .execute(&mut **db)
    .await?;
    Ok(())
}

/// Who gets events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The webhook.
    pub webhook: WebhookId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Which events.
    pub topics: Vec<String>,
    /// It gets what comes after this.
    pub from: Cursor,
}

/// All webhooks that get events now.
pub async fn targets(db: &mut PgConnection) -> Result<Vec<Target>, Error> {
    let rows = sqlx::query!(
        r#"select id, tenant_id, topics, from_xid::text::bigint as "from_xid!" from webhooks where state = 'enabled'"#
    );
    let target = |id, tenant, topics, from| {
        let webhook = WebhookId::from_uuid(id);
        let from = Cursor::new(unsigned("webhooks", "from_xid", webhook, from)?, 0);
        Ok(Target { webhook, tenant: TenantId::from_uuid(tenant), topics, from })
    };
    rows.fetch_all(db).await?.into_iter().map(|row| target(row.id, row.tenant_id, row.topics, row.from_xid)).collect()
}

/// A delivery to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// Where to.
    pub webhook: WebhookId,
    /// The event; `None` for a test.
    pub event: Option<Cursor>,
    /// The event's topic.
    pub topic: String,
    /// What is sent.
    pub body: String,
}

/// Writes deliveries in this order, due at `due_at`. What is there already stays as it is.
pub async fn insert(
    db: &mut PgConnection,
    new: &[NewDelivery],
    due_at: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<(), Error> {
    let ids: Vec<Uuid> = new.iter().map(|it| it.id.uuid()).collect();
    let webhooks: Vec<Uuid> = new.iter().map(|it| it.webhook.uuid()).collect();
    let xids: Vec<Option<String>> = new.iter().map(|it| it.event.map(|at| at.parts().0.to_string())).collect();
    let events: Vec<Option<i64>> = new.iter().map(|it| it.event.map(|at| signed(at.parts().1))).collect();
    let topics: Vec<String> = new.iter().map(|it| it.topic.clone()).collect();
    let bodies: Vec<String> = new.iter().map(|it| it.body.clone()).collect();
    sqlx::query!(
        "insert into webhook_deliveries (id, webhook_id, event_xid, event_id, topic, body, state, attempts, next_attempt_at,
                                         last_answer, created_at)
         select id, webhook_id, event_xid::xid8, event_id, topic, body, 'pending', 0, $7, '', $8
         from unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::text[], $6::text[])
              with ordinality as new (id, webhook_id, event_xid, event_id, topic, body, place)
         order by place
         on conflict (webhook_id, event_xid, event_id) do nothing",
        &ids,
        &webhooks,
        &xids as &[Option<String>],
        &events as &[Option<i64>],
        &topics,
        &bodies,
        due_at,
        now,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// An attempt that was begun.
#[derive(Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The delivery.
    pub id: DeliveryId,
    /// Which attempt it is, from 1.
    pub attempts: u32,
    /// What is sent.
    pub body: String,
}

/// Begins an attempt at what is due first at a webhook whose claim the caller holds.
pub async fn begin(
    db: &mut PgTransaction<'_>,
    webhook: WebhookId,
    now: OffsetDateTime,
) -> Result<Option<Attempt>, Error> {
    let row = sqlx::query!(
        "update webhook_deliveries set attempts = attempts + 1, last_attempt_at = $2
         where id = (select id from webhook_deliveries
                     where webhook_id = $1 and state = 'pending' and next_attempt_at <= $2
                     order by next_attempt_at, seq limit 1 for update)
         returning id, attempts, body",
        webhook.uuid(),
        now,
    );
    let Some(row) = row.fetch_optional(&mut **db).await? else { return Ok(None) };
    let id = DeliveryId::from_uuid(row.id);
    let attempts = u32::try_from(row.attempts).map_err(|_| corrupt("webhook_deliveries", "attempts", id))?;
    Ok(Some(Attempt { id, attempts, body: row.body }))
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Where the delivery stands now.
    pub state: State,
    /// When it is to be sent again, where it is pending.
    pub next_attempt_at: OffsetDateTime,
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// The beginning of the answer, or why there was none.
    pub answer: String,
}

/// Ends an attempt.
pub async fn end(db: &mut PgConnection, id: DeliveryId, ended: &Ended, now: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!(
        "update webhook_deliveries set state = $2::text::webhook_delivery_state, next_attempt_at = $3, last_status = $4,
             last_answer = $5, ended_at = case when $2 = 'pending' then null else $6::timestamptz end
         where id = $1 and state = 'pending'",
        id.uuid(),
        ended.state.to_string(),
        ended.next_attempt_at,
        ended.status.map(i32::from),
        ended.answer,
        now,
    )
    .execute(db)
    .await?;
    Ok(())
}

struct Row {
    id: Uuid,
    seq: i64,
    topic: String,
    state: String,
    attempts: i32,
    next_attempt_at: OffsetDateTime,
    last_attempt_at: Option<OffsetDateTime>,
    last_status: Option<i32>,
    last_answer: String,
    created_at: OffsetDateTime,
    ended_at: Option<OffsetDateTime>,
}

impl TryFrom<Row> for Delivery {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let id = DeliveryId::from_uuid(row.id);
        let bad = |column| corrupt("webhook_deliveries", column, id);
        let state = row.state.parse().map_err(|_| bad("state"))?;
        Ok(Self {
            seq: unsigned("webhook_deliveries", "seq", id, row.seq)?,
            topic: row.topic,
            attempts: u32::try_from(row.attempts).map_err(|_| bad("attempts"))?,
            next_attempt_at: (state == State::Pending).then_some(row.next_attempt_at),
            state,
            last_attempt_at: row.last_attempt_at,
            last_status: row.last_status.map(u16::try_from).transpose().map_err(|_| bad("last_status"))?,
            last_answer: row.last_answer,
            created_at: row.created_at,
            ended_at: row.ended_at,
            id,
        })
    }
}

/// Those of a webhook, newest first: in one state, if that is said, and before a place.
pub async fn list(
    db: &mut PgConnection,
    webhook: WebhookId,
    state: Option<State>,
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<Delivery>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select id, seq, topic, state::text as "state!", attempts, next_attempt_at, last_attempt_at, last_status, last_answer,
                  created_at, ended_at
           from webhook_deliveries
           where webhook_id = $1 and ($2::text is null or state = $2::text::webhook_delivery_state) and seq < $3
           order by seq desc limit $4"#,
        webhook.uuid(),
        state.map(|it| it.to_string()),
        before.map_or(i64::MAX, signed),
        i64::from(limit),
    );
    rows.fetch_all(db).await?.into_iter().map(Delivery::try_from).collect()
}

/// One of a webhook.
pub async fn find(db: &mut PgConnection, webhook: WebhookId, id: DeliveryId) -> Result<Option<Delivery>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select id, seq, topic, state::text as "state!", attempts, next_attempt_at, last_attempt_at, last_status, last_answer,
                  created_at, ended_at
           from webhook_deliveries where webhook_id = $1 and id = $2"#,
        webhook.uuid(),
        id.uuid(),
    );
    row.fetch_optional(db).await?.map(Delivery::try_from).transpose()
}

/// Has one sent again at once, whatever became of it. Whether there is one.
pub async fn redeliver(
    db: &mut PgConnection,
    webhook: WebhookId,
    id: DeliveryId,
    now: OffsetDateTime,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "update webhook_deliveries set state = 'pending', attempts = 0, next_attempt_at = $3, ended_at = null
         where webhook_id = $1 and id = $2",
        webhook.uuid(),
        id.uuid(),
        now,
    );
    Ok(done.execute(db).await?.rows_affected() > 0)
}

/// Has those that were given up and whose events were found since then sent again at once. How many.
pub async fn redeliver_since(
    db: &mut PgConnection,
    webhook: WebhookId,
    since: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<u64, Error> {
    let done = sqlx::query!(
        "update webhook_deliveries set state = 'pending', attempts = 0, next_attempt_at = $3, ended_at = null
         where webhook_id = $1 and state = 'dead' and created_at >= $2",
        webhook.uuid(),
        since,
        now,
    );
    Ok(done.execute(db).await?.rows_affected())
}

/// Deletes those that were over before then, at most so many. How many.
pub async fn prune(db: &mut PgConnection, before: OffsetDateTime, limit: u32) -> Result<u64, Error> {
    let done = sqlx::query!(
        "delete from webhook_deliveries where id in (
             select id from webhook_deliveries where state <> 'pending' and ended_at < $1
             order by ended_at limit $2 for update skip locked)",
        before,
        i64::from(limit),
    );
    Ok(done.execute(db).await?.rows_affected())
}
