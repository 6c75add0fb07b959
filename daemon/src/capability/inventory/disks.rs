//! Disks: block devices that a driver made for a piece of hardware.
//!
//! **Invariant:** what is built on top of disks (device mapper, RAID, loops, RAM) is no disk.

use std::path::Path;

use serde::Serialize;

use super::facts::Facts;

const BLOCK: &str = "sys/block";

/// The unit of sysfs's `size`, whatever the device's own block size.
const SECTOR_BYTES: u64 = 512;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Disk {
    /// The name in `/dev`. It may differ after a reboot; `wwn` and `serial` do not.
    name: String,
    model: Option<String>,
    serial: Option<String>,
    /// As the kernel writes it: `naa.…`, `eui.…`, `t10.…`, `uuid.…`.
    wwn: Option<String>,
    size_bytes: Option<u64>,
    rotational: Option<bool>,
    removable: Option<bool>,
    /// `nvme`, `nvme-tcp` and its like, `sata`, `sas`, `usb`, `virtio`, `iscsi`, `mmc`.
    transport: Option<String>,
}

/// By name.
pub(super) fn collect(facts: &mut Facts<'_>) -> Option<Vec<Disk>> {
    let mut names = facts.names(BLOCK)?;
    names.retain(|name| is_disk(facts, name));
    Some(names.into_iter().map(|name| disk(facts, name)).collect())
}

fn is_disk(facts: &Facts<'_>, name: &str) -> bool {
    let made_of_software = ["loop", "ram", "zram", "dm-", "md"].iter().any(|kind| name.starts_with(kind));
    // Each path to a multipath NVMe namespace is a hidden device beside the one to use.
    let hidden = facts.try_text(&format!("{BLOCK}/{name}/hidden")).is_ok_and(|hidden| hidden == "1");
    !made_of_software && !hidden && facts.exists(&format!("{BLOCK}/{name}/device"))
}

fn disk(facts: &mut Facts<'_>, name: String) -> Disk {
    let at = |file: &str| format!("{BLOCK}/{name}/{file}");
    let sectors: Option<u64> = facts.number(&at("size"));
    Disk {
        model: facts.first_text(&format!("disk {name}: model"), &[at("device/model"), at("device/name")]),
        serial: serial(facts, &name),
        wwn: facts.first_text(&format!("disk {name}: wwn"), &[at("wwid"), at("device/wwid")]),
        size_bytes: sectors.and_then(|sectors| sectors.checked_mul(SECTOR_BYTES)),
        rotational: facts.flag(&at("queue/rotational")),
        removable: facts.flag(&at("removable")),
        transport: transport(facts, &name),
        name,
    }
}

/// NVMe and MMC have a file for it, virtio another, SCSI and SATA a page of vital product data.
fn serial(facts: &mut Facts<'_>, name: &str) -> Option<String> {
    let page = facts.try_bytes(&format!("{BLOCK}/{name}/device/vpd_pg80")).ok();
    if let Some(serial) = page.as_deref().and_then(vital_product_serial) {
        return Some(serial);
    }
    let paths = ["device/serial", "serial"].map(|file| format!("{BLOCK}/{name}/{file}"));
    facts.first_text(&format!("disk {name}: serial"), &paths)
}

/// Page 0x80: a header of four bytes, the last two of which are the length of the text behind it (SCSI SPC-4, 7.8.18).
pub(in crate::capability) fn vital_product_serial(page: &[u8]) -> Option<String> {
    let (&[_, _, high, low], text) = page.split_first_chunk()?;
    let text = text.get(..usize::from(u16::from_be_bytes([high, low])))?;
    let text = std::str::from_utf8(text).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Told by the buses and drivers on the device's path in sysfs.
fn transport(facts: &mut Facts<'_>, name: &str) -> Option<String> {
    let path = facts.resolved(&format!("{BLOCK}/{name}"))?;
    let transport = transport_of(&path, name).map(str::to_owned);
    match transport.as_deref() {
        None => facts.problem(format!("disk {name}: transport: no known bus on {}", bus_path(&path))),
        Some("nvme") => {
            // Through fabrics the controller says which; for a multipath namespace there is no single controller.
            let of_controller = facts.try_text(&format!("{BLOCK}/{name}/device/transport"));
            if let Some(fabric) = of_controller.ok().filter(|transport| transport != "pcie") {
                return Some(format!("nvme-{fabric}"));
            }
        }
        Some(_) => {}
    }
    transport
}

fn transport_of(path: &Path, name: &str) -> Option<&'static str> {
    // USB comes first: behind it there is a SCSI disk, too.
    const SIGNS: [(&str, &str); 6] = [
        ("usb", "usb"),
        ("virtio", "virtio"),
        ("session", "iscsi"),
        ("end_device-", "sas"),
        ("ata", "sata"),
        ("mmc", "mmc"),
    ];
    if name.starts_with("nvme") {
        return Some("nvme");
    }
    let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
    let sign_on_path = |sign: &str| {
        parts
            .iter()
            .any(|part| part.strip_prefix(sign).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
    };
    SIGNS.iter().find(|(sign, _)| sign_on_path(sign)).map(|(_, transport)| *transport)
}

/// The path from `devices` on, so that a fixture's problems read like the machine's.
fn bus_path(path: &Path) -> String {
    let text = path.to_string_lossy();
    text.find("/sys/devices").map_or_else(|| text.clone().into_owned(), |at| text[at..].to_owned())
}
