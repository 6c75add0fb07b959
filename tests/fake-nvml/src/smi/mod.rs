//! The fake `nvidia-smi`: the real one's words and exit codes, from the same state as the library.
//!
//! Its source for them is the design's page of domain facts; where that page gives no exit code, 255 ("other").
//!
//! **Invariant:** it prints only what the real one prints in that situation, so that what reads it is tested for real.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::state::{HangOn, STATE_FILE, STATE_VARIABLE, Smi, State};

mod query;
mod reset;

/// Exit codes of `nvidia-smi`, from its manual page.
pub mod exit {
    /// Success.
    pub const OK: u8 = 0;
    /// An argument is invalid.
    pub const ARGUMENT: u8 = 2;
    /// The device does not support it.
    pub const NOT_SUPPORTED: u8 = 3;
    /// Root only.
    pub const PERMISSION: u8 = 4;
    /// No such device.
    pub const NOT_FOUND: u8 = 6;
    /// The driver is not loaded.
    pub const NO_DRIVER: u8 = 9;
    /// The library could not be found.
    pub const NO_LIBRARY: u8 = 12;
    /// The GPU fell off the bus.
    pub const GPU_LOST: u8 = 15;
    /// Anything else.
    pub const OTHER: u8 = 255;
}

/// How a run went.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It printed `text` to standard output and exits with `code`.
    Exits {
        /// All of its output.
        text: String,
        /// One of [`exit`].
        code: u8,
    },
    /// It never ends, as a process stuck in the driver.
    Hangs,
}

/// The state file for a program that runs now: `$FAKE_NVML_STATE`, or [`STATE_FILE`] beside it or one folder up.
pub fn state_file() -> PathBuf {
    if let Some(path) = env::var_os(STATE_VARIABLE) {
        return PathBuf::from(path);
    }
    let program = env::current_exe().unwrap_or_default();
    let candidates = program.ancestors().skip(1).take(2).map(|folder| folder.join(STATE_FILE));
    candidates.into_iter().find(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(STATE_FILE))
}

/// Runs with these arguments (the program's name left out) on a state file.
pub fn run(arguments: &[String], state_file: &Path) -> Outcome {
    let state = State::load(state_file).ok();
    let smi = state.as_ref().map_or_else(Smi::default, |state| state.smi.clone());
    if smi.hang || smi.hang_on.is_some_and(|on| hangs(on, arguments)) {
        return Outcome::Hangs;
    }
    let (text, code) = if smi.library_missing {
        (NO_LIBRARY.to_owned(), exit::NO_LIBRARY)
    } else {
        match (Request::parse(arguments), state.filter(|state| state.init.unwrap_or(0) == 0)) {
            (Err(complaint), _) => (complaint, exit::ARGUMENT),
            (Ok(_), None) => (NO_DRIVER.to_owned(), exit::NO_DRIVER),
            (Ok(request), Some(state)) => request.answer(&state, state_file),
        }
    };
    Outcome::Exits { text, code }
}

fn hangs(on: HangOn, arguments: &[String]) -> bool {
    let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
    match on {
        HangOn::Reset => has("--gpu-reset"),
        HangOn::Persistence => has("-pm"),
        HangOn::PersistenceOn => has("-pm") && has("1"),
    }
}

const NO_LIBRARY: &str = "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA \
Display Driver is properly installed and present in your system.\nPlease also try adding directory that contains \
libnvidia-ml.so to your system PATH.\n";
const NO_DRIVER: &str = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the \
latest NVIDIA driver is installed and running.\n\n";
const NO_DEVICES: &str = "No devices were found\n";

/// What the arguments ask for.
struct Request {
    /// `-i`, each part as written; empty: all GPUs.
    only: Vec<String>,
    action: Action,
}

enum Action {
    Reset,
    SetPersistence(bool),
    List,
    Query { fields: Vec<String>, header: bool },
}

