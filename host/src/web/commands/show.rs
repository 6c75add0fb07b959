//! `/commands/{node}/{command}`: one command, and what became of it.
//!
//! **Invariant:** what stands there as checked was checked while the page was made, with the functions that nodes and auditors use.

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Redirect};
use bc_proto::receipt::Receipt;
use bc_proto::rules::receipt::{self, Trusted};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::output;
use super::result::{self, Shown};
use crate::api::auth::{AUDIT_READ, NODES_EXEC};
use crate::api::error::Failure;
use crate::api::types::{self, BundleFiles, Code, CommandRef, NodeRef, RunnerGateway};
use crate::store::unix_ms;
use crate::web::page::{self, Answer, Page};
use crate::web::query;
use crate::web::visitor::Visitor;
use crate::words::{self, Around, instant, meaning, moment};

#[derive(Template)]
#[template(path = "command.html")]
struct Detail<'a> {
    page: Page,
    path: String,
    command: &'a types::Command,
    label: String,
    meaning: &'static str,
    node_name: String,
    reasons: Vec<String>,
    steps: Vec<Step>,
    is_over: bool,
    may_cancel: bool,
    again: Option<String>,
    payload: String,
    result: Option<Shown>,
    raw: String,
    failure: Option<Said>,
    effects: Vec<Effect>,
    output: output::Shown,
    bundle: Option<Bundle>,
    proof: Proof,
}

/// Something that happened to it.
struct Step {
    at: String,
    distance: String,
    what: String,
}

/// What a failure's particulars say.
struct Said {
    code: String,
    message: String,
    problems: Vec<(String, String)>,
    details: String,
}

/// Something that the run did on the node.
struct Effect {
    state: String,
    call: String,
    arguments: String,
    reason: String,
}

/// What it uploaded.
enum Bundle {
    /// Its files, each with where it is read.
    Files(BundleFiles, Vec<String>),
    /// They cannot be told, and why.
    Not(String),
}

/// What was checked about who says all this.
struct Proof {
    attested_by: Option<String>,
    receipt: Result<Vec<String>, String>,
}

/// `GET /commands/{node}/{command}`
pub(super) async fn show(visitor: Visitor, Path((node, id)): Path<(String, String)>) -> Answer {
    let mut page = Page::live(&visitor, "commands", "", &[("nodeId", &node), ("commandId", &id)]).await?;
    // Before the command: what was written by its end is there when the end is.
    let output = output::first(&visitor, &node, &id).await?;
    let reference = CommandRef { tenant_id: visitor.tenant(), node_id: node.clone(), command_id: id.clone() };
    let command: types::Command = visitor.call("commands.get", &reference).await?;
    let now = visitor.app().now();
    let is_over = words::state(&command.state).is_none_or(bc_proto::rules::state::State::is_terminal);
    let around = around(&visitor, &command, is_over).await?;
    let names = super::list::names(&visitor, std::iter::once(node.as_str())).await?;
    let node_name = names.get(&node).cloned().unwrap_or_else(|| node.clone());
    page.title = format!("{} on {node_name}", command.kind);
    let may_exec = visitor.may(NODES_EXEC, &format!("compute-node/{node}"));
    let is_success = command.state == "succeeded";
    let said = command.result.as_ref();
    let detail = Detail {
        path: super::path(&node, &id),
        label: super::list::label(&command),
        meaning: meaning(&command.reason).unwrap_or_default(),
        reasons: words::explain(&command, &around, now),
        steps: steps(&command, now),
        may_cancel: may_exec && !is_over && command.cancel_requested_at.is_none(),
        again: may_exec.then(|| query::path("/commands/run", [("node", node.as_str()), ("kind", &command.kind)])),
        payload: format!("{:#}", command.payload),
        result: said.filter(|_| is_success).map(result::shown),
        raw: said.map(|it| format!("{it:#}")).unwrap_or_default(),
        failure: said.filter(|_| !is_success).map(failure),
        effects: said.map(effects).unwrap_or_default(),
        bundle: bundle(&visitor, &command, is_over).await?,
        proof: proof(&visitor, &command).await?,
        node_name,
        output,
        is_over,
        page,
        command: &command,
    };
    page::html(&detail)
}

/// What stands around a command that is not over; what the visitor may not see of it is left out.
async fn around(visitor: &Visitor, command: &types::Command, is_over: bool) -> Result<Around, Failure> {
    let mut around = Around::default();
    if is_over {
        return Ok(around);
    }
    let (tenant_id, node_id) = (visitor.tenant(), command.node_id.clone());
    let node = NodeRef { tenant_id: tenant_id.clone(), node_id: node_id.clone() };
    around.node = match visitor.call("nodes.get", &node).await {
        Ok(node) => Some(node),
        // It was deleted.
        Err(failure) if failure.0.code == Code::NotFound => None,
        Err(failure) => return Err(failure),
    };
    if around.node.as_ref().is_some_and(|it| it.role == "gateway") {
        let runner: RunnerGateway = visitor.call("runners.get", &node).await?;
        around.runner = Some(runner).filter(|it| it.slug.is_some());
    }
    for state in ["dispatched", "acked", "running"] {
        let ask = json!({ "tenantId": tenant_id, "nodeId": node_id, "state": state });
        let found: types::Page<types::Command> = visitor.call("commands.list", &ask).await?;
        around.in_flight.extend(found.items);
    }
    Ok(around)
}

