//! What the kernel says of a process.
//!
//! **Invariant:** numbers are the kernel's own counters; nothing is estimated here.

use anyhow::Context;

/// How many of its ticks the kernel counts a second, on every architecture that is built for.
const TICKS: f64 = 100.0;

/// The memory that a process has in RAM, bytes.
pub(crate) fn resident(process: u32) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    Ok(1024 * field(&text, "VmRSS:").context("a process has VmRSS")?)
}

/// The CPU time that a process has had, all threads, in seconds, by ticks of 10 ms.
pub(crate) fn cpu(process: u32) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The second field is a name in parentheses, which may hold anything.
    let (_, rest) = text.rsplit_once(')').context("a name in parentheses")?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || -> anyhow::Result<u64> { Ok(fields.next().context("two times")?.parse()?) };
    let ticks = next()? + next()?;
    Ok(ticks as f64 / TICKS)
}

/// How often the threads of a process have gone to sleep, which is how often they were woken.
pub(crate) fn wakes(process: u32) -> anyhow::Result<u64> {
    let mut wakes = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may end between the two.
        let text = std::fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
        wakes += field(&text, "voluntary_ctxt_switches:").unwrap_or(0);
    }
    Ok(wakes)
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_time_and_was_woken() {
        let process = std::process::id();
        assert!(resident(process).expect("a number") > 100_000);
        let before = cpu(process).expect("a time");
        while cpu(process).expect("a time") < before + 0.01 {}
        let before = wakes(process).expect("a number");
        // A thread that waits for another one sleeps, sooner or later.
        while wakes(process).expect("a number") == before {
            std::thread::spawn(|| ()).join().expect("it ends");
        }
    }
}
