//! The ways to misbehave.
//!
//! **Invariant:** none of them is inlined, turned into a loop or optimised away.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use sdk::{Failure, clock, gpus, nvml, secrets, system, tracing};

/// How many bytes the big result has between its quotes: more than any sane limit, and less than 32 MiB of memory.
pub(crate) const BIG_BYTES: usize = 24_000_000;

/// An ordinary failure with everything a failure can have.
#[inline(never)]
pub(crate) fn fail_as_guest() -> Result<String, Failure> {
    Err(Failure::new("hostile-failure", "failed as it was told to").retryable().with_details(&["as", "told"]))
}

/// Uses the processor until someone stops it.
#[inline(never)]
pub(crate) fn spin_forever() -> ! {
    static TURNS: AtomicU64 = AtomicU64::new(0);
    loop {
        TURNS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keeps a megabyte more each time, and touches all of it.
#[inline(never)]
pub(crate) fn allocate_until_refused() -> ! {
    let mut kept = Vec::new();
    loop {
        kept.push(black_box(vec![1_u8; 1 << 20]));
    }
}

/// Calls itself; what it does with the answer keeps the compiler from making a loop of it.
#[inline(never)]
pub(crate) fn recurse_without_end() -> String {
    recurse(1).to_string()
}

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    /// Never reached, which the compiler cannot know.
    static BOTTOM: AtomicU64 = AtomicU64::new(0);
    if depth == BOTTOM.load(Ordering::Relaxed) {
        return 0;
    }
    recurse(depth + 1).rotate_left(1) ^ depth
}

/// Traps without a word.
#[inline(never)]
pub(crate) fn trap_on_unreachable() -> ! {
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    std::process::abort();
}

/// Panics from a place and with words that a test recognises.
#[inline(never)]
pub(crate) fn panic_with_a_message() -> ! {
    panic!("hostile guest panics: no GPU {} here", black_box(7));
}

/// Logs as fast as the host takes it.
#[inline(never)]
pub(crate) fn flood_the_log() -> ! {
    for line in 0_u64.. {
        tracing::info!(line, "hostile guest floods the log");
    }
    unreachable!("there are more numbers than time")
}

/// Stays in a host call for an hour.
#[inline(never)]
pub(crate) fn hold_a_host_call() {
    clock::sleep(3_600_000);
}

/// A read that must be granted.
#[inline(never)]
pub(crate) fn ask_the_driver() -> Result<String, Failure> {
    let driver = nvml::driver()?;
    Ok(format!(r#"{{"driver":"{}"}}"#, driver.version))
}

/// Two effects, the second of which ends the node's boot.
#[inline(never)]
pub(crate) fn reset_and_reboot() -> Result<String, Failure> {
    let outcomes = gpus::reset(&["GPU-00000000-0000-0000-0000-000000000000".to_owned()])?;
    system::reboot("hostile guest was told to")?;
    Ok(format!(r#"{{"reset":{}}}"#, outcomes.len()))
}

/// Not JSON.
#[inline(never)]
pub(crate) fn answer_garbage() -> String {
    "{\"mode\": garbage".to_owned()
}

/// A JSON string that no command should answer.
#[inline(never)]
pub(crate) fn answer_tens_of_megabytes() -> String {
    let mut result = vec![b'x'; BIG_BYTES + 2];
    for end in [0, BIG_BYTES + 1] {
        result[end] = b'"';
    }
    String::from_utf8(result).expect("ASCII")
}

/// One line that is larger than all that a host should copy for a guest.
#[inline(never)]
pub(crate) fn log_a_huge_line() {
    let line = "x".repeat(BIG_BYTES / 4);
    tracing::info!("{line}");
}

/// Asks for the time for ever: each call is one more line of the transcript.
#[inline(never)]
pub(crate) fn flood_the_transcript() -> ! {
    loop {
        black_box(clock::now_ms());
    }
}

/// Wants ever more effects, each with a megabyte of arguments.
#[inline(never)]
pub(crate) fn flood_the_effects() -> ! {
    let reason = "x".repeat(1 << 20);
    loop {
        black_box(system::reboot(&reason).is_ok());
    }
}

/// Reads a secret, and tells no more of it than its length.
#[inline(never)]
pub(crate) fn read_a_secret() -> Result<String, Failure> {
    let secret = secrets::get("token")?;
    Ok(format!(r#"{{"bytes":{}}}"#, secret.len()))
}
