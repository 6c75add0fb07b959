//! Initialisation, versions, and the names of return codes.
//!
//! **Invariant:** an initialised library holds a shared lock for as long as NVML would hold the device files open.

use std::ffi::{CStr, c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings::nvmlReturn_t;

use super::{DRIVER_NOT_LOADED, Out, UNINITIALIZED, UNKNOWN, client, guarded, injected, load, state_file, system_call};
use crate::state::clients;

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    init("nvmlInit_v2")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    init("nvmlInitWithFlags")
}

fn init(function: &str) -> nvmlReturn_t {
    guarded(function, None, || {
        let state = load()?;
        state.init.filter(|code| *code != 0).map_or(Ok(()), Err)?;
        injected(&state.errors, function)?;
        let mut client = client();
        if client.handle.is_none() {
            let handle = clients(&state_file().ok_or(DRIVER_NOT_LOADED)?).map_err(|_| UNKNOWN)?;
            handle.lock_shared().map_err(|_| UNKNOWN)?;
            client.handle = Some(handle);
        }
        client.initialised += 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    guarded("nvmlShutdown", None, || {
        let mut client = client();
        client.initialised = client.initialised.checked_sub(1).ok_or(UNINITIALIZED)?;
        if client.initialised == 0 {
            client.handle = None;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverVersion(version: Out<c_char>, length: c_uint) -> nvmlReturn_t {
    system_call("nvmlSystemGetDriverVersion", |state| version.put_text(length, &state.driver_version))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetNVMLVersion(version: Out<c_char>, length: c_uint) -> nvmlReturn_t {
    system_call("nvmlSystemGetNVMLVersion", |state| version.put_text(length, &state.nvml_version))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: Out<c_int>) -> nvmlReturn_t {
    system_call("nvmlSystemGetCudaDriverVersion_v2", |state| version.put(state.cuda_version))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: nvmlReturn_t) -> *const c_char {
    error_string(code).as_ptr()
}

fn error_string(code: nvmlReturn_t) -> &'static CStr {
    match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        17 => c"The operating system has blocked the request",
        18 => c"RM has detected an NVML/RM version mismatch",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        _ => c"Unknown Error",
    }
}
