//! `daemon.upgrade`: replaces the node's daemon by a release.
//!
//! This file asks the host; [`body`] holds the pure part. The switch happens after this run's result is durable: the command succeeds
//! when the new version was confirmed, and fails with `rolled-back` when the old one came back.
//!
//! **Invariant:** it switches to nothing but what it has staged in the same run.

mod body;

use body::{Answer, Payload, Plan};
use sdk::{Context, Failure, Kind, Problem, upgrade};

struct Upgrade;

impl Kind for Upgrade {
    type Payload = Payload;
    type Output = Answer;

    fn validate(payload: &Payload) -> Vec<Problem> {
        body::problems(payload)
    }

    fn run(_: &Context, payload: Payload) -> Result<Answer, Failure> {
        let slots = upgrade::state()?;
        let plan = body::plan(&payload, &slots.running, slots.unconfirmed)?;
        if plan == Plan::Replace {
            upgrade::stage(&payload.version, &payload.sha256)?;
            upgrade::switch()?;
        }
        Ok(body::answer(payload, slots.running, &plan))
    }
}

sdk::export!(Upgrade);
