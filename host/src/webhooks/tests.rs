//! Webhooks on a real Postgres, against real HTTP servers, at a time of the test's own.
//!
//! What is received is verified by the reference implementation of the Standard Webhooks specification.

mod once;
mod outcomes;
mod receiver;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bc_proto::id::{DeliveryId, TenantId, WebhookId};
use bc_proto::manifest::Lane;
use bc_proto::rules::webhook::Allow;
use sqlx::Connection as _;
use time::OffsetDateTime;

use super::*;
use crate::store::kinds::Digest;
use crate::store::webhook_deliveries::{Delivery, State as Standing};
use crate::store::webhooks::{self as stored, Change, State, Webhook};
use crate::testing::{Fleet, at, uuid};
use receiver::{Behaviour, Receiver};

/// A fleet of one node whose commands make events, and a clock.
struct Stage {
    fleet: Fleet,
    node: bc_proto::id::NodeId,
    kind: Digest,
    seconds: Arc<AtomicI64>,
    settings: Settings,
}

impl Stage {
    async fn new() -> Self {
        let fleet = Fleet::new().await;
        let (node, kind) = (fleet.node().await, fleet.kind(Lane::Control, &["retry-safe"]).await);
        let allow = Allow::parse(["127.0.0.1"]).expect("an address");
        // Long enough for a machine that does much else; tests that need an end have one of their own.
        let timeout = Duration::from_mins(1);
        let settings = Settings { key: SealingKey::new([5; 32]), allow, ca_pem: None, timeout };
        Self { fleet, node, kind, seconds: Arc::default(), settings }
    }

    fn now(&self) -> OffsetDateTime {
        at(self.seconds.load(Ordering::Relaxed))
    }

    fn pass_time(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }

    /// That of another replica: nothing is shared but the database and the clock.
    fn module(&self) -> Module {
        let seconds = Arc::clone(&self.seconds);
        let random = |bytes: &mut [u8]| getrandom::fill(bytes).expect("the kernel gives random bytes");
        let world = World::new(move || at(seconds.load(Ordering::Relaxed)), random);
        Module::new(self.fleet.pool.clone(), Bus::local(), world, &self.settings).expect("settings that fit")
    }

    /// A webhook of the fleet's tenant for this topic, and its secret.
    async fn webhook(&self, url: &str, topic: &str) -> (WebhookId, Secret) {
        self.webhook_of(self.fleet.tenant, url, topic).await
    }

    async fn webhook_of(&self, tenant: TenantId, url: &str, topic: &str) -> (WebhookId, Secret) {
        let id = WebhookId::from_uuid(uuid());
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
        let secret = Secret::new(bytes);
        let webhook = Webhook {
            id,
            tenant,
            url: url.to_owned(),
            description: String::new(),
            topics: vec![topic.to_owned()],
            state: State::Enabled,
            reason: String::new(),
            secret: self.settings.key.seal(id, &secret, [0; 24]),
            previous: None,
            failing_since: None,
            created_by: "tests".into(),
            created_at: self.now(),
            updated_at: self.now(),
        };
        let mut db = self.fleet.db().await;
        let mut tx = db.begin().await.expect("a transaction");
        stored::lock_position(&mut tx).await.expect("a database");
        stored::insert(&mut tx, &webhook).await.expect("a new webhook");
        tx.commit().await.expect("a commit");
        (id, secret)
    }

    /// Has something happen: an event `node.command.queued`, which can be seen when this returns.
    async fn event(&self) -> String {
        let id = self.fleet.enqueue(&self.node, self.kind).await.id.to_string();
        self.visible().await;
        id
    }

    /// Waits until all events can be seen: transactions of other tests, in other databases, hold them back as well.
    async fn visible(&self) {
        let hidden = "select exists (select from events where xid >= pg_snapshot_xmin(pg_current_snapshot()))";
        while sqlx::query_scalar(hidden).fetch_one(&self.fleet.pool).await.expect("a database") {
            tokio::task::yield_now().await;
        }
    }

    async fn pass(&self) -> usize {
        self.module().pass().await.expect("a database")
    }

    async fn find(&self, id: WebhookId) -> Webhook {
        let found = stored::find(&mut *self.fleet.db().await, self.fleet.tenant, id).await.expect("a database");
        found.expect("it is there")
    }

    /// The deliveries of a webhook, oldest first.
    async fn deliveries(&self, id: WebhookId) -> Vec<Delivery> {
        let found = webhook_deliveries::list(&mut *self.fleet.db().await, id, None, None, 1000).await;
        let mut found = found.expect("a database");
        found.reverse();
        found
    }

    async fn only(&self, id: WebhookId) -> Delivery {
        let mut found = self.deliveries(id).await;
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    async fn redeliver(&self, id: WebhookId, delivery: DeliveryId) {
        let mut db = self.fleet.db().await;
        assert!(webhook_deliveries::redeliver(&mut db, id, delivery, self.now()).await.expect("a database"));
    }

    async fn topics(&self) -> Vec<String> {
        self.visible().await;
        let all = store::events::after(&mut *self.fleet.db().await, Cursor::default(), 1000).await.expect("a database");
        all.into_iter().map(|event| event.topic).collect()
    }
}
