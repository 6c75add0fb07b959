//! `metal.disk.wipe`: erases whole disks, and says of each by which method, to which level, and what reading it back showed.
//!
//! This file asks and acts; [`plan`] decides what is to be done, [`report`] what was done.
//!
//! **Invariant:** no disk is touched before all of them were checked, and no method is used that the plan does not hold.

mod payload;
mod plan;
mod report;

use payload::Payload;
use plan::{Fact, Target};
use report::{Attempt, Report, Verification, Wiped};
use sdk::block_devices::{self, EraseRequest};
use sdk::{Context, Failure, Kind, Problem, clock};

struct Wipe;

impl Kind for Wipe {
    type Payload = Payload;
    type Output = Report;

    fn validate(payload: &Payload) -> Vec<Problem> {
        payload.problems()
    }

    fn run(context: &Context, payload: Payload) -> Result<Report, Failure> {
        let facts = gather(&payload)?;
        let targets = plan::plan(&payload, &facts)?;
        let seed = payload.verify.seed.unwrap_or_else(|| payload::seed_of(&context.command_id));
        let samples = payload.verify.samples.unwrap_or(payload::SAMPLES);
        let wiped = targets.iter().map(|target| wipe(target, samples, seed)).collect();
        Report::new(payload.minimum_level, wiped)
    }
}

sdk::export!(Wipe);

/// Every disk, and what those say of themselves that may be meant.
fn gather(payload: &Payload) -> Result<Vec<Fact>, Failure> {
    let devices = block_devices::devices()?;
    let meant = devices.into_iter().filter(|device| payload.may_mean(&device.path));
    Ok(meant
        .map(|device| {
            let identity = block_devices::identify(&device.path).map_err(|error| sdk::describe(&error).to_string());
            Fact { identity: identity.and_then(|text| plan::Identity::parse(&text)), device }
        })
        .collect())
}

fn wipe(target: &Target, samples: u32, seed: u64) -> Wiped {
    let started_ms = clock::now_ms();
    let mut attempts = Vec::new();
    let mut erased = None;
    for method in &target.methods {
        sdk::tracing::info!(device = target.path.as_str(), method = method.name(), "erasing");
        let request =
            EraseRequest { device: target.path.clone(), serial: target.serial.clone(), method: method.name().into() };
        let answer = block_devices::erase(&request).and_then(|report| target.check(*method, report));
        attempts.push(Attempt::new(*method, answer.as_ref().err()));
        match answer {
            Ok(report) => {
                erased = Some(report);
                break;
            }
            Err(error) if plan::may_fall_back(&error) => {
                sdk::tracing::warn!(device = target.path.as_str(), method = method.name(), "failed: {}", error.message);
            }
            Err(_) => break,
        }
    }
    let verification = match &erased {
        Some(report) if report.level == plan::PLANNED => Verification::planned(seed),
        Some(report) => Verification::new(report, block_devices::sample(&target.path, samples, seed), seed),
        None => Verification::not_erased(seed),
    };
    Wiped::new(target, erased, attempts, verification, (started_ms, clock::now_ms()))
}
