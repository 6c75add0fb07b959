//! `propose_command_batch`.
//!
//! **Invariant:** it proposes. Approving takes a person's own key, which no program on this path has.

use bc_host::api::types::{Batch, BatchLeaf, CreateBatch};
use bc_proto::canonical;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::answer::{Answer, plain};
use super::ask;
use super::failure::{Failure, Problem};
use super::lists::Names;
use super::view::moment;
use crate::client::Client;
use crate::shell;

/// What `propose_command_batch` answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Proposed {
    /// batch_…: what exec_command takes.
    pub(super) batch_id: String,
    /// open, approved, rejected or expired.
    pub(super) state: String,
    /// How many entries its scope has.
    pub(super) size: u64,
    /// How many people's approvals are missing, at least; absent where nobody is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) missing: Option<u32>,
    /// What it takes: how many people of which groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<Value>,
    /// Until when its commands may be accepted, RFC 3339.
    pub(super) expires_at: String,
    /// The same call with this key is the same batch.
    pub(super) idempotency_key: String,
    /// What a person who approves runs.
    pub(super) approve_with: String,
}

/// Proposes it.
pub(super) async fn propose(client: &Client, ask: ask::ProposeBatch) -> Result<Answer, Failure> {
    let mut scope = Vec::with_capacity(ask.scope.len());
    let mut names = Names::new(client);
    for (index, leaf) in ask.scope.into_iter().enumerate() {
        let payload_sha256 = digest(index, &leaf)?;
        let subject = names.id(&format!("scope[{index}].subject"), &leaf.subject).await?;
        scope.push(BatchLeaf { subject, kind: leaf.kind, payload_sha256 });
    }
    let key = ask.idempotency_key.unwrap_or_else(|| format!("mcp-{}", hex::encode(shell::random::<16>())));
    let request = CreateBatch {
        tenant_id: client.tenant().await?,
        reason: ask.reason,
        scope,
        idempotency_key: key.clone(),
        expires_in_seconds: ask.expires_in_seconds,
    };
    let batch: Batch =
        client.call("commandBatches.create", &request).await.map_err(|error| Failure::from(error).with_key(&key))?;
    let proposed = Proposed {
        approve_with: format!("better-compute batch approve --batch {} --key approver.pem", batch.batch_id),
        expires_at: moment(batch.expires_at),
        batch_id: batch.batch_id,
        state: batch.state,
        size: batch.size,
        missing: batch.missing,
        policy: batch.policy,
        idempotency_key: key,
    };
    Ok(Answer::new(proposed.words(), &proposed))
}

/// The SHA-256 of the only payload, if one is named.
fn digest(index: usize, leaf: &ask::Leaf) -> Result<Option<String>, Failure> {
    match (&leaf.payload, &leaf.payload_sha256) {
        (Some(_), Some(_)) => {
            let rule = "does not go with payloadSha256: name one of them";
            Err(Problem::new(format!("scope[{index}].payload"), rule).into())
        }
        (Some(payload), None) => {
            let canonical = canonical::to_vec(payload);
            let rule =
                |error| Problem::new(format!("scope[{index}].payload"), format!("has no canonical form: {error}"));
            Ok(Some(canonical::sha256_hex(&canonical.map_err(rule)?)))
        }
        (None, digest) => Ok(digest.clone()),
    }
}

impl Proposed {
    fn words(&self) -> String {
        let Self { batch_id, state, size, expires_at, approve_with, idempotency_key, .. } = self;
        let head = format!("{batch_id} of {size} entries is {state} until {expires_at}.");
        let then = match (state.as_str(), self.missing) {
            ("open" | "approved", None) => {
                "No approvers are configured: it is recorded for audit, and its commands go out at once. \
                 Ask the person before you run something destructive."
                    .to_owned()
            }
            ("open", Some(missing)) => format!(
                "It lacks {missing} approval(s), each with a person's own key: `{approve_with}`. Tell the person. \
                 exec_command with this batchId queues its commands now; they are held until then. No tool here approves."
            ),
            ("approved", _) => "Run its commands with exec_command and this batchId.".to_owned(),
            _ => "Its commands do not run; propose another one if the person wants it.".to_owned(),
        };
        format!("{head} {then} idempotencyKey: {}", plain(idempotency_key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposed(state: &str, missing: Option<u32>) -> Proposed {
        Proposed {
            batch_id: "batch_7".into(),
            state: state.into(),
            size: 2,
            missing,
            policy: None,
            expires_at: "2024-10-04T00:00:00Z".into(),
            idempotency_key: "mcp-1".into(),
            approve_with: "better-compute batch approve --batch batch_7 --key approver.pem".into(),
        }
    }

    #[test]
    fn whoever_proposes_is_told_that_people_approve() {
        let told = [("open", Some(2)), ("open", None), ("approved", Some(0)), ("rejected", Some(1))];
        let told = told.map(|(state, missing)| proposed(state, missing).words());
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn a_payload_is_bound_by_its_canonical_form() {
        let leaf = |json: &str| serde_json::from_str::<ask::Leaf>(json).expect("a leaf");
        let bound = |json: &str| digest(0, &leaf(json)).expect("it is good");
        let one = bound(r#"{"subject":"n","kind":"k","payload":{"a":1,"b":2}}"#);
        assert!(one.is_some() && one == bound(r#"{"subject":"n","kind":"k","payload":{"b":2,"a":1.0}}"#));
        assert_eq!(bound(r#"{"subject":"n","kind":"k"}"#), None);
        let both = leaf(r#"{"subject":"n","kind":"k","payload":{},"payloadSha256":"ab"}"#);
        let failure = digest(3, &both).expect_err("one of them").into_result("3f2a").structured_content;
        let error = failure.expect("it is structured");
        assert_eq!(error["error"]["details"]["problems"][0]["field"], "scope[3].payload");
    }
}
