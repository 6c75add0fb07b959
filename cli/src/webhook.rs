//! `better-compute webhook …`: events that are sent to URLs.
//!
//! **Invariant:** a secret is printed once, by the command that makes it, or written to a file for its owner alone.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bc_host::api::types::{
    CreateWebhook, Delivery, ListWebhooks, NewWebhook, Page, Redeliver, Redelivered, RotateWebhookSecret,
    RotatedWebhookSecret, UpdateWebhook, Webhook, WebhookRef,
};
use clap::{ArgGroup, Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;
use time::OffsetDateTime;

use crate::client::{Client, Connect, Patience};
use crate::format::{Output, Shown, distance, moment};
use crate::{complete, contexts, output, server, shell};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// Have events sent to a URL; the secret that verifies them is shown once
    Create(Create),
    /// List webhooks, oldest first
    List(List),
    /// Show a webhook
    Show(One),
    /// Change where a webhook's events are sent, which, or what it is for
    Update(Update),
    /// Send again to one that was disabled: what happens from now on, and what was pending
    Enable(One),
    /// Send nothing for now; what happens meanwhile is not kept for it
    Disable(One),
    /// Delete a webhook with all its deliveries
    Delete(One),
    /// Make another secret; it is shown once, and the one before signs as well for a while
    RotateSecret(Rotate),
    /// List a webhook's deliveries, newest first
    Deliveries(Deliveries),
    /// Send a delivery again, or all that were given up since a time
    Redeliver(Again),
    /// Send an event that is none, to see whether the receiver takes it
    Test(One),
    /// Make the key with which servers seal webhooks' secrets; needs no server
    NewKey(NewKey),
}

