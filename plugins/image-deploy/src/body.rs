//! Which disk, and whether what became of it is a success. No host calls here.
//!
//! **Invariant:** a disk that is not the one that was named, that is in use or too small is never handed on to be written.

use sdk::Failure;
use sdk::block_devices::{Device, ImageReport};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Payload {
    pub(crate) device: Named,
    pub(crate) image: String,
    pub(crate) sha256: String,
    #[serde(default, deserialize_with = "sdk::payload::present")]
    pub(crate) bytes: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Named {
    pub(crate) path: String,
    #[serde(default, deserialize_with = "sdk::payload::present")]
    pub(crate) serial: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Deployed {
    path: String,
    model: Option<String>,
    serial: Option<String>,
    image: String,
    bytes: u64,
    sha256: String,
    status: &'static str,
}

/// The disk that is meant, if it may be written.
pub(crate) fn choose(payload: &Payload, devices: Vec<Device>) -> Result<Device, Failure> {
    let path = &payload.device.path;
    let refused = |code: &str, message: String| Failure::new(code, format!("nothing was written: {message}"));
    let Some(device) = devices.into_iter().find(|device| device.path == *path) else {
        return Err(refused("not-found", format!("there is no disk {path}")));
    };
    if let Some(serial) = &payload.device.serial
        && device.serial.as_ref() != Some(serial)
    {
        let own = device.serial.as_deref().unwrap_or("none");
        return Err(refused("wrong-serial", format!("{path} has the serial number {own}, and {serial} is named")));
    }
    if !device.users.is_empty() {
        return Err(refused("in-use", format!("{path} is in use: {}", device.users.join(", "))));
    }
    match payload.bytes {
        Some(bytes) if bytes > device.size_bytes => {
            let message = format!("the image has {bytes} bytes, and {path} has {}", device.size_bytes);
            Err(refused("too-large", message))
        }
        _ => Ok(device),
    }
}

/// Success, or why it is none.
pub(crate) fn judge(payload: Payload, device: Device, report: ImageReport) -> Result<Deployed, Failure> {
    let Device { path, model, serial, .. } = device;
    // A plan's dry answer; an image without bytes that was written is one that was verified.
    let is_planned = report.bytes_written == 0 && !report.verified;
    if !is_planned && (!report.verified || report.sha256 != payload.sha256) {
        let message = format!(
            "{path} gave other bytes back than the {} that were written: it does not hold `{}`, and its first and last MiB \
             were zeroed as far as it takes writes",
            report.bytes_written, payload.image
        );
        return Err(Failure::new("not-verified", message));
    }
    if let Some(bytes) = payload.bytes.filter(|bytes| !is_planned && *bytes != report.bytes_written) {
        let message = format!(
            "`{}` has {} bytes and the right digest, and the payload says {bytes}: {path} holds it whole; correct the payload",
            payload.image, report.bytes_written
        );
        return Err(Failure::new("wrong-length", message));
    }
    let status = if is_planned { "planned" } else { "verified" };
    let (bytes, sha256) = (report.bytes_written, report.sha256);
    Ok(Deployed { path, model, serial, image: payload.image, bytes, sha256, status })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn payload(serial: Option<&str>, bytes: Option<u64>) -> Payload {
        let device = Named { path: "/dev/nvme0n1".into(), serial: serial.map(Into::into) };
        Payload { device, image: "a.raw".into(), sha256: SHA.into(), bytes }
    }

    fn device(users: &[&str]) -> Device {
        Device {
            path: "/dev/nvme0n1".into(),
            size_bytes: 1000,
            model: Some("M".into()),
            serial: Some("S1".into()),
            users: users.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn a_disk_is_written_only_if_it_is_the_right_one_and_free_and_large_enough() {
        for (payload, device, code) in [
            (payload(Some("S2"), None), device(&[]), "wrong-serial"),
            (payload(Some("S1"), None), device(&["mounted at /"]), "in-use"),
            (payload(None, Some(1001)), device(&[]), "too-large"),
            (payload(None, None), Device { path: "/dev/sda".into(), ..device(&[]) }, "not-found"),
        ] {
            assert_eq!(choose(&payload, vec![device]).expect_err(code).code, code);
        }
        let chosen = choose(&payload(Some("S1"), Some(1000)), vec![device(&[])]);
        assert_eq!(chosen.map(|device| device.path), Ok("/dev/nvme0n1".into()));
    }

    #[test]
    fn only_what_was_read_back_is_a_success() {
        let report = |bytes_written, verified| ImageReport { bytes_written, sha256: SHA.into(), verified };
        let judged = |report, bytes| judge(payload(None, bytes), device(&[]), report);
        assert_eq!(judged(report(10, true), None).expect("verified").status, "verified");
        assert_eq!(judged(report(0, false), Some(10)).expect("planned").status, "planned");
        assert_eq!(judged(report(10, false), None).expect_err("doubtful").code, "not-verified");
        assert_eq!(judged(report(10, true), Some(11)).expect_err("another length").code, "wrong-length");
        let other = ImageReport { sha256: "00".into(), ..report(10, true) };
        assert_eq!(judged(other, None).expect_err("another digest").code, "not-verified");
    }
}
