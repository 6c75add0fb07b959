//! Receipts: one file that shows to anybody, without the control plane, what became of one destructive command.
//!
//! What it proves decide `crate::rules::receipt`.
//!
//! **Invariant:** a receipt has one form. A file that says the same in another way, or more, is none.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::audit::Head;
use crate::batch::Approved;
use crate::canonical;

/// The version that this program writes and reads.
pub const VERSION: u32 = 1;

/// A receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Receipt {
    /// [`VERSION`].
    pub version: u32,
    /// The log's head, which the proofs lead to.
    pub head: Head,
    /// The entries about the command, and about its batch, in the log's order.
    pub entries: Vec<Logged>,
    /// The batch's document, the place of the command in its scope, and the approvals: all that were logged, in the log's order,
    /// those that have expired since among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<Approved>,
    /// The result exactly as it is stored, base64 (RFC 4648, section 4). Absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The certificate, DER in base64, of the node that attested the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_certificate: Option<String>,
}

/// An entry with its proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Logged {
    /// Its place in the log.
    pub index: u64,
    /// The leaf: the entry's canonical JSON, to the byte.
    pub body: String,
    /// The hashes beside its way to the root, from the bottom, hexadecimal.
    #[serde(with = "hex::serde")]
    pub proof: Vec<u8>,
}

/// Why a file is no receipt.
#[derive(Debug, thiserror::Error)]
pub enum NotAReceipt {
    /// It is not JSON of this form.
    #[error("it is not a receipt: {0}")]
    Form(#[from] serde_json::Error),
    /// Another version's.
    #[error("it is a receipt of version {0}, and this program reads version {VERSION}")]
    Version(u64),
    /// It says what it says in another way than receipts do.
    #[error("it is not written as receipts are: something in it stands in another form")]
    OtherForm,
}

impl Receipt {
    /// Reads one. Space between the parts does not count.
    pub fn parse(bytes: &[u8]) -> Result<Self, NotAReceipt> {
        let value: Value = serde_json::from_slice(bytes)?;
        if let Some(version) = value["version"].as_u64().filter(|it| *it != u64::from(VERSION)) {
            return Err(NotAReceipt::Version(version));
        }
        let receipt: Self = serde_json::from_value(value.clone())?;
        // Digits in upper case, for example, are other text for the same bytes.
        let is_same = canonical::to_vec(&receipt)? == canonical::to_vec(&value)?;
        if is_same { Ok(receipt) } else { Err(NotAReceipt::OtherForm) }
    }
}
