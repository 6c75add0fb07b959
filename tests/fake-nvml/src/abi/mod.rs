//! NVML's C interface over the state file.
//!
//! Each exported function names itself, and says in a closure what it answers; [`system_call`] and [`device_call`] do what
//! is the same for all: initialised or not, the state, injected errors, lost GPUs, the trace.
//!
//! **Invariant:** no panic crosses into the caller, and no output is written unless the function succeeds (a size that was
//! too small excepted, as in NVML).

use std::{
    ffi::{CStr, OsStr, c_char, c_uint, c_void},
    fs::{self, File},
    io::Write,
    os::unix::ffi::OsStrExt,
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use nvml_wrapper_sys::bindings::{
    nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED as DRIVER_NOT_LOADED,
    nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST as GPU_IS_LOST,
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE as INSUFFICIENT_SIZE,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT, nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED,
    nvmlReturn_enum_NVML_ERROR_UNINITIALIZED as UNINITIALIZED, nvmlReturn_enum_NVML_ERROR_UNKNOWN as UNKNOWN,
    nvmlReturn_t,
};

use crate::state::{Gpu, MigInstance, STATE_FILE, STATE_VARIABLE, State, TRACE_VARIABLE};

mod device;
mod events;
mod health;
mod mig;
mod system;

/// `Err` is the return code.
type Answer<T = ()> = Result<T, nvmlReturn_t>;

/// How often the library is initialised, and its open handle on the GPUs.
struct Client {
    initialised: u32,
    handle: Option<File>,
}

static CLIENT: Mutex<Client> = Mutex::new(Client { initialised: 0, handle: None });

fn client() -> MutexGuard<'static, Client> {
    CLIENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An `nvmlDevice_t`: not an address, but 2^20 + 256 times the GPU's index + (1 + MIG index, or 0 for the GPU itself).
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Handle(*mut c_void);

const HANDLES: usize = 1 << 20;
const HANDLES_PER_GPU: usize = 256;

impl Handle {
    fn gpu(index: usize) -> Self {
        Self(std::ptr::without_provenance_mut(HANDLES + index * HANDLES_PER_GPU))
    }

    fn mig(gpu: usize, index: u32) -> Self {
        Self(std::ptr::without_provenance_mut(Self::gpu(gpu).0.addr() + 1 + index as usize))
    }

    /// The GPU's index, and the MIG device's index where it is one.
    fn parts(self) -> Option<(usize, Option<u32>)> {
        let number = self.0.addr().checked_sub(HANDLES)?;
        let mig = u32::try_from(number % HANDLES_PER_GPU).ok()?.checked_sub(1);
        Some((number / HANDLES_PER_GPU, mig))
    }
}

/// What a handle stands for.
struct Device<'state> {
    index: usize,
    gpu: &'state Gpu,
    mig: Option<(u32, &'state MigInstance)>,
}

impl<'state> Device<'state> {
    fn find(state: &'state State, handle: Handle) -> Answer<Self> {
        let (index, mig_index) = handle.parts().ok_or(INVALID_ARGUMENT)?;
        let gpu = state.gpus.get(index).ok_or(INVALID_ARGUMENT)?;
        let Some(mig_index) = mig_index else {
            return Ok(Self { index, gpu, mig: None });
        };
        let instances = gpu.mig.as_ref().filter(|mig| mig.enabled).map(|mig| &mig.instances);
        let instance = instances.and_then(|instances| instances.get(&mig_index)).ok_or(INVALID_ARGUMENT)?;
        Ok(Self { index, gpu, mig: Some((mig_index, instance)) })
    }

    /// Errs for a MIG device, for functions that only a whole GPU has.
    fn whole(&self) -> Answer<&'state Gpu> {
        if self.mig.is_some() { Err(NOT_SUPPORTED) } else { Ok(self.gpu) }
    }
}

/// A result that the caller has room for.
#[repr(transparent)]
struct Out<T>(*mut T);

