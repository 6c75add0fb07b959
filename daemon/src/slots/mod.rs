//! The binaries of this node: the installed one, and releases beside it below the state directory.
//!
//! `bcd run` begins as the installed binary. It reads which binary is to run, writes down that it starts it, and becomes it. So the
//! installed one, which no upgrade touches, always decides. [`bc_proto::rules::slots`] says how.
//!
//! **Invariant:** a start is counted on the disk before the binary is executed, and no file is executed whose digest is not the one
//! that was checked when it was staged.

mod chain;
mod store;

pub use self::chain::{INSTALLED, SLOT, begin, restart};
pub use self::store::{Store, digest};

use std::path::PathBuf;

/// This daemon's version, semver.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What this machine's binaries are built for.
pub fn target() -> String {
    let environment = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    format!("{}-unknown-linux-{environment}", std::env::consts::ARCH)
}

/// Which binary this process is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Running {
    /// The SHA-256 of the release that it is; none for the installed binary.
    pub sha256: Option<String>,
    /// The file of the installed binary.
    pub installed: PathBuf,
    /// Until when it has to be confirmed, milliseconds since the Unix epoch by this machine's clock; none where it is not on trial.
    pub deadline_ms: Option<u64>,
}
