//! `better-compute workflow …`: wipe, deploy and accept a machine, one command after the other.
//!
//! **Invariant:** 0 means that each step is known to have succeeded; a workflow of which nobody can say what it did ends with 8.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bc_host::api::types::{
    CreateWorkflow, ListWorkflows, WatchEvents, Workflow, WorkflowRef, WorkflowStep, WorkflowStepRequest,
};
use bc_proto::rules::state::State;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde::Deserialize;
use serde_json::json;
use time::OffsetDateTime;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::client::events::Events;
use crate::client::{CallError, Client, Connect, Patience};
use crate::exit::{self, Ending};
use crate::format::{Format, Output, Shown, distance, moment};
use crate::{complete, node, output, shell};

/// Between two looks; events make it look earlier.
const POLL: Duration = Duration::from_secs(3);

/// How long nobody may answer before contact counts as lost.
const LOST_AFTER: Duration = Duration::from_mins(1);

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum WorkflowCommand {
    /// Set a node apart and run steps on it, one after the other
    ///
    /// The file has `reason` and `[[steps]]`, each with `kind`, `payload` and, if need be, `deadline`; docs/workflows.md shows one.
    Start(Start),
    /// List workflows, newest first
    List(List),
    /// Show a workflow, its steps, and what it waits for
    #[command(alias = "get")]
    Show(One),
    /// Wait for a workflow to end, and say each step
    #[command(after_help = exit::HELP)]
    Watch(Watch),
    /// Call a workflow off: no further step begins, and the open one is cancelled; the node stays set apart
    Cancel(One),
    /// Have a workflow go on from the step that did not succeed; look at the node first
    Retry(One),
}

