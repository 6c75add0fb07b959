//! `--gpu-reset` and `-pm`: what changes a GPU.
//!
//! **Invariant:** a command that refuses one GPU resets none.

use std::{fmt::Write, path::Path};

use super::{exit, lost};
use crate::state::{BusyText, Context, Gpu, ResetAnswer, State, clients};

/// Switches persistence mode of each target.
pub(super) fn set_persistence(state: &State, state_file: &Path, targets: &[usize], on: bool) -> (String, u8) {
    let word = if on { "Enabled" } else { "Disabled" };
    let mut text = String::new();
    for index in targets {
        let (gpu, bus_id) = (&state.gpus[*index], state.gpus[*index].address().nvml());
        if gpu.lost {
            return (text + &lost(&bus_id), exit::GPU_LOST);
        }
        if state.smi.not_root {
            let refusal = format!("Unable to set persistence mode for GPU {bus_id}: Insufficient Permissions\n");
            return (text + &refusal + "Terminating early due to previous errors.\n", exit::PERMISSION);
        }
        let _ = if gpu.persistence == on {
            writeln!(text, "Persistence mode is already {word} for GPU {bus_id}.")
        } else {
            writeln!(text, "{word} persistence mode for GPU {bus_id}.")
        };
    }
    let change = |state: &mut State| {
        for index in targets {
            state.gpus[*index].persistence = on;
        }
    };
    match State::update(state_file, change) {
        Ok(()) => (text + "All done.\n", exit::OK),
        Err(error) => (format!("{text}Unknown Error: {error}\n"), exit::OTHER),
    }
}

/// Resets the targets together, or says why not.
pub(super) fn reset(state: &State, state_file: &Path, targets: &[usize]) -> (String, u8) {
    if let Some(refusal) = refusal(state, targets) {
        return refusal;
    }
    // Held until the reset is done: no client may appear meanwhile.
    let clients = match clients(state_file) {
        Ok(clients) => clients,
        Err(error) => return (format!("Unknown Error: {error}\n"), exit::OTHER),
    };
    let in_use = if clients.try_lock().is_err() { targets.to_vec() } else { holders(state, targets) };
    if !in_use.is_empty() {
        return (busy(state, &in_use), exit::OTHER);
    }
    let failed = targets.iter().filter(|index| state.gpus[**index].reset == ResetAnswer::Fails).count();
    let change = |state: &mut State| {
        for index in targets {
            after_reset(&mut state.gpus[*index]);
        }
    };
    if let Err(error) = State::update(state_file, change) {
        return (format!("Unknown Error: {error}\n"), exit::OTHER);
    }
    let mut text = String::new();
    for gpu in targets.iter().map(|index| &state.gpus[*index]) {
        match gpu.reset {
            ResetAnswer::Fails => {}
            ResetAnswer::Vanishes => text += &lost(&gpu.address().nvml()),
            _ => {
                let _ = writeln!(text, "GPU {} was successfully reset.", gpu.address().nvml());
            }
        }
    }
    if targets.iter().any(|index| state.gpus[*index].reset == ResetAnswer::Vanishes) {
        return (text, exit::GPU_LOST);
    }
    if failed > 0 {
        let devices = if failed == 1 { "device" } else { "devices" };
        let _ = writeln!(
            text,
            "{failed} {devices} did not complete reset successfully, and may be in an unstable state. Please reboot your system."
        );
        return (text, exit::OTHER);
    }
    (text + "All done.\n", exit::OK)
}

/// Why this reset cannot be, whoever uses the GPUs.
fn refusal(state: &State, targets: &[usize]) -> Option<(String, u8)> {
    if state.smi.not_root {
        return Some(("GPU Reset couldn't run because of insufficient permissions.\n".to_owned(), exit::PERMISSION));
    }
    if let Some(error) = &state.smi.fabric_error {
        let text = format!("GPU Reset couldn't run because fabric state could not be determined: {error}\n");
        return Some((text, exit::OTHER));
    }
    targets.iter().find_map(|index| gpu_refusal(&state.gpus[*index], targets))
}