/// Where to.
#[derive(Debug, Args)]
pub struct Create {
    /// Where events are sent: `https://…`
    #[arg(value_name = "TARGET")]
    target: String,
    /// Which events: a topic, the beginning of topics such as `command.*`, or `*`. May be repeated
    #[arg(long = "topic", short = 't', value_name = "TOPIC", required = true)]
    topics: Vec<String>,
    /// What it is for, for people
    #[arg(long, default_value = "")]
    description: String,
    /// Write the secret to this file, for its owner alone, in place of printing it
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// How to list.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which webhook.
#[derive(Debug, Args)]
pub struct One {
    /// The webhook, `webhook_…`
    #[arg(add = ArgValueCompleter::new(complete::webhooks))]
    webhook: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// What is changed.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("change").required(true).multiple(true))]
pub struct Update {
    /// Where events are sent from now on: `https://…`
    #[arg(long, group = "change")]
    target: Option<String>,
    /// Which events from now on, in place of those before. May be repeated
    #[arg(long = "topic", short = 't', value_name = "TOPIC", group = "change")]
    topics: Vec<String>,
    /// What it is for, for people
    #[arg(long, group = "change")]
    description: Option<String>,
    #[command(flatten)]
    one: One,
}

/// How the secret is changed.
#[derive(Debug, Args)]
pub struct Rotate {
    /// How long the secret before signs as well, at most 7days; with 0s it counts no more
    #[arg(long, value_name = "SPAN", default_value = "1day", value_parser = humantime::parse_duration)]
    overlap: Duration,
    /// Write the secret to this file, for its owner alone, in place of printing it
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    one: One,
}

/// Which deliveries.
#[derive(Debug, Args)]
pub struct Deliveries {
    /// Only those that are pending, delivered or dead
    #[arg(long, value_parser = ["pending", "delivered", "dead"])]
    state: Option<String>,
    /// The most of them; 0 for all
    #[arg(long, default_value_t = 50)]
    limit: u32,
    #[command(flatten)]
    one: One,
}

/// Which are sent again.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true))]
pub struct Again {
    /// This one, whatever became of it: `delivery_…`
    #[arg(long, group = "which")]
    delivery: Option<String>,
    /// All that were given up and whose events are not older than this: `2days`
    #[arg(long, value_name = "SPAN", group = "which", value_parser = humantime::parse_duration)]
    since: Option<Duration>,
    #[command(flatten)]
    one: One,
}

/// Where the key goes.
#[derive(Debug, Args)]
pub struct NewKey {
    /// The file, which must not be there: written for its owner alone. Name it as `key-file` under `[webhooks]` on every replica
    file: PathBuf,
}

impl WebhookCommand {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Create(create) => create.execute().await?,
            Self::List(List { output, connect }) => {
                let client = Client::new(connect.target()?, Patience::default())?;
                let request = ListWebhooks { tenant_id: client.tenant().await? };
                let webhooks: Page<Webhook> = client.call("webhooks.list", &request).await?;
                output.list(&webhooks.items, shell::now());
            }
            Self::Show(one) => one.show("webhooks.get").await?,
            Self::Update(Update { target, topics, description, one }) => {
                one.update(target, (!topics.is_empty()).then_some(topics), description, None).await?;
            }
            Self::Enable(one) => one.update(None, None, None, Some(true)).await?,
            Self::Disable(one) => one.update(None, None, None, Some(false)).await?,
            Self::Delete(one) => one.show("webhooks.delete").await?,
            Self::RotateSecret(rotate) => rotate.execute().await?,
            Self::Deliveries(Deliveries { state, limit, one }) => {
                let (client, named) = one.named().await?;
                let mut body = json!({ "tenantId": named.tenant_id, "webhookId": named.webhook_id });
                if let Some(state) = state {
                    body["state"] = state.into();
                }
                let found: Vec<Delivery> = client.pages("webhooks.deliveries", body, limit).await?;
                one.output.list(&found, shell::now());
            }
            Self::Redeliver(again) => again.execute().await?,
            Self::Test(one) => {
                let (client, named) = one.named().await?;
                let delivery: Delivery = client.call("webhooks.test", &named).await?;
                one.output.one(&delivery, shell::now());
                output::complain(&format!(
                    "it is on its way; `better-compute webhook deliveries {}` shows what comes of it",
                    named.webhook_id
                ));
            }
            Self::NewKey(NewKey { file }) => {
                server::webhooks::write_new(&file)?;
                output::complain(&format!(
                    "{} is made; give it to every replica: key-file = {:?} under [webhooks] in its settings",
                    file.display(),
                    file.display().to_string()
                ));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Create {
    async fn execute(self) -> anyhow::Result<()> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let request = CreateWebhook {
            tenant_id: client.tenant().await?,
            url: self.target,
            topics: self.topics,
            description: self.description,
        };
        let made: NewWebhook = client.call("webhooks.create", &request).await?;
        if let Some(file) = &self.to {
            hide(file, &made.secret)?;
            self.output.one(&made.webhook, shell::now());
        } else {
            self.output.one(&made, shell::now());
        }
        Ok(())
    }
}

impl One {
    async fn named(&self) -> anyhow::Result<(Client, WebhookRef)> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let named = WebhookRef { tenant_id: client.tenant().await?, webhook_id: self.webhook.clone() };
        Ok((client, named))
    }

    async fn show(self, method: &str) -> anyhow::Result<()> {
        let (client, named) = self.named().await?;
        let webhook: Webhook = client.call(method, &named).await?;
        self.output.one(&webhook, shell::now());
        Ok(())
    }

