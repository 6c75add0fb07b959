//! What one call needs, and the answer in words.

use std::fmt;

use super::{Capability, Grants, Program};

/// What one host call needs of the grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need<'a> {
    /// The capability itself, for calls that read.
    Use(Capability),
    /// Resetting GPUs.
    ResetGpus,
    /// Rebooting the node.
    Reboot,
    /// Running a program.
    Run {
        /// As the grant names it.
        program: &'a str,
        /// Without the program's own name.
        argv: &'a [String],
    },
    /// Erasing a device.
    Erase(&'a str),
    /// Writing an image to a device.
    WriteImage(&'a str),
    /// Resolving a secret.
    Secret(&'a str),
    /// Reading a file or a folder.
    Read(&'a str),
    /// Asking an HTTP server.
    Ask {
        /// Scheme, host, and port where it is not the scheme's own: `https://bmc-1.example`.
        origin: &'a str,
        /// Whether the method may change something.
        write: bool,
        /// The secret that is to be added as credentials.
        credentials: Option<&'a str>,
    },
}

/// A call that the grants do not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Denied(String);

impl Need<'_> {
    /// The capability that the call belongs to.
    pub fn capability(&self) -> Capability {
        match self {
            Self::Use(capability) => *capability,
            Self::ResetGpus => Capability::Gpus,
            Self::Reboot => Capability::System,
            Self::Run { .. } => Capability::Process,
            Self::Erase(_) | Self::WriteImage(_) => Capability::BlockDevices,
            Self::Secret(_) => Capability::Secrets,
            Self::Read(_) => Capability::Files,
            Self::Ask { .. } => Capability::Http,
        }
    }
}

impl fmt::Display for Need<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Use(capability) => write!(f, "using `{}`", capability.interface()),
            Self::ResetGpus => f.write_str("resetting GPUs (`gpus.reset`)"),
            Self::Reboot => f.write_str("rebooting the node (`system.reboot`)"),
            Self::Run { program, argv } => {
                write!(f, "running `{program}` with arguments {argv:?} (`process.programs`)")
            }
            Self::Erase(device) => write!(f, "erasing {device} (`block-devices.erase` and `.devices`)"),
            Self::WriteImage(device) => write!(f, "writing to {device} (`block-devices.write` and `.devices`)"),
            Self::Secret(name) => write!(f, "reading the secret '{name}' (`secrets.refs`)"),
            Self::Read(path) => write!(f, "reading {path} (`files.folders`)"),
            Self::Ask { origin, write, credentials } => {
                let how = if *write { "a request that may change something" } else { "a request" };
                write!(f, "{how} to {origin}")?;
                credentials.map_or(Ok(()), |name| write!(f, " with the secret '{name}'"))?;
                f.write_str(" (`http.origins`, `.write` and `.credentials`)")
            }
        }
    }
}

impl Grants {
    /// Whether a call is allowed. `by` names whose grants these are, for the message: "the manifest", "this node's policy".
    pub fn allows(&self, need: &Need<'_>, by: &str) -> Result<(), Denied> {
        let allowed = match need {
            Need::Use(capability) => self.has(*capability),
            Need::ResetGpus => self.gpus.is_some_and(|gpus| gpus.reset),
            Need::Reboot => self.system.is_some_and(|system| system.reboot),
            Need::Run { program, argv } => self.program(program, argv).is_some(),
            Need::Erase(device) => self.block_devices.as_ref().is_some_and(|d| d.erase && d.lists(device)),
            Need::WriteImage(device) => self.block_devices.as_ref().is_some_and(|d| d.write && d.lists(device)),
            Need::Secret(name) => self.secrets.as_ref().is_some_and(|s| s.refs.iter().any(|r| r.matches(name))),
            Need::Read(path) => self
                .files
                .as_ref()
                .is_some_and(|files| files.folders.iter().any(|folder| super::is_within(folder, path))),
            Need::Ask { origin, write, credentials } => self.http.as_ref().is_some_and(|http| {
                http.origins.iter().any(|pattern| pattern.matches(origin))
                    && (http.write || !write)
                    && credentials.is_none_or(|name| http.credentials.iter().any(|pattern| pattern.matches(name)))
            }),
        };
        if allowed { Ok(()) } else { Err(Denied(format!("{by} does not allow {need}"))) }
    }

    /// The entry that allows a run of a program.
    pub fn program(&self, program: &str, argv: &[String]) -> Option<&Program> {
        self.process.as_ref()?.programs.iter().find(|entry| entry.matches(program, argv))
    }
}

impl super::BlockDevices {
    fn lists(&self, device: &str) -> bool {
        self.devices.iter().any(|pattern| pattern.matches(device))
    }
}
