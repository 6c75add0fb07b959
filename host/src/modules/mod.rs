//! Modules: what the control plane does by itself, on the queue, as a caller of its own.
//!
//! A module looks at the database, decides with a pure function of `bc_proto::rules`, and writes its own rows, its batch and its
//! commands in one transaction. It asks the same functions as the API does, so the same checks hold it. `docs/modules.md` says how
//! to write one; [`remediation`] is the model.
//!
//! **Invariant:** a module keeps nothing in memory that its next pass needs: any replica goes on where another one stopped.

pub mod metal;
pub mod remediation;
pub mod rollout;
