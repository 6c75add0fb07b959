//! `exec_command`: queue a command, and wait for it if asked to.
//!
//! **Invariant:** nothing here cancels a command: a wait that ends, or a client that goes away, leaves it as it is. Each answer and
//! each failure names the key, so that the same call can be made again.

use std::sync::Arc;
use std::time::Duration;

use bc_host::api::types::{CommandRef, Kind, KindRef, RunCommand};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::answer::{Answer, plain};
use super::ask;
use super::failure::Failure;
use super::lists::node_id;
use super::view::View;
use crate::client::Client;
use crate::commands::follow::{Pace, follow};
use crate::commands::progress::Progress;
use crate::commands::seen::Seen;
use crate::exit::Ending;
use crate::shell;

/// What `exec_command` answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Executed {
    /// The same call with this key is the same command.
    pub(super) idempotency_key: String,
    /// How the wait ended: over (the command is), awaits-approval, timed-out, or contact-lost; not-waited where none was asked for.
    pub(super) wait: &'static str,
    /// The command as it stands now.
    pub(super) command: View,
}

/// Queues it. `told` gets what happens meanwhile, in words; `gone` is cancelled when the client no longer waits.
pub(super) async fn exec(
    client: Arc<Client>,
    ask: ask::Exec,
    told: Option<mpsc::Sender<String>>,
    gone: CancellationToken,
) -> Result<Answer, Failure> {
    let wait = ask::within("waitSeconds", ask.wait_seconds.unwrap_or(0), 0, ask::MAX_WAIT_SECONDS)?;
    let node = node_id(&client, "nodeId", &ask.node_id).await?;
    let key = ask.idempotency_key.unwrap_or_else(|| format!("mcp-{}", hex::encode(shell::random::<16>())));
    let request = RunCommand {
        tenant_id: client.tenant().await?,
        node_id: node.clone(),
        kind: ask.kind.clone(),
        payload: Value::Object(ask.payload),
        idempotency_key: key.clone(),
        not_after_seconds: ask.not_after_seconds,
        batch_id: ask.batch_id,
        min_generation: ask.min_generation,
    };
    let queued: Seen = match client.call("commands.run", &request).await {
        Ok(queued) => queued,
        Err(error) => {
            let failure = Failure::from(error).with_key(&key).with_scope(&node, &ask.kind);
            return Err(with_payload_schema(&client, failure, ask.kind).await);
        }
    };
    let (seen, ending) = if wait == 0 {
        let ending = queued.ending();
        (queued, ending)
    } else {
        let wait = Duration::from_secs(u64::from(wait));
        wait_for(client, &request.tenant_id, queued, wait, told, gone).await
    };
    let command = View::of(&seen);
    let ended = match ending {
        _ if command.is_over => "over",
        Ending::AwaitsApproval => "awaits-approval",
        Ending::Unknown => "contact-lost",
        _ if wait == 0 => "not-waited",
        _ => "timed-out",
    };
    let key_words = format!("idempotencyKey: {}", plain(&key));
    let words = [command.words(), next(ended, &command), key_words].into_iter().filter(|it| !it.is_empty());
    let words = words.collect::<Vec<_>>().join(" ");
    let data = command.data();
    Ok(Answer::new(words, &Executed { idempotency_key: key, wait: ended, command }).with_data("the node", data))
}

/// Adds what the kind takes to the refusal of a payload, if the caller may see the kind.
async fn with_payload_schema(client: &Client, failure: Failure, kind: String) -> Failure {
    if !failure.is_of_payload() {
        return failure;
    }
    match client.call::<Kind>("kinds.get", &KindRef { name: Some(kind), digest: None }).await {
        Ok(kind) if kind.manifest["payload"].is_object() => {
            failure.with_payload_schema(kind.manifest["payload"].clone())
        }
        // The refusal says what is wrong without it as well.
        _ => failure,
    }
}

async fn wait_for(
    client: Arc<Client>,
    tenant: &str,
    queued: Seen,
    wait: Duration,
    told: Option<mpsc::Sender<String>>,
    gone: CancellationToken,
) -> (Seen, Ending) {
    let reference = CommandRef {
        tenant_id: tenant.to_owned(),
        node_id: queued.command.node_id.clone(),
        command_id: queued.command.id.clone(),
    };
    let mut progress = told.map_or_else(Progress::silent, Progress::told);
    let pace = Pace { wait: Some(wait), ..Pace::default() };
    let first = queued.clone();
    let followed = follow(client, &reference, Some(first), pace, &mut progress, gone.cancelled_owned()).await;
    (followed.seen.unwrap_or(queued), followed.ending)
}

/// What an agent can do next.
fn next(wait: &str, command: &View) -> String {
    let View { id, node_id, .. } = command;
    let reference = format!("nodeId {node_id} and commandId {id}");
    match wait {
        "over" => String::new(),
        "awaits-approval" => format!(
            "It runs only once people have approved the batch with their own keys; tell the person. \
             Later, get_command with {reference} says how it stands."
        ),
        "contact-lost" => {
            format!(
                "Contact to the control plane was lost while waiting; it goes on. get_command with {reference} says how it stands."
            )
        }
        _ => format!(
            "It goes on. get_command with {reference} says how it stands, read_output what it writes, explain_command why it waits."
        ),
    }
}