    async fn update(
        self,
        url: Option<String>,
        topics: Option<Vec<String>>,
        description: Option<String>,
        enabled: Option<bool>,
    ) -> anyhow::Result<()> {
        let (client, WebhookRef { tenant_id, webhook_id }) = self.named().await?;
        let request = UpdateWebhook { tenant_id, webhook_id, url, topics, description, enabled };
        let webhook: Webhook = client.call("webhooks.update", &request).await?;
        self.output.one(&webhook, shell::now());
        Ok(())
    }
}

impl Rotate {
    async fn execute(self) -> anyhow::Result<()> {
        let (client, WebhookRef { tenant_id, webhook_id }) = self.one.named().await?;
        let request = RotateWebhookSecret { tenant_id, webhook_id, overlap_seconds: Some(self.overlap.as_secs()) };
        let made: RotatedWebhookSecret = client.call("webhooks.rotateSecret", &request).await?;
        match &self.to {
            Some(file) => hide(file, &made.secret)?,
            None => self.one.output.one(&made, shell::now()),
        }
        Ok(())
    }
}

impl Again {
    async fn execute(self) -> anyhow::Result<()> {
        let (client, WebhookRef { tenant_id, webhook_id }) = self.one.named().await?;
        let since = self.since.map(|span| shell::now() - span);
        let request = Redeliver { tenant_id, webhook_id, delivery_id: self.delivery, since };
        let done: Redelivered = client.call("webhooks.redeliver", &request).await?;
        self.one.output.one(&done, shell::now());
        Ok(())
    }
}

fn hide(file: &Path, secret: &str) -> anyhow::Result<()> {
    contexts::write_private(file, secret.as_bytes())
        .with_context(|| format!("{} cannot be written", file.display()))?;
    output::complain(&format!("the secret is in {}", file.display()));
    Ok(())
}

fn state(webhook: &Webhook) -> String {
    match (webhook.reason.as_str(), webhook.failing_since) {
        ("", Some(_)) => format!("{}, failing", webhook.state),
        ("", None) => webhook.state.clone(),
        (reason, _) => format!("{}: {reason}", webhook.state),
    }
}

impl Shown for Webhook {
    const HEADER: &'static [&'static str] = &["WEBHOOK", "URL", "TOPICS", "STATE", "AGE"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        vec![self.id.clone(), self.url.clone(), self.topics.join(" "), state(self), distance(self.created_at, now)]
    }

    fn name(&self) -> String {
        self.id.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        vec![
            ("webhook", self.id.clone()),
            ("url", self.url.clone()),
            ("topics", self.topics.join(" ")),
            ("description", self.description.clone()),
            ("state", state(self)),
            ("failing since", moment(self.failing_since, now)),
            ("two secrets until", moment(self.previous_secret_until, now)),
            ("by", self.created_by.clone()),
            ("made", moment(Some(self.created_at), now)),
            ("changed", moment(Some(self.updated_at), now)),
        ]
    }
}

impl Shown for NewWebhook {
    const HEADER: &'static [&'static str] = Webhook::HEADER;

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        self.webhook.cells(now)
    }

    fn name(&self) -> String {
        self.webhook.id.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let mut facts = self.webhook.facts(now);
        facts.push(("secret, shown once", self.secret.clone()));
        facts
    }
}

impl Shown for RotatedWebhookSecret {
    const HEADER: &'static [&'static str] = &["SECRET", "TWO SECRETS UNTIL"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        vec![self.secret.clone(), moment(self.previous_secret_until, now)]
    }

    fn name(&self) -> String {
        self.secret.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        vec![
            ("secret, shown once", self.secret.clone()),
            ("two secrets until", moment(self.previous_secret_until, now)),
        ]
    }
}

impl Shown for Redelivered {
    const HEADER: &'static [&'static str] = &["SENT AGAIN"];

    fn cells(&self, _: OffsetDateTime) -> Vec<String> {
        vec![self.count.to_string()]
    }

    fn name(&self) -> String {
        self.count.to_string()
    }

    fn facts(&self, _: OffsetDateTime) -> Vec<(&'static str, String)> {
        vec![("sent again", self.count.to_string())]
    }
}

impl Shown for Delivery {
    const HEADER: &'static [&'static str] = &["DELIVERY", "TOPIC", "STATE", "ATTEMPTS", "STATUS", "NEXT", "AGE"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        let dash = || "–".to_owned();
        vec![
            self.id.clone(),
            self.topic.clone(),
            self.state.clone(),
            self.attempts.to_string(),
            self.last_status.map_or_else(dash, |status| status.to_string()),
            self.next_attempt_at.map_or_else(dash, |at| distance(at, now)),
            distance(self.created_at, now),
        ]
    }

    fn name(&self) -> String {
        self.id.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        vec![
            ("delivery", self.id.clone()),
            ("topic", self.topic.clone()),
            ("state", self.state.clone()),
            ("attempts", self.attempts.to_string()),
            ("status", self.last_status.map(|status| status.to_string()).unwrap_or_default()),
            ("answer", self.last_answer.clone()),
            ("last attempt", moment(self.last_attempt_at, now)),
            ("next attempt", moment(self.next_attempt_at, now)),
            ("found", moment(Some(self.created_at), now)),
            ("ended", moment(self.ended_at, now)),
        ]
    }
}
