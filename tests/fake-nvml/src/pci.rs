//! PCI addresses in the forms that the kernel, NVML and people write them.
//!
//! **Invariant:** two spellings of one address parse to equal values.

use std::{fmt, num::ParseIntError, str::FromStr};

/// Where a GPU sits: domain, bus, device; function 0, as NVML only knows that one. Displays as sysfs does: `0000:1b:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    /// The PCI domain (segment).
    pub domain: u32,
    /// The bus in it.
    pub bus: u32,
    /// The device on the bus.
    pub device: u32,
}

impl PciAddress {
    /// As NVML and nvidia-smi write it, `00000000:1B:00.0` (`NVML_DEVICE_PCI_BUS_ID_FMT`).
    pub fn nvml(self) -> String {
        format!("{:08X}:{:02X}:{:02X}.0", self.domain, self.bus, self.device)
    }

    /// NVML's older form, `0000:1B:00.0` (`NVML_DEVICE_PCI_BUS_ID_LEGACY_FMT`).
    pub fn nvml_legacy(self) -> String {
        format!("{:04X}:{:02X}:{:02X}.0", self.domain, self.bus, self.device)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:04x}:{:02x}:{:02x}.0", self.domain, self.bus, self.device)
    }
}

impl FromStr for PciAddress {
    type Err = ParseIntError;

    /// Accepts four or eight digits of domain or none at all, either case, with or without the function.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = |digits: &str| u32::from_str_radix(digits, 16);
        let address = text.rsplit_once('.').map_or(text, |(address, _function)| address);
        let (rest, device) = address.rsplit_once(':').unwrap_or(("", address));
        let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
        Ok(Self { domain: hex(domain)?, bus: hex(bus)?, device: hex(device)? })
    }
}

#[cfg(test)]
mod tests {
    use super::PciAddress;

    #[test]
    fn every_spelling_of_an_address_is_the_same_address() {
        let expected = PciAddress { domain: 0, bus: 0x1b, device: 0 };
        for text in ["0000:1b:00.0", "00000000:1B:00.0", "0000:1b:00", "1B:00.0"] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        assert_eq!((expected.to_string(), expected.nvml()), ("0000:1b:00.0".into(), "00000000:1B:00.0".into()));
        assert!("3".parse::<PciAddress>().is_err());
    }
}
