//! Power: asking for a state, and waiting until the BMC reports it.
//!
//! **Invariant:** it is done only when the BMC reports the state that was asked for, and of a restart it is said what was seen of it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::{Client, Taken};
use crate::{Problem, System, text, texts};

/// How long between two looks at first, milliseconds.
const FIRST_PAUSE_MS: u32 = 1_000;

/// How long a restart that leaves no trace is watched before it is taken as accepted, milliseconds: emulators and BMCs take up to
/// 11 s until the power goes.
const RESTART_WATCH_MS: u64 = 30_000;

/// What may be asked for, in Redfish's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Switches it on.
    On,
    /// Cuts the power.
    ForceOff,
    /// Asks the operating system to shut down.
    GracefulShutdown,
    /// Asks the operating system to restart.
    GracefulRestart,
    /// Resets it.
    ForceRestart,
    /// Cuts the power and gives it again.
    PowerCycle,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::On => "On",
            Self::ForceOff => "ForceOff",
            Self::GracefulShutdown => "GracefulShutdown",
            Self::GracefulRestart => "GracefulRestart",
            Self::ForceRestart => "ForceRestart",
            Self::PowerCycle => "PowerCycle",
        }
    }

    /// The state that it leads to.
    fn goal(self) -> &'static str {
        if matches!(self, Self::ForceOff | Self::GracefulShutdown) { "Off" } else { "On" }
    }

    fn is_restart(self) -> bool {
        matches!(self, Self::GracefulRestart | Self::ForceRestart | Self::PowerCycle)
    }
}

/// What shows that it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verified {
    /// The state was there before, and nothing was asked for.
    AlreadySo,
    /// The BMC reports the state.
    State,
    /// The power was seen to go and to come back.
    PowerCycle,
    /// The BMC reports another time of the last reset, or another boot.
    Reset,
    /// The BMC accepted it and reports the system on; a restart was not seen.
    AcceptedOnly,
    /// This is a plan.
    Planned,
}

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// The system's id.
    pub system: String,
    /// What was asked for.
    pub action: Action,
    /// The state before.
    pub before: Option<String>,
    /// The state after.
    pub after: Option<String>,
    /// What shows that it was done.
    pub verified: Verified,
    /// How often the BMC was looked at.
    pub looks: u32,
}

/// The reset action of a system.
fn reset_of(system: &System, action: Action) -> Result<(String, &'static str), Problem> {
    const RESET: &str = "/Actions/#ComputerSystem.Reset";
    let target = text(&system.resource.body, &format!("{RESET}/target"));
    let target = target.ok_or_else(|| Problem::new("not-supported", "the BMC offers no reset of this system"))?;
    let allowed = texts(&system.resource.body, &format!("{RESET}/ResetType@Redfish.AllowableValues"));
    let kind = match allowed {
        Some(allowed) if !allowed.iter().any(|it| it == action.name()) => {
            // Some offer one of the two for what is the same on a system that is off.
            if action == Action::On && allowed.iter().any(|it| it == "ForceOn") {
                "ForceOn"
            } else {
                let message = format!("the BMC does not offer {}; it offers {}", action.name(), allowed.join(", "));
                return Err(Problem::new("not-supported", message));
            }
        }
        _ => action.name(),
    };
    Ok((target.to_owned(), kind))
}

/// What tells one boot from another.
fn marks(body: &Value) -> [Option<String>; 2] {
    ["/LastResetTime", "/BootProgress/LastStateTime"].map(|mark| text(body, mark).map(str::to_owned))
}

fn state(body: &Value) -> Option<String> {
    text(body, "/PowerState").map(str::to_owned)
}

