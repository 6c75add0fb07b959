//! `better-compute:host/process`.
//!
//! Whether a run is an effect depends on its program: the manifest marks those that change nothing, and a node's policy covers
//! an entry only with the same mark.

use bc_proto::grants::{Capability, Need};
use serde_json::{Value, json};

use super::wit::process::{Exit, Host, Outcome, Output, OutputStream, Request};
use crate::capability::Answer;
use crate::gate::{Action, Call, Purpose};
use crate::store::RunState;

const USE: Need<'static> = Need::Use(Capability::Process);

/// The handle of a program that a plan did not start.
const PLANNED: u32 = u32::MAX;

impl RunState {
    fn start_call<'a>(&self, function: &'static str, request: &'a Request) -> Call<'a> {
        let need = Need::Run { program: &request.program, argv: &request.argv };
        let entry = self.gate.manifest.capabilities.program(&request.program, &request.argv);
        let action = if entry.is_some_and(|entry| entry.read_only) { Action::Read } else { Action::Effect };
        Call { action, ..Call::read("process", function, need) }
    }

    /// A plan performs what only reads, and with it the calls that go on with it.
    fn part<T>(&self, handle: u32, dry: T) -> Option<T> {
        (matches!(self.gate.purpose, Purpose::Plan) && handle == PLANNED).then_some(dry)
    }
}

/// What a program would have given that a plan did not run.
fn nothing() -> Outcome {
    let silent =
        || Output { total_bytes: 0, sha256: String::new(), truncated: false, head: String::new(), tail: String::new() };
    Outcome { exit: Exit::Code(0), stdout: silent(), stderr: silent() }
}

/// The input may be long and may hold what no journal should: its size stands for it.
fn described(request: &Request) -> Value {
    json!({
        "program": request.program,
        "argv": request.argv,
        "stdinBytes": request.stdin.as_ref().map_or(0, Vec::len),
        "timeoutMs": request.timeout_ms,
    })
}

impl Host for RunState {
    async fn run(&mut self, request: Request) -> wasmtime::Result<Answer<Outcome>> {
        let process = self.gate.capabilities.process.clone();
        let asked = request.clone();
        let call = self.start_call("run", &asked);
        let dry = (call.action == Action::Effect).then(nothing);
        self.gate.ask(call, described(&asked), dry, process, move |process| process.run(&request)).await
    }

    async fn start(&mut self, request: Request) -> wasmtime::Result<Answer<u32>> {
        let process = self.gate.capabilities.process.clone();
        let asked = request.clone();
        let call = self.start_call("start", &asked);
        let dry = (call.action == Action::Effect).then_some(PLANNED);
        self.gate.ask(call, described(&asked), dry, process, move |process| process.start(&request)).await
    }

    async fn read(
        &mut self,
        handle: u32,
        output: OutputStream,
        max_bytes: u32,
    ) -> wasmtime::Result<Answer<Option<Vec<u8>>>> {
        let process = self.gate.capabilities.process.clone();
        let args = json!({ "handle": handle, "output": output, "maxBytes": max_bytes });
        let dry = self.part(handle, None);
        let call = Call::part("process", "read", USE);
        self.gate.ask(call, args, dry, process, move |process| process.read(handle, output, max_bytes)).await
    }

    async fn wait(&mut self, handle: u32) -> wasmtime::Result<Answer<Outcome>> {
        let process = self.gate.capabilities.process.clone();
        let dry = self.part(handle, nothing());
        let call = Call::part("process", "wait", USE);
        self.gate.ask(call, json!({ "handle": handle }), dry, process, move |process| process.wait(handle)).await
    }

    async fn kill(&mut self, handle: u32) -> wasmtime::Result<Answer<()>> {
        let process = self.gate.capabilities.process.clone();
        let dry = self.part(handle, ());
        let call = Call::part("process", "kill", USE);
        self.gate.ask(call, json!({ "handle": handle }), dry, process, move |process| process.kill(handle)).await
    }
}
