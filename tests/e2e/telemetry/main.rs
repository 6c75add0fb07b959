//! What the programs say of themselves, as real processes: pages of metrics, logs as JSON, and the documents about them.
//!
//! **Invariant:** `docs/metrics.md` is compared with what is really served, in both directions.

mod logs;
mod metrics;
mod table;
