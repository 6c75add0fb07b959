//! `gpu.reset`: resets GPUs that nothing uses, and tells of each whether it was reset and is healthy afterwards.
//!
//! This file asks and hands the answers on; [`body`] decides.
//!
//! **Invariant:** while any of the GPUs is in use, or is not there, nothing is done to any.

mod body;

use body::{Gpu, Health, Report};
use sdk::{Context, Failure, Kind, Problem, gpus, nvml};
use serde::Deserialize;

struct Reset;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    gpus: Vec<String>,
}

impl Kind for Reset {
    type Payload = Payload;
    type Output = Report;

    fn validate(payload: &Payload) -> Vec<Problem> {
        body::problems(&payload.gpus)
    }

    fn run(_: &Context, payload: Payload) -> Result<Report, Failure> {
        if let Some(problem) = body::problems(&payload.gpus).into_iter().next() {
            return Err(Failure::new("invalid-payload", format!("{}: {}", problem.pointer, problem.message)));
        }
        body::all_listed(&payload.gpus, &nvml::devices()?)?;
        gpu_use::refuse_used(&payload.gpus)?;
        sdk::tracing::info!(gpus = payload.gpus.len(), "nothing uses the GPUs: resetting them");
        let outcomes = gpus::reset(&payload.gpus).map_err(body::not_reset)?;
        let devices = nvml::devices();
        let after = payload.gpus.iter().map(|gpu| Gpu { gpu: gpu.clone(), health: health(gpu, &devices) }).collect();
        body::report(&outcomes, after)
    }
}

sdk::export!(Reset);

/// Asks a GPU how it is now.
fn health(gpu: &str, devices: &Result<Vec<nvml::Device>, sdk::Error>) -> Health {
    body::health(gpu, devices, &nvml::remapped_rows(gpu), &nvml::recovery_action(gpu))
}
