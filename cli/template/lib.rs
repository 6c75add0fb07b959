//! The kind `{{name}}`: this file asks the host and hands facts on; `body` decides.

mod body;

use body::Greeting;
use sdk::{Context, Failure, Kind};
use serde::Deserialize;

struct Greet;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    name: String,
}

impl Kind for Greet {
    type Payload = Payload;
    type Output = Greeting;

    fn run(ctx: &Context, payload: Payload) -> Result<Greeting, Failure> {
        sdk::tracing::info!(attempt = ctx.attempt, "greeting");
        Ok(body::greet(&payload.name))
    }
}

sdk::export!(Greet);
