//! Event sets over the state's list of events.
//!
//! **Invariant:** a set sees each event that was appended after it registered for the GPU and kind, once, in order.

use std::{
    collections::BTreeMap,
    ffi::{c_uint, c_ulonglong, c_void},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nvml_wrapper_sys::bindings::{nvmlEventData_t, nvmlReturn_enum_NVML_ERROR_TIMEOUT as TIMEOUT, nvmlReturn_t};

use super::{Answer, Handle, INVALID_ARGUMENT, Out, UNINITIALIZED, client, device_call, guarded, load, system_call};
use crate::state::{Event, State};

/// Single-bit ECC (1), double-bit ECC (2) and critical XID (8): what an H100 without a display reports.
const SUPPORTED: c_ulonglong = 0b1011;
/// How often the state file is looked at while a set waits.
const POLL: Duration = Duration::from_millis(10);

/// An `nvmlEventSet_t`: a number, not an address.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct SetHandle(*mut c_void);

struct Registration {
    gpu: usize,
    kinds: u64,
    /// How many events of the state this registration is past.
    seen: usize,
}

static SETS: Mutex<BTreeMap<usize, Vec<Registration>>> = Mutex::new(BTreeMap::new());

fn sets() -> MutexGuard<'static, BTreeMap<usize, Vec<Registration>>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetCreate(set: Out<SetHandle>) -> nvmlReturn_t {
    system_call("nvmlEventSetCreate", |_| {
        let mut sets = sets();
        let number = sets.last_key_value().map_or(1, |(last, _)| last + 1);
        set.put(SetHandle(std::ptr::without_provenance_mut(number)))?;
        sets.insert(number, Vec::new());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: SetHandle) -> nvmlReturn_t {
    system_call("nvmlEventSetFree", |_| sets().remove(&set.0.addr()).map(drop).ok_or(INVALID_ARGUMENT))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetSupportedEventTypes(device: Handle, kinds: Out<c_ulonglong>) -> nvmlReturn_t {
    device_call("nvmlDeviceGetSupportedEventTypes", device, |_, device| {
        device.whole()?;
        kinds.put(SUPPORTED)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(device: Handle, kinds: c_ulonglong, set: SetHandle) -> nvmlReturn_t {
    device_call("nvmlDeviceRegisterEvents", device, |state, device| {
        device.whole()?;
        let mut sets = sets();
        let set = sets.get_mut(&set.0.addr()).ok_or(INVALID_ARGUMENT)?;
        set.push(Registration { gpu: device.index, kinds, seen: state.events.len() });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait_v2(set: SetHandle, data: Out<nvmlEventData_t>, timeout_ms: c_uint) -> nvmlReturn_t {
    guarded("nvmlEventSetWait_v2", None, || {
        if client().initialised == 0 {
            return Err(UNINITIALIZED);
        }
        let until = Instant::now() + Duration::from_millis(timeout_ms.into());
        loop {
            let state = load()?;
            super::injected(&state.errors, "nvmlEventSetWait_v2")?;
            if let Some(event) = next_event(&state, set)? {
                return data.put(event);
            }
            if Instant::now() >= until {
                return Err(TIMEOUT);
            }
            thread::sleep(POLL);
        }
    })
}

fn next_event(state: &State, set: SetHandle) -> Answer<Option<nvmlEventData_t>> {
    let mut sets = sets();
    let registrations = sets.get_mut(&set.0.addr()).ok_or(INVALID_ARGUMENT)?;
    for (number, event) in state.events.iter().enumerate() {
        for registration in registrations.iter_mut().filter(|registration| registration.seen <= number) {
            if registration.gpu == event.gpu as usize && registration.kinds & event.kind != 0 {
                registration.seen = number + 1;
                return Ok(Some(data(event)));
            }
        }
    }
    Ok(None)
}

fn data(event: &Event) -> nvmlEventData_t {
    nvmlEventData_t {
        device: Handle::gpu(event.gpu as usize).0.cast(),
        eventType: event.kind,
        eventData: event.data,
        gpuInstanceId: event.gpu_instance.unwrap_or(u32::MAX),
        computeInstanceId: event.compute_instance.unwrap_or(u32::MAX),
    }
}
