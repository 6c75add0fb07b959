//! What `nvidia-smi --gpu-reset` said, GPU by GPU: its words and exit codes differ by release, and one command may go differently
//! for each GPU.
//!
//! **Invariant:** a GPU was reset only where the tool says so of that very GPU; and one of which nothing is known is neither
//! reset nor not reset.

use std::fmt;

use crate::xid::PciAddress;

/// A GPU that was named to the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `GPU-<uuid>`.
    pub uuid: String,
    /// Where it is: the tool answers with addresses.
    pub pci: String,
}

/// How the tool ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It did not end in its time and was killed.
    TimedOut,
    /// It did not end in its time, and not even when it was killed.
    Stuck,
}

/// Why a GPU was not reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Code {
    /// Something uses it.
    GpuBusy,
    /// MIG was switched and waits for whoever uses the GPU to let go of it.
    MigPending,
    /// The product cannot be reset.
    ResetNotSupported,
    /// It drives the console.
    PrimaryGpu,
    /// It is in vGPU mode.
    VgpuMode,
    /// GPUs that are connected to it were not named.
    PeersNeeded,
    /// Nobody can say how the GPUs are connected: Fabric Manager does not answer.
    FabricUnknown,
    /// The reset began and did not complete.
    ResetIncomplete,
    /// The tool does not run as root.
    NoPermission,
    /// There is no such GPU.
    NotFound,
    /// The driver is not loaded.
    DriverNotLoaded,
    /// The library is not there.
    LibraryNotFound,
    /// The library is too old.
    FunctionNotFound,
    /// The GPU fell off the bus.
    GpuIsLost,
    /// It gets too little power.
    InsufficientPower,
    /// An interrupt of it does not come.
    IrqIssue,
    /// Its infoROM is damaged.
    CorruptedInforom,
    /// The tool does not know an argument: it is too old.
    InvalidArgument,
    /// It was refused together with another one.
    RefusedTogether,
    /// The tool gives no reason that is known.
    ResetFailed,
}

/// What is known of the reset of one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It was reset. The tool's words.
    Reset(String),
    /// It was not. Why, and the tool's words.
    NotReset(Code, String),
    /// It could not be known. Why.
    Unknown(String),
}

/// Stands before the words where it could not be known.
pub const COULD_NOT_BE_KNOWN: &str = "could-not-be-known";

impl fmt::Display for Verdict {
    /// The tool's words, after a code and a colon where it was not reset.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset(words) => f.write_str(words),
            Self::NotReset(code, words) => write!(f, "{code}: {words}"),
            Self::Unknown(why) => write!(f, "{COULD_NOT_BE_KNOWN}: {why}"),
        }
    }
}

/// The longest words of the tool that are kept, bytes.
const WORDS_BYTES: usize = 600;

/// What a line says of the GPUs at whose address it is, or of all of them. The first match counts; order matters where a sentence
/// holds another one.
const SENTENCES: [(&str, Code); 14] = [
    ("MIG mode is in pending", Code::MigPending),
    ("In use by another client", Code::GpuBusy),
    ("in use by another process", Code::GpuBusy),
    ("currently being used by one or more other processes", Code::GpuBusy),
    ("is the primary GPU", Code::PrimaryGpu),
    ("is in vGPU mode", Code::VgpuMode),
    ("must be reset together", Code::PeersNeeded),
    ("append the following device indexes", Code::PeersNeeded),
    ("fabric state could not be determined", Code::FabricUnknown),
    ("did not complete reset successfully", Code::ResetIncomplete),
    ("GPU is lost", Code::GpuIsLost),
    ("nsufficient permissions", Code::NoPermission),
    ("nsufficient Permissions", Code::NoPermission),
    ("No devices were found", Code::NotFound),
];

/// What an exit code means, as the manual lists them; for texts that say nothing known.
const fn of_exit(code: i32) -> Code {
    match code {
        2 => Code::InvalidArgument,
        3 => Code::ResetNotSupported,
        4 => Code::NoPermission,
        6 => Code::NotFound,
        8 => Code::InsufficientPower,
        9 => Code::DriverNotLoaded,
        10 => Code::IrqIssue,
        12 => Code::LibraryNotFound,
        13 => Code::FunctionNotFound,
        14 => Code::CorruptedInforom,
        15 => Code::GpuIsLost,
        _ => Code::ResetFailed,
    }
}

/// Reads what the tool said of the GPUs that were named to it.
pub fn read(targets: &[Target], exit: Exit, text: &str) -> Vec<Verdict> {
    let lines: Vec<Said<'_>> = text.lines().map(Said::read).filter(|said| !said.words.is_empty()).collect();
    let any_reset = lines.iter().any(|said| said.is_reset);
    targets.iter().map(|target| of_target(target, exit, text, &lines, any_reset)).collect()
}

