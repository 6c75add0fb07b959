//! What an XID asks the operator to do.
//!
//! **Invariant:** a code that the table does not know is [`Action::Unknown`], never [`Action::Ignore`].

use serde::{Deserialize, Serialize};

use super::grammar::Xid;

/// The "immediate action" of NVIDIA's XID catalog, weakest first: of several, the strongest is to be taken.
///
/// The order: what ends with the application, what a person must look up (so that it is never hidden by a weaker remedy),
/// remedies by how much they interrupt, and last what no restart mends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Nothing to do.
    Ignore,
    /// The application failed or must be restarted; the GPU is well.
    RestartApp,
    /// The table does not know the code.
    Unknown,
    /// NVIDIA gives a procedure instead of one action.
    Workflow,
    /// The driver printed an action that this version cannot read: see the message.
    FollowPrinted,
    /// Reset the GPU.
    ResetGpu,
    /// Restart the virtual machine that has the GPU.
    RestartVm,
    /// Reboot the machine.
    RestartBm,
    /// The board or the system needs its vendor.
    ContactSupport,
    /// Check power cables and seating.
    Mechanical,
}

impl Action {
    /// The table's answer for a code. Source: NVIDIA's XID catalog, column "Immediate Action". 154 has no answer of its own
    /// ([`Self::of`] reads it from the message), and 45 is a workflow unless another XID caused it.
    pub fn of_code(code: u32) -> Self {
        match code {
            38 | 43 | 63 | 66 | 92 | 93 | 121 | 137 | 141 => Self::Ignore,
            8 | 11 | 13 | 31 | 32 | 60 | 68 | 69 | 75..=77 | 80 | 94 | 96 | 126..=135 | 139 => Self::RestartApp,
            46 | 62 | 64 | 95 | 109 | 110 | 119 | 120 | 136 | 140 | 143 | 155 | 156 | 158 => Self::ResetGpu,
            79 => Self::RestartBm,
            151 => Self::RestartVm,
            45 | 48 | 74 | 144..=150 => Self::Workflow,
            154 => Self::FollowPrinted,
            122..=125 | 138 | 142 => Self::ContactSupport,
            54 => Self::Mechanical,
            _ => Self::Unknown,
        }
    }

    /// What one line asks for: the table, except that 154 says it itself and that a 45 which names its cause asks for
    /// whatever the cause does.
    pub fn of(xid: &Xid<'_>) -> Self {
        match (xid.code, xid.caused_by) {
            (154, _) => Self::of_printed(xid.message),
            (45, Some(cause)) if cause != 154 => Self::of_code(cause),
            (code, _) => Self::of_code(code),
        }
    }

    /// The driver's recovery action by number: NVML's field 230, and the number that XID 154 prints. None for a number
    /// that later drivers added.
    ///
    /// 1, 4 (after draining) and 6 are resets, 2 and 7 reboots. Draining peer-to-peer traffic (3) and recovering IMEX (5)
    /// concern several nodes, so they are workflows.
    pub fn of_recovery(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Ignore),
            1 | 4 | 6 => Some(Self::ResetGpu),
            2 | 7 => Some(Self::RestartBm),
            3 | 5 => Some(Self::Workflow),
            _ => None,
        }
    }

    /// Reads `GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)`. The number decides: drivers reworded
    /// the text (`Node Reboot Required` became `OS Reboot`, `GPU Reset Required` became `PF FLR`). The text serves where
    /// the number is new or missing.
    fn of_printed(message: &str) -> Self {
        let Some((_, target)) = message.rsplit_once(" to ") else {
            return Self::FollowPrinted;
        };
        let digits = target.strip_prefix("0x").map(|rest| rest.split(|c: char| !c.is_ascii_hexdigit()).next());
        let number = digits.flatten().and_then(|digits| u32::from_str_radix(digits, 16).ok());
        if let Some(action) = number.and_then(Self::of_recovery) {
            return action;
        }
        let text = target.to_ascii_lowercase();
        if text.contains("reboot") {
            Self::RestartBm
        } else if text.contains("reset") || text.contains("flr") {
            Self::ResetGpu
        } else {
            Self::FollowPrinted
        }
    }
}
