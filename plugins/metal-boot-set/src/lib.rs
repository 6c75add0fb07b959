//! `metal.boot.set`: sets what a machine boots from, through its BMC.
//!
//! This file names the BMC; [`redfish::boot`] decides.
//!
//! **Invariant:** it succeeds only when the BMC shows what was asked for.

use redfish::boot::{self, Done, Enabled, Mode, Source, Wanted};
use redfish::{Client, Remote, SecretRefs, Target};
use sdk::{Context, Failure, Kind, Problem};
use serde::{Deserialize, Serialize};

struct Boot;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Payload {
    bmc: String,
    #[serde(default, deserialize_with = "sdk::payload::present")]
    system: Option<String>,
    target: Source,
    #[serde(default)]
    enabled: Enabled,
    #[serde(default, deserialize_with = "sdk::payload::present")]
    mode: Option<Mode>,
    #[serde(default)]
    secret_refs: SecretRefs,
}

#[derive(Serialize)]
struct Answer {
    bmc: String,
    #[serde(flatten)]
    done: Done,
}

impl Kind for Boot {
    type Payload = Payload;
    type Output = Answer;

    fn validate(payload: &Payload) -> Vec<Problem> {
        Target::problems(&payload.bmc)
    }

    fn run(ctx: &Context, payload: Payload) -> Result<Answer, Failure> {
        let Payload { bmc, system, target, enabled, mode, secret_refs } = payload;
        let mut remote = Remote::new(ctx, Target { bmc: bmc.clone(), credentials: secret_refs.credentials });
        let wanted = Wanted { target, enabled, mode };
        let done = boot::set(&mut Client::new(&mut remote), system.as_deref(), wanted)?;
        Ok(Answer { bmc, done })
    }
}

sdk::export!(Boot);
