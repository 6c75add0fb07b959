//! The chassis, its board and its firmware, as DMI (SMBIOS) tells.
//!
//! **Invariant:** what the maker left as a placeholder is no fact.

use serde::Serialize;

use super::facts::Facts;

const DMI: &str = "sys/class/dmi/id";

/// What makers leave in fields that they did not fill, in lower case.
const PLACEHOLDERS: [&str; 10] = [
    "to be filled by o.e.m.",
    "default string",
    "not specified",
    "not applicable",
    "system serial number",
    "system product name",
    "system manufacturer",
    "none",
    "n/a",
    "unknown",
];

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct System {
    vendor: Option<String>,
    product: Option<String>,
    /// Readable by root alone, like the other serial numbers and the UUID.
    serial: Option<String>,
    uuid: Option<String>,
    board_vendor: Option<String>,
    board_name: Option<String>,
    board_serial: Option<String>,
    chassis_serial: Option<String>,
    bios_vendor: Option<String>,
    bios_version: Option<String>,
    /// As the maker writes it, mostly `mm/dd/yyyy`.
    bios_date: Option<String>,
}

pub(super) fn collect(facts: &mut Facts<'_>) -> System {
    if !facts.exists(DMI) {
        facts.problem(format!("/{DMI}: this machine has no DMI"));
        return System::default();
    }
    let mut field = |name: &str| {
        let path = format!("{DMI}/{name}");
        let text = facts.text(&path)?;
        if PLACEHOLDERS.contains(&text.to_lowercase().as_str()) {
            facts.problem(format!("/{path}: the maker left a placeholder, `{text}`"));
            return None;
        }
        Some(text)
    };
    System {
        vendor: field("sys_vendor"),
        product: field("product_name"),
        serial: field("product_serial"),
        uuid: field("product_uuid").map(|uuid| uuid.to_lowercase()),
        board_vendor: field("board_vendor"),
        board_name: field("board_name"),
        board_serial: field("board_serial"),
        chassis_serial: field("chassis_serial"),
        bios_vendor: field("bios_vendor"),
        bios_version: field("bios_version"),
        bios_date: field("bios_date"),
    }
}