impl<T> Out<T> {
    fn put(&self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: NVML's contract: a pointer for a result is null or good for one value.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// The values that the caller has room for, or put there.
    fn slice<'call>(self, length: usize) -> Answer<&'call mut [T]> {
        if self.0.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: NVML's contract: the caller passes as many values as it says, and nobody else has them during the call.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0, length) })
    }
}

impl Out<c_uint> {
    fn get(&self) -> Answer<c_uint> {
        // SAFETY: NVML's contract: a pointer to a count is null or points to one.
        if self.0.is_null() { Err(INVALID_ARGUMENT) } else { Ok(unsafe { self.0.read() }) }
    }
}

impl Out<c_char> {
    /// Text with its terminating zero, in `length` bytes.
    fn put_text(self, length: c_uint, text: &str) -> Answer {
        if text.len() >= length as usize {
            return Err(INSUFFICIENT_SIZE);
        }
        let target = self.slice(text.len() + 1)?;
        for (to, from) in target.iter_mut().zip(text.bytes().chain([0])) {
            *to = c_char::from_ne_bytes([from]);
        }
        Ok(())
    }
}

/// A C string that the caller passes.
#[repr(transparent)]
struct Text(*const c_char);

impl Text {
    fn get(&self) -> Answer<String> {
        if self.0.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: NVML's contract: a string is null or ends with a zero.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).map_err(|_| INVALID_ARGUMENT)
    }
}

/// Answers a function of the whole system.
fn system_call(function: &str, answer: impl FnOnce(&State) -> Answer) -> nvmlReturn_t {
    guarded(function, None, || {
        if client().initialised == 0 {
            return Err(UNINITIALIZED);
        }
        let state = load()?;
        injected(&state.errors, function)?;
        answer(&state)
    })
}

/// Answers a function of one device; a lost GPU answers GPU_IS_LOST itself.
fn device_call(function: &str, handle: Handle, answer: impl FnOnce(&State, &Device<'_>) -> Answer) -> nvmlReturn_t {
    guarded(function, Some(handle), || {
        if client().initialised == 0 {
            return Err(UNINITIALIZED);
        }
        let state = load()?;
        injected(&state.errors, function)?;
        let device = Device::find(&state, handle)?;
        if device.gpu.lost {
            return Err(GPU_IS_LOST);
        }
        injected(&device.gpu.errors, function)?;
        answer(&state, &device)
    })
}

fn guarded(function: &str, handle: Option<Handle>, answer: impl FnOnce() -> Answer) -> nvmlReturn_t {
    let answer = panic::catch_unwind(AssertUnwindSafe(answer)).unwrap_or(Err(UNKNOWN));
    let code = answer.err().unwrap_or(0);
    let traced = panic::catch_unwind(AssertUnwindSafe(|| trace(function, handle, code)));
    if traced.is_ok() { code } else { UNKNOWN }
}

fn injected(errors: &std::collections::BTreeMap<String, u32>, function: &str) -> Answer {
    errors.get(function).map_or(Ok(()), |code| Err(*code))
}

/// The state; without a readable one there is no driver.
fn load() -> Answer<State> {
    State::load(&state_file().ok_or(DRIVER_NOT_LOADED)?).map_err(|_| DRIVER_NOT_LOADED)
}

fn state_file() -> Option<PathBuf> {
    std::env::var_os(STATE_VARIABLE).map(PathBuf::from).or_else(|| Some(own_file()?.with_file_name(STATE_FILE)))
}

/// The file that this library was loaded from.
fn own_file() -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: the address is of something in this library, and `info` outlives the call.
    let found = unsafe { libc::dladdr((&raw const CLIENT).cast(), &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gives a string that lives as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

fn trace(function: &str, handle: Option<Handle>, code: nvmlReturn_t) {
    let state = || State::load(&state_file()?).ok()?.trace;
    let Some(file) = std::env::var_os(TRACE_VARIABLE).map(PathBuf::from).or_else(state) else {
        return;
    };
    let device = match handle.and_then(Handle::parts) {
        Some((gpu, None)) => format!(" {gpu}"),
        Some((gpu, Some(mig))) => format!(" {gpu}.{mig}"),
        None => String::new(),
    };
    if let Ok(mut file) = fs::File::options().append(true).create(true).open(file) {
        // A trace that cannot be written must not change what the library answers.
        let _ = file.write_all(format!("{function}{device} -> {code}\n").as_bytes());
    }
}
