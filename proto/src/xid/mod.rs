//! GPU errors as NVIDIA's driver writes them into the kernel log: reading the lines, folding them, and what each asks for.
//!
//! [`parse`] reads one line, [`Scanner`] folds a whole log into [`Condition`]s, [`Action`] says what a condition asks for,
//! and [`Report`] is the document that `better-compute:host/nvml.xids` answers.
//!
//! **Invariant:** no input makes any of this panic or grow without bound, and nothing that looks like an XID is dropped
//! without being counted in [`Findings::problems`].

mod action;
mod grammar;
mod link;
mod pci;
mod report;
mod scan;

pub use action::Action;
pub use grammar::{Line, Xid, parse};
pub use link::LinkEvent;
pub use pci::{BadAddress, PciAddress};
pub use report::{Event, Report};
pub use scan::{Condition, Findings, MAX_CONDITIONS, Scanner};

#[cfg(test)]
mod tests;
