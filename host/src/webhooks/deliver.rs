//! Attempts: begun, sent, ended.
//!
//! **Invariant:** an attempt is counted before anything leaves, and its end is written by who still holds the claim. A replica that
//! dies in between leaves a delivery that is due: another one sends it again once the claim has run out, under the same id.

use bc_proto::id::WebhookId;
use bc_proto::rules::webhook::{Next, Outcome, Standing, decide};
use sqlx::types::Uuid;

use super::Module;
use super::send::{Message, Sent};
use crate::bus::Signal;
use crate::store;
use crate::store::webhook_deliveries::{self as deliveries, Attempt, Ended, State};
use crate::store::webhooks::{self, Change, State as Serving, Webhook};

/// How long a claim holds: an attempt with its two transactions fits well within.
const CLAIM: time::Duration = time::Duration::seconds(45);

/// The most attempts before another webhook may have the place.
const TURN: usize = 100;

impl Module {
    /// Takes webhooks that have something due, at most so many.
    pub(super) async fn claim(&self, room: usize) -> Result<Vec<(WebhookId, Uuid)>, store::Error> {
        let limit = u32::try_from(room).unwrap_or(u32::MAX);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let (claim, now) = (self.world.uuid(), self.world.now());
        let mut db = self.pool.acquire().await?;
        let claimed = webhooks::claim(&mut db, claim, now, now + CLAIM, limit).await?;
        Ok(claimed.into_iter().map(|id| (id, claim)).collect())
    }

    /// Sends what is due at a webhook, one after the other, and lets it go. Returns how many attempts were made.
    pub(super) async fn serve(&self, id: WebhookId, claim: Uuid) -> usize {
        let mut made = 0;
        loop {
            match self.attempt(id, claim, made < TURN).await {
                Ok(true) => made += 1,
                Ok(false) => return made,
                Err(error) => {
                    // The claim runs out by itself.
                    tracing::error!(webhook = %id, error = &error as &dyn std::error::Error, "it is not served for now");
                    return made;
                }
            }
        }
    }

    /// One attempt; whether there was one.
    async fn attempt(&self, id: WebhookId, claim: Uuid, may_go_on: bool) -> Result<bool, store::Error> {
        let Some((webhook, attempt)) = self.begin(id, claim, may_go_on).await? else { return Ok(false) };
        let sent = match self.signed(&webhook, &attempt) {
            Some(message) => self.sender.send(message).await,
            None => Sent::not(
                "nothing was sent: the server's key under [webhooks] does not open this webhook's secret; \
                 webhooks.rotateSecret makes another",
            ),
        };
        self.end(id, claim, &attempt, sent).await
    }

    async fn begin(
        &self,
        id: WebhookId,
        claim: Uuid,
        may_go_on: bool,
    ) -> Result<Option<(Webhook, Attempt)>, store::Error> {
        let now = self.world.now();
        let mut tx = self.pool.begin().await?;
        let Some(webhook) = webhooks::claimed(&mut tx, id, claim).await? else { return Ok(None) };
        let may_go_on = may_go_on && webhook.state == Serving::Enabled;
        let attempt = if may_go_on { deliveries::begin(&mut tx, id, now).await? } else { None };
        let until = if attempt.is_some() { now + CLAIM } else { now };
        webhooks::keep(&mut tx, id, claim, until).await?;
        tx.commit().await?;
        Ok(attempt.map(|attempt| (webhook, attempt)))
    }

    /// The message with a signature of each secret that counts now.
    fn signed(&self, webhook: &Webhook, attempt: &Attempt) -> Option<Message> {
        let now = self.world.now();
        let (id, unix_s) = (attempt.id.to_string(), now.unix_timestamp());
        let mut secrets = vec![self.key.open(webhook.id, &webhook.secret)?];
        if let Some((previous, _)) = webhook.previous.as_ref().filter(|(_, until)| *until > now) {
            secrets.extend(self.key.open(webhook.id, previous));
        }
        let signatures: Vec<_> = secrets.iter().map(|secret| secret.sign(&id, unix_s, &attempt.body)).collect();
        let (url, body) = (webhook.url.clone(), attempt.body.clone());
        Some(Message { url, id, unix_s, signatures: signatures.join(" "), body })
    }

    /// Writes what came of an attempt. Whether the webhook is still ours.
    async fn end(&self, id: WebhookId, claim: Uuid, attempt: &Attempt, sent: Sent) -> Result<bool, store::Error> {
        let now = self.world.now();
        let mut tx = self.pool.begin().await?;
        let Some(mut webhook) = webhooks::claimed(&mut tx, id, claim).await? else { return Ok(false) };
        let since = webhook.failing_since.unwrap_or(now);
        let failing = (now - since).try_into().unwrap_or_default();
        let (next, standing) = decide(sent.outcome, attempt.attempts, failing, self.world.fraction());
        let (state, next_attempt_at) = match next {
            Next::Delivered => (State::Delivered, now),
            Next::Retry(wait) => (State::Pending, now + wait),
            Next::Dead => (State::Dead, now),
        };
        let status = match sent.outcome {
            Outcome::Answered { status, .. } => Some(status),
            Outcome::Unanswered => None,
        };
        let ended = Ended { state, next_attempt_at, status, answer: sent.answer };
        deliveries::end(&mut tx, attempt.id, &ended, now).await?;
        let disabled = match standing {
            Standing::Works | Standing::Fails => None,
            Standing::Gone => Some("gone"),
            Standing::FailedTooLong => Some("failing"),
        };
        // It may have been disabled meanwhile.
        if let (Some(reason), Serving::Enabled) = (disabled, webhook.state) {
            (webhook.state, webhook.reason) = (Serving::Disabled, reason.to_owned());
            (webhook.failing_since, webhook.updated_at) = (Some(since), now);
            webhooks::update(&mut tx, &webhook, Change::Disabled).await?;
        } else {
            let since = (standing != Standing::Works).then_some(since);
            webhooks::mark_failing(&mut tx, id, since).await?;
        }
        tx.commit().await?;
        tracing::debug!(webhook = %id, delivery = %attempt.id, attempt = attempt.attempts, %state, "an attempt ended");
        if disabled.is_some() {
            tracing::warn!(webhook = %id, reason = disabled, "nothing is sent there any more");
            self.bus.tell(Signal::Events);
        }
        Ok(true)
    }
}
