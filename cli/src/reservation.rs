//! `better-compute reservation …`: GPUs that are reserved.
//!
//! **Invariant:** creating one says its key before it asks, so that an attempt whose answer was lost can be repeated.

use std::process::ExitCode;

use bc_host::api::types::{CreateReservation, ListReservations, NodeRef, Reservation, ReservationRef};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;
use time::OffsetDateTime;

use crate::client::{Client, Connect, Patience};
use crate::format::{Output, Shown, distance, moment};
use crate::{complete, node, output, shell};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum ReservationCommand {
    /// Reserve a GPU of a node, or a slot of one
    ///
    /// It is active once the node has signed that it holds the GPU.
    Create(Create),
    /// Give a reservation back
    Release(Release),
    /// List the reservations of a node, newest first
    List(List),
}

/// What to reserve.
#[derive(Debug, Args)]
pub struct Create {
    /// The UUID of the GPU or of a MIG instance, GPU-… or MIG-…
    gpu: String,
    /// The node, by id or name
    #[arg(long, short, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    /// A share of it, where it is shared by time; without it, all of it
    #[arg(long)]
    slot: Option<u32>,
    /// The idempotency key: the same key is the same reservation. A new one by default
    #[arg(long)]
    key: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// What to give back.
#[derive(Debug, Args)]
pub struct Release {
    /// The reservation, `alloc_…`
    reservation: String,
    /// The node, by id or name
    #[arg(long, short, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which ones.
#[derive(Debug, Args)]
pub struct List {
    /// The node, by id or name
    #[arg(long, short, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    /// Only those that are `requested`, `active` or `released`
    #[arg(long, value_parser = ["requested", "active", "released"])]
    state: Option<String>,
    /// At most as many; 0 for all
    #[arg(long, default_value_t = 0)]
    limit: u32,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

impl ReservationCommand {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Create(create) => create.execute().await?,
            Self::Release(release) => release.execute().await?,
            Self::List(list) => list.execute().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The server, and the node there.
async fn reach(connect: &Connect, node: &str) -> anyhow::Result<(Client, NodeRef)> {
    let client = Client::new(connect.target()?, Patience::default())?;
    let reference = NodeRef { tenant_id: client.tenant().await?, node_id: node::resolve(&client, node).await? };
    Ok((client, reference))
}

impl Create {
    async fn execute(self) -> anyhow::Result<()> {
        let (client, NodeRef { tenant_id, node_id }) = reach(&self.connect, &self.node).await?;
        let key = self.key.unwrap_or_else(|| format!("cli-{}", hex::encode(shell::random::<16>())));
        output::complain(&format!("key: {key}"));
        let request = CreateReservation { tenant_id, node_id, gpu: self.gpu, slot: self.slot, idempotency_key: key };
        self.output.one(&client.call::<Reservation>("reservations.create", &request).await?, shell::now());
        Ok(())
    }
}

impl Release {
    async fn execute(self) -> anyhow::Result<()> {
        let (client, NodeRef { tenant_id, node_id }) = reach(&self.connect, &self.node).await?;
        let request = ReservationRef { tenant_id, node_id, reservation_id: self.reservation };
        self.output.one(&client.call::<Reservation>("reservations.release", &request).await?, shell::now());
        Ok(())
    }
}

impl List {
    async fn execute(self) -> anyhow::Result<()> {
        let (client, NodeRef { tenant_id, node_id }) = reach(&self.connect, &self.node).await?;
        let request = ListReservations { tenant_id, node_id, state: self.state, ..ListReservations::default() };
        let found: Vec<Reservation> = client.pages("reservations.list", json!(request), self.limit).await?;
        self.output.list(&found, shell::now());
        Ok(())
    }
}

impl Shown for Reservation {
    const HEADER: &'static [&'static str] = &["ID", "GPU", "SLOT", "STATE", "BY", "SINCE"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        vec![
            self.id.clone(),
            self.gpu.clone(),
            self.slot.map_or_else(|| "–".to_owned(), |slot| slot.to_string()),
            self.state.clone(),
            self.created_by.clone(),
            distance(self.created_at, now),
        ]
    }

    fn name(&self) -> String {
        self.id.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let at = |at: Option<OffsetDateTime>| at.map(|at| moment(Some(at), now)).unwrap_or_default();
        vec![
            ("id", self.id.clone()),
            ("node", self.node_id.clone()),
            ("gpu", self.gpu.clone()),
            ("slot", self.slot.map(|slot| slot.to_string()).unwrap_or_default()),
            ("state", self.state.clone()),
            ("generation", self.generation.to_string()),
            ("asked", moment(Some(self.created_at), now)),
            ("by", self.created_by.clone()),
            ("active", at(self.active_at)),
            ("released", at(self.released_at)),
            ("bound", self.bound.clone().unwrap_or_default()),
            ("signature", self.bound_sig.clone().unwrap_or_default()),
        ]
    }
}
