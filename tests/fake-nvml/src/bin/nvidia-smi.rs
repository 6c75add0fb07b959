//! The program `nvidia-smi` of a simulated node: see [`fake_nvml::smi`].

use std::{
    io::{self, Write},
    process::ExitCode,
    thread,
};

use fake_nvml::smi::{Outcome, run, state_file};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments, &state_file()) {
        Outcome::Exits { text, code } => {
            // A closed pipe must not change the exit code.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::from(code)
        }
        Outcome::Hangs => loop {
            thread::park();
        },
    }
}
