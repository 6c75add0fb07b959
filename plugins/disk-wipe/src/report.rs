//! What was done to each disk, and what reading it back showed.
//!
//! **Invariant:** success means that every disk was erased to the wanted level and that no sample says otherwise. That reading back
//! could not tell is said as such, with the reason, and is never called a pass.

use sdk::block_devices::{EraseReport, SampleReport};
use sdk::{Error, Failure, describe};
use serde::Serialize;
use serde_json::Value;

use crate::payload::{Level, Method};
use crate::plan::{PLANNED, Target};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    minimum_level: Level,
    devices: Vec<Wiped>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
    Wiped,
    Planned,
    Failed,
    NotVerified,
}

/// One disk.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Wiped {
    path: String,
    model: Option<String>,
    serial: Option<String>,
    size_bytes: u64,
    pub(crate) status: Status,
    method: Option<String>,
    level: Option<Level>,
    device_log: Value,
    started_ms: u64,
    ended_ms: u64,
    verification: Verification,
    attempts: Vec<Attempt>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Attempt {
    method: Method,
    code: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Passed,
    Failed,
    Unknown,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verification {
    pub(crate) verdict: Verdict,
    pub(crate) reason: String,
    samples: u32,
    nonzero: u32,
    sample_bytes: u32,
    seed: u64,
}

impl Attempt {
    pub(crate) fn new(method: Method, error: Option<&Error>) -> Self {
        let code = error.map(|error| error.code.clone());
        Self { method, code, message: error.map(|error| describe(error).to_string()) }
    }
}

impl Verification {
    /// What the samples say of a disk that was erased so.
    pub(crate) fn new(erased: &EraseReport, sampled: Result<SampleReport, Error>, seed: u64) -> Self {
        let sampled = match sampled {
            Ok(sampled) => sampled,
            Err(error) => return Self::without(format!("it could not be read back: {}", describe(&error)), seed),
        };
        let SampleReport { read, nonzero, sample_bytes } = sampled;
        let method = Method::parse(&erased.method);
        let (verdict, reason) = match (read, nonzero, method) {
            (0, ..) => (Verdict::Unknown, "nothing was read back".into()),
            (_, 0, _) => (Verdict::Passed, "every sample is zero".into()),
            (_, _, Some(Method::ZeroOut | Method::Overwrite)) => {
                (Verdict::Failed, format!("{nonzero} of {read} samples are not zero, and zeroes were written"))
            }
            (_, _, Some(Method::NvmeSanitizeCrypto | Method::NvmeFormatCrypto)) => (
                Verdict::Unknown,
                "the key was destroyed: what is read is random and shows nothing. What counts is the drive's own word"
                    .into(),
            ),
            _ => (
                Verdict::Unknown,
                format!("{nonzero} of {read} samples are not zero: after this method a drive may give back anything"),
            ),
        };
        Self { verdict, reason, samples: read, nonzero, sample_bytes, seed }
    }

    pub(crate) fn planned(seed: u64) -> Self {
        Self::without("planned, not performed".into(), seed)
    }

    pub(crate) fn not_erased(seed: u64) -> Self {
        Self::without("it was not erased".into(), seed)
    }

    fn without(reason: String, seed: u64) -> Self {
        Self { verdict: Verdict::Unknown, reason, samples: 0, nonzero: 0, sample_bytes: 0, seed }
    }
}

impl Wiped {
    pub(crate) fn new(
        target: &Target,
        erased: Option<EraseReport>,
        attempts: Vec<Attempt>,
        verification: Verification,
        (started_ms, ended_ms): (u64, u64),
    ) -> Self {
        let status = match &erased {
            None => Status::Failed,
            Some(report) if report.level == PLANNED => Status::Planned,
            Some(_) if verification.verdict == Verdict::Failed => Status::NotVerified,
            Some(_) => Status::Wiped,
        };
        let log = erased.as_ref().and_then(|report| report.device_log.clone());
        // What is no JSON is kept as the text it is.
        let device_log = log.map_or(Value::Null, |log| serde_json::from_str(&log).unwrap_or(Value::String(log)));
        Self {
            path: target.path.clone(),
            model: target.model.clone(),
            serial: target.serial.clone(),
            size_bytes: target.size_bytes,
            status,
            level: erased.as_ref().and_then(|report| Level::parse(&report.level)),
            method: erased.map(|report| report.method),
            device_log,
            started_ms,
            ended_ms,
            verification,
            attempts,
        }
    }
}

impl Report {
    /// Success, or a failure whose details are the same report.
    pub(crate) fn new(minimum_level: Level, devices: Vec<Wiped>) -> Result<Self, Failure> {
        let report = Self { minimum_level, devices };
        if report.devices.iter().all(|wiped| matches!(wiped.status, Status::Wiped | Status::Planned)) {
            return Ok(report);
        }
        let of = |status| report.devices.iter().filter(|wiped| wiped.status == status).collect::<Vec<_>>();
        let (failed, doubtful) = (of(Status::Failed), of(Status::NotVerified));
        let last =
            |wiped: &Wiped| wiped.attempts.last().and_then(|attempt| attempt.message.clone()).unwrap_or_default();
        let mut words: Vec<_> =
            failed.iter().map(|wiped| format!("{} was not erased: {}", wiped.path, last(wiped))).collect();
        words
            .extend(doubtful.iter().map(|wiped| format!("{} is not empty: {}", wiped.path, wiped.verification.reason)));
        let good = report.devices.len() - failed.len() - doubtful.len();
        let code = if failed.is_empty() { "not-verified" } else { "wipe-failed" };
        let message = format!("{good} of {} disks were erased; {}", report.devices.len(), words.join("; "));
        Err(Failure::new(code, message).with_details(&report))
    }
}
