//! The clock and the randomness of the API: the one place that reads them.
//!
//! **Invariant:** nothing here decides anything; what is read is handed on as an argument.

use sqlx::types::Uuid;
use time::OffsetDateTime;

/// The time.
pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// A UUID that nothing has yet; of two, the later one is larger.
#[expect(clippy::disallowed_methods, reason = "this is the shell that supplies UUIDs")]
pub fn uuid() -> Uuid {
    Uuid::now_v7()
}

/// Bytes that nobody can guess.
pub fn entropy() -> [u8; 32] {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes
}
