//! The programs of a simulated node. It is `nvidia-smi`, and under their names `dcgmi` and `systemctl`: see
//! [`fake_nvml::smi`], [`fake_nvml::dcgmi`] and [`fake_nvml::services`].

use std::{
    fs::File,
    io::{self, Write},
    process::ExitCode,
    thread,
    time::Duration,
};

use fake_nvml::smi::{Outcome, state_file};
use fake_nvml::{calls_file, dcgmi, services, smi};

/// How often one that hangs looks whether it still does.
const PACE: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    let mut words = std::env::args();
    let path = words.next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    let arguments: Vec<String> = words.collect();
    let state = state_file();
    // One write, so that lines of programs that run at the same time do not mix.
    let called = format!("{name} {}\n", arguments.join(" "));
    let noted = File::options().append(true).create(true).open(calls_file(&state));
    if let Ok(mut calls) = noted {
        let _ = calls.write_all(called.as_bytes());
    }
    let run = || match name.as_str() {
        "dcgmi" => dcgmi::run(&arguments, &state),
        "systemctl" => services::run(&arguments, &state),
        _ => smi::run(&arguments, &state),
    };
    loop {
        match run() {
            Outcome::Exits { text, code } => {
                // A closed pipe must not change the exit code.
                let _ = io::stdout().write_all(text.as_bytes());
                return ExitCode::from(code);
            }
            Outcome::Hangs => thread::sleep(PACE),
        }
    }
}
