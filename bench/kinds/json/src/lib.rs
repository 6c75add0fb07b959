//! `bench.json`: what a typical small kind does beside its host calls. It parses a list of objects (the benchmark sends
//! 100), folds them by key and prints the result.
//!
//! **Invariant:** no host call, so that a run measures the guest's own speed and the crossing of its payload and result.

use std::collections::BTreeMap;

use sdk::{Context, Failure, Kind};
use serde::{Deserialize, Serialize};

struct Json;

/// What is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    samples: Vec<Sample>,
}

/// One reading of one GPU.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    gpu: String,
    watts: f64,
    celsius: u16,
    throttled: bool,
}

/// What is answered.
#[derive(Debug, PartialEq, Serialize)]
struct Output {
    samples: usize,
    gpus: BTreeMap<String, Summary>,
}

/// The readings of one GPU, folded.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    samples: u32,
    mean_watts: f64,
    max_celsius: u16,
    throttled: u32,
}

impl Kind for Json {
    type Payload = Payload;
    type Output = Output;

    fn run(_: &Context, payload: Payload) -> Result<Output, Failure> {
        Ok(fold(payload.samples))
    }
}

sdk::export!(Json);

fn fold(samples: Vec<Sample>) -> Output {
    let count = samples.len();
    let mut gpus = BTreeMap::<String, Summary>::new();
    for Sample { gpu, watts, celsius, throttled } in samples {
        let summary = gpus.entry(gpu).or_default();
        summary.samples += 1;
        summary.mean_watts += watts;
        summary.max_celsius = summary.max_celsius.max(celsius);
        summary.throttled += u32::from(throttled);
    }
    for summary in gpus.values_mut() {
        summary.mean_watts /= f64::from(summary.samples);
    }
    Output { samples: count, gpus }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_folded_by_gpu() {
        let sample = |gpu: &str, watts, celsius, throttled| Sample { gpu: gpu.into(), watts, celsius, throttled };
        let output = fold(vec![
            sample("GPU-0", 300.0, 61, false),
            sample("GPU-1", 100.0, 40, false),
            sample("GPU-0", 700.0, 83, true),
        ]);
        assert_eq!(output.samples, 3);
        assert_eq!(output.gpus["GPU-0"], Summary { samples: 2, mean_watts: 500.0, max_celsius: 83, throttled: 1 });
        assert_eq!(output.gpus["GPU-1"], Summary { samples: 1, mean_watts: 100.0, max_celsius: 40, throttled: 0 });
    }
}
