//! What inhibits a reboot, as systemd-logind lists it.
//!
//! systemd heeds its inhibitors for root only from version 257 on, and then without a word to whoever scheduled the reboot. So
//! they are asked for, and heeded, before. Those that delay a shutdown and those that are weak are systemd's own matter.
//!
//! **Invariant:** a list that cannot be read is not an empty one.

use std::fmt;

use serde::Deserialize;

/// What to run for the list: `ListInhibitors` answers an array of what, who, why, mode, uid and pid.
pub(super) const LIST: [&str; 7] = [
    "--json=short",
    "--timeout=5",
    "call",
    "org.freedesktop.login1",
    "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager",
    "ListInhibitors",
];

/// One that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "(String, String, String, String, u32, u32)")]
pub(super) struct Inhibitor {
    /// What it inhibits, with colons between.
    what: String,
    who: String,
    why: String,
    /// `block`, `block-weak` or `delay`.
    mode: String,
    pid: u32,
}

impl From<(String, String, String, String, u32, u32)> for Inhibitor {
    fn from((what, who, why, mode, _uid, pid): (String, String, String, String, u32, u32)) -> Self {
        Self { what, who, why, mode, pid }
    }
}

impl fmt::Display for Inhibitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {}): {}", self.who, self.pid, self.why)
    }
}

/// A D-Bus answer as `busctl` prints it: one member for each value that was answered.
#[derive(Deserialize)]
struct Reply {
    data: (Vec<Inhibitor>,),
}

/// Those that block a reboot, of what `busctl` printed.
pub(super) fn blocking(printed: &str) -> Result<Vec<Inhibitor>, serde_json::Error> {
    let reply: Reply = serde_json::from_str(printed)?;
    let blocks = |it: &Inhibitor| it.mode == "block" && it.what.split(':').any(|what| what == "shutdown");
    Ok(reply.data.0.into_iter().filter(blocks).collect())
}
