//! What the programs of a run write, while it runs.
//!
//! **Invariant:** of each stream of a run there are [`MAX_OUTPUT_BYTES`] at most: following a run is for people, and its result keeps
//! the account of all of it.

use serde::{Deserialize, Serialize};

use super::checked::invalid;
use super::{Invalid, v1};
use crate::id::CommandId;

/// How much of a stream can be followed, bytes.
pub const MAX_OUTPUT_BYTES: u64 = 1024 * 1024;

/// The most bytes of one piece.
pub const MAX_PIECE_BYTES: usize = 64 * 1024;

/// What a program writes to.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::Display, strum::EnumString,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Stream {
    /// What it says.
    Stdout,
    /// What it complains about.
    Stderr,
}

/// A piece of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The command.
    pub command: CommandId,
    /// Which run of it, from 1.
    pub attempt: u32,
    /// The stream.
    pub stream: Stream,
    /// How many bytes of it come before.
    pub offset: u64,
    /// The piece.
    pub bytes: Vec<u8>,
}

impl TryFrom<v1::Output> for Output {
    type Error = Invalid;

    fn try_from(output: v1::Output) -> Result<Self, Invalid> {
        const M: &str = "Output";
        let stream = match output.stream() {
            v1::Stream::Stdout => Stream::Stdout,
            v1::Stream::Stderr => Stream::Stderr,
            v1::Stream::Unspecified => return Err(invalid(M, "stream", "must be a stream")),
        };
        if output.attempt == 0 {
            return Err(invalid(M, "attempt", "must count from 1"));
        }
        if !(1..=MAX_PIECE_BYTES).contains(&output.bytes.len()) {
            return Err(invalid(M, "bytes", "must have 1 to 65536 bytes"));
        }
        if output.offset.checked_add(output.bytes.len() as u64).is_none_or(|end| end > MAX_OUTPUT_BYTES) {
            return Err(invalid(M, "offset", "must leave the piece within the first MiB"));
        }
        let command = output.command_id.parse().map_err(|_| invalid(M, "command_id", "must be cmd_…"))?;
        Ok(Self { command, attempt: output.attempt, stream, offset: output.offset, bytes: output.bytes })
    }
}

impl From<Output> for v1::Output {
    fn from(output: Output) -> Self {
        let stream = match output.stream {
            Stream::Stdout => v1::Stream::Stdout,
            Stream::Stderr => v1::Stream::Stderr,
        };
        Self {
            command_id: output.command.to_string(),
            attempt: output.attempt,
            stream: stream.into(),
            offset: output.offset,
            bytes: output.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_piece_is_small_and_lies_within_what_can_be_followed() {
        let good = Output {
            command: CommandId::from_uuid(Uuid::from_u128(1)),
            attempt: 1,
            stream: Stream::Stderr,
            offset: MAX_OUTPUT_BYTES - 2,
            bytes: vec![7; 2],
        };
        let message = v1::Output::from(good.clone());
        for (field, wrong) in [
            ("command_id", v1::Output { command_id: "cmd".into(), ..message.clone() }),
            ("attempt", v1::Output { attempt: 0, ..message.clone() }),
            ("stream", v1::Output { stream: 9, ..message.clone() }),
            ("bytes", v1::Output { bytes: Vec::new(), ..message.clone() }),
            ("bytes", v1::Output { bytes: vec![0; MAX_PIECE_BYTES + 1], offset: 0, ..message.clone() }),
            ("offset", v1::Output { offset: MAX_OUTPUT_BYTES - 1, ..message.clone() }),
            ("offset", v1::Output { offset: u64::MAX, ..message.clone() }),
        ] {
            assert_eq!(Output::try_from(wrong).expect_err(field).field, field);
        }
        assert_eq!(Output::try_from(message), Ok(good));
    }
}
