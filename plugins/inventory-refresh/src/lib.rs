//! `inventory.refresh`: sends what the machine is made of, collected anew on demand.
//!
//! This file asks the host; [`answer`] holds the pure part.
//!
//! **Invariant:** the host's JSON is passed on byte for byte, section by section, so that this kind need not change when
//! the inventory grows.

mod answer;

use answer::{Answer, Section};
use sdk::{Context, Failure, Kind, Problem, inventory};
use serde::Deserialize;

struct Refresh;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    /// What to send; none: all.
    #[serde(default)]
    sections: Vec<Section>,
    /// Whether to collect anew.
    #[serde(default)]
    rescan: bool,
}

impl Kind for Refresh {
    type Payload = Payload;
    type Output = Answer;

    fn validate(payload: &Payload) -> Vec<Problem> {
        answer::repeated(&payload.sections)
    }

    fn run(_: &Context, payload: Payload) -> Result<Answer, Failure> {
        let names: Vec<String> = payload.sections.iter().map(|section| section.name().to_owned()).collect();
        let ask = if payload.rescan { inventory::rescan } else { inventory::collected };
        answer::answer(payload.rescan, ask(&names))
    }
}

sdk::export!(Refresh);
