//! Erasing a whole device by exactly one method.
//!
//! What the drive's firmware does cannot be called off: a cancel waits for it. What the kernel or this process writes stops between
//! two pieces.
//!
//! **Invariant:** the method that was asked for is the one that is used, or none is.

use bc_runtime::capability::block_devices::{EraseReport, EraseRequest};
use bc_runtime::capability::{Answer, Error};

use super::disk_io::{Buffer, CHUNK_BYTES, Device};
use super::identify::Firmware;
use super::list::Disk;
use super::{OfRun, ata, nvme};
use crate::capability::process::Programs;

/// What the kernel zeroes between two looks at the run.
const ZERO_BYTES: u64 = 256 * 1024 * 1024;

/// The WIT's methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Nvme(nvme::Method),
    AtaSanitize,
    AtaSecureErase,
    ZeroOut,
    Overwrite,
}

impl Method {
    pub(super) const ALL: [Self; 8] = [
        Self::Nvme(nvme::Method::SanitizeBlock),
        Self::Nvme(nvme::Method::SanitizeCrypto),
        Self::Nvme(nvme::Method::FormatUser),
        Self::Nvme(nvme::Method::FormatCrypto),
        Self::AtaSanitize,
        Self::AtaSecureErase,
        Self::ZeroOut,
        Self::Overwrite,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nvme(nvme::Method::SanitizeBlock) => "nvme-sanitize-block",
            Self::Nvme(nvme::Method::SanitizeCrypto) => "nvme-sanitize-crypto",
            Self::Nvme(nvme::Method::FormatUser) => "nvme-format-user",
            Self::Nvme(nvme::Method::FormatCrypto) => "nvme-format-crypto",
            Self::AtaSanitize => "ata-sanitize",
            Self::AtaSecureErase => "ata-secure-erase",
            Self::ZeroOut => "zero-out",
            Self::Overwrite => "overwrite",
        }
    }
}

/// One that goes on.
pub(super) struct Erasing<'a> {
    pub(super) run: &'a OfRun,
    pub(super) programs: &'a Programs,
    pub(super) disk: &'a Disk,
}

/// One that is done.
pub(super) struct Erased {
    pub(super) level: &'static str,
    /// What the device itself says of it, JSON.
    pub(super) log: Option<String>,
}

impl Erasing<'_> {
    pub(super) fn progress(&self, done: u64, total: Option<u64>, unit: &str, what: &str) {
        self.run.progress(done, total, unit, &format!("{} {what}", self.disk.path));
    }

    /// Until the drive is asked again. Errors when the run is over: nobody waits for the answer any more.
    pub(super) fn wait_a_turn(&self) -> Answer<()> {
        self.run.wait_a_turn()
    }

    pub(super) fn new_programs(&self) -> Programs {
        self.run.new_programs()
    }
}

impl OfRun {
    pub(super) fn carry_out(&self, request: &EraseRequest) -> Answer<EraseReport> {
        let Some(method) = Method::ALL.into_iter().find(|method| method.name() == request.method) else {
            let known = Method::ALL.map(Method::name).join(", ");
            let message = format!("there is no method `{}`: there are {known}", request.method);
            return Err(Error::new("not-supported", message));
        };
        let disk = self.claimed(&request.device, request.serial.as_deref())?;
        let firmware = Firmware::of(self.root(), self.programs(), &disk)?;
        let level = firmware.level(&disk, method).map_err(|reason| {
            Error::new("not-supported", format!("{} cannot be erased by {}: {reason}", disk.path, method.name()))
        })?;
        let erased = match (method, firmware, self.programs()) {
            (Method::ZeroOut, ..) => self.zero_out(&disk)?,
            (Method::Overwrite, ..) => self.overwrite(&disk)?,
            (method, firmware, Some(programs)) => {
                // The tools open the device by themselves, and some exclusively: it cannot be held for them. So it is only tried.
                drop(Device::write(&disk)?);
                let erasing = Erasing { run: self, programs, disk: &disk };
                match (method, firmware) {
                    (Method::Nvme(method), _) => nvme::erase(&erasing, method)?,
                    (Method::AtaSanitize, Firmware::Ata(features)) => ata::sanitize(&erasing, features)?,
                    (_, Firmware::Ata(features)) => ata::secure_erase(&erasing, features, level)?,
                    _ => return Err(Error::new("not-supported", "the drive does not have it")),
                }
            }
            (_, _, None) => return Err(Error::new("not-supported", "this node supervises no programs")),
        };
        Ok(EraseReport {
            method: method.name().to_owned(),
            level: erased.level.to_owned(),
            model: disk.model,
            serial: disk.serial,
            device_log: erased.log,
        })
    }

    fn zero_out(&self, disk: &Disk) -> Answer<Erased> {
        let device = Device::write(disk)?;
        self.in_pieces(disk, ZERO_BYTES, |offset, len| device.zero(offset, len))?;
        device.sync()?;
        Ok(Erased { level: "clear", log: None })
    }

    fn overwrite(&self, disk: &Disk) -> Answer<Erased> {
        let device = Device::write(disk)?;
        let zeroes = Buffer::new(CHUNK_BYTES);
        self.in_pieces(disk, CHUNK_BYTES as u64, |offset, len| {
            let len = usize::try_from(len).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            device.write_at(&zeroes.bytes()[..len], offset)
        })?;
        device.sync()?;
        Ok(Erased { level: "clear", log: None })
    }

    /// The whole device, piece by piece, unless the run is called off between two.
    fn in_pieces(&self, disk: &Disk, piece: u64, mut act: impl FnMut(u64, u64) -> Answer<()>) -> Answer<()> {
        let total = disk.size_bytes;
        let mut done = 0;
        while done < total {
            self.go_on().map_err(|error| {
                let message = format!("{}: {done} of {total} bytes of {} were overwritten", error.message, disk.path);
                Error { message, ..error }
            })?;
            let len = piece.min(total - done);
            act(done, len)?;
            done += len;
            self.progress(done, Some(total), "bytes", &format!("{} is overwritten", disk.path));
        }
        Ok(())
    }
}
