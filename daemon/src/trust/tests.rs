//! The store of trust.
