//! Finding devices, and who they are.
//!
//! **Invariant:** a lost GPU keeps its index; looking one up by UUID walks the list and stops at a lost one, as NVML says it
//! may ("if any GPU has fallen off the bus").

use std::ffi::{c_char, c_uint};

use nvml_wrapper_sys::bindings::{nvmlEnableState_t, nvmlPciInfo_t, nvmlReturn_t};

use super::{GPU_IS_LOST, Handle, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, Out, Text, device_call, system_call};
use crate::{pci::PciAddress, state::State};

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: Out<c_uint>) -> nvmlReturn_t {
    system_call("nvmlDeviceGetCount_v2", |state| {
        count.put(c_uint::try_from(state.gpus.len()).map_err(|_| INVALID_ARGUMENT)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: Out<Handle>) -> nvmlReturn_t {
    let function = "nvmlDeviceGetHandleByIndex_v2";
    system_call(function, |state| {
        let gpu = state.gpus.get(index as usize).ok_or(INVALID_ARGUMENT)?;
        if gpu.lost {
            return Err(GPU_IS_LOST);
        }
        super::injected(&gpu.errors, function)?;
        device.put(Handle::gpu(index as usize))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: Text, device: Out<Handle>) -> nvmlReturn_t {
    system_call("nvmlDeviceGetHandleByUUID", |state| device.put(by_uuid(state, &uuid.get()?)?))
}

fn by_uuid(state: &State, uuid: &str) -> Result<Handle, nvmlReturn_t> {
    for (index, gpu) in state.gpus.iter().enumerate() {
        if gpu.lost {
            return Err(GPU_IS_LOST);
        }
        if gpu.uuid == uuid {
            return Ok(Handle::gpu(index));
        }
        for (mig_index, instance) in gpu.mig.iter().filter(|mig| mig.enabled).flat_map(|mig| &mig.instances) {
            if instance.uuid == uuid {
                return Ok(Handle::mig(index, *mig_index));
            }
        }
    }
    Err(NOT_FOUND)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(bus_id: Text, device: Out<Handle>) -> nvmlReturn_t {
    system_call("nvmlDeviceGetHandleByPciBusId_v2", |state| {
        let address: PciAddress = bus_id.get()?.parse().map_err(|_| INVALID_ARGUMENT)?;
        let index = state.gpus.iter().position(|gpu| gpu.address() == address).ok_or(NOT_FOUND)?;
        if state.gpus[index].lost { Err(GPU_IS_LOST) } else { device.put(Handle::gpu(index)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: Handle, uuid: Out<c_char>, length: c_uint) -> nvmlReturn_t {
    device_call("nvmlDeviceGetUUID", device, |_, device| {
        uuid.put_text(length, device.mig.map_or(&device.gpu.uuid, |(_, instance)| &instance.uuid))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(device: Handle, name: Out<c_char>, length: c_uint) -> nvmlReturn_t {
    device_call("nvmlDeviceGetName", device, |_, device| {
        let full = match device.mig {
            Some((_, instance)) => format!("{} MIG {}", device.gpu.name, instance.profile),
            None => device.gpu.name.clone(),
        };
        name.put_text(length, &full)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetSerial(device: Handle, serial: Out<c_char>, length: c_uint) -> nvmlReturn_t {
    device_call("nvmlDeviceGetSerial", device, |_, device| {
        serial.put_text(length, device.whole()?.serial.as_ref().ok_or(NOT_SUPPORTED)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMinorNumber(device: Handle, minor: Out<c_uint>) -> nvmlReturn_t {
    device_call("nvmlDeviceGetMinorNumber", device, |_, device| minor.put(device.whole()?.minor.ok_or(NOT_SUPPORTED)?))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfo_v3(device: Handle, info: Out<nvmlPciInfo_t>) -> nvmlReturn_t {
    device_call("nvmlDeviceGetPciInfo_v3", device, |_, device| {
        let address = device.whole()?.address();
        info.put(nvmlPciInfo_t {
            busIdLegacy: text(&address.nvml_legacy()),
            domain: address.domain,
            bus: address.bus,
            device: address.device,
            // An H100 SXM5: device id in the upper half, vendor in the lower; subsystem the same.
            pciDeviceId: 0x2330_10de,
            pciSubSystemId: 0x16c1_10de,
            busId: text(&address.nvml()),
        })
    })
}

fn text<const LENGTH: usize>(text: &str) -> [c_char; LENGTH] {
    let mut buffer = [0; LENGTH];
    // The last byte stays zero.
    for (to, from) in buffer[..LENGTH - 1].iter_mut().zip(text.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    buffer
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPersistenceMode(device: Handle, mode: Out<nvmlEnableState_t>) -> nvmlReturn_t {
    device_call("nvmlDeviceGetPersistenceMode", device, |_, device| mode.put(device.whole()?.persistence.into()))
}
