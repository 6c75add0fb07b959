//! MIG devices.
//!
//! **Invariant:** an index without a MIG device is NOT_FOUND, whatever indexes come after it.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::nvmlReturn_t;

use super::{Handle, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, Out, device_call};

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigMode(device: Handle, current: Out<c_uint>, pending: Out<c_uint>) -> nvmlReturn_t {
    device_call("nvmlDeviceGetMigMode", device, |_, device| {
        let mig = device.whole()?.mig.as_ref().ok_or(NOT_SUPPORTED)?;
        current.put(mig.enabled.into())?;
        pending.put(mig.pending.into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: Handle, count: Out<c_uint>) -> nvmlReturn_t {
    // A GPU that cannot do MIG answers 0 here, not an error.
    device_call("nvmlDeviceGetMaxMigDeviceCount", device, |_, device| {
        count.put(device.whole()?.mig.as_ref().map_or(0, |mig| mig.max_devices))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(device: Handle, index: c_uint, mig: Out<Handle>) -> nvmlReturn_t {
    device_call("nvmlDeviceGetMigDeviceHandleByIndex", device, |_, device| {
        let all = device.whole()?.mig.as_ref().ok_or(NOT_SUPPORTED)?;
        if index >= all.max_devices {
            return Err(INVALID_ARGUMENT);
        }
        if !all.enabled || !all.instances.contains_key(&index) {
            return Err(NOT_FOUND);
        }
        mig.put(Handle::mig(device.index, index))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceIsMigDeviceHandle(device: Handle, is_mig: Out<c_uint>) -> nvmlReturn_t {
    device_call("nvmlDeviceIsMigDeviceHandle", device, |_, device| is_mig.put(device.mig.is_some().into()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig: Handle, device: Out<Handle>) -> nvmlReturn_t {
    device_call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", mig, |_, mig| {
        if mig.mig.is_none() { Err(INVALID_ARGUMENT) } else { device.put(Handle::gpu(mig.index)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceId(device: Handle, id: Out<c_uint>) -> nvmlReturn_t {
    device_call("nvmlDeviceGetGpuInstanceId", device, |_, device| {
        id.put(device.mig.ok_or(INVALID_ARGUMENT)?.1.gpu_instance)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeInstanceId(device: Handle, id: Out<c_uint>) -> nvmlReturn_t {
    device_call("nvmlDeviceGetComputeInstanceId", device, |_, device| {
        id.put(device.mig.ok_or(INVALID_ARGUMENT)?.1.compute_instance)
    })
}
