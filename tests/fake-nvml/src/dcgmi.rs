//! The fake `dcgmi diag -j`: what DCGM 3 and 4 print, from the state.
//!
//! Its source is the design's page of domain facts.
//!
//! **Invariant:** it prints only what the real one prints in that situation, so that what reads it is tested for real.

use std::path::Path;

use serde_json::{Value, json};

use crate::smi::Outcome;
use crate::state::{Dcgm, DcgmResult, State};

/// The low byte of DCGM's return codes.
mod exit {
    /// A test failed.
    pub(super) const FAILED: u8 = 226;
    /// A test failed, and the GPU is to be isolated.
    pub(super) const ISOLATE: u8 = 205;
    /// Another diagnosis runs.
    pub(super) const ALREADY_RUNNING: u8 = 217;
}

/// Runs with these arguments on a state file.
pub fn run(arguments: &[String], state_file: &Path) -> Outcome {
    let exits = |text: String, code| Outcome::Exits { text, code };
    let Ok(state) = State::load(state_file) else {
        return exits("Error: unable to establish a connection to the specified host: localhost\n".to_owned(), 1);
    };
    let Some(asked) = Asked::parse(arguments, &state) else {
        return exits("PARSE ERROR: Argument: (--run)\n".to_owned(), 1);
    };
    let dcgm = &state.dcgm;
    if dcgm.hang {
        return Outcome::Hangs;
    }
    if dcgm.busy {
        let text = "Error: the DCGM diagnostic is already running. Please wait for it to end.\n";
        return exits(text.to_owned(), dcgm.exit.unwrap_or(exit::ALREADY_RUNNING));
    }
    let document = match &dcgm.runtime_error {
        Some(error) => root(dcgm, &json!({ "runtime_error": error })),
        None => root(dcgm, &asked.tests(&state)),
    };
    let mut text = format!("{document:#}\n");
    if let Some(bytes) = dcgm.cut_at {
        text.truncate(text.floor_char_boundary(bytes));
    }
    let gravest = || asked.gpus.iter().filter_map(|index| dcgm.memory.get(index)).filter(|it| it.status == "Fail");
    let fits = match gravest().map(|it| it.severity).max() {
        _ if dcgm.runtime_error.is_some() => 1,
        Some(2) => exit::ISOLATE,
        Some(_) => exit::FAILED,
        None => 0,
    };
    exits(text, dcgm.exit.unwrap_or(fits))
}

fn root(dcgm: &Dcgm, body: &Value) -> Value {
    let key = if dcgm.generation == 3 { "DCGM GPU Diagnostic" } else { "DCGM Diagnostic" };
    json!({ key: body })
}

/// What the arguments ask for.
struct Asked {
    level: u8,
    gpus: Vec<u32>,
}

impl Asked {
    fn parse(arguments: &[String], state: &State) -> Option<Self> {
        let ("diag", rest) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest))? else { return None };
        let value = |name: &str| {
            let at = rest.iter().position(|it| it == name)?;
            rest.get(at + 1)
        };
        if !rest.iter().any(|it| it == "-j") {
            return None;
        }
        let level = value("-r")?.parse().ok().filter(|level| (1..=4).contains(level))?;
        let gpus = match value("-i") {
            Some(list) => list.split(',').map(|index| index.parse().ok()).collect::<Option<Vec<u32>>>()?,
            None => (0_u32..).zip(&state.gpus).map(|(index, _)| index).collect(),
        };
        Some(Self { level, gpus })
    }

    fn tests(&self, state: &State) -> Value {
        let dcgm = &state.dcgm;
        let status = if dcgm.skips { "Skip" } else { "Pass" };
        let deployment = if dcgm.generation == 3 {
            json!({ "name": "Denylist", "results": [{ "status": status }] })
        } else {
            let results: Vec<_> =
                self.gpus.iter().map(|index| of_gpu(dcgm, *index, json!({ "status": status }))).collect();
            json!({ "name": "software", "results": results, "test_summary": { "status": status } })
        };
        let mut categories = vec![json!({ "category": "Deployment", "tests": [deployment] })];
        if self.level >= 2 {
            let results: Vec<_> = self.gpus.iter().map(|index| memory(dcgm, *index, status)).collect();
            let failed = results.iter().any(|result| result["status"] == "Fail");
            let mut test = json!({ "name": "memory", "results": results });
            if dcgm.generation != 3 {
                test["test_summary"] = json!({ "status": if failed { "Fail" } else { status } });
            }
            categories.push(json!({ "category": "Hardware", "tests": [test] }));
        }
        json!({ "test_categories": categories, "version": if dcgm.generation == 3 { "3.3.9" } else { "4.2.0" } })
    }
}

fn memory(dcgm: &Dcgm, index: u32, status: &str) -> Value {
    let Some(DcgmResult { status, warning, error_id, severity }) = dcgm.memory.get(&index) else {
        return of_gpu(dcgm, index, json!({ "status": status }));
    };
    let mut result = json!({ "status": status });
    if let Some(warning) = warning {
        result["warnings"] =
            json!([{ "warning": warning, "error_id": error_id, "error_category": 7, "error_severity": severity }]);
    }
    of_gpu(dcgm, index, result)
}

/// Says which GPU a result is about, as the generation does.
fn of_gpu(dcgm: &Dcgm, index: u32, mut result: Value) -> Value {
    if dcgm.generation == 3 {
        result["gpu_id"] = json!(index.to_string());
        result["info"] = json!("simulated");
    } else {
        result["entity_group"] = json!("GPU");
        result["entity_group_id"] = json!(1);
        result["entity_id"] = json!(index);
        result["info"] = json!(["simulated"]);
    }
    result
}