impl Request {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let (mut only, mut actions, mut format) = (Vec::new(), Vec::new(), None);
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let (name, inline) =
                argument.split_once('=').map_or((argument.as_str(), None), |(name, value)| (name, Some(value)));
            let mut value =
                || inline.map(str::to_owned).or_else(|| rest.next().cloned()).ok_or_else(invalid_combination);
            match name {
                "-r" | "--gpu-reset" => actions.push(Action::Reset),
                "-L" | "--list-gpus" => actions.push(Action::List),
                "-pm" | "--persistence-mode" => actions.push(Action::SetPersistence(switch(&value()?)?)),
                "--query-gpu" => actions.push(Action::Query { fields: split(&value()?), header: true }),
                "-i" | "--id" => only = split(&value()?),
                "--format" => format = Some(split(&value()?)),
                _ => {
                    return Err(format!("Invalid option: \"{argument}\". Please run 'nvidia-smi -h' for help.\n\n"));
                }
            }
        }
        let mut action = actions.pop().filter(|_| actions.is_empty()).ok_or_else(invalid_combination)?;
        match (&mut action, format) {
            (Action::Query { header, .. }, Some(format)) => *header = has_header(&format)?,
            (Action::Query { .. }, None) | (_, Some(_)) => return Err(invalid_combination()),
            (_, None) => {}
        }
        Ok(Self { only, action })
    }

    fn answer(&self, state: &State, state_file: &Path) -> (String, u8) {
        let Some(targets) = self.targets(state) else {
            return (NO_DEVICES.to_owned(), exit::NOT_FOUND);
        };
        match &self.action {
            Action::List => query::list(state, &targets),
            Action::Query { fields, header } => query::query(state, &targets, fields, *header),
            Action::SetPersistence(on) => reset::set_persistence(state, state_file, &targets, *on),
            Action::Reset => reset::reset(state, state_file, &targets),
        }
    }

    /// Indexes of the GPUs meant; none where one does not exist or there are none at all.
    fn targets(&self, state: &State) -> Option<Vec<usize>> {
        let all = || (0..state.gpus.len()).collect();
        let named = || self.only.iter().map(|name| find(state, name)).collect::<Option<Vec<_>>>();
        let targets = if self.only.is_empty() { all() } else { named()? };
        (!targets.is_empty()).then_some(targets)
    }
}

/// A GPU by index, UUID, serial or PCI address, as `-i` takes it.
fn find(state: &State, name: &str) -> Option<usize> {
    let index = name.parse().ok().filter(|index| *index < state.gpus.len());
    let address = name.contains(':').then(|| name.parse().ok()).flatten();
    let named = |gpu: &crate::state::Gpu| {
        gpu.uuid == name || gpu.serial.as_deref() == Some(name) || Some(gpu.address()) == address
    };
    index.or_else(|| state.gpus.iter().position(named))
}

/// Only CSV is played.
fn has_header(format: &[String]) -> Result<bool, String> {
    match format.iter().find(|part| !["csv", "noheader", "nounits"].contains(&part.as_str())) {
        Some(unknown) => Err(format!("\"{unknown}\" is not a valid format option.\n\n")),
        None if format.iter().any(|part| part == "csv") => Ok(!format.iter().any(|part| part == "noheader")),
        None => Err(invalid_combination()),
    }
}

fn split(list: &str) -> Vec<String> {
    list.split(',').map(|part| part.trim().to_owned()).collect()
}

fn switch(value: &str) -> Result<bool, String> {
    match value {
        "0" | "DISABLED" => Ok(false),
        "1" | "ENABLED" => Ok(true),
        _ => {
            Err(format!("\"{value}\" is not a valid persistence mode value. Please run 'nvidia-smi -h' for help.\n\n"))
        }
    }
}

fn invalid_combination() -> String {
    "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n".to_owned()
}

fn lost(bus_id: &str) -> String {
    format!(
        "Unable to determine the device handle for GPU {bus_id}: GPU is lost.  Reboot the system to recover this GPU\n"
    )
}
