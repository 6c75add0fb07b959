//! The queue: commands from enqueue to settlement, one statement a move.
//!
//! A command's state is where its row stands. Each move deletes it in one table and inserts it into the next, in one
//! statement, so that it stands in exactly one of `ready`, `in_flight` and `settled` for every snapshot.
//!
//! What a function decides, `bc_proto::rules` decide; the statement repeats the precondition, and a row that is no longer
//! where it was is left alone: somebody else was faster. Time and randomness are arguments.
//!
//! **Invariant:** a row in `settled` is inserted only by the statement that deletes the command's row elsewhere: a command
//! ends once. Every function expects READ COMMITTED, the default.

pub mod attest;
pub mod cancel;
pub mod claim;
pub mod enqueue;
pub mod held;
pub mod hello;
pub mod lease;
pub mod life;
pub mod look;
pub mod mark;
pub mod settle;
pub mod sweep;
#[cfg(test)]
mod tests;

pub use cancel::cancel;
pub use claim::claim;
pub use enqueue::{enqueue, enqueue_many};
pub use hello::{hello, hello_many};
pub use look::look;
pub use mark::{mark, requeue};
pub use settle::settle;
pub use sweep::sweep;
