//! An agent: an independent client of the protocol, the SDK in TypeScript, as a process of its own.
//!
//! **Invariant:** the client shares no code with the server; it checks each structured result against the schema that the server gave.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bc_tests::cluster::operator::Operator;
use bc_tests::programs::repository;
use serde_json::{Value, json};

/// The client, connected.
pub(crate) struct Agent {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// What the server said of itself.
    pub(crate) server: Value,
}

impl Agent {
    /// One that starts `better-compute mcp` as this person, and speaks over its standard input and output.
    pub(crate) fn on_stdio(operator: &Operator) -> Self {
        let server = operator.command(&["mcp"]);
        let mut node = client("stdio");
        node.arg(server.get_program()).args(server.get_args());
        for (name, value) in server.get_envs() {
            match value {
                Some(value) => node.env(name, value),
                None => node.env_remove(name),
            };
        }
        Self::start(node).expect("it connects")
    }

    /// One that speaks HTTP, with this token or with none; what it says when it is refused is an answer.
    pub(crate) fn on_http(url: &str, token: Option<&str>) -> Result<Self, String> {
        let mut node = client("http");
        node.arg(url).args(token);
        Self::start(node)
    }

    fn start(mut node: Command) -> Result<Self, String> {
        node.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = node.spawn().expect("node (Node.js 20) is there");
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut agent = Self { child, requests, answers, server: Value::Null };
        agent.server = agent.heard()?;
        Ok(agent)
    }

    fn ask(&mut self, request: &Value) -> Result<Value, String> {
        let requests = self.requests.as_mut().expect("it is open until the end");
        writeln!(requests, "{request}").expect("it reads");
        self.heard()
    }

    fn heard(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        let read = tokio::task::block_in_place(|| self.answers.read_line(&mut line));
        assert!(read.is_ok_and(|bytes| bytes > 0), "the client ended");
        let answer: Value = serde_json::from_str(&line).expect("it answers JSON");
        match answer.get("ok") {
            Some(ok) => Ok(ok.clone()),
            None => Err(answer["error"].to_string()),
        }
    }

    /// The tools.
    pub(crate) fn tools(&mut self) -> Value {
        self.ask(&json!({ "op": "list" })).expect("tools are listed")
    }

    /// What a tool answers; an error where there is no such tool.
    pub(crate) fn call(&mut self, name: &str, input: Value) -> Result<Told, String> {
        let mut request = json!({ "op": "call", "name": name });
        request["input"] = input;
        Ok(Told(self.ask(&request)?["result"].take()))
    }

    /// What a tool answers that does what it is asked.
    pub(crate) fn does(&mut self, name: &str, input: Value) -> Told {
        let told = self.call(name, input).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(told.0["isError"] != true, "{name}: {}", told.text());
        told
    }

    /// What a tool answers that does not.
    pub(crate) fn fails(&mut self, name: &str, input: Value) -> Told {
        let told = self.call(name, input).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(told.0["isError"] == true, "{name}: {}", told.text());
        told
    }

    /// As [`Agent::does`], with the remarks on the way.
    pub(crate) fn does_in_view(&mut self, name: &str, input: Value) -> (Told, Vec<Value>) {
        let mut request = json!({ "op": "call", "name": name, "progress": true });
        request["input"] = input;
        let mut answer = self.ask(&request).unwrap_or_else(|error| panic!("{name}: {error}"));
        let told = Told(answer["result"].take());
        assert!(told.0["isError"] != true, "{name}: {}", told.text());
        (told, answer["remarks"].as_array().cloned().unwrap_or_default())
    }

    /// Calls a tool and goes away after its first remark.
    pub(crate) fn abandons(&mut self, name: &str, input: Value) {
        let mut request = json!({ "op": "call", "name": name, "progress": true, "abortAfter": 1 });
        request["input"] = input;
        let answer = self.ask(&request).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(answer["aborted"], true, "{answer}");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The end of its input ends the client, which ends the server.
        self.requests = None;
        let _ = self.child.wait();
    }
}

/// What a tool answered.
#[derive(Debug)]
pub(crate) struct Told(Value);

impl Told {
    /// What every client shows.
    pub(crate) fn text(&self) -> &str {
        self.0["content"][0]["text"].as_str().unwrap_or_default()
    }

    /// The document.
    pub(crate) fn document(&self) -> &Value {
        &self.0["structuredContent"]
    }

    /// A text in the document, by its JSON pointer.
    pub(crate) fn word(&self, pointer: &str) -> String {
        let word = self.document().pointer(pointer).and_then(Value::as_str);
        word.unwrap_or_else(|| panic!("{pointer} is no text in {}", self.document())).to_owned()
    }
}

#[expect(clippy::disallowed_methods, reason = "these tests are about programs")]
fn client(how: &str) -> Command {
    let folder = repository().join("tests/clients/mcp");
    assert!(
        folder.join("node_modules/.package-lock.json").is_file(),
        "the client's packages are not there: run `cargo xtask setup`, which installs them"
    );
    let mut node = Command::new("node");
    node.arg(folder.join("client.mjs")).arg(how);
    node
}
