//! `bcd supervise`: runs one program for the daemon, and nothing of it stays behind.
//!
//! A program may fork twice and begin a session of its own; its descendants then belong to nobody the daemon knows. So each
//! program runs below a process of its own, the supervisor, that adopts whatever loses its parent. When the program has ended,
//! when the daemon says so, or when the daemon is gone, all that is left below the supervisor is killed.
//!
//! The daemon talks over a socket that is the supervisor's standard input: an order as one line of JSON, then the program's input;
//! a byte more, or the end, means to kill. The supervisor answers with one line of JSON when nothing is left. Standard output
//! and error are the program's.
//!
//! **Invariant:** the answer comes after the last descendant was reaped, and never before.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};
use serde::{Deserialize, Serialize};

/// The wait between two rounds of killing: what was killed takes a moment to go, and what forks meanwhile is found next time.
const ROUND: Duration = Duration::from_millis(5);

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The program's file.
    pub program: PathBuf,
    /// Its arguments, without its own name.
    pub argv: Vec<String>,
    /// Its environment, all of it.
    pub env: BTreeMap<String, String>,
    /// How many bytes of input follow.
    pub stdin_bytes: usize,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It was never started: the system's error number, and what it means.
    NotStarted(Option<i32>, String),
}

/// Supervises one program; the order comes from standard input.
pub fn run() -> anyhow::Result<()> {
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut answers = control.try_clone()?;
    let mut control = BufReader::new(control);
    let mut line = String::new();
    control.read_line(&mut line)?;
    let order: Order = serde_json::from_str(&line)?;
    let mut input = vec![0; order.stdin_bytes];
    control.read_exact(&mut input)?;

    set_child_subreaper(Some(rustix::process::getpid()))?;
    let ended = supervise(&order, input, control).unwrap_or_else(|error| {
        let number = error.raw_os_error();
        Ended::NotStarted(number, error.to_string())
    });
    writeln!(answers, "{}", serde_json::to_string(&ended)?)?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "this is the program that starts what the gate has let through")]
fn supervise(order: &Order, input: Vec<u8>, mut control: BufReader<UnixStream>) -> io::Result<Ended> {
    let mut program = Command::new(&order.program);
    program.args(&order.argv).env_clear().envs(&order.env).current_dir("/");
    program.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
    let mut child = program.spawn()?;
    let pid = Pid::from_child(&child);
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input ends all the same, and the pipe with it.
        thread::spawn(move || stdin.write_all(&input));
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let watcher = Arc::clone(&is_over);
    thread::spawn(move || {
        // A byte or the end, whichever it is: nobody wants the program any more.
        let _ = control.read(&mut [0]);
        kill_all(&watcher);
    });
    let mut ended = None;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((reaped, status))) if reaped == pid => {
                ended =
                    status.exit_status().map(Ended::Code).or_else(|| status.terminating_signal().map(Ended::Signal));
                // What it left running is part of it, and goes with it.
                let leftover = Arc::clone(&is_over);
                thread::spawn(move || kill_all(&leftover));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // No children, and so no descendants: whoever loses its parent becomes a child of this process.
            Err(rustix::io::Errno::CHILD) => break,
            Err(error) => return Err(error.into()),
        }
    }
    is_over.store(true, Ordering::Relaxed);
    ended.ok_or_else(|| io::Error::other("the program's end was not seen"))
}

/// Kills all descendants, round after round, until there are none.
fn kill_all(is_over: &AtomicBool) {
    let own = rustix::process::getpid();
    while !is_over.load(Ordering::Relaxed) {
        for pid in descendants(own) {
            // It may have ended by itself meanwhile.
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(ROUND);
    }
}

/// Every living process below this one.
fn descendants(root: Pid) -> Vec<Pid> {
    let mut parents: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some((state, parent)) = state_and_parent(&stat)
            && state != 'Z'
        {
            parents.entry(parent).or_default().push(pid);
        }
    }
    let mut found = BTreeSet::new();
    let mut open = vec![root.as_raw_nonzero().get()];
    while let Some(parent) = open.pop() {
        for pid in parents.get(&parent).into_iter().flatten() {
            if found.insert(*pid) {
                open.push(*pid);
            }
        }
    }
    found.into_iter().filter_map(Pid::from_raw).collect()
}

/// Out of `/proc/<pid>/stat`: the name in the middle may hold anything, so it is read from the last bracket on.
fn state_and_parent(stat: &str) -> Option<(char, i32)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_confuses_nobody() {
        assert_eq!(state_and_parent("12 (a) S 1 (b c) R 7 12 12 0"), Some(('R', 7)));
        assert_eq!(state_and_parent("nothing"), None);
    }
}
