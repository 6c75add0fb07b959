//! `read_output`: what a command's programs write, while they run and afterwards.
//!
//! **Invariant:** the place that is answered comes right after the bytes that are answered, so that nothing is missed or doubled; letters
//! are not cut in two.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bc_host::api::types::{self, CommandOutput, OutputPiece};
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::{Answer, DATA_BYTES};
use super::ask::{self, Place};
use super::commands::reference;
use super::failure::Failure;
use crate::client::{CallError, Client};

/// What `read_output` answers.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Output {
    /// What was written after the place that was asked for. Written by programs on the node: data.
    pub(super) pieces: Vec<Piece>,
    /// Where to go on.
    pub(super) next: Place,
    /// Whether nothing follows: the command is over and these are the last.
    pub(super) is_over: bool,
    /// Bytes between the pieces that were lost on the way; the command's result tells of all.
    pub(super) lost_bytes: u64,
}

/// A piece of a stream.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Piece {
    /// Which run of the command.
    attempt: u64,
    /// stdout or stderr.
    stream: String,
    /// How many bytes of the stream come before.
    offset: u64,
    /// What it wrote. What is not UTF-8 is shown as U+FFFD.
    text: String,
}

/// Reads it.
pub(super) async fn read(client: &Client, ask: ask::ReadOutput) -> Result<Answer, Failure> {
    let wait = ask::within("waitSeconds", ask.wait_seconds.unwrap_or(0), 0, ask::MAX_OUTPUT_WAIT_SECONDS)?;
    let types::CommandRef { tenant_id, node_id, command_id } = reference(client, &ask.node_id, ask.command_id).await?;
    let Place { attempt, stdout, stderr } = ask.after;
    let after = types::OutputPlace { attempt, stdout, stderr };
    let request = types::ReadOutput { tenant_id, node_id, command_id, after, wait_seconds: (wait > 0).then_some(wait) };
    let found: CommandOutput = client.call("commands.output", &request).await?;
    let pieces: Option<Vec<_>> = found.pieces.into_iter().map(decoded).collect();
    let Some(pieces) = pieces else {
        let (url, why) = (client.url().to_owned(), "its output is no base64".to_owned());
        return Err(CallError::Foreign { url, status: 200, why }.into());
    };
    let output = gather(ask.after, pieces, found.is_over, DATA_BYTES);
    Ok(Answer::new(output.words(), &output).with_data("programs on the node", output.data()))
}

/// Which run, which stream, how many bytes before, and the bytes.
type Raw = (u64, String, u64, Vec<u8>);

fn decoded(piece: OutputPiece) -> Option<Raw> {
    Some((piece.attempt, piece.stream, piece.offset, BASE64_STANDARD.decode(piece.bytes).ok()?))
}

/// As much of the pieces as an answer holds, those that follow each other in a stream as one.
fn gather(after: Place, pieces: Vec<Raw>, is_over: bool, most: usize) -> Output {
    let mut output = Output { pieces: Vec::new(), next: after, is_over, lost_bytes: 0 };
    let mut left = most;
    let mut joined: Vec<Raw> = Vec::new();
    for (attempt, stream, offset, bytes) in pieces {
        match joined.last_mut() {
            Some((last, name, start, before))
                if *last == attempt && *name == stream && *start + before.len() as u64 == offset =>
            {
                before.extend(bytes);
            }
            _ => joined.push((attempt, stream, offset, bytes)),
        }
    }
    let count = joined.len();
    for (index, (attempt, stream, offset, mut bytes)) in joined.into_iter().enumerate() {
        if left == 0 {
            output.is_over = false;
            break;
        }
        let is_cut = bytes.len() > left;
        bytes.truncate(left);
        // The rest of a letter comes with the next answer, unless none comes.
        let more = is_cut || (index + 1 == count && !is_over);
        if more && let Some(whole) = whole_letters(&bytes) {
            bytes.truncate(whole);
        }
        if attempt != output.next.attempt {
            output.next = Place { attempt, ..Place::default() };
        }
        let seen = if stream == "stdout" { &mut output.next.stdout } else { &mut output.next.stderr };
        if bytes.is_empty() {
            break;
        }
        output.lost_bytes += offset.saturating_sub(*seen);
        *seen = offset + bytes.len() as u64;
        left -= bytes.len();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        output.pieces.push(Piece { attempt, stream, offset, text });
        if is_cut {
            output.is_over = false;
            break;
        }
    }
    output
}

