//! The programs of a reset: `nvidia-smi` and `systemctl`, each below a supervisor and with its time.
//!
//! **Invariant:** `nvidia-smi` is never asked to change anything without naming the GPUs: without `-i` it would mean all of them.

use std::path::PathBuf;
use std::time::Duration;

use bc_proto::rules::reset;
use bc_runtime::capability::process::{self, Request};
use bc_runtime::capability::{Answer, Error};

use crate::capability::process::Programs;

/// How long `systemctl` may take for one service: its own default for stopping one is 90 s, after which it kills it.
const SERVICE: Duration = Duration::from_secs(30);
/// How long a question to `systemctl` may take.
const QUESTION: Duration = Duration::from_secs(10);
/// What is kept of a tool's words, bytes.
const CAPTURE_BYTES: u32 = 64 * 1024;

/// How a reset is done on this machine.
#[derive(Debug, Clone)]
pub struct Tools {
    /// What supervises programs.
    pub supervisor: PathBuf,
    /// Where programs are looked up that have no path.
    pub path: String,
    /// NVIDIA's tool.
    pub nvidia_smi: String,
    /// What stops and starts services.
    pub systemctl: String,
    /// How long one reset may take.
    pub reset_timeout: Duration,
    /// How long a switch of persistence mode may take.
    pub switch_timeout: Duration,
}

/// What a program said and how it ended.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) exit: reset::Exit,
    pub(super) text: String,
}

impl Said {
    /// In words, for people.
    pub(super) fn told(&self) -> String {
        let words = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let end = match self.exit {
            reset::Exit::Code(code) => format!("it ended with {code}"),
            reset::Exit::Signal(signal) => format!("it was ended by signal {signal}"),
            reset::Exit::TimedOut => "it did not end in its time and was killed".to_owned(),
            reset::Exit::Stuck => "it hangs in the kernel and could not be killed".to_owned(),
        };
        if words.is_empty() { end } else { format!("{end}: {words}") }
    }
}

impl Tools {
    fn run(&self, program: &str, argv: Vec<String>, timeout: Duration) -> Answer<Said> {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        let request =
            Request { program: program.to_owned(), argv, stdin: None, timeout_ms, capture_bytes: CAPTURE_BYTES };
        // Its own: a cancel of the run ends the run's programs, and must not end what puts things back.
        let programs = Programs::new(self.supervisor.clone(), self.path.clone());
        let outcome = match programs.run_capped(&request) {
            Err(error) if error.code == "unkillable" => {
                tracing::error!(program, error = error.message, "a program hangs");
                return Ok(Said { exit: reset::Exit::Stuck, text: String::new() });
            }
            other => other?,
        };
        let exit = match outcome.exit {
            process::Exit::Code(code) => reset::Exit::Code(code),
            process::Exit::Signal(signal) => reset::Exit::Signal(signal),
            process::Exit::TimedOut => reset::Exit::TimedOut,
        };
        let mut text = String::new();
        for part in [outcome.stdout.head, outcome.stdout.tail, outcome.stderr.head, outcome.stderr.tail] {
            if !text.is_empty() && !text.ends_with('\n') && !part.is_empty() {
                text.push('\n');
            }
            text.push_str(&part);
        }
        Ok(Said { exit, text })
    }

    /// Resets these, together.
    pub(super) fn reset(&self, gpus: &[String]) -> Answer<Said> {
        debug_assert!(!gpus.is_empty(), "that would be all of them");
        let argv = vec!["--gpu-reset".to_owned(), "-i".to_owned(), gpus.join(",")];
        self.run(&self.nvidia_smi, argv, self.reset_timeout)
    }

    /// Switches persistence mode of one GPU.
    pub(super) fn set_persistence(&self, gpu: &str, on: bool) -> Result<(), String> {
        let argv = ["-pm", if on { "1" } else { "0" }, "-i", gpu].map(str::to_owned).to_vec();
        self.expect_done(&self.nvidia_smi, argv, self.switch_timeout)
    }

    /// Whether a service runs. One that is not installed does not.
    pub(super) fn is_active(&self, service: &str) -> Answer<bool> {
        let argv = ["is-active", service].map(str::to_owned).to_vec();
        let said = self.run(&self.systemctl, argv, QUESTION)?;
        match said.exit {
            reset::Exit::Code(0) => Ok(true),
            // 3: it is not active, 4: there is no such unit (systemctl's manual).
            reset::Exit::Code(3 | 4) => Ok(false),
            _ => {
                let message = format!("whether the service {service} runs is not known: {}", said.told());
                Err(Error::new("service-unknown", message))
            }
        }
    }

    /// Stops or starts a service.
    pub(super) fn set_service(&self, service: &str, on: bool) -> Result<(), String> {
        let argv = [if on { "start" } else { "stop" }, service].map(str::to_owned).to_vec();
        self.expect_done(&self.systemctl, argv, SERVICE)
    }

    fn expect_done(&self, program: &str, argv: Vec<String>, timeout: Duration) -> Result<(), String> {
        let line = argv.join(" ");
        match self.run(program, argv, timeout) {
            Ok(said) if said.exit == reset::Exit::Code(0) => Ok(()),
            Ok(said) => Err(format!("{program} {line}: {}", said.told())),
            Err(error) => Err(format!("{program} {line}: {}", error.message)),
        }
    }
}
