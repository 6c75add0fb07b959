//! `bench.calls`: asks the host for the elapsed time again and again. That read crosses the gate and has nothing behind it,
//! so what a call costs is the crossing.
//!
//! **Invariant:** beside the calls it does the same work whatever their number, so that the difference of two runs is theirs.

use sdk::{Context, Failure, Kind};
use serde::{Deserialize, Serialize};

struct Calls;

/// What is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    calls: u32,
}

/// What is answered.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The last answer, so that no call can be optimised away; 0 without one.
    last_us: u64,
}

impl Kind for Calls {
    type Payload = Payload;
    type Output = Output;

    fn run(_: &Context, Payload { calls }: Payload) -> Result<Output, Failure> {
        Ok(Output { last_us: (0..calls).fold(0, |_, _| sdk::clock::elapsed_us()) })
    }
}

sdk::export!(Calls);
