//! The HTTP API: one path a method, `POST /v1/<noun>.<verb>` with a JSON body; `events.watch` is a stream of server-sent events.
//!
//! **Invariant:** what a caller may not see does not exist for it: the answer is `NOT_FOUND`, the same as for what is unknown.

pub mod types;
