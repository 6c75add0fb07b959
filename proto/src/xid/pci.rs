//! Where a GPU sits on the PCI bus.
//!
//! **Invariant:** one GPU has one spelling, whichever driver generation printed it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Domain, bus and device of a GPU; the function is left out, since a GPU's is always 0 and the driver prints none.
///
/// Shown as `dddd:bb:dd` in lower case. Read from that, from the domain-less `bb:dd` of old drivers (domain 0), and from
/// either with a function (`.f`) behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PciAddress {
    /// The PCI domain (segment): 16 bits on most machines, up to 32 behind some bridges.
    pub domain: u32,
    /// The bus.
    pub bus: u8,
    /// The device (slot).
    pub device: u8,
}

/// The text is no PCI address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a PCI address (dddd:bb:dd)")]
pub struct BadAddress;

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}", self.domain, self.bus, self.device)
    }
}

impl FromStr for PciAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let location = match text.split_once('.') {
            Some((location, function)) => hex(function, 1).map(|_| location)?,
            None => text,
        };
        let (front, device) = location.rsplit_once(':').ok_or(BadAddress)?;
        let (domain, bus) = front.rsplit_once(':').unwrap_or(("0", front));
        let byte = |text| hex(text, 2).and_then(|number| u8::try_from(number).map_err(|_| BadAddress));
        Ok(Self { domain: hex(domain, 8)?, bus: byte(bus)?, device: byte(device)? })
    }
}

/// Reads hexadecimal digits alone: `from_str_radix` would let a sign through.
fn hex(text: &str, max_digits: usize) -> Result<u32, BadAddress> {
    if text.len() > max_digits || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(BadAddress);
    }
    u32::from_str_radix(text, 16).map_err(|_| BadAddress)
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

impl TryFrom<String> for PciAddress {
    type Error = BadAddress;

    fn try_from(text: String) -> Result<Self, BadAddress> {
        text.parse()
    }
}