/// What to start.
#[derive(Debug, Args)]
pub struct Start {
    /// The node, by id or name
    #[arg(value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    /// The steps, TOML or, with the ending .json, JSON
    #[arg(long, short, value_name = "FILE")]
    file: std::path::PathBuf,
    /// Why, for those who approve; in place of the file's `reason`
    #[arg(long)]
    reason: Option<String>,
    /// The idempotency key: the same key is the same workflow. A new one by default
    #[arg(long)]
    key: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which ones.
#[derive(Debug, Args)]
pub struct List {
    /// Only this node's, by id or name
    #[arg(long, short, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: Option<String>,
    /// Only those in this state
    #[arg(long, value_parser = ["running", "succeeded", "failed", "ambiguous", "cancelled"])]
    state: Option<String>,
    /// At most as many; 0 for all
    #[arg(long, default_value_t = 100)]
    limit: u32,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which one.
#[derive(Debug, Args)]
pub struct One {
    /// The workflow, `wf_…`
    workflow: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which one, and how long.
#[derive(Debug, Args)]
pub struct Watch {
    #[command(flatten)]
    one: One,
    /// Wait no longer than this; the workflow goes on
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    wait_timeout: Option<Duration>,
}

/// What a file says.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    reason: String,
    #[serde(default, alias = "keep-quarantine")]
    keep_quarantine: bool,
    steps: Vec<FileStep>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileStep {
    kind: String,
    #[serde(default)]
    payload: serde_json::Map<String, serde_json::Value>,
    /// A span, `6h`.
    #[serde(default)]
    deadline: Option<String>,
}

/// Reads a file's text.
fn parse(text: &str, is_json: bool) -> anyhow::Result<(String, bool, Vec<WorkflowStepRequest>)> {
    let file: File = if is_json { serde_json::from_str(text)? } else { toml::from_str(text)? };
    let mut steps = Vec::new();
    for (at, step) in file.steps.into_iter().enumerate() {
        let deadline = step.deadline.as_deref().map(humantime::parse_duration).transpose();
        let deadline = deadline.with_context(|| format!("steps[{at}].deadline is no span such as 6h"))?;
        steps.push(WorkflowStepRequest {
            kind: step.kind,
            payload: step.payload.into(),
            deadline_seconds: deadline.map(|span| u32::try_from(span.as_secs()).unwrap_or(u32::MAX)),
        });
    }
    Ok((file.reason, file.keep_quarantine, steps))
}

impl WorkflowCommand {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Start(start) => start.execute().await?,
            Self::List(list) => list.execute().await?,
            Self::Show(one) => one.call("workflows.get").await?,
            Self::Watch(watch) => return watch.execute().await,
            Self::Cancel(one) => one.call("workflows.cancel").await?,
            Self::Retry(one) => one.call("workflows.retry").await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Start {
    async fn execute(self) -> anyhow::Result<()> {
        let name = self.file.display();
        let text = std::fs::read_to_string(&self.file).with_context(|| format!("{name} cannot be read"))?;
        let is_json = self.file.extension().is_some_and(|it| it == "json");
        let (reason, keep_quarantine, steps) =
            parse(&text, is_json).with_context(|| format!("{name} is not what a workflow's file is"))?;
        let reason = self.reason.unwrap_or(reason);
        if reason.is_empty() {
            bail!("{name} has no reason; add one, or give --reason");
        }
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let key = self.key.unwrap_or_else(|| format!("cli-{}", hex::encode(shell::random::<16>())));
        output::complain(&format!("key: {key}"));
        let request = CreateWorkflow {
            tenant_id: client.tenant().await?,
            node_id: node::resolve(&client, &self.node).await?,
            reason,
            steps,
            keep_quarantine,
            idempotency_key: key,
        };
        show(&client.call("workflows.create", &request).await?, self.output);
        Ok(())
    }
}

impl List {
    async fn execute(self) -> anyhow::Result<()> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let node_id = match &self.node {
            Some(name) => Some(node::resolve(&client, name).await?),
            None => None,
        };
        let request =
            ListWorkflows { tenant_id: client.tenant().await?, node_id, state: self.state, ..ListWorkflows::default() };
        let found: Vec<Workflow> = client.pages("workflows.list", json!(request), self.limit).await?;
        self.output.list(&found, shell::now());
        Ok(())
    }
}

impl One {
    async fn reach(&self) -> anyhow::Result<(Client, WorkflowRef)> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let reference = WorkflowRef { tenant_id: client.tenant().await?, workflow_id: self.workflow.clone() };
        Ok((client, reference))
    }

