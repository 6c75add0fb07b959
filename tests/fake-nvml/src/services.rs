//! The fake `systemctl`: `is-active`, `stop` and `start` of the services in the state.
//!
//! **Invariant:** what it answers is what the state says, and a service that is stuck stays as it is.

use std::path::Path;

use crate::smi::Outcome;
use crate::state::{Service, State};

/// Runs with these arguments on a state file. Exit codes as in systemctl's manual: 3 for what is not active, 5 for what there is not
/// when it is to be changed, 4 when it is only asked about.
pub fn run(arguments: &[String], state_file: &Path) -> Outcome {
    let exits = |text: String, code| Outcome::Exits { text, code };
    let [verb, name] = arguments else { return exits("Unknown command verb.\n".to_owned(), 1) };
    let service = State::load(state_file).ok().and_then(|state| state.services.get(name).cloned());
    match (verb.as_str(), service) {
        ("is-active", Some(Service { active: true, .. })) => exits("active\n".to_owned(), 0),
        ("is-active", Some(_)) => exits("inactive\n".to_owned(), 3),
        ("is-active", None) => exits("inactive\n".to_owned(), 4),
        ("start" | "stop", None) => exits(format!("Failed to {verb} {name}: Unit {name}.service not found.\n"), 5),
        // There is nothing to do.
        ("start", Some(Service { active: true, .. })) => exits(String::new(), 0),
        ("start" | "stop", Some(Service { stuck: true, .. })) => {
            exits(format!("Job for {name}.service failed because a timeout was exceeded.\n"), 1)
        }
        ("start" | "stop", Some(_)) => {
            let change = |state: &mut State| {
                if let Some(service) = state.services.get_mut(name) {
                    service.active = verb == "start";
                }
            };
            match State::update(state_file, change) {
                Ok(()) => exits(String::new(), 0),
                Err(error) => exits(format!("Failed to {verb} {name}: {error}\n"), 1),
            }
        }
        _ => exits(format!("Unknown command verb {verb}.\n"), 1),
    }
}
