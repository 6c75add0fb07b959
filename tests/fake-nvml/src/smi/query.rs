//! `-L` and `--query-gpu`.
//!
//! **Invariant:** reading changes nothing.

use std::fmt::Write;

use super::{exit, lost};
use crate::state::{Gpu, State};

/// `GPU 0: NAME (UUID: GPU-…)`, MIG devices indented below.
pub(super) fn list(state: &State, targets: &[usize]) -> (String, u8) {
    let (mut text, mut code) = (String::new(), exit::OK);
    for index in targets {
        let gpu = &state.gpus[*index];
        if gpu.lost {
            text += &lost(&gpu.address().nvml());
            code = exit::GPU_LOST;
            continue;
        }
        let _ = writeln!(text, "GPU {index}: {} (UUID: {})", gpu.name, gpu.uuid);
        for (mig_index, mig) in gpu.mig.iter().filter(|mig| mig.enabled).flat_map(|mig| &mig.instances) {
            let _ = writeln!(text, "  MIG {:<12} Device {mig_index:>2}: (UUID: {})", mig.profile, mig.uuid);
        }
    }
    (text, code)
}

/// A CSV with a space after each comma, as the real one writes it.
pub(super) fn query(state: &State, targets: &[usize], fields: &[String], header: bool) -> (String, u8) {
    let mut text = if header { fields.join(", ") + "\n" } else { String::new() };
    let mut code = exit::OK;
    for index in targets {
        let gpu = &state.gpus[*index];
        let mut row = Vec::new();
        for field in fields {
            match value(state, *index, gpu, field) {
                Some(value) => row.push(value),
                None => {
                    return (format!("Field \"{field}\" is not a valid field to query.\n\n"), exit::ARGUMENT);
                }
            }
        }
        if gpu.lost {
            text += &lost(&gpu.address().nvml());
            code = exit::GPU_LOST;
        } else {
            text += &(row.join(", ") + "\n");
        }
    }
    (text, code)
}

fn value(state: &State, index: usize, gpu: &Gpu, field: &str) -> Option<String> {
    const UNAVAILABLE: &str = "[N/A]";
    let enabled = |on: bool| if on { "Enabled" } else { "Disabled" }.to_owned();
    let or_unavailable = |value: Option<String>| value.unwrap_or_else(|| UNAVAILABLE.to_owned());
    Some(match field {
        "index" => index.to_string(),
        "uuid" | "gpu_uuid" => gpu.uuid.clone(),
        "name" | "gpu_name" => gpu.name.clone(),
        "pci.bus_id" | "gpu_bus_id" => gpu.address().nvml(),
        "serial" | "gpu_serial" => or_unavailable(gpu.serial.clone()),
        "persistence_mode" => enabled(gpu.persistence),
        "driver_version" => state.driver_version.clone(),
        "count" => state.gpus.len().to_string(),
        "mig.mode.current" => or_unavailable(gpu.mig.as_ref().map(|mig| enabled(mig.enabled))),
        "pcie.link.width.current" => gpu.link.current_width.to_string(),
        "pcie.link.gen.current" => gpu.link.current_generation.to_string(),
        _ => return None,
    })
}