fn gpu_refusal(gpu: &Gpu, targets: &[usize]) -> Option<(String, u8)> {
    let bus_id = gpu.address().nvml();
    if gpu.lost {
        return Some((lost(&bus_id), exit::GPU_LOST));
    }
    match &gpu.reset {
        ResetAnswer::Works | ResetAnswer::Fails | ResetAnswer::Vanishes | ResetAnswer::KeepsRows => None,
        ResetAnswer::Unsupported => Some((format!("Resetting GPU {bus_id} is not supported.\n"), exit::NOT_SUPPORTED)),
        ResetAnswer::Primary => {
            Some((format!("GPU {bus_id} is the primary GPU and cannot be reset.\n"), exit::NOT_SUPPORTED))
        }
        ResetAnswer::Vgpu => {
            let text = format!("GPU Reset couldn't run because GPU {bus_id} is in vGPU mode.\n");
            Some((text, exit::NOT_SUPPORTED))
        }
        ResetAnswer::PeersNeeded(peers) => {
            let missing: Vec<String> =
                peers.iter().filter(|peer| !targets.contains(&(**peer as usize))).map(ToString::to_string).collect();
            let text = format!(
                "GPU Reset couldn't progress because not all GPUs that must be reset together were named (e.g. NVLink \
                 connected GPUs must be reset together). Please append the following device indexes: {}\n",
                missing.join(",")
            );
            (!missing.is_empty()).then_some((text, exit::OTHER))
        }
    }
}

/// The targets that are held: by a process, persistence mode, or (for all of them) a compute process elsewhere.
fn holders(state: &State, targets: &[usize]) -> Vec<usize> {
    let computes = |gpu: &Gpu| gpu.processes.iter().any(|process| process.context == Context::Compute);
    let elsewhere = state.gpus.iter().enumerate().any(|(index, gpu)| !targets.contains(&index) && computes(gpu));
    let is_held_by_service = state.services.values().any(|service| service.active);
    if (elsewhere && state.smi.idle_node_needed) || is_held_by_service {
        return targets.to_vec();
    }
    let held = |index: &usize| state.gpus[*index].persistence || !state.gpus[*index].processes.is_empty();
    targets.iter().copied().filter(held).collect()
}

fn busy(state: &State, in_use: &[usize]) -> String {
    let bus_ids = in_use.iter().map(|index| state.gpus[*index].address().nvml());
    let mut text = String::new();
    for gpu in in_use.iter().map(|index| &state.gpus[*index]) {
        if gpu.mig.as_ref().is_some_and(|mig| mig.enabled && !mig.pending) {
            let bus_id = gpu.address().nvml();
            let _ = writeln!(
                text,
                "Warning: MIG mode is in pending disable state for GPU {bus_id}:In use by another client"
            );
        }
    }
    match state.smi.busy_text {
        BusyText::Newer => {
            text += "The following GPUs could not be reset:\n";
            for bus_id in bus_ids {
                let _ = writeln!(text, "  GPU {bus_id}: In use by another client");
            }
            text + "\n"
        }
        BusyText::Older => {
            for bus_id in bus_ids {
                let _ = writeln!(text, "GPU {bus_id} is currently in use by another process.");
            }
            let (number, devices) = match in_use.len() {
                1 => ("1".to_owned(), "device is"),
                more => (more.to_string(), "devices are"),
            };
            text + &format!(
                "\n{number} {devices} currently being used by one or more other processes (e.g., Fabric Manager, CUDA \
                 application, graphics application such as an X server, or a monitoring application such as another \
                 instance of nvidia-smi). Please first kill all processes using this device and all compute applications \
                 running in the system.\n"
            )
        }
    }
}

/// What a completed reset does to a GPU. One that fails leaves it asking for a reboot.
fn after_reset(gpu: &mut Gpu) {
    if gpu.reset == ResetAnswer::Fails {
        gpu.recovery_action = gpu.recovery_action.map(|_| 2);
        return;
    }
    if gpu.reset == ResetAnswer::Vanishes {
        gpu.lost = true;
        return;
    }
    if let Some(rows) = gpu.remapped_rows.as_mut().filter(|_| gpu.reset != ResetAnswer::KeepsRows) {
        rows.pending = false;
    }
    if let Some(ecc) = &mut gpu.ecc {
        (ecc.volatile_corrected, ecc.volatile_uncorrected) = (0, 0);
    }
    gpu.retired_pages_pending = gpu.retired_pages_pending.map(|_| false);
    if let Some(mig) = &mut gpu.mig {
        mig.enabled = mig.pending;
    }
    // 1 asks for a reset and 4 for one after draining; the others ask for more than this.
    if matches!(gpu.recovery_action, Some(1 | 4)) {
        gpu.recovery_action = Some(0);
    }
}
