//! What a device is, and which methods erase it.
//!
//! **Invariant:** every method is either offered with its level or not offered with the reason; a drive that could not be asked
//! offers nothing of its own.

use bc_runtime::capability::Answer;
use serde_json::{Value, json};

use super::erase::Method;
use super::list::{Bus, Disk, siblings};
use super::{ata, nvme};
use crate::capability::process::Programs;

/// What a drive's own firmware can.
pub(super) enum Firmware {
    Nvme { features: nvme::Features, siblings: Vec<String> },
    Ata(ata::Features),
    None(String),
}

impl Firmware {
    /// Asks the drive.
    pub(super) fn of(root: &std::path::Path, programs: Option<&Programs>, disk: &Disk) -> Answer<Self> {
        let Some(programs) = programs.filter(|_| matches!(disk.bus, Bus::Nvme | Bus::Ata)) else {
            return Ok(Self::None(match disk.bus {
                Bus::Nvme | Bus::Ata => "this node supervises no programs, and so cannot ask the drive".into(),
                Bus::Other | Bus::Software => "it is neither an NVMe nor a SATA drive".into(),
            }));
        };
        let asked = match disk.bus {
            Bus::Nvme => {
                let siblings = siblings(root, disk)?;
                nvme::features(programs, disk).map(|features| Self::Nvme { features, siblings })
            }
            _ => ata::features(programs, disk).map(Self::Ata),
        };
        Ok(asked.unwrap_or_else(|error| Self::None(format!("the drive could not be asked: {}", error.message))))
    }

    /// The level that a method reaches, or why it cannot be used.
    pub(super) fn level(&self, disk: &Disk, method: Method) -> Result<&'static str, String> {
        if disk.is_read_only {
            return Err("the device is read-only".into());
        }
        match (method, self) {
            (Method::ZeroOut | Method::Overwrite, _) => Ok("clear"),
            (Method::Nvme(method), Self::Nvme { features, siblings }) => {
                features.supports(method, siblings).map(|()| "purge")
            }
            (Method::AtaSanitize, Self::Ata(features)) => features.sanitizes().map(|()| "purge"),
            (Method::AtaSecureErase, Self::Ata(features)) => features.secure_erases(),
            (Method::Nvme(_), Self::Ata(_)) => Err("it is no NVMe drive".into()),
            (Method::AtaSanitize | Method::AtaSecureErase, Self::Nvme { .. }) => Err("it is no SATA drive".into()),
            (_, Self::None(reason)) => Err(reason.clone()),
        }
    }
}

/// All of it.
pub(super) fn identity(disk: &Disk, firmware: &Firmware) -> Value {
    let (mut methods, mut unsupported) = (Vec::new(), Vec::new());
    for method in Method::ALL {
        match firmware.level(disk, method) {
            Ok(level) => methods.push(json!({ "method": method.name(), "level": level })),
            Err(reason) => unsupported.push(json!({ "method": method.name(), "reason": reason })),
        }
    }
    json!({
        "path": disk.path,
        "bus": disk.bus.word(),
        "sizeBytes": disk.size_bytes,
        "model": disk.model,
        "serial": disk.serial,
        "rotational": disk.rotational,
        "readOnly": disk.is_read_only,
        "discardMaxBytes": disk.discard_max_bytes,
        "writeZeroesMaxBytes": disk.write_zeroes_max_bytes,
        "nvme": if let Firmware::Nvme { features, .. } = firmware { Some(features.to_json()) } else { None },
        "ata": if let Firmware::Ata(features) = firmware { Some(features.to_json()) } else { None },
        "users": disk.users,
        "methods": methods,
        "unsupported": unsupported,
    })
}