    async fn call(&self, method: &str) -> anyhow::Result<()> {
        let (client, reference) = self.reach().await?;
        show(&client.call(method, &reference).await?, self.output);
        Ok(())
    }
}

impl Watch {
    async fn execute(self) -> anyhow::Result<ExitCode> {
        let (client, reference) = self.one.reach().await?;
        let client = Arc::new(client);
        let first: Workflow = client.call("workflows.get", &reference).await?;
        let (ending, seen) = follow(&client, &reference, first, self.wait_timeout).await;
        match ending {
            Ending::Interrupted | Ending::TimedOut => output::complain(&format!(
                "it goes on; better-compute workflow watch {id} waits again, better-compute workflow cancel {id} calls it off",
                id = reference.workflow_id
            )),
            _ => show(&seen, self.one.output),
        }
        Ok(ending.into())
    }
}

/// Waits for the end, and says each change. Only what `workflows.get` answers ends the wait; an event merely makes it ask.
async fn follow(
    client: &Arc<Client>,
    reference: &WorkflowRef,
    mut seen: Workflow,
    wait: Option<Duration>,
) -> (Ending, Workflow) {
    let query = WatchEvents {
        tenant_id: reference.tenant_id.clone(),
        node_id: Some(seen.node_id.clone()),
        command_id: None,
        after: None,
    };
    let mut events = Some(Events::watch(Arc::clone(client), query));
    let start = Instant::now();
    let (mut heard, mut said) = (start, String::new());
    let mut polls = interval(POLL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let line = now_at(&seen);
        if line != said {
            output::complain(&line);
            said = line;
        }
        if let Some(ending) = ending(&seen) {
            return (ending, seen);
        }
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => return (Ending::Interrupted, seen),
            () = sleep_until(start + wait.unwrap_or_default()), if wait.is_some() => return (Ending::TimedOut, seen),
            next = next(&mut events) => {
                // Without events the polls go on.
                if !matches!(next, Some(Ok(_))) {
                    events = None;
                }
            }
            _ = polls.tick() => {}
        }
        match client.call::<Workflow>("workflows.get", reference).await {
            Ok(found) => {
                heard = Instant::now();
                seen = found;
            }
            Err(error) if error.is_transient() && heard.elapsed() < LOST_AFTER => {}
            Err(error) => {
                output::complain(&error.to_string());
                return (Ending::Unknown, seen);
            }
        }
    }
}

async fn next(events: &mut Option<Events>) -> Option<Result<crate::client::events::Said, CallError>> {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}

/// How a wait ends that sees it so; `None` while it runs. A state that is not known is not taken for a success.
fn ending(workflow: &Workflow) -> Option<Ending> {
    match workflow.state.as_str() {
        "running" => None,
        "succeeded" => Some(Ending::Stands(State::Succeeded)),
        "failed" => Some(Ending::Stands(State::Failed)),
        "cancelled" => Some(Ending::Stands(State::Cancelled)),
        _ => Some(Ending::Unknown),
    }
}

/// Where it is now, in one line.
fn now_at(workflow: &Workflow) -> String {
    if workflow.state != "running" {
        let why = if workflow.why.is_empty() { String::new() } else { format!(" ({})", workflow.why) };
        return format!("{}: {}{why}", workflow.id, workflow.state);
    }
    let called = if workflow.cancel_requested_at.is_some() { ", called off" } else { "" };
    let step = workflow.steps.iter().find(|step| step.state != "succeeded");
    let step = step.map_or_else(|| "ends".to_owned(), |step| format!("{}: {}", step.step, waits(step)));
    format!("{}{called}: {step}", workflow.id)
}

/// What a step waits for, in words.
fn waits(step: &WorkflowStep) -> String {
    match (step.waits_for.as_deref(), &step.batch_id) {
        (Some("approvals"), Some(batch)) => {
            let missing = step.missing_approvals.map_or_else(String::new, |it| format!("{it} "));
            let word = if step.missing_approvals == Some(1) { "approval" } else { "approvals" };
            format!("waits for {missing}{word}: better-compute batch approve --batch {batch} --key KEY")
        }
        (Some("node"), _) => "waits for the node to take it".to_owned(),
        (Some("result"), _) => "runs on the node".to_owned(),
        (Some("other-commands"), _) => "waits for other destructive commands of the node to end".to_owned(),
        _ if step.reason.is_empty() => step.state.clone(),
        _ => format!("{} ({})", step.state, step.reason),
    }
}

/// A workflow for people: its facts, then its steps as a table.
fn show(workflow: &Workflow, output: Output) {
    output.one(workflow, shell::now());
    if output.format() == Format::Table {
        let header = ["STEP", "STATE", "TRIES", "COMMAND", "BEGAN", "WAITS FOR"].map(str::to_owned).to_vec();
        let row = |step: &WorkflowStep| {
            let dash = || "–".to_owned();
            vec![
                step.step.clone(),
                step.state.clone(),
                step.tries.to_string(),
                step.command_id.clone().unwrap_or_else(dash),
                step.began_at.map_or_else(dash, |at| distance(at, shell::now())),
                if step.state == "succeeded" { dash() } else { waits(step) },
            ]
        };
        let rows = std::iter::once(header).chain(workflow.steps.iter().map(row));
        output::say(&format!("\n{}", output::table(rows, 0).trim_fmt()));
    }
}

impl Shown for Workflow {
    const HEADER: &'static [&'static str] = &["ID", "NODE", "STATE", "ATTEMPT", "STEP", "BY", "STARTED"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        let step = self.steps.iter().find(|step| step.state != "succeeded");
        vec![
            self.id.clone(),
            self.node_id.clone(),
            self.state.clone(),
            self.attempt.to_string(),
            step.map_or_else(|| "–".to_owned(), |step| step.step.clone()),
            self.requested_by.clone(),
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
            ("state", self.state.clone()),
            ("why", self.why.clone()),
            ("reason", self.reason.clone()),
            ("by", self.requested_by.clone()),
            ("attempt", self.attempt.to_string()),
            ("started", moment(Some(self.created_at), now)),
            ("ended", at(self.ended_at)),
            ("called off", at(self.cancel_requested_at)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_toml_or_json_and_unknown_fields_are_named() {
        let toml = "reason = 'back from rent'\n[[steps]]\nkind = 'metal.disk.wipe'\ndeadline = '6h'\n\
                    payload = { all = true, minimumLevel = 'purge' }\n[[steps]]\nkind = 'diag.nvml'\n";
        let (reason, keeps, steps) = parse(toml, false).expect("a file");
        assert_eq!((reason.as_str(), keeps, steps.len()), ("back from rent", false, 2));
        assert_eq!((steps[0].deadline_seconds, &steps[0].payload["all"]), (Some(21_600), &json!(true)));
        assert_eq!((steps[1].deadline_seconds, &steps[1].payload), (None, &json!({})));
        let json = json!({ "reason": "x", "keepQuarantine": true, "steps": [{ "kind": "diag.nvml" }] }).to_string();
        assert!(parse(&json, true).expect("a file").1);
        for (wrong, why) in [
            ("reason = 'x'\nstep = []\nsteps = []", "unknown field `step`"),
            ("steps = [{ kind = 'a', deadline = 'soon' }]", "steps[0].deadline"),
            ("reason = 'x'", "missing field `steps`"),
        ] {
            let error = format!("{:#}", parse(wrong, false).expect_err("wrong"));
            assert!(error.contains(why), "{error}");
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is made where it is passed")]
    fn workflow(state: &str, step: serde_json::Value) -> Workflow {
        let mut whole = json!({
            "step": "wipe", "kind": "metal.disk.wipe", "kindDigest": "ab", "payload": {}, "destructive": true,
            "state": "open", "reason": "", "tries": 1, "deadlineSeconds": 60, "batchId": "batch_1",
        });
        for (name, value) in step.as_object().expect("fields") {
            whole[name] = value.clone();
        }
        serde_json::from_value(json!({
            "id": "wf_1", "tenantId": "t", "nodeId": "n", "state": state, "why": "", "reason": "r", "requestedBy": "ann",
            "keepQuarantine": false, "attempt": 1, "steps": [whole], "createdAt": "2024-10-01T00:00:00Z",
        }))
        .expect("a workflow")
    }

    #[test]
    fn what_it_waits_for_is_said_with_what_to_do() {
        let line = |step| now_at(&workflow("running", step));
        assert_eq!(
            line(json!({ "waitsFor": "approvals", "missingApprovals": 2 })),
            "wf_1: wipe: waits for 2 approvals: better-compute batch approve --batch batch_1 --key KEY"
        );
        assert_eq!(line(json!({ "waitsFor": "node" })), "wf_1: wipe: waits for the node to take it");
        assert_eq!(line(json!({ "waitsFor": "result" })), "wf_1: wipe: runs on the node");
    }

    #[test]
    fn promise_10_only_a_workflow_that_succeeded_exits_0() {
        let code = |state| ending(&workflow(state, json!({}))).map(exit::code);
        assert_eq!(code("running"), None);
        for (state, expected) in [("succeeded", 0), ("failed", 2), ("cancelled", 6), ("ambiguous", 8), ("paused", 8)] {
            assert_eq!(code(state), Some(expected), "{state}");
        }
    }
}
