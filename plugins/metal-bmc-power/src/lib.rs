//! `metal.bmc.power`: switches a machine on or off, or restarts it, through its BMC.
//!
//! This file names the BMC; [`redfish::power`] decides.
//!
//! **Invariant:** it succeeds only when the BMC reports what was asked for, and says what shows it.

use redfish::power::{self, Action, Done};
use redfish::{Client, Remote, SecretRefs, Target};
use sdk::{Context, Failure, Kind, Problem};
use serde::{Deserialize, Serialize};

struct Power;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Payload {
    bmc: String,
    #[serde(default, deserialize_with = "sdk::payload::present")]
    system: Option<String>,
    action: Action,
    #[serde(default)]
    secret_refs: SecretRefs,
}

#[derive(Serialize)]
struct Answer {
    bmc: String,
    #[serde(flatten)]
    done: Done,
}

impl Kind for Power {
    type Payload = Payload;
    type Output = Answer;

    fn validate(payload: &Payload) -> Vec<Problem> {
        Target::problems(&payload.bmc)
    }

    fn run(ctx: &Context, payload: Payload) -> Result<Answer, Failure> {
        let Payload { bmc, system, action, secret_refs } = payload;
        let mut remote = Remote::new(ctx, Target { bmc: bmc.clone(), credentials: secret_refs.credentials });
        let done = power::carry_out(&mut Client::new(&mut remote), system.as_deref(), action)?;
        Ok(Answer { bmc, done })
    }
}

sdk::export!(Power);