/// Carries out an action.
pub fn carry_out(client: &mut Client<'_>, id: Option<&str>, action: Action) -> Result<Done, Problem> {
    let system = client.system(id)?;
    let (target, kind) = reset_of(&system, action)?;
    let (before, looks) = settled(client, &system)?;
    let done = |after: Option<String>, verified, looks| Done {
        system: system.id.clone(),
        action,
        before: before.clone(),
        after,
        verified,
        looks,
    };
    if !action.is_restart() && before.as_deref() == Some(action.goal()) {
        return Ok(done(before.clone(), Verified::AlreadySo, looks));
    }
    if action.is_restart() && before.as_deref() == Some("Off") {
        let message = format!("the system is off, so that {} would not restart it; use On", action.name());
        return Err(Problem::new("system-off", message));
    }
    let marks_before = marks(&system.resource.body);
    let unknown = match client.act(&target, &json!({ "ResetType": kind }))? {
        Taken::Planned => return Ok(done(before.clone(), Verified::Planned, looks)),
        Taken::Accepted => None,
        Taken::Unknown(why) => Some(why),
    };
    let asked_at_ms = client.bmc.left_ms();
    let mut watch = Watch { looks, pause_ms: FIRST_PAUSE_MS, last: before.clone(), was_off: false, trouble: None };
    loop {
        if let Some(body) = watch.look(client, &system.resource.path) {
            let is_there = state(&body).as_deref() == Some(action.goal());
            let passed_ms = asked_at_ms.saturating_sub(client.bmc.left_ms());
            let verified = match (is_there, action.is_restart()) {
                (true, false) => Some(Verified::State),
                (true, true) if watch.was_off => Some(Verified::PowerCycle),
                (true, true) if has_changed(&marks_before, &marks(&body)) => Some(Verified::Reset),
                (true, true) if unknown.is_none() && passed_ms >= RESTART_WATCH_MS => Some(Verified::AcceptedOnly),
                (false, _) | (true, true) => None,
            };
            if let Some(verified) = verified {
                return Ok(done(watch.last, verified, watch.looks));
            }
        }
        if !client.rest(&mut watch.pause_ms) {
            return Err(watch.unreached(action, unknown.as_deref()));
        }
    }
}

/// A mark that was there and is another, or that came: one that went says nothing.
fn has_changed(before: &[Option<String>], after: &[Option<String>]) -> bool {
    before.iter().zip(after).any(|(before, after)| before.is_some() && after.is_some() && before != after)
}

/// Waits until the state is none that passes; some BMCs refuse actions in between.
fn settled(client: &mut Client<'_>, system: &System) -> Result<(Option<String>, u32), Problem> {
    let (mut now, mut looks, mut pause_ms) = (state(&system.resource.body), 1, FIRST_PAUSE_MS);
    while matches!(now.as_deref(), Some("PoweringOn" | "PoweringOff")) {
        client.bmc.tell(&format!("the system is {}", now.as_deref().unwrap_or_default()));
        if !client.rest(&mut pause_ms) {
            let message = format!("the system stayed {}; nothing was asked for", now.unwrap_or_default());
            return Err(Problem::passing("power-in-transition", message));
        }
        now = state(&client.get(&system.resource.path)?.body);
        looks += 1;
    }
    Ok((now, looks))
}

/// Looking at a system again and again.
struct Watch {
    looks: u32,
    pause_ms: u32,
    last: Option<String>,
    was_off: bool,
    /// Why the last look showed nothing.
    trouble: Option<String>,
}

impl Watch {
    /// A BMC that is busy or away for a while is looked at again.
    fn look(&mut self, client: &mut Client<'_>, path: &str) -> Option<Value> {
        self.looks += 1;
        match client.get(path) {
            Ok(resource) => {
                self.trouble = None;
                self.last = state(&resource.body);
                self.was_off |= matches!(self.last.as_deref(), Some("Off" | "PoweringOff" | "PoweringOn"));
                client.bmc.tell(&format!("the system is {}", self.last.as_deref().unwrap_or("in no known state")));
                Some(resource.body)
            }
            Err(problem) => {
                client.bmc.tell(&problem.message);
                self.trouble = Some(problem.message);
                None
            }
        }
    }

    fn unreached(&self, action: Action, unknown: Option<&str>) -> Problem {
        let goal = action.goal();
        let name = action.name();
        let sent = match unknown {
            None => format!("the BMC accepted {name}"),
            Some(why) => format!("{name} was sent, and whether the BMC took it is not known ({why})"),
        };
        match (&self.trouble, self.last.as_deref()) {
            (Some(trouble), _) => Problem::new(
                "state-unknown",
                format!("{sent}; since then it could not be asked for the state: {trouble}"),
            ),
            (None, None) => Problem::new("state-unknown", format!("{sent}; it reports no power state")),
            (None, Some(last)) if last == goal => {
                Problem::new("restart-unknown", format!("{sent}; it reports {last}, and a restart was not seen"))
            }
            (None, Some(last)) => {
                Problem::new("state-not-reached", format!("{sent}; it still reports {last}, not {goal}"))
            }
        }
    }
}

#[cfg(test)]
#[path = "power_tests.rs"]
mod tests;
