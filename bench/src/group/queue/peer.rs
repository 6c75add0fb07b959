//! Other queues: installed when group A is measured, pinned, and driven by small programs through their documented interfaces.
//!
//! **Invariant:** a peer that cannot be had, or that fails, is said to be so; nothing stands in for it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::Size;
use super::site::Site;

/// Where what is installed and built goes.
const TARGET: &str = "target/bench-peers";

/// A run of a peer that takes longer hangs. They give up by themselves before that.
const PATIENCE: Duration = Duration::from_secs(100);

/// The oldest node that the peers run on; where the machine's own is older, the one that npm brings is used.
const NODE: u32 = 22;

/// A queue that can be measured.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    program: Vec<String>,
    url: String,
    /// Slow ones get less to do.
    scale: f64,
}

/// One measurement of a peer.
pub(super) struct Answer {
    /// How long each operation took, or all of them on average.
    pub(super) took: Vec<Duration>,
    /// Jobs that a worker still held at the end.
    pub(super) locked: u64,
    pub(super) version: String,
}

/// Installs what can be installed; the others come with the reason.
pub(crate) async fn set_up(site: &Site, peers: &Path) -> anyhow::Result<Vec<(&'static str, Result<Peer, String>)>> {
    let node = set_up_node(&peers.join("node"));
    let python = set_up_python(&peers.join("python"));
    let rust = set_up_rust(&peers.join("rust"));
    let all = [
        ("pgmq", "peer_pgmq", &rust, 1.0),
        ("apalis", "peer_apalis", &rust, 1.0),
        ("graphile-worker", "peer_graphile", &node, 1.0),
        ("pg-boss", "peer_boss", &node, 1.0),
        ("procrastinate", "peer_procrastinate", &python, 0.1),
    ];
    let mut found = Vec::new();
    for (name, database, program, scale) in all {
        let peer = match program {
            Ok(program) => {
                site.database(database).await?;
                let mut program = program.clone();
                program.push(name.to_owned());
                Ok(Peer { name, program, url: site.url(database), scale })
            }
            Err(error) => Err(format!("{error:#}")),
        };
        found.push((name, peer));
    }
    Ok(found)
}

/// The program of a peer, without its arguments.
type Program = anyhow::Result<Vec<String>>;

fn set_up_node(folder: &Path) -> Program {
    let modules = folder.join("node_modules");
    // npm writes this list when it has installed everything.
    if !is_newer(&modules.join(".package-lock.json"), &folder.join("package-lock.json")) {
        run(program("npm").args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(folder))?;
    }
    let own = ["x64", "arm64"].map(|cpu| modules.join(format!("node-linux-{cpu}/bin/node")));
    let own = own.into_iter().find(|node| node.is_file());
    let node = if let Some(node) = own {
        node.canonicalize()?.display().to_string()
    } else {
        let version = run(program("node").arg("--version"))?;
        let major = version.trim().trim_start_matches('v').split('.').next().and_then(|major| major.parse().ok());
        ensure!(major.is_some_and(|major: u32| major >= NODE), "it needs node {NODE}, and there is {}", version.trim());
        "node".to_owned()
    };
    Ok(vec![node, folder.join("main.js").display().to_string()])
}

fn set_up_python(folder: &Path) -> Program {
    let requirements = folder.join("requirements.txt");
    let place = PathBuf::from(TARGET).join("python");
    let (python, done) = (place.join("bin/python"), place.join("installed"));
    if !is_newer(&done, &requirements) {
        run(program("python3").args(["-m", "venv", "--clear"]).arg(&place))?;
        let pip =
            ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--requirement"];
        run(program(&python.display().to_string()).args(pip).arg(&requirements))?;
        File::create(done)?;
    }
    Ok(vec![python.display().to_string(), folder.join("main.py").display().to_string()])
}

fn set_up_rust(folder: &Path) -> Program {
    let target = PathBuf::from(TARGET).join("rust");
    let mut build = program("cargo");
    build.args(["build", "--quiet", "--release", "--locked", "--manifest-path"]).arg(folder.join("Cargo.toml"));
    run(build.arg("--target-dir").arg(&target))?;
    Ok(vec![target.join("release/bc-bench-peers").display().to_string()])
}

fn is_newer(file: &Path, than: &Path) -> bool {
    let at = |file: &Path| file.metadata().and_then(|metadata| metadata.modified()).ok();
    at(file).zip(at(than)).is_some_and(|(file, than)| file >= than)
}

#[expect(clippy::disallowed_methods, reason = "peers are programs")]
fn program(name: &str) -> Command {
    Command::new(name)
}

/// Runs to the end; answers what it said, fails with what it complained of.
fn run(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{name} does not start"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    ensure!(output.status.success(), "{name} failed: {}", last_line(&said(&output.stderr)));
    Ok(said(&output.stdout))
}

fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing").trim()
}

impl Peer {
    /// Has the peer's program do one thing, beginning with an empty queue; answers what it says.
    fn ask(&self, figure: &str, size: Size) -> anyhow::Result<Value> {
        let count = if figure == "idle" { size.turns } else { size.drain };
        let (mut seconds, mut count) = (size.time.as_secs_f64(), count.to_string());
        if matches!(figure, "drain" | "cycle") && self.scale < 1.0 {
            seconds *= self.scale;
            count = format!("{:.0}", count.parse::<f64>()? * self.scale);
        }
        let arguments = [figure, &self.url, &size.clients.to_string(), &seconds.to_string(), &count];
        let (mut said, complaints) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut command = program(&self.program[0]);
        command.args(&self.program[1..]).args(arguments).stdin(Stdio::null());
        let mut child = command.stdout(said.try_clone()?).stderr(complaints.try_clone()?).spawn()?;
        let over = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > over {
                child.kill()?;
                child.wait()?;
                bail!("{figure} hung");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if !status.success() {
            bail!("{figure} failed: {}", last_line(&read(complaints)?));
        }
        Ok(serde_json::from_str(&read_again(&mut said)?)?)
    }

    /// Transactions a second while its worker has nothing to do.
    pub(super) fn waiting(&self, size: Size) -> anyhow::Result<f64> {
        self.ask("waiting", size)?["rate"].as_f64().context("waiting answers no rate")
    }

    /// Measures one figure: `enqueue`, `bulk`, `drain`, `cycle` or `idle`. Each begins with an empty queue.
    pub(super) fn measure(&self, figure: &str, size: Size) -> anyhow::Result<Answer> {
        let answer = self.ask(figure, size)?;
        let took = if let Some(all) = answer["ms"].as_array() {
            all.iter().filter_map(Value::as_f64).map(|ms| Duration::from_secs_f64(ms / 1e3)).collect()
        } else {
            let number = |name: &str| answer[name].as_f64().with_context(|| format!("{figure} answers no {name}"));
            vec![Duration::from_secs_f64(number("seconds")? / number("ops")?)]
        };
        ensure!(!took.is_empty(), "{figure} measured nothing");
        let version = answer["version"].as_str().unwrap_or_default().to_owned();
        Ok(Answer { took, locked: answer["locked"].as_u64().unwrap_or(0), version })
    }
}

fn read(mut file: File) -> anyhow::Result<String> {
    read_again(&mut file)
}

fn read_again(file: &mut File) -> anyhow::Result<String> {
    use std::io::{Read, Seek};
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}
