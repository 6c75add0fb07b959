//! The command line against an API that loses, refuses and repeats.

mod fake;
mod program;
mod waiting;
