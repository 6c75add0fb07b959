//! Where the built programs and kinds lie, for tests that run them as they are.
//!
//! Cargo tells a test only the programs of its own package, so these look beside the test itself.
//!
//! **Invariant:** nothing is built or copied here; what is missing is said together with the command that makes it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A program of this workspace, `bcd` for example, of the build that the running test belongs to.
///
/// # Panics
/// When it is not built.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    // target/<profile>/deps/<test>
    let profile = test.parent().and_then(Path::parent).expect("tests lie in the profile's folder deps");
    built(profile.join(name))
}

/// A kind of this workspace as a file, `diag.nvml` for example.
///
/// # Panics
/// When it is not built.
pub fn kind(name: &str) -> PathBuf {
    built(repository().join("plugins/dist").join(name).with_added_extension("wasm"))
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package lies in the repository").to_owned()
}

/// A command that runs one of the programs, untouched by what the developer's own environment says to it.
#[expect(clippy::disallowed_methods, reason = "these tests are about programs")]
pub fn command(name: &str) -> Command {
    let mut command = Command::new(program(name));
    for variable in ["BCD_CONFIG", "RUST_LOG", "FAKE_NVML_STATE", "FAKE_NVML_TRACE"] {
        command.env_remove(variable);
    }
    for (variable, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BETTER_COMPUTE_")) {
        command.env_remove(variable);
    }
    // Tables fold at this width, so that what they show does not depend on the terminal.
    command.env("COLUMNS", "100");
    command
}

/// What a program said and how it ended.
#[derive(Debug)]
pub struct Said {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

/// Runs a command to its end.
///
/// # Panics
/// When it cannot be started.
pub fn run(command: &mut Command) -> Said {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    let text = |bytes| String::from_utf8(bytes).expect("our programs print UTF-8");
    Said { code: status.code(), out: text(stdout), err: text(stderr) }
}

/// Runs a command at a terminal where somebody types this, to its end. Both of its outputs are what the terminal shows.
///
/// # Panics
/// When there is no program `script` (util-linux), which makes the terminal.
#[expect(clippy::disallowed_methods, reason = "these tests are about programs")]
pub fn at_terminal(command: &Command, typed: &str) -> Said {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted =
        words.map(|word| format!("'{}'", word.to_str().expect("words of tests are text").replace('\'', r"'\''")));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &quoted.collect::<Vec<_>>().join(" "), "/dev/null"]);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut terminal = script.spawn().expect("`script` of util-linux is there");
    terminal.stdin.take().expect("it is piped").write_all(typed.as_bytes()).expect("it reads");
    let Output { status, stdout, .. } = terminal.wait_with_output().expect("it ends");
    let shown = String::from_utf8(stdout).expect("our programs print UTF-8").replace("\r\n", "\n");
    Said { code: status.code(), out: shown.clone(), err: shown }
}

fn built(path: PathBuf) -> PathBuf {
    assert!(
        path.is_file(),
        "{} is not there: run `cargo xtask test`, which builds the workspace first",
        path.display()
    );
    path
}
