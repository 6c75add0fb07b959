//! A person at a terminal: `better-compute` with a context of its own, pointed at one replica.
//!
//! **Invariant:** nothing of the developer's own configuration or environment is read.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::process::Process;
use crate::programs::{self, Said};

/// The person.
pub struct Operator {
    folder: TempDir,
}

impl Operator {
    /// Who has this token for the API at this address.
    ///
    /// # Panics
    /// When the context cannot be written.
    pub fn new(url: &str, token: &str) -> Self {
        let operator = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        let file = operator.file("token", token.as_bytes());
        let said =
            programs::run(&mut operator.command(&["context", "add", "here", "--url", url, "--token-file", &file]));
        assert_eq!(said.code, Some(0), "{said:?}");
        operator
    }

    /// A path in the person's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file there; answers its path as a word.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("the file is written");
        word(&path)
    }

    /// The program with words.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = programs::command("better-compute");
        // What it writes without being told where lies in the person's folder.
        command
            .args(words)
            .current_dir(self.folder.path())
            .env("BETTER_COMPUTE_CONFIG", self.path("config.toml"))
            .env("HOME", self.folder.path());
        command
    }

    /// Runs it to its end, beside whatever else the test awaits.
    ///
    /// # Panics
    /// When it cannot be started.
    pub async fn run(&self, words: &[&str]) -> Said {
        let mut command = self.command(words);
        tokio::task::spawn_blocking(move || programs::run(&mut command)).await.expect("it runs")
    }

    /// Runs what must exit with 0; answers what it printed.
    ///
    /// # Panics
    /// When it exits otherwise.
    pub async fn say(&self, words: &[&str]) -> String {
        let said = self.run(words).await;
        assert_eq!(said.code, Some(0), "{words:?}: {said:?}");
        said.out.trim_end().to_owned()
    }

    /// The same with `-o json`, read.
    ///
    /// # Panics
    /// When it exits otherwise, or prints no JSON.
    pub async fn json(&self, words: &[&str]) -> Value {
        let said = self.say(&[words, &["-o", "json"]].concat()).await;
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{words:?}: {error}: {said}"))
    }

    /// Runs what must be refused: it exits with 1, prints no result, and says this on standard error.
    ///
    /// # Panics
    /// When it does anything else.
    pub async fn refused(&self, words: &[&str], why: &str) {
        let said = self.run(words).await;
        assert!(
            (said.code, said.out.as_str()) == (Some(1), "") && said.err.contains(why),
            "{words:?}: {why}: {said:?}"
        );
    }

    /// Starts it and lets it run.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(&self, words: &[&str]) -> Process {
        Process::start("better-compute", &mut self.command(words))
    }
}

/// A path as a word; those of tests are text.
///
/// # Panics
/// When it is no text.
pub fn word(path: &Path) -> String {
    path.to_str().expect("paths of tests are text").to_owned()
}
