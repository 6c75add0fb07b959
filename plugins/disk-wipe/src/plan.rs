//! Which disk is erased by which methods, decided before any is touched.
//!
//! **Invariant:** a planned method is one that the payload allows, that the disk offers, and that reaches the wanted level. Where one
//! disk has none, or is not what the payload says, there is no plan at all.

use sdk::block_devices::{Device, EraseReport};
use sdk::{Error, Failure};
use serde::{Deserialize, Serialize};

use crate::payload::{Level, Method, Payload};

/// The level that a plan's dry answer has.
pub(crate) const PLANNED: &str = "planned";

/// The bus of what is made of other devices or of memory.
const SOFTWARE: &str = "software";

/// One disk as the node knows it.
#[derive(Debug, Clone)]
pub(crate) struct Fact {
    pub(crate) device: Device,
    /// Or why it could not be asked.
    pub(crate) identity: Result<Identity, String>,
}

/// What is needed of `identify`'s JSON.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Identity {
    pub(crate) bus: String,
    pub(crate) methods: Vec<Offer>,
    pub(crate) unsupported: Vec<Lack>,
}

/// A method that a disk offers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Offer {
    pub(crate) method: String,
    pub(crate) level: String,
}

/// A method that it does not.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Lack {
    pub(crate) method: String,
    pub(crate) reason: String,
}

impl Identity {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("its identity cannot be read: {error}"))
    }

    fn level_of(&self, method: Method) -> Option<Level> {
        let offer = self.methods.iter().find(|offer| offer.method == method.name())?;
        Level::parse(&offer.level)
    }
}

/// A disk and what is tried on it, in this order, until one succeeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) path: String,
    pub(crate) model: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) size_bytes: u64,
    pub(crate) minimum: Level,
    pub(crate) methods: Vec<Method>,
}

impl Target {
    /// A report of another method, another disk or a lower level is no success, whoever made it.
    pub(crate) fn check(&self, method: Method, report: EraseReport) -> Result<EraseReport, Error> {
        let level_is_enough =
            report.level == PLANNED || Level::parse(&report.level).is_some_and(|level| level >= self.minimum);
        if report.method == method.name() && report.serial == self.serial && level_is_enough {
            return Ok(report);
        }
        let message = format!(
            "`{}` was asked for, and `{}` at the level `{}` is what was done to {:?}",
            method.name(),
            report.method,
            report.level,
            report.serial
        );
        Err(Error { code: "downgraded".into(), native: None, message })
    }
}

/// Whether another method may be tried after this: the disk is free, is the right one, and does nothing any more.
pub(crate) fn may_fall_back(error: &Error) -> bool {
    matches!(error.code.as_str(), "not-supported" | "erase-failed")
}

/// What stands against erasing one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Obstacle {
    device: String,
    code: &'static str,
    message: String,
}

/// The plan, or everything that stands against it.
pub(crate) fn plan(payload: &Payload, facts: &[Fact]) -> Result<Vec<Target>, Failure> {
    let mut targets = Vec::new();
    let mut obstacles = Vec::new();
    let mut decide = |fact: &Fact, serial: Option<&str>| match target(payload, fact, serial) {
        Ok(target) => targets.push(target),
        Err(obstacle) => obstacles.push(obstacle),
    };
    if payload.all {
        let is_hardware = |fact: &&Fact| fact.identity.as_ref().map_or(true, |identity| identity.bus != SOFTWARE);
        let meant: Vec<_> = facts.iter().filter(is_hardware).collect();
        let expected = payload.expected.unwrap_or(0);
        if meant.len() != expected {
            let names: Vec<_> = meant.iter().map(|fact| fact.device.path.as_str()).collect();
            let message = format!("{expected} disks are expected and there are {}: {}", names.len(), names.join(", "));
            return Err(Failure::new("wrong-count", message).with_details(&names));
        }
        for fact in meant {
            decide(fact, None);
        }
    } else {
        let mut missing = Vec::new();
        for named in &payload.devices {
            match facts.iter().find(|fact| fact.device.path == named.path) {
                Some(fact) => decide(fact, named.serial.as_deref()),
                None => missing.push(Obstacle {
                    device: named.path.clone(),
                    code: "not-found",
                    message: format!("there is no disk {}", named.path),
                }),
            }
        }
        obstacles.extend(missing);
    }
    if obstacles.is_empty() { Ok(targets) } else { Err(refusal(&obstacles)) }
}

fn target(payload: &Payload, fact: &Fact, serial: Option<&str>) -> Result<Target, Obstacle> {
    let Device { path, size_bytes, model, serial: own, users } = &fact.device;
    let obstacle = |code, message| Obstacle { device: path.clone(), code, message };
    if let Some(serial) = serial
        && own.as_deref() != Some(serial)
    {
        let own = own.as_deref().unwrap_or("none");
        return Err(obstacle("wrong-serial", format!("{path} has the serial number {own}, and {serial} is named")));
    }
    if !users.is_empty() {
        return Err(obstacle("in-use", format!("{path} is in use: {}", users.join(", "))));
    }
    let identity = fact
        .identity
        .as_ref()
        .map_err(|reason| obstacle("unknown-device", format!("{path} cannot be asked what it can: {reason}")))?;
    let allowed = payload.methods.as_deref().unwrap_or(&Method::ALL);
    let is_enough = |method: &Method| identity.level_of(*method).is_some_and(|level| level >= payload.minimum_level);
    let mut methods: Vec<_> = allowed.iter().copied().filter(is_enough).collect();
    if payload.methods.is_none() {
        // Nobody said what is to come after the first.
        methods.truncate(1);
    }
    if methods.is_empty() {
        return Err(obstacle("no-method", no_method(path, payload, identity)));
    }
    Ok(Target {
        path: path.clone(),
        model: model.clone(),
        serial: own.clone(),
        size_bytes: *size_bytes,
        minimum: payload.minimum_level,
        methods,
    })
}

fn no_method(path: &str, payload: &Payload, identity: &Identity) -> String {
    let offers: Vec<_> = identity.methods.iter().map(|offer| format!("{} ({})", offer.method, offer.level)).collect();
    let offers = if offers.is_empty() { "nothing".to_owned() } else { offers.join(", ") };
    let lacks = identity.unsupported.iter().map(|lack| format!("{}: {}", lack.method, lack.reason));
    let allowed = match &payload.methods {
        Some(methods) => methods.iter().map(|method| method.name()).collect::<Vec<_>>().join(", "),
        None => "any method".to_owned(),
    };
    format!(
        "{path}: {allowed} of the level `{}` is wanted; it offers {offers}; not {}",
        payload.minimum_level.name(),
        lacks.collect::<Vec<_>>().join("; ")
    )
}

/// One failure for all of them: its code is the first in this order, its details hold each.
fn refusal(obstacles: &[Obstacle]) -> Failure {
    const ORDER: [&str; 5] = ["not-found", "wrong-serial", "in-use", "unknown-device", "no-method"];
    let has = |code: &&str| obstacles.iter().any(|obstacle| obstacle.code == *code);
    let code = ORDER.into_iter().find(has).unwrap_or("refused");
    let messages: Vec<_> = obstacles.iter().map(|obstacle| obstacle.message.as_str()).collect();
    Failure::new(code, format!("no disk was touched: {}", messages.join("; "))).with_details(&obstacles)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
