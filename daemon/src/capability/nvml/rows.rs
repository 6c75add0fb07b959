//! Row remapping, which `nvml-wrapper` does not wrap.
//!
//! **Invariant:** the only unsafe code of this capability is here.

use std::ptr;

use bc_runtime::capability::nvml::RowRemapping;
use nvml_wrapper::{
    Device, Nvml,
    error::{NvmlError, nvml_sym, nvml_try},
};

/// `nvmlDeviceGetRemappedRows`. `device` belongs to `nvml`.
#[expect(unsafe_code, reason = "calls a C function that nvml-wrapper does not wrap")]
pub(super) fn remapped_rows(nvml: &Nvml, device: &Device<'_>) -> Result<RowRemapping, NvmlError> {
    let function = nvml_sym(nvml.lib().nvmlDeviceGetRemappedRows.as_ref())?;
    let mut told = [0; 4];
    let [correctable, uncorrectable, pending, failure] = told.each_mut().map(ptr::from_mut);
    // SAFETY: the library is initialised as long as `nvml` lives, and so is the handle good; the function has the signature
    // of NVML's header, and writes one unsigned int through each pointer.
    let code = unsafe { function(device.handle(), correctable, uncorrectable, pending, failure) };
    nvml_try(code)?;
    let [correctable, uncorrectable, pending, failure] = told;
    Ok(RowRemapping { correctable, uncorrectable, pending: pending != 0, failure: failure != 0 })
}
