//! The machine, the date and the command: without them a figure cannot be compared with another one.

use std::fmt::Write;
use std::time::SystemTime;

/// A Markdown list of what this run was measured on.
#[expect(clippy::disallowed_methods, reason = "the date of a report is the wall clock's")]
pub(crate) fn in_words() -> String {
    let cores = std::thread::available_parallelism().map_or_else(|_| "an unknown number of".into(), |n| n.to_string());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut text = String::new();
    let mut line = |name: &str, value: &str| writeln!(text, "- {name}: {value}").expect("a string takes everything");
    line("machine", &format!("{cores} core(s), {}, {}", cpu(), std::env::consts::ARCH));
    line("kernel", &format!("{} {}", std::env::consts::OS, kernel.trim()));
    line("date", &humantime::format_rfc3339_seconds(SystemTime::now()).to_string());
    line("command", &format!("`{}`", std::env::args().collect::<Vec<_>>().join(" ")));
    text
}

fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| "unknown CPU".into(), |(_, model)| model.trim().to_owned())
}
