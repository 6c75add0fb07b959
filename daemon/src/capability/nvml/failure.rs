//! NVML's return codes by name.
//!
//! **Invariant:** every failure keeps the library's number where it gave one, those we have no name for included.

use std::fmt::Display;

use bc_runtime::capability::Error;
use nvml_wrapper::error::NvmlError;

/// The library has no such function.
pub(super) const SYMBOL_MISSING: &str = "symbol-missing";
/// The library could not be loaded, or says so of one that it needs.
const LIBRARY_NOT_FOUND: &str = "library-not-found";
/// A number without a name.
const UNKNOWN: &str = "unknown-error";
/// The library succeeded, with something that makes no sense.
const UNEXPECTED_ANSWER: &str = "unexpected-answer";

/// What `doing` (an infinitive) failed with.
pub(super) fn error(doing: impl Display, error: NvmlError) -> Error {
    let message = format!("cannot {doing}: {error}");
    match error {
        NvmlError::LibloadingError(_) => Error::new(LIBRARY_NOT_FOUND, message),
        NvmlError::FailedToLoadSymbol(_) => Error::new(SYMBOL_MISSING, message),
        NvmlError::Utf8Error(_)
        | NvmlError::NulError(_)
        | NvmlError::StringTooLong { .. }
        | NvmlError::IncorrectBits(_)
        | NvmlError::SetReleaseFailed
        | NvmlError::GetPciInfoFailed
        | NvmlError::PciInfoToCFailed => Error::new(UNEXPECTED_ANSWER, message),
        // A return code that the wrapper knows has a variant of its own: this number was no return code.
        NvmlError::UnexpectedVariant(value @ (..=22 | 999)) => {
            Error::new(UNEXPECTED_ANSWER, format!("{message} ({value})"))
        }
        error => {
            let number: u32 = error.into();
            Error { code: name(number).to_owned(), native: i32::try_from(number).ok(), message }
        }
    }
}

/// The kebab-case name of an `nvmlReturn_t`, from NVML's header.
fn name(number: u32) -> &'static str {
    match number {
        1 => "uninitialized",
        2 => "invalid-argument",
        3 => "not-supported",
        4 => "no-permission",
        5 => "already-initialized",
        6 => "not-found",
        7 => "insufficient-size",
        8 => "insufficient-power",
        9 => "driver-not-loaded",
        10 => "timeout",
        11 => "irq-issue",
        12 => LIBRARY_NOT_FOUND,
        13 => "function-not-found",
        14 => "corrupted-inforom",
        15 => "gpu-is-lost",
        16 => "reset-required",
        17 => "operating-system",
        18 => "lib-rm-version-mismatch",
        19 => "in-use",
        20 => "memory",
        21 => "no-data",
        22 => "vgpu-ecc-not-supported",
        23 => "insufficient-resources",
        24 => "freq-not-supported",
        25 => "argument-version-mismatch",
        26 => "deprecated",
        27 => "not-ready",
        28 => "gpu-not-found",
        29 => "invalid-state",
        30 => "reset-type-not-supported",
        _ => UNKNOWN,
    }
}
