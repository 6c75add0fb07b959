//! The server of the protocol: reads what a tool is given, runs it as the caller, and answers.
//!
//! **Invariant:** a call is made as whoever sent it: over HTTP with the token of that very request.

use std::sync::Arc;

use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ProgressToken, ServerCapabilities, ServerConfig,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::answer::{Answer, plain};
use super::failure::{Failure, Problem};
use super::tools::{INSTRUCTIONS, Tool};
use super::{batch, commands, exec, lists, output};
use crate::client::Client;
use crate::shell;

/// Remarks on a wait that are not sent yet. More are dropped: the next one tells how it stands as well.
const UNSENT: usize = 16;

/// The server for one connection, or for one request over HTTP.
#[derive(Debug, Clone)]
pub(super) struct Face {
    /// As whom; `None` where each request says it.
    client: Option<Arc<Client>>,
}

impl Face {
    /// One that makes all calls as this caller.
    pub(super) const fn of(client: Arc<Client>) -> Self {
        Self { client: Some(client) }
    }

    /// One that makes each call as the caller whom the HTTP request carries.
    pub(super) const fn of_each() -> Self {
        Self { client: None }
    }

    fn caller(&self, context: &RequestContext<RoleServer>) -> Result<Arc<Client>, ErrorData> {
        let of_request = || context.extensions.get::<Parts>()?.extensions.get::<Arc<Client>>().cloned();
        let client = self.client.clone().or_else(of_request);
        client.ok_or_else(|| ErrorData::internal_error("the request carries no caller", None))
    }
}

impl ServerHandler for Face {
    fn get_info(&self) -> ServerConfig {
        let this = Implementation::new("better-compute", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(this.with_title("better-compute"))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(Tool::ALL.map(Tool::described).into()))
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        Tool::of(name).map(Tool::described)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = Tool::of(&request.name) else {
            let names = Tool::ALL.map(Tool::name).join(", ");
            return Err(ErrorData::invalid_params(
                format!("no tool is called {}; there are {names}", plain(&request.name)),
                None,
            ));
        };
        let client = self.caller(&context)?;
        let answer = call(tool, request.arguments.unwrap_or_default(), client, context).await;
        let mark = hex::encode(shell::random::<8>());
        let result: CallToolResult = match answer {
            Ok(answer) => answer.into_result(&mark),
            Err(failure) => failure.into_result(&mark),
        };
        Ok(result.into())
    }
}

async fn call(
    tool: Tool,
    arguments: Map<String, Value>,
    client: Arc<Client>,
    context: RequestContext<RoleServer>,
) -> Result<Answer, Failure> {
    match tool {
        Tool::ListNodes => lists::nodes(&client, read(arguments)?).await,
        Tool::ListCommands => lists::commands(&client, read(arguments)?).await,
        Tool::GetCommand => commands::get(&client, read(arguments)?).await,
        Tool::CancelCommand => commands::cancel(&client, read(arguments)?).await,
        Tool::ExplainCommand => commands::explain(&client, read(arguments)?).await,
        Tool::ReadOutput => output::read(&client, read(arguments)?).await,
        Tool::ProposeCommandBatch => batch::propose(&client, read(arguments)?).await,
        Tool::ExecCommand => {
            let ask = read(arguments)?;
            let RequestContext { peer, meta, ct, .. } = context;
            let Some(token) = meta.get_progress_token() else {
                return exec::exec(client, ask, None, ct).await;
            };
            let (tell, told) = mpsc::channel(UNSENT);
            // The channel closes with the wait, so nothing is sent after the answer.
            let (answer, ()) = tokio::join!(exec::exec(client, ask, Some(tell), ct), pass_on(told, &peer, &token));
            answer
        }
    }
}

/// Sends what happens as progress. What a step counts changes from kind to kind, and progress has to grow: remarks are counted.
async fn pass_on(mut told: mpsc::Receiver<String>, peer: &Peer<RoleServer>, token: &ProgressToken) {
    let mut remarks = 0.0;
    while let Some(remark) = told.recv().await {
        remarks += 1.0;
        let progress = ProgressNotificationParam::new(token.clone(), remarks).with_message(plain(&remark));
        // A client that is gone gets no answer either.
        let _ = peer.notify_progress(progress).await;
    }
}

/// Reads a tool's input; what breaks a rule is named.
fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, Failure> {
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        let field = error.path().to_string();
        // A path of `.` is the whole.
        let field = if field == "." { String::new() } else { field };
        Problem::new(field, error.into_inner().to_string()).into()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::ask;
    use super::*;

    fn problem<T: DeserializeOwned + std::fmt::Debug>(arguments: Value) -> Value {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let failure = read::<T>(arguments).expect_err("it breaks a rule");
        let error = failure.into_result("3f2a").structured_content.expect("it is structured");
        assert_eq!(error["error"]["code"], "INVALID_INPUT");
        error["error"]["details"]["problems"][0].clone()
    }

    #[test]
    fn bad_input_is_refused_with_the_field_and_the_rule() {
        let unknown = problem::<ask::Exec>(json!({ "nodeId": "n", "kind": "k", "sudo": true }));
        assert!(unknown["rule"].as_str().is_some_and(|rule| rule.contains("unknown field `sudo`")), "{unknown}");
        let missing = problem::<ask::Exec>(json!({ "nodeId": "n" }));
        assert!(missing["rule"].as_str().is_some_and(|rule| rule.contains("missing field `kind`")), "{missing}");
        let wrong = problem::<ask::ProposeBatch>(json!({ "reason": "r", "scope": [{ "subject": 7, "kind": "k" }] }));
        assert_eq!(wrong["field"], "scope[0].subject");
        let state = problem::<ask::ListCommands>(json!({ "nodeId": "n", "state": "paused" }));
        assert_eq!(state["field"], "state");
        let payload = problem::<ask::Exec>(json!({ "nodeId": "n", "kind": "k", "payload": [1] }));
        assert_eq!(payload["field"], "payload");
    }
}
