//! The node itself: what stands behind `better-compute:host/system`, and what reboots the machine.
//!
//! **Invariant:** a run only asks. The reboot is carried out by the daemon, when the journal knows of it.

mod inhibitors;
mod reboot;
#[cfg(test)]
mod tests;
mod tools;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bc_proto::rules::daemon::Intent;
use bc_runtime::capability::{Answer, Capabilities, Error, System};

pub use self::reboot::{Reboot, Reboots};
use super::commanded::{Asked, Commanded, Provider};

/// A boot id is a UUID; a control plane takes no more than this.
const BOOT_ID_BYTES: usize = 64;
/// The longest reason, bytes: it becomes the description of a unit.
const REASON_BYTES: usize = 200;

/// What the machine itself says, to runs of the daemon and to those that no control plane asked for.
pub struct ThisSystem {
    boot_id_file: PathBuf,
    /// What reboots it, and the run that may ask for that.
    asking: Option<(Reboots, Arc<Asked>)>,
}

impl ThisSystem {
    /// For runs without a command: nothing would make sure that their reboot happens once, so they cannot ask for one.
    pub fn alone(boot_id_file: PathBuf) -> Self {
        Self { boot_id_file, asking: None }
    }
}

impl System for ThisSystem {
    fn boot_id(&self) -> Answer<String> {
        boot_id(&self.boot_id_file).map_err(|error| Error::new("unreadable", format!("{error:#}")))
    }

    fn reboot(&self, reason: &str) -> Answer<()> {
        if reason.is_empty() || reason.len() > REASON_BYTES || reason.contains(char::is_control) {
            let message = format!("the reason of a reboot is one line of 1 to {REASON_BYTES} bytes");
            return Err(Error::new("invalid-reason", message));
        }
        let Some((reboots, asked)) = &self.asking else {
            return Err(Error::new(
                "no-command",
                "this run has no command, whose journal would make sure that the machine boots once: see with --plan what it would \
                 do, run the kind through the control plane, or boot the machine by hand",
            ));
        };
        reboots.check()?;
        asked.ask(Intent::Reboot { reason: reason.to_owned() })
    }
}

/// Lets commands ask for a reboot.
pub struct Systems {
    /// Where the boot id is.
    pub boot_id_file: PathBuf,
    /// What reboots the machine.
    pub reboots: Reboots,
}

impl Provider for Systems {
    fn provide(&self, command: &Commanded<'_>, capabilities: &mut Capabilities) {
        let asking = Some((self.reboots.clone(), Arc::clone(&command.asked)));
        let boot_id_file = self.boot_id_file.clone();
        capabilities.system.get_or_insert_with(|| Arc::new(ThisSystem { boot_id_file, asking }));
    }
}

/// The kernel's boot id, or what a file says in its place.
pub(crate) fn boot_id(path: &Path) -> anyhow::Result<String> {
    use anyhow::Context as _;
    let text =
        std::fs::read_to_string(path).with_context(|| format!("the boot id cannot be read from {}", path.display()))?;
    let id = text.trim();
    anyhow::ensure!(
        (1..=BOOT_ID_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic()),
        "{} holds no boot id: 1 to {BOOT_ID_BYTES} printable characters",
        path.display()
    );
    Ok(id.to_owned())
}
