//! Programs below their supervisor, with the daemon's own binary and a real shell.

use std::path::Path;
use std::time::{Duration, Instant};

use bc_daemon::capability::process::{PATH, Programs};
use bc_runtime::capability::Process;
use bc_runtime::capability::process::{Exit, Outcome, OutputStream, Request};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);

fn programs() -> Programs {
    Programs::new(env!("CARGO_BIN_EXE_bcd").into(), PATH)
}

fn request(program: &str, argv: &[&str]) -> Request {
    Request {
        program: program.into(),
        argv: argv.iter().map(ToString::to_string).collect(),
        stdin: None,
        timeout_ms: 0,
        capture_bytes: 4_096,
    }
}

fn shell(script: &str) -> Request {
    request("sh", &["-c", script])
}

fn run(request: &Request) -> Outcome {
    programs().run(request).expect("it runs")
}

fn exit(outcome: &Outcome) -> String {
    match outcome.exit {
        Exit::Code(code) => format!("code {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
        Exit::TimedOut => "timed out".into(),
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit_once(')').expect("a stat").1.trim_start().starts_with('Z'))
}

/// The id that a script wrote into a file, once it is whole.
fn pid_in(file: &Path) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        match std::fs::read_to_string(file) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => assert!(Instant::now() < until, "the script writes its id"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_program_ends_with_its_code_and_its_output() {
    let outcome = run(&shell("echo out; echo err >&2; exit 3"));
    assert_eq!((exit(&outcome), outcome.stdout.head.as_str()), ("code 3".into(), "out\n"));
    assert_eq!((outcome.stderr.head.as_str(), outcome.stderr.total_bytes), ("err\n", 4));
    assert_eq!(exit(&run(&shell("kill -TERM $$"))), "signal 15");
    let long = run(&Request { capture_bytes: 10, ..shell("seq 1 100000") });
    assert_eq!((long.stdout.head.as_str(), long.stdout.tail.as_str()), ("1\n2\n3", "0000\n"));
    assert_eq!((long.stdout.total_bytes, long.stdout.truncated), (588_895, true));
}

#[test]
fn it_gets_its_input_and_an_environment_of_two() {
    let input = vec![b'x'; 1_000_000];
    let outcome = run(&Request { stdin: Some(input), ..request("wc", &["-c"]) });
    assert_eq!(outcome.stdout.head.trim(), "1000000");
    assert_eq!(exit(&run(&Request { stdin: Some(vec![b'x'; 1_000_000]), ..request("true", &[]) })), "code 0");
    let environment = run(&request("env", &[])).stdout.head;
    assert_eq!(environment, format!("LANG=C.UTF-8\nPATH={PATH}\n"));
    assert_eq!(run(&request("cat", &[])).stdout.total_bytes, 0, "no input is an empty one");
}

#[test]
fn what_cannot_be_started_says_why() {
    let programs = programs();
    for (program, code) in [
        ("no-such-program", "not-found"),
        ("/no/such", "not-found"),
        ("bin/sh", "not-found"),
        ("/etc/passwd", "not-started"),
    ] {
        let error = programs.run(&request(program, &[])).expect_err(program);
        assert_eq!(error.code, code, "{program}: {}", error.message);
    }
    assert_eq!(programs.wait(7).expect_err("no such handle").code, "not-found");
}

/// Forks twice, begins a session of its own, and ignores what can be ignored.
fn hides(file: &Path) -> String {
    let file = file.display();
    format!("setsid sh -c 'trap \"\" TERM HUP INT; (echo $$ > {file}; exec sleep 1000) & exec sleep 1000' & wait")
}

#[test]
fn promise_12_a_double_forked_child_is_gone_before_the_kill_returns() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pid");
    let programs = programs();
    let handle = programs.start(&shell(&hides(&file))).expect("it starts");
    let pid = pid_in(&file);
    assert!(is_alive(&pid));
    programs.kill(handle).expect("it can be killed");
    assert!(!is_alive(&pid), "nothing is left");
    assert_eq!(exit(&programs.wait(handle).expect("an outcome")), "signal 9");
}

#[test]
fn promise_12_a_timeout_and_the_end_of_a_run_take_the_whole_tree() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pid");
    let outcome = run(&Request { timeout_ms: 500, ..shell(&hides(&file)) });
    assert_eq!(exit(&outcome), "timed out");
    assert!(!is_alive(&pid_in(&file)));

    let file = folder.path().join("second");
    let programs = programs();
    programs.start(&shell(&hides(&file))).expect("it starts");
    let pid = pid_in(&file);
    programs.close().expect("all are gone");
    assert!(!is_alive(&pid));
    assert_eq!(programs.run(&shell("true")).expect_err("closed").code, "cancelled");
}

#[test]
fn what_a_program_leaves_running_goes_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pid");
    let script = format!("setsid sh -c 'echo $$ > {}; exec sleep 1000' > /dev/null 2>&1 & sleep 0.2", file.display());
    let outcome = run(&shell(&script));
    assert_eq!(exit(&outcome), "code 0");
    assert!(!is_alive(&pid_in(&file)));
}

#[test]
fn output_is_read_piece_by_piece_and_nobody_waits_for_a_reader_for_ever() {
    let programs = programs();
    let handle = programs.start(&shell("echo one; read line; echo $line")).expect("it starts");
    let read = |most| programs.read(handle, OutputStream::Stdout, most).expect("a stream");
    assert_eq!(read(2).as_deref(), Some(b"on".as_slice()));
    let rest: Vec<u8> = std::iter::from_fn(|| read(100)).flatten().collect();
    assert_eq!(rest, b"e\n\n");
    assert_eq!(exit(&programs.wait(handle).expect("an outcome")), "code 0");
    // More than is kept for a reader, who never comes.
    let handle = programs.start(&request("seq", &["1", "2000000"])).expect("it starts");
    let outcome = programs.wait(handle).expect("an outcome");
    assert_eq!((exit(&outcome), outcome.stdout.total_bytes), ("code 0".into(), 14_888_896));
}

/// The daemon is gone: its end of the socket is.
#[test]
fn promise_12_a_tree_does_not_outlive_its_daemon() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pid");
    let programs = programs();
    programs.start(&shell(&hides(&file))).expect("it starts");
    let pid = pid_in(&file);
    drop(programs);
    let until = Instant::now() + PATIENCE;
    while is_alive(&pid) {
        assert!(Instant::now() < until, "it is killed");
        std::thread::yield_now();
    }
}