fn steps(command: &types::Command, now: OffsetDateTime) -> Vec<Step> {
    let by = command.requested_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let end = match command.reason.as_str() {
        "" => command.state.clone(),
        reason => format!("{} ({reason})", command.state),
    };
    let mut steps = vec![
        (Some(command.created_at), format!("queued{by}")),
        (command.dispatched_at, "first sent to the node".to_owned()),
        (command.cancel_requested_at, "called off".to_owned()),
        (command.reported_at, "the node's own time of its result".to_owned()),
        (command.settled_at, end),
    ];
    steps.sort_by_key(|(at, _)| *at);
    let mut steps: Vec<Step> = steps
        .into_iter()
        .filter_map(|(at, what)| Some(Step { at: instant(at?), distance: words::distance(at?, now), what }))
        .collect();
    if command.settled_at.is_none() {
        let at = command.not_before.filter(|at| *at > now);
        steps.extend(at.map(|at| Step {
            at: instant(at),
            distance: words::distance(at, now),
            what: "sent again, not before this".to_owned(),
        }));
        steps.push(Step {
            at: String::new(),
            distance: moment(Some(command.not_after), now),
            what: format!("{} now; it may wait to be taken until", command.state),
        });
    }
    steps
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => format!("{other:#}"),
    }
}

fn failure(result: &Value) -> Said {
    let problems = result["problems"].as_array().into_iter().flatten();
    Said {
        code: text(&result["code"]),
        message: text(&result["message"]),
        problems: problems.map(|it| (text(&it["pointer"]), text(&it["message"]))).collect(),
        details: text(&result["details"]),
    }
}

/// What a run's report says that it did.
fn effects(result: &Value) -> Vec<Effect> {
    let effects = result["effects"].as_array().into_iter().flatten().filter(|it| it.is_object());
    effects
        .map(|it| Effect {
            state: text(&it["state"]["state"]),
            call: text(&it["name"]),
            arguments: it.get("args").map(Value::to_string).unwrap_or_default(),
            reason: text(&it["state"]["reason"]),
        })
        .collect()
}

async fn bundle(visitor: &Visitor, command: &types::Command, is_over: bool) -> Result<Option<Bundle>, Failure> {
    if !command.support_bundle || !is_over {
        return Ok(None);
    }
    let ask = types::BundleRef {
        tenant_id: visitor.tenant(),
        node_id: command.node_id.clone(),
        command_id: command.id.clone(),
    };
    Ok(Some(match visitor.call::<BundleFiles>("bundles.files", &ask).await {
        Ok(files) => {
            let path = format!("{}/file", super::path(&command.node_id, &command.id));
            let links = files.files.iter().map(|file| query::path(&path, [("path", file.path.as_str())])).collect();
            Bundle::Files(files, links)
        }
        Err(failure) => Bundle::Not(failure.0.message),
    }))
}

/// Checks what can be checked: the node's signature is the API's to check, a receipt is checked here as `audit verify` does.
async fn proof(visitor: &Visitor, command: &types::Command) -> Result<Proof, Failure> {
    let attested_by = command.attested_by.clone();
    let without = |why: &str| Ok(Proof { attested_by: command.attested_by.clone(), receipt: Err(why.to_owned()) });
    if !command.destructive {
        return without("only destructive commands stand in the transparency log");
    }
    if !visitor.may(AUDIT_READ, &format!("tenant/{}", visitor.tenant())) {
        return without("your token may not read the transparency log");
    }
    let ask = json!({ "tenantId": visitor.tenant(), "commandId": command.id });
    let receipt: Value = match visitor.call("audit.receipt", &ask).await {
        Ok(receipt) => receipt,
        Err(failure) if failure.0.code == Code::NotFound => return without("it does not stand in the log yet"),
        Err(failure) => return Err(failure),
    };
    let pki = &visitor.app().config.pki;
    let own = pki.command_signing.as_ref().map(bc_proto::sign::SecretKey::public);
    let roots: Vec<_> = own.into_iter().chain(pki.command_signing_roots.iter().copied()).collect();
    let trusted = Trusted { roots: &roots, node: None, now_ms: unix_ms(visitor.app().now()) };
    let proven = Receipt::parse(receipt.to_string().as_bytes())
        .map_err(|error| error.to_string())
        .and_then(|receipt| receipt::verify(&receipt, trusted).map_err(|error| error.to_string()));
    let receipt = match proven {
        Ok(proven) => Ok(words::receipt::proven(&proven)),
        Err(why) => Err(format!("its receipt proves nothing: {why}")),
    };
    Ok(Proof { attested_by, receipt })
}

/// `POST /commands/{node}/{command}/cancel`
pub(super) async fn cancel(visitor: Visitor, Path((node, id)): Path<(String, String)>) -> Answer {
    let path = super::path(&node, &id);
    let reference = CommandRef { tenant_id: visitor.tenant(), node_id: node, command_id: id };
    let _: types::Command = visitor.call("commands.cancel", &reference).await?;
    Ok(Redirect::to(&path).into_response())
}