/// How many bytes come before a letter that is cut off at the end; `None` where none is.
fn whole_letters(bytes: &[u8]) -> Option<usize> {
    // A letter has at most four bytes: only the last three can be the beginning of one.
    let tail = bytes.len().saturating_sub(3);
    (tail..bytes.len()).find(|&start| match std::str::from_utf8(&bytes[start..]) {
        Err(error) => error.valid_up_to() == 0 && error.error_len().is_none(),
        Ok(_) => false,
    })
}

impl Output {
    fn words(&self) -> String {
        let bytes: usize = self.pieces.iter().map(|piece| piece.text.len()).sum();
        let Place { attempt, stdout, stderr } = self.next;
        let lost = if self.lost_bytes == 0 {
            String::new()
        } else {
            format!(" {} bytes before or between were lost on the way; the result tells of all.", self.lost_bytes)
        };
        let on = if self.is_over {
            "The command is over and nothing follows.".to_owned()
        } else {
            format!(
                "More may follow: read_output with after {{\"attempt\":{attempt},\"stdout\":{stdout},\"stderr\":{stderr}}}."
            )
        };
        format!("{bytes} bytes of output.{lost} {on}")
    }

    fn data(&self) -> String {
        let pieces = self.pieces.iter().map(|piece| {
            let Piece { attempt, stream, offset, text } = piece;
            format!("[{stream} of run {attempt}, from byte {offset}]\n{text}")
        });
        pieces.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(attempt: u64, stream: &str, offset: u64, bytes: &[u8]) -> Raw {
        (attempt, stream.to_owned(), offset, bytes.to_vec())
    }

    fn texts(output: &Output) -> Vec<(&str, u64, &str)> {
        output.pieces.iter().map(|it| (it.stream.as_str(), it.offset, it.text.as_str())).collect()
    }

    #[test]
    fn pieces_that_follow_each_other_are_one_and_others_are_not() {
        let pieces = vec![
            raw(1, "stdout", 0, b"a"),
            raw(1, "stdout", 1, b"b"),
            raw(1, "stderr", 0, b"e"),
            raw(2, "stdout", 0, b"c"),
        ];
        let output = gather(Place::default(), pieces, true, 100);
        assert_eq!(texts(&output), [("stdout", 0, "ab"), ("stderr", 0, "e"), ("stdout", 0, "c")]);
        assert_eq!(output.next, Place { attempt: 2, stdout: 1, stderr: 0 });
        assert!(output.is_over && output.lost_bytes == 0);
    }

    #[test]
    fn what_was_lost_on_the_way_is_counted() {
        let output = gather(Place { attempt: 1, stdout: 3, stderr: 0 }, vec![raw(1, "stdout", 10, b"x")], true, 100);
        assert_eq!((output.lost_bytes, output.next.stdout), (7, 11));
        insta::assert_snapshot!(output.words());
    }

    #[test]
    fn what_is_no_text_is_shown_as_such_and_passed_over() {
        let output = gather(Place::default(), vec![raw(1, "stdout", 0, b"\xff\xfea\xc3")], true, 100);
        assert_eq!(texts(&output), [("stdout", 0, "\u{fffd}\u{fffd}a\u{fffd}")]);
        assert_eq!(output.next.stdout, 4);
        // While it goes on, the half letter waits, and the rest does not.
        let output = gather(Place::default(), vec![raw(1, "stdout", 0, b"\xff\xfea\xc3")], false, 100);
        assert_eq!((texts(&output), output.next.stdout), (vec![("stdout", 0, "\u{fffd}\u{fffd}a")], 3));
        let output = gather(Place::default(), vec![raw(1, "stdout", 0, b"\xc3")], false, 100);
        assert!(output.pieces.is_empty() && output.next.stdout == 0 && !output.is_over);
    }

    #[test]
    fn promise_05_a_long_output_is_read_whole_in_answers_of_bounded_length() {
        let whole = "añb€c𝄞".repeat(500);
        let (mut place, mut text, mut answers) = (Place::default(), String::new(), 0);
        loop {
            let from = usize::try_from(place.stdout).expect("it is small");
            let output = gather(place, vec![raw(1, "stdout", place.stdout, &whole.as_bytes()[from..])], true, 97);
            for piece in &output.pieces {
                assert!(piece.text.len() <= 97 && !piece.text.contains('\u{fffd}'));
                text += &piece.text;
            }
            (place, answers) = (output.next, answers + 1);
            if output.is_over {
                break;
            }
        }
        assert_eq!(text, whole);
        assert!(answers > 50, "{answers}");
    }
}
