//! Leases on a real Postgres.
