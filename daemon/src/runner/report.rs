//! `bcd runner report`: for programs of self-reporting actions that are shell scripts.
//!
//! **Invariant:** it exits 0 only when the runner has taken the report.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context as _, bail};
use bc_proto::rules::action::report::{Completed, Failed, Report, VARIABLE};
use clap::Subcommand;

use super::reports::Answer;

/// What is reported.
#[derive(Debug, Subcommand)]
pub enum Saying {
    /// It has begun; refused when the command was called off meanwhile
    Started,
    /// Something that a person must see now: a device code, for example
    Output {
        /// The text; `-` reads it from standard input
        text: String,
    },
    /// It has reached its goal
    Completed,
    /// It has not
    Failed {
        /// Why, for people
        error: String,
        /// An exit code that says more
        #[arg(long, value_name = "N")]
        exit_code: Option<i32>,
    },
}

impl Saying {
    /// Says it.
    pub fn say(&self) -> anyhow::Result<()> {
        let path = std::env::var_os(VARIABLE).with_context(|| {
            format!("{VARIABLE} is not set: this is for programs of actions with self-reporting = true")
        })?;
        let report = match self {
            Self::Started => Report::Started(true),
            Self::Output { text } if text == "-" => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).context("standard input is no text")?;
                Report::Output(text)
            }
            Self::Output { text } => Report::Output(format!("{text}\n")),
            Self::Completed => Report::Completed(Completed { exit_code: 0 }),
            Self::Failed { error, exit_code } => Report::Failed(Failed { error: error.clone(), exit_code: *exit_code }),
        };
        let mut socket = UnixStream::connect(path).context("the runner does not listen")?;
        let mut line = serde_json::to_vec(&report)?;
        line.push(b'\n');
        socket.write_all(&line).context("the runner does not listen")?;
        let mut answer = String::new();
        BufReader::new(socket).read_line(&mut answer).context("the runner does not answer")?;
        match serde_json::from_str(&answer).context("the runner's answer cannot be read")? {
            Answer::Ok(_) => Ok(()),
            Answer::Error(message) => bail!("not taken: {message}"),
        }
    }
}
