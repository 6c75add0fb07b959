//! The API on a real Postgres, through its router.
