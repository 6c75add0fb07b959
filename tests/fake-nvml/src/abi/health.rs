//! Memory errors, row remapping, field values, the PCIe link, and processes.
//!
//! **Invariant:** what a GPU does not have is NOT_SUPPORTED, never a zero.

use std::ffi::{c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    NVML_VALUE_NOT_AVAILABLE, field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, nvmlEccCounterType_t, nvmlEnableState_t,
    nvmlFieldValue_t, nvmlMemoryErrorType_t, nvmlProcessInfo_t, nvmlReturn_t, nvmlValue_t,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT as UNSIGNED_INT,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG as UNSIGNED_LONG_LONG,
};

use super::{Answer, Device, Handle, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_SUPPORTED, Out, UNKNOWN, device_call};
use crate::state::{Context, Ecc, Gpu, Link, Process, RemappedRows, State};

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetEccMode(
    device: Handle,
    current: Out<nvmlEnableState_t>,
    pending: Out<nvmlEnableState_t>,
) -> nvmlReturn_t {
    device_call("nvmlDeviceGetEccMode", device, |_, device| {
        let enabled = device.whole()?.ecc.as_ref().ok_or(NOT_SUPPORTED)?.enabled.into();
        current.put(enabled)?;
        pending.put(enabled)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: Handle,
    error: nvmlMemoryErrorType_t,
    counter: nvmlEccCounterType_t,
    count: Out<c_ulonglong>,
) -> nvmlReturn_t {
    device_call("nvmlDeviceGetTotalEccErrors", device, |_, device| {
        let ecc: &Ecc = device.whole()?.ecc.as_ref().filter(|ecc| ecc.enabled).ok_or(NOT_SUPPORTED)?;
        // Error type: 0 corrected, 1 uncorrected. Counter type: 0 volatile, 1 aggregate.
        count.put(match (error, counter) {
            (0, 0) => ecc.volatile_corrected,
            (1, 0) => ecc.volatile_uncorrected,
            (0, 1) => ecc.aggregate_corrected,
            (1, 1) => ecc.aggregate_uncorrected,
            _ => return Err(INVALID_ARGUMENT),
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetRemappedRows(
    device: Handle,
    correctable: Out<c_uint>,
    uncorrectable: Out<c_uint>,
    pending: Out<c_uint>,
    failure: Out<c_uint>,
) -> nvmlReturn_t {
    device_call("nvmlDeviceGetRemappedRows", device, |_, device| {
        let gpu = device.whole()?;
        let rows: &RemappedRows = gpu.remapped_rows.as_ref().ok_or(NOT_SUPPORTED)?;
        if gpu.has_mig_instances() {
            return Err(NOT_SUPPORTED);
        }
        correctable.put(rows.correctable)?;
        uncorrectable.put(rows.uncorrectable)?;
        pending.put(rows.pending.into())?;
        failure.put(rows.failure.into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetRetiredPagesPendingStatus(device: Handle, pending: Out<nvmlEnableState_t>) -> nvmlReturn_t {
    device_call("nvmlDeviceGetRetiredPagesPendingStatus", device, |_, device| {
        pending.put(device.whole()?.retired_pages_pending.ok_or(NOT_SUPPORTED)?.into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetFieldValues(device: Handle, count: c_int, values: Out<nvmlFieldValue_t>) -> nvmlReturn_t {
    device_call("nvmlDeviceGetFieldValues", device, |_, device| {
        let count = usize::try_from(count).map_err(|_| INVALID_ARGUMENT)?;
        for value in values.slice(count)? {
            fill_field(device.whole()?, value);
        }
        Ok(())
    })
}

fn fill_field(gpu: &Gpu, value: &mut nvmlFieldValue_t) {
    let injected = gpu.errors.get(&format!("nvmlDeviceGetFieldValues/{}", value.fieldId)).copied();
    let advice = (value.fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION).then_some(gpu.recovery_action).flatten();
    value.nvmlReturn = injected.unwrap_or(0);
    if let Some(action) = advice {
        (value.valueType, value.value) = (UNSIGNED_INT, nvmlValue_t { uiVal: action });
    } else if let Some(number) = gpu.fields.get(&value.fieldId) {
        (value.valueType, value.value) = (UNSIGNED_LONG_LONG, nvmlValue_t { ullVal: *number });
    } else if injected.is_none() {
        value.nvmlReturn = NOT_SUPPORTED;
    }
}

/// Exports a function that answers one number of the PCIe link.
macro_rules! link_function {
    ($function:ident, $number:ident) => {
        #[unsafe(no_mangle)]
        extern "C" fn $function(device: Handle, number: Out<c_uint>) -> nvmlReturn_t {
            device_call(stringify!($function), device, |_, device| {
                let link: &Link = &device.whole()?.link;
                number.put(link.$number)
            })
        }
    };
}

link_function!(nvmlDeviceGetCurrPcieLinkWidth, current_width);
link_function!(nvmlDeviceGetMaxPcieLinkWidth, max_width);
link_function!(nvmlDeviceGetCurrPcieLinkGeneration, current_generation);
link_function!(nvmlDeviceGetMaxPcieLinkGeneration, max_generation);

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Handle,
    count: Out<c_uint>,
    processes: Out<nvmlProcessInfo_t>,
) -> nvmlReturn_t {
    device_call("nvmlDeviceGetComputeRunningProcesses_v3", device, |_, device| {
        list_processes(device, Context::Compute, &count, processes)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: Handle,
    count: Out<c_uint>,
    processes: Out<nvmlProcessInfo_t>,
) -> nvmlReturn_t {
    device_call("nvmlDeviceGetGraphicsRunningProcesses_v3", device, |_, device| {
        list_processes(device, Context::Graphics, &count, processes)
    })
}

/// NVML's protocol: too little room gives INSUFFICIENT_SIZE and the number there is; asking with 0 is asking for it.
fn list_processes(
    device: &Device<'_>,
    context: Context,
    count: &Out<c_uint>,
    processes: Out<nvmlProcessInfo_t>,
) -> Answer {
    let shown: Vec<nvmlProcessInfo_t> =
        device.gpu.processes.iter().filter(|process| shows(device, context, process)).map(info).collect();
    let room = count.get()? as usize;
    count.put(c_uint::try_from(shown.len()).map_err(|_| UNKNOWN)?)?;
    if room < shown.len() {
        arrive(device, context)?;
        return Err(INSUFFICIENT_SIZE);
    }
    if !shown.is_empty() {
        processes.slice(shown.len())?.copy_from_slice(&shown);
    }
    Ok(())
}

fn shows(device: &Device<'_>, context: Context, process: &Process) -> bool {
    let here = device.mig.is_none_or(|(_, instance)| process.gpu_instance == Some(instance.gpu_instance));
    here && process.context == context
}

fn info(process: &Process) -> nvmlProcessInfo_t {
    nvmlProcessInfo_t {
        pid: process.pid,
        usedGpuMemory: process.used_memory_bytes.unwrap_or(i64::from(NVML_VALUE_NOT_AVAILABLE).cast_unsigned()),
        gpuInstanceId: process.gpu_instance.unwrap_or(u32::MAX),
        computeInstanceId: process.compute_instance.unwrap_or(u32::MAX),
    }
}

fn arrive(device: &Device<'_>, context: Context) -> Answer {
    if device.gpu.arriving.iter().all(|process| process.context != context) {
        return Ok(());
    }
    let arrive = |state: &mut State| {
        if let Some(gpu) = state.gpus.get_mut(device.index) {
            let (now, later) = gpu.arriving.drain(..).partition(|process| process.context == context);
            gpu.arriving = later;
            gpu.processes.extend::<Vec<Process>>(now);
        }
    };
    State::update(&super::state_file().ok_or(UNKNOWN)?, arrive).map_err(|_| UNKNOWN)
}
