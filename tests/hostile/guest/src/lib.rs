//! `test.hostile`: one guest that misbehaves in every way the host must survive, chosen by the payload's `mode`.
//!
//! Each mode is a function of its own that is never inlined, so that a backtrace names it.
//!
//! **Invariant:** a mode does one thing wrong and nothing else, so that a test knows what stopped it.

mod modes;

use sdk::{Command, Context, Failure, Problem, payload};
use serde::Deserialize;

struct Hostile;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    mode: Mode,
}

/// What to do; [`modes`] has a function for each.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    Ok,
    Fail,
    Spin,
    Allocate,
    Recurse,
    Trap,
    Panic,
    FloodLog,
    Hold,
    Nvml,
    Effects,
    Garbage,
    BigResult,
    HugeLine,
    FloodCalls,
    FloodEffects,
    Secret,
}

/// The text itself, not [`sdk::Kind`]: one mode answers what is not JSON.
impl Command for Hostile {
    fn validate(payload: String) -> Result<(), Vec<Problem>> {
        sdk::install_log();
        payload::parse::<Payload>(&payload).map(drop).map_err(|problem| vec![problem])
    }

    fn run(_: Context, payload: String) -> Result<String, Failure> {
        sdk::install_log();
        let Payload { mode } =
            payload::parse(&payload).map_err(|problem| Failure::new("invalid-payload", problem.message))?;
        match mode {
            Mode::Ok => Ok("{}".to_owned()),
            Mode::Fail => modes::fail_as_guest(),
            Mode::Spin => modes::spin_forever(),
            Mode::Allocate => modes::allocate_until_refused(),
            Mode::Recurse => Ok(modes::recurse_without_end()),
            Mode::Trap => modes::trap_on_unreachable(),
            Mode::Panic => modes::panic_with_a_message(),
            Mode::FloodLog => modes::flood_the_log(),
            Mode::Hold => {
                modes::hold_a_host_call();
                Ok("{}".to_owned())
            }
            Mode::Nvml => modes::ask_the_driver(),
            Mode::Effects => modes::reset_and_reboot(),
            Mode::Garbage => Ok(modes::answer_garbage()),
            Mode::BigResult => Ok(modes::answer_tens_of_megabytes()),
            Mode::HugeLine => {
                modes::log_a_huge_line();
                Ok("{}".to_owned())
            }
            Mode::FloodCalls => modes::flood_the_transcript(),
            Mode::FloodEffects => modes::flood_the_effects(),
            Mode::Secret => modes::read_a_secret(),
        }
    }
}

sdk::export!(Hostile);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_by_the_names_of_the_manifest() {
        for (name, mode) in
            [("ok", Mode::Ok), ("flood-log", Mode::FloodLog), ("big-result", Mode::BigResult), ("nvml", Mode::Nvml)]
        {
            let payload: Payload = payload::parse(&format!(r#"{{"mode":"{name}"}}"#)).expect(name);
            assert_eq!(payload.mode, mode);
        }
        assert_eq!(payload::parse::<Payload>(r#"{"mode":"nice"}"#).expect_err("unknown").pointer, "/mode");
    }

    #[test]
    fn garbage_is_not_json_and_the_big_result_is() {
        assert!(serde_json::from_str::<serde_json::Value>(&modes::answer_garbage()).is_err());
        let big = modes::answer_tens_of_megabytes();
        assert!(big.len() > modes::BIG_BYTES && serde_json::from_str::<String>(&big).is_ok());
    }
}
