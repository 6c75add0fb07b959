//! Reboots the machine, when the journal knows that it is to be.
//!
//! systemd does it, some seconds later, whatever becomes of the daemon meanwhile: a transient timer that runs `systemctl reboot`.
//! The daemon goes on until it is ended, and looks whether systemd was refused at last.
//!
//! **Invariant:** what is answered as not done will not be done.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bc_proto::id::CommandId;
use bc_proto::rules::daemon::Intent;
use bc_runtime::capability::{Answer, Error};
use serde::Deserialize;

use super::inhibitors::{LIST, blocking};
use super::tools::{Said, Tools};
use crate::capability::process;
use crate::config::span;
use crate::faults::crash_at;
use crate::shell::{NotDone, Terminal};

/// How long after the reboot was due its unit is looked at, and how often.
const LOOKS_FOR: Duration = Duration::from_secs(20);
const PACE: Duration = Duration::from_millis(500);

/// How the machine is rebooted: `[reboot]` of `bcd.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reboot {
    /// How long systemd waits before it does.
    #[serde(deserialize_with = "span")]
    pub delay: Duration,
    /// The folders in which systemd's programs are looked up, with colons between.
    pub path: String,
    /// What reboots a machine without systemd, with its arguments. It runs at once, and no inhibitors are asked for.
    pub program: Vec<String>,
}

impl Default for Reboot {
    fn default() -> Self {
        Self { delay: Duration::from_secs(5), path: process::PATH.into(), program: Vec::new() }
    }
}

/// What reboots the machine.
#[derive(Debug, Clone)]
pub struct Reboots {
    config: Reboot,
    tools: Tools,
}

impl Reboots {
    /// `supervisor` is what supervises programs, as [`crate::node::Node::supervisor`].
    pub fn new(config: Reboot, supervisor: Option<PathBuf>) -> Self {
        let tools = Tools { supervisor, path: config.path.clone() };
        Self { config, tools }
    }

    /// Errors when the machine cannot be rebooted now: `inhibited` names what is against it, `inhibitors-unknown` says why that
    /// could not be asked.
    pub(super) fn check(&self) -> Answer<()> {
        if !self.config.program.is_empty() {
            return Ok(());
        }
        let unknown = |why: String| {
            let message = format!(
                "whether anything inhibits a reboot could not be asked: {why}; on a machine without systemd-logind, set `program` in \
                 [reboot] of bcd.toml"
            );
            Error::new("inhibitors-unknown", message)
        };
        let said = self.tools.run("busctl", &LIST).map_err(|error| unknown(error.message))?;
        if said.code != Some(0) {
            return Err(unknown(said.end));
        }
        let found = blocking(&said.out).map_err(|error| unknown(format!("busctl's answer cannot be read: {error}")))?;
        if found.is_empty() {
            return Ok(());
        }
        let names = found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        Err(Error::new("inhibited", format!("a reboot is inhibited by {names}")))
    }

    fn reboot(&self, command: CommandId, reason: &str) -> Answer<()> {
        if let Some((program, argv)) = self.config.program.split_first() {
            let argv: Vec<_> = argv.iter().map(String::as_str).collect();
            return begun(self.tools.run(program, &argv));
        }
        self.check()?;
        let unit = format!("bcd-reboot-{command}");
        let delay = self.config.delay;
        let argv: [&str; 7] = [
            &format!("--on-active={}ms", delay.as_millis()),
            // Timers are coarse otherwise: they may be a minute late.
            "--timer-property=AccuracySec=100ms",
            &format!("--unit={unit}"),
            &format!("--description=Reboot for {command}: {reason}"),
            "--no-ask-password",
            "systemctl",
            "reboot",
        ];
        begun(self.tools.run("systemd-run", &argv))?;
        crash_at("intent.carried-out");
        tracing::info!(%command, unit, delay_ms = delay.as_millis(), "systemd is to reboot the machine");
        std::thread::sleep(delay);
        let until = Instant::now() + LOOKS_FOR;
        while Instant::now() < until {
            if self.has_failed(&unit) {
                // Something may have come meanwhile that inhibits it.
                let inhibited = self.check().err().filter(|error| error.code == "inhibited");
                let message = format!("`systemctl reboot` failed; `journalctl -u {unit}` on the node says why");
                return Err(inhibited.unwrap_or_else(|| Error::new("reboot-refused", message)));
            }
            std::thread::sleep(PACE);
        }
        // It shuts down, or it hangs in that: the next boot says, or the command's timeout.
        Ok(())
    }

    /// Whether the unit ran and failed. What cannot be asked is taken for no: a machine that shuts down answers less and less.
    fn has_failed(&self, unit: &str) -> bool {
        let said = self.tools.run("systemctl", &["show", "--property=ActiveState", &format!("{unit}.service")]);
        said.is_ok_and(|said| said.out.lines().any(|line| line.trim() == "ActiveState=failed"))
    }
}

/// Whether a program has set the reboot going. One that began and did not say how it ended may have: then this is not a refusal,
/// and the next boot or the command's timeout says what became of it.
fn begun(said: Answer<Said>) -> Answer<()> {
    match said {
        Ok(Said { code: Some(0), .. }) => Ok(()),
        Ok(Said { code: Some(_), end, .. }) => Err(Error::new("reboot-refused", end)),
        Err(error) if error.code != "supervisor" => Err(Error::new("reboot-refused", error.message)),
        Ok(Said { end: why, .. }) | Err(Error { message: why, .. }) => {
            tracing::warn!(why, "whether the machine is to reboot is not known");
            Ok(())
        }
    }
}

impl Terminal for Reboots {
    fn carry_out(&self, command: CommandId, intent: &Intent) -> Result<(), NotDone> {
        match intent {
            Intent::Reboot { reason } => {
                self.reboot(command, reason).map_err(|Error { code, message, .. }| NotDone { code, message })
            }
            Intent::Switch { .. } => {
                Err(NotDone { code: "not-offered".into(), message: "this daemon cannot do that".into() })
            }
        }
    }
}
