//! `bcd` as a process.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};

use bc_daemon::faults;
use bc_proto::wire::{Report, Update, v1};
use rcgen::date_time_ymd;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::net::UnixDatagram;

use crate::bench::{Bench, NOOP, component, digest, noop};
use crate::gateway::{PATIENCE, deliver, soon};

#[expect(clippy::disallowed_methods, reason = "the program under test is a process")]
fn bcd(bench: &Bench) -> Command {
    let quoted = |name: &str| format!("{:?}", bench.path(name).display().to_string());
    let config = format!("state-dir = {}\nplugin-dir = {}\nstop-grace = '5s'\n", quoted("state"), quoted("plugins"));
    std::fs::write(bench.path("run.toml"), config).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bcd"));
    command.env_clear().arg("run").arg("--config").arg(bench.path("run.toml"));
    command.env("BCD_BOOT_ID_FILE", bench.path("boot-id")).stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

fn start(command: &mut Command) -> Child {
    command.spawn().expect("bcd starts")
}

/// Waits for its end, on a thread of its own.
async fn ended(child: Child) -> Output {
    soon(tokio::task::spawn_blocking(|| child.wait_with_output())).await.expect("no panic").expect("it ends")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_when_it_is_ready_lives_and_stops_by_a_signal() {
    let bench = Bench::new();
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let socket = bench.path("notify");
    let notified = UnixDatagram::bind(&socket).expect("a socket");
    let mut command = bcd(&bench);
    let child = start(command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "2000000"));
    let told = async |wanted: &str| {
        let mut buffer = [0; 4096];
        loop {
            let length = soon(notified.recv(&mut buffer)).await.expect("it is told");
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.contains(wanted) {
                return text;
            }
        }
    };
    assert!(told("READY=1").await.contains("STATUS=not connected"), "ready before it is connected");
    let link = gateway.link().await.welcome(1, 1).await;
    told("STATUS=connected to https://").await;
    told("WATCHDOG=1").await;
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    told("STOPPING=1").await;
    link.over().await;
    let output = ended(child).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_it_from_starting_is_said_with_what_to_do() {
    let bench = Bench::new();
    let output = ended(start(&mut bcd(&bench))).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("bcd join --gateway"), "{}", text(&output));
    let output = ended(start(bcd(&bench).env(faults::VARIABLE, "nowhere"))).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("names no point"), "{}", text(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_not_known_any_more_says_to_join_again_and_goes_on() {
    let bench = Bench::new();
    let gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    gateway.desk().rejects = true;
    let mut child = start(&mut bcd(&bench));
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let said = tokio::task::spawn_blocking(move || {
        lines.map_while(Result::ok).find(|line| line.contains("this node was deleted")).expect("it says why")
    });
    let said = soon(said).await.expect("no panic");
    assert!(said.contains("ERROR") && said.contains("bcd join --again"), "{said}");
    // It goes on, although nobody reads its log any more.
    assert_eq!(child.try_wait().expect("it can be asked"), None);
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    assert_eq!(ended(child).await.status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_over_is_told_as_such_with_what_to_do() {
    let bench = Bench::new();
    let gateway = bench.gateway().await;
    // By server time it is good for months; the gateway's TLS goes by this machine's clock.
    gateway.desk().validity = Some((date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1)));
    bench.join(&[&gateway]).await;
    let mut child = start(&mut bcd(&bench));
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let said = tokio::task::spawn_blocking(move || {
        lines
            .map_while(Result::ok)
            .find(|line| line.contains("certificate") && line.contains("gateway"))
            .expect("it says why")
    });
    let said = tokio::time::timeout(PATIENCE, said).await;
    // First, since its log is read until it ends.
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    let said = said.expect("it says so in time").expect("no panic");
    assert!(said.contains("ERROR") && said.contains("it has expired") && said.contains("bcd join --again"), "{said}");
    assert_eq!(ended(child).await.status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_02_a_crash_at_each_named_point_of_a_run_loses_nothing() {
    let bench = Bench::new();
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    // The others are of effects, and of ways to another binary.
    let points =
        faults::POINTS.iter().filter(|point| ["journal.", "frame.", "run."].iter().any(|it| point.starts_with(it)));
    // The acceptance is the first record of a process that finds nothing open; the result is the second.
    let crashes =
        points.flat_map(|point| [(point, 1), (point, 2)]).filter(|(point, n)| *n == 1 || !point.starts_with("run."));
    for (at, (point, times)) in (1..).zip(crashes) {
        let mut child = start(bcd(&bench).env(faults::VARIABLE, format!("{point}:{times}")));
        let command = deliver(NOOP, &digest(&component(NOOP)), at, json!({}));
        let link = gateway.link().await.welcome(2 * at, at).await;
        link.deliver(&command).await;
        link.over().await;
        let pid = child.id();
        let output = soon(tokio::task::spawn_blocking(move || child.wait())).await.expect("no panic").expect("it ends");
        assert_eq!(output.signal(), Some(Signal::KILL.as_raw()), "{point}:{times}, process {pid}");

        // The gateway does what it always does: it sends what is not settled.
        let child = start(&mut bcd(&bench));
        let mut link = gateway.link().await.welcome(2 * at + 1, at).await;
        link.deliver(&command).await;
        let result = loop {
            if let v1::from_node::Frame::Update(update) = link.frame().await {
                let update = Update::try_from(update).expect("it is right");
                if update.report.is_terminal() {
                    break update;
                }
            }
        };
        assert_eq!((result.command, result.report), (noop(at).command, Report::Succeeded), "{point}:{times}");
        link.ack(at, at + 1).await;
        kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
        link.over().await;
        let output = ended(child).await;
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
}