fn of_target(target: &Target, exit: Exit, text: &str, lines: &[Said<'_>], any_reset: bool) -> Verdict {
    let here: Option<PciAddress> = target.pci.parse().ok();
    let own = || lines.iter().filter(|said| said.pci.is_some() && said.pci == here);
    if let Some(said) = own().find(|said| said.is_reset) {
        return Verdict::Reset(said.words.to_owned());
    }
    // A warning beside a reason is not the reason.
    let reasons = || own().filter_map(|said| Some((said.code?, said.words)));
    let reason = reasons().find(|(code, _)| *code != Code::MigPending).or_else(|| reasons().next());
    if let Some((code, words)) = reason {
        return Verdict::NotReset(code, words.to_owned());
    }
    let words = words(text);
    let of_all = || lines.iter().filter(|said| said.pci.is_none()).filter_map(|said| said.code);
    match exit {
        Exit::TimedOut => {
            return Verdict::Unknown(format!("the tool did not end in its time and was killed{}", after(&words)));
        }
        Exit::Stuck => {
            return Verdict::Unknown(format!("the tool hangs in the kernel and could not be killed{}", after(&words)));
        }
        Exit::Signal(signal) => {
            return Verdict::Unknown(format!("the tool was ended by signal {signal}{}", after(&words)));
        }
        Exit::Code(0) => {
            return Verdict::Unknown(format!("the tool ended well and does not speak of this GPU{}", after(&words)));
        }
        Exit::Code(_) => {}
    }
    let Exit::Code(code) = exit else { return Verdict::Unknown(words) };
    if let Some(reason) = of_all().next() {
        return Verdict::NotReset(reason, words);
    }
    if lines.iter().any(|said| said.pci.is_some() && said.code.is_some()) {
        // Something stands against another one, and nothing is said of this one.
        return if any_reset {
            Verdict::Unknown(format!("the tool does not speak of this GPU{}", after(&words)))
        } else {
            Verdict::NotReset(Code::RefusedTogether, words)
        };
    }
    let words = if words.is_empty() { format!("it said nothing and ended with {code}") } else { words };
    Verdict::NotReset(of_exit(code), words)
}

fn after(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!("; it said: {words}") }
}

/// All of it on one line, bounded.
fn words(text: &str) -> String {
    let mut words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.truncate(words.floor_char_boundary(WORDS_BYTES));
    words
}

/// One line.
struct Said<'a> {
    words: &'a str,
    /// The GPU that it is about.
    pci: Option<PciAddress>,
    code: Option<Code>,
    is_reset: bool,
}

impl<'a> Said<'a> {
    fn read(line: &'a str) -> Self {
        let words = line.trim();
        let words = &words[..words.floor_char_boundary(WORDS_BYTES)];
        let is_unsupported = words.contains("Resetting GPU") && words.contains("not supported");
        let found = SENTENCES.iter().find(|(sentence, _)| words.contains(sentence)).map(|(_, code)| *code);
        Self {
            words,
            pci: address(words),
            code: if is_unsupported { Some(Code::ResetNotSupported) } else { found },
            is_reset: words.contains("was successfully reset"),
        }
    }
}

/// The address after a `GPU `: eight digits of domain, or four.
fn address(words: &str) -> Option<PciAddress> {
    let mut parts = words.split("GPU ").skip(1);
    parts.find_map(|part| {
        let end = part.find(|c: char| !c.is_ascii_hexdigit() && c != ':' && c != '.').unwrap_or(part.len());
        part[..end].trim_end_matches([':', '.']).parse().ok()
    })
}

/// Whether a GPU is fit to work after its reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It answers, no row waits or has failed, and the driver advises nothing.
    Healthy,
    /// It is not. Why.
    Sick(String),
    /// It could not be asked. Why.
    Unknown(String),
}

/// What a fresh inventory says of a GPU; an answer is an error where it could not be had, and `None` where the GPU or its driver
/// has no such thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readings {
    /// Whether the driver lists it.
    pub is_listed: Result<bool, String>,
    /// Whether rows wait for a reset, and whether a remap failed.
    pub rows: Result<Option<(bool, bool)>, String>,
    /// The driver's own advice: 0 is none.
    pub recovery_action: Result<Option<u32>, String>,
}

/// Judges it. What is wrong counts before what could not be asked.
pub fn health(readings: &Readings) -> Health {
    match &readings.is_listed {
        Ok(true) => {}
        Ok(false) => return Health::Sick("the driver does not list it".into()),
        Err(error) => return Health::Unknown(error.clone()),
    }
    match (&readings.rows, &readings.recovery_action) {
        (Ok(Some((true, _))), _) => Health::Sick("rows of its memory still wait for a reset".into()),
        (Ok(Some((_, true))), _) => Health::Sick("a remap of its rows failed".into()),
        (_, Ok(Some(action @ 1..))) => Health::Sick(format!("the driver advises recovery action {action}")),
        (Err(error), _) | (_, Err(error)) => Health::Unknown(error.clone()),
        (Ok(_), Ok(_)) => Health::Healthy,
    }
}

#[cfg(test)]
mod tests;
