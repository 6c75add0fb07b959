//! `better-compute commands tail`: what a command's programs write, as they write it.
//!
//! **Invariant:** standard output gets the bytes of standard output and nothing else, so that it can be piped on; whoever is cut off is
//! told where to go on.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bc_host::api::types::{CommandOutput, OutputPiece, OutputPlace, ReadOutput};
use clap::Args;

use super::{One, follow};
use crate::exit::Ending;
use crate::format::Format;
use crate::output;

/// How long one request waits for something new, seconds: less than a call may take in all.
const WAIT: u32 = 20;

/// Which output.
#[derive(Debug, Args)]
pub struct Tail {
    #[command(flatten)]
    one: One,
    /// Go on until the command is over; exits with its outcome
    #[arg(long, short)]
    follow: bool,
    /// Only what comes after this place, ATTEMPT.STDOUT.STDERR: as printed when an earlier one was interrupted
    #[arg(long, value_name = "PLACE", default_value_t)]
    after: Place,
}

/// A place in a command's output, as people write it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place(OutputPlace);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutputPlace { attempt, stdout, stderr } = self.0;
        write!(f, "{attempt}.{stdout}.{stderr}")
    }
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers: Option<Vec<u64>> = text.split('.').map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[attempt, stdout, stderr]) => Ok(Self(OutputPlace { attempt, stdout, stderr })),
            _ => Err("must be three numbers with dots between: which run, bytes of stdout, bytes of stderr"),
        }
    }
}

impl Tail {
    /// Does it.
    pub(super) async fn execute(self) -> anyhow::Result<ExitCode> {
        let (client, reference) = self.one.reach().await?;
        let format = self.one.output.format();
        let mut place = self.after.0;
        loop {
            let request = ReadOutput {
                tenant_id: reference.tenant_id.clone(),
                node_id: reference.node_id.clone(),
                command_id: reference.command_id.clone(),
                after: place,
                wait_seconds: self.follow.then_some(WAIT),
            };
            let answer = tokio::select! {
                answer = client.call::<CommandOutput>("commands.output", &request) => answer,
                _ = tokio::signal::ctrl_c() => {
                    output::complain(&go_on(place));
                    return Ok(Ending::Interrupted.into());
                }
            };
            let answer = answer.inspect_err(|_| output::complain(&go_on(place)))?;
            for piece in &answer.pieces {
                print(piece, &mut place, format)?;
            }
            let is_all = answer.pieces.is_empty();
            if answer.is_over || (is_all && !self.follow) {
                break;
            }
        }
        if !self.follow {
            return Ok(ExitCode::SUCCESS);
        }
        let seen = follow::get(&client, &reference).await?;
        output::complain(&seen.line());
        Ok(seen.ending().into())
    }
}

fn go_on(place: OutputPlace) -> String {
    format!("to go on from here: --after {}", Place(place))
}

/// Prints a piece, and says what of it was lost on the way.
fn print(piece: &OutputPiece, place: &mut OutputPlace, format: Format) -> anyhow::Result<()> {
    if piece.attempt != place.attempt {
        if place.attempt > 0 {
            output::complain("[the command runs again]");
        }
        *place = OutputPlace { attempt: piece.attempt, ..OutputPlace::default() };
    }
    let bytes = BASE64_STANDARD.decode(&piece.bytes).context("the server's bytes are no base64")?;
    let is_stdout = piece.stream == "stdout";
    let seen = if is_stdout { &mut place.stdout } else { &mut place.stderr };
    let lost = piece.offset.saturating_sub(*seen);
    *seen = piece.offset + bytes.len() as u64;
    if !matches!(format, Format::Table) {
        output::say(&serde_json::to_string(piece)?);
        return Ok(());
    }
    if lost > 0 {
        output::complain(&format!("[{lost} bytes of {} were lost on the way; the result tells of all]", piece.stream));
    }
    // A reader that goes away ends the output, not the program with an error.
    let _ = if is_stdout {
        let mut out = std::io::stdout().lock();
        out.write_all(&bytes).and_then(|()| out.flush())
    } else {
        std::io::stderr().lock().write_all(&bytes)
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_printed() {
        let place = Place(OutputPlace { attempt: 2, stdout: 1_048_576, stderr: 0 });
        assert_eq!(place.to_string(), "2.1048576.0");
        assert_eq!("2.1048576.0".parse(), Ok(place));
        for wrong in ["", "1", "1.2", "1.2.3.4", "a.b.c", "1.-2.3"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
