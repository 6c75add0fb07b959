//! `bench.noop`: answers `{}` at once, so that what a run costs is the host's own doing.

use sdk::{Context, Failure, Kind};
use serde::{Deserialize, Serialize};

struct Noop;

/// `{}`, in and out.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl Kind for Noop {
    type Payload = Nothing;
    type Output = Nothing;

    fn run(_: &Context, nothing: Nothing) -> Result<Nothing, Failure> {
        Ok(nothing)
    }
}

sdk::export!(Noop);
