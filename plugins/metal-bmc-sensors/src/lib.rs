//! `metal.bmc.sensors`: reads temperatures, fans and power from a BMC.
//!
//! This file names the BMC; [`redfish::sensors`] decides.
//!
//! **Invariant:** it changes nothing.

use redfish::sensors::{self, Readings};
use redfish::{Client, Remote, SecretRefs, Target};
use sdk::{Context, Failure, Kind, Problem};
use serde::{Deserialize, Serialize};

struct Sensors;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Payload {
    bmc: String,
    #[serde(default)]
    secret_refs: SecretRefs,
}

#[derive(Serialize)]
struct Answer {
    bmc: String,
    #[serde(flatten)]
    readings: Readings,
}

impl Kind for Sensors {
    type Payload = Payload;
    type Output = Answer;

    fn validate(payload: &Payload) -> Vec<Problem> {
        Target::problems(&payload.bmc)
    }

    fn run(ctx: &Context, payload: Payload) -> Result<Answer, Failure> {
        let Payload { bmc, secret_refs } = payload;
        let mut remote = Remote::new(ctx, Target { bmc: bmc.clone(), credentials: secret_refs.credentials });
        let readings = sensors::read(&mut Client::new(&mut remote))?;
        Ok(Answer { bmc, readings })
    }
}

sdk::export!(Sensors);
