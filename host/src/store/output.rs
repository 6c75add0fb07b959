//! `command_output`: what the programs of runs write, while they run.
//!
//! **Invariant:** a piece counts only from the session, or the lease, that has the command; told twice it is kept once.

use bc_proto::id::{CommandId, NodeId};
use bc_proto::wire::Stream;
use sqlx::PgConnection;
use sqlx::types::Uuid;

use super::{Error, corrupt, signed, unsigned};

/// A piece of a stream, as a node told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Who told it.
    pub node: NodeId,
    /// On which session.
    pub epoch: u64,
    /// The command.
    pub command: CommandId,
    /// Which run of it, from 1.
    pub attempt: u32,
    /// The stream.
    pub stream: Stream,
    /// How many bytes of it come before.
    pub at_byte: u64,
    /// The piece.
    pub bytes: Vec<u8>,
}

/// A piece of a stream, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Which run of the command.
    pub attempt: u64,
    /// The stream.
    pub stream: Stream,
    /// How many bytes of it come before.
    pub at_byte: u64,
    /// The piece.
    pub bytes: Vec<u8>,
}

/// From where on somebody follows a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// The run whose output was seen last; 0 for none.
    pub attempt: u64,
    /// How many bytes of its standard output were seen.
    pub stdout: u64,
    /// How many bytes of its standard error were seen.
    pub stderr: u64,
}

/// Keeps pieces. Those of commands that their session has no more are dropped.
pub async fn keep(db: &mut PgConnection, pieces: &[Told]) -> Result<(), Error> {
    let nodes: Vec<Uuid> = pieces.iter().map(|it| it.node.uuid()).collect();
    let epochs: Vec<i64> = pieces.iter().map(|it| signed(it.epoch)).collect();
    let commands: Vec<Uuid> = pieces.iter().map(|it| it.command.uuid()).collect();
    let attempts: Vec<i64> = pieces.iter().map(|it| i64::from(it.attempt)).collect();
    let streams: Vec<String> = pieces.iter().map(|it| it.stream.to_string()).collect();
    let places: Vec<i64> = pieces.iter().map(|it| signed(it.at_byte)).collect();
    let bytes: Vec<Vec<u8>> = pieces.iter().map(|it| it.bytes.clone()).collect();
    sqlx::query!(
        r#"insert into command_output (node_id, seq, attempt, stream, at_byte, bytes)
           select c.node_id, c.seq, t.attempt, t.stream::output_stream, t.at_byte, t.bytes
           from unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bigint[], $5::text[], $6::bigint[], $7::bytea[])
               as t (node_id, epoch, command_id, attempt, stream, at_byte, bytes)
           join commands c on c.id = t.command_id and c.node_id = t.node_id
           join in_flight f on f.node_id = c.node_id and f.seq = c.seq and f.epoch = t.epoch
           on conflict do nothing"#,
        &nodes,
        &epochs,
        &commands,
        &attempts,
        &streams,
        &places,
        &bytes,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// What follows a place, in the order of runs and offsets, both streams in turn; about `most_bytes` of it. Of a run before the last
/// one that was seen nothing comes any more.
pub async fn after(
    db: &mut PgConnection,
    node: NodeId,
    seq: u64,
    place: Place,
    most_bytes: u64,
) -> Result<Vec<Piece>, Error> {
    let rows = sqlx::query!(
        r#"select attempt, stream::text as "stream!", at_byte, bytes as "bytes!"
           from (
               select o.*, sum(length(bytes)) over (order by attempt, at_byte, stream) as so_far
               from command_output o
               where node_id = $1 and seq = $2 and (attempt > $3 or (attempt = $3
                   and at_byte + length(bytes) > case stream when 'stdout' then $4::bigint else $5::bigint end))
           ) o
           where so_far - length(bytes) < $6
           order by attempt, at_byte, stream"#,
        node.uuid(),
        signed(seq),
        signed(place.attempt),
        signed(place.stdout),
        signed(place.stderr),
        signed(most_bytes),
    )
    .fetch_all(db)
    .await?;
    rows.into_iter()
        .map(|row| {
            let key = format!("{node} {seq}");
            Ok(Piece {
                attempt: unsigned("command_output", "attempt", &key, row.attempt)?,
                stream: row.stream.parse().map_err(|_| corrupt("command_output", "stream", &key))?,
                at_byte: unsigned("command_output", "at_byte", &key, row.at_byte)?,
                bytes: row.bytes,
            })
        })
        .collect()
}

impl Place {
    /// How many bytes of a stream of the present run were seen.
    pub fn of(&self, stream: Stream) -> u64 {
        match stream {
            Stream::Stdout => self.stdout,
            Stream::Stderr => self.stderr,
        }
    }

    /// Takes a piece in: what of it is new, and where that begins.
    pub fn take(&mut self, piece: &Piece) -> (u64, Vec<u8>) {
        if piece.attempt != self.attempt {
            *self = Self { attempt: piece.attempt, ..Self::default() };
        }
        let seen = self.of(piece.stream);
        let known = usize::try_from(seen.saturating_sub(piece.at_byte)).unwrap_or(usize::MAX);
        let new = piece.bytes.get(known..).unwrap_or_default().to_vec();
        let begins = piece.at_byte.max(seen);
        let end = begins + new.len() as u64;
        match piece.stream {
            Stream::Stdout => self.stdout = end,
            Stream::Stderr => self.stderr = end,
        }
        (begins, new)
    }
}
