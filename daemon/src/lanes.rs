//! The worker pools: 8 control, 4 provision, 2 bulk.
//!
//! **Invariant:** a worker is taken until the last thread of its run has returned, even when the run itself is long over; a
//! lane whose workers all hang takes nothing from another.

use std::sync::Arc;

use bc_proto::manifest::Lane;
use bc_proto::rules::lane::{LIMITS, PerLane};
use bc_runtime::Slot;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The pools; clones are handles to the same ones.
#[derive(Debug, Clone)]
pub struct Lanes {
    control: Arc<Semaphore>,
    provision: Arc<Semaphore>,
    bulk: Arc<Semaphore>,
    sizes: PerLane,
}

/// A worker, given back when the last clone of its slot is dropped.
#[derive(Debug)]
struct Worker {
    _permit: OwnedSemaphorePermit,
}

impl Default for Lanes {
    fn default() -> Self {
        Self::new(LIMITS)
    }
}

impl Lanes {
    /// Pools of these sizes.
    pub fn new(sizes: PerLane) -> Self {
        let pool = |lane| Arc::new(Semaphore::new(sizes.get(lane) as usize));
        Self { control: pool(Lane::Control), provision: pool(Lane::Provision), bulk: pool(Lane::Bulk), sizes }
    }

    fn pool(&self, lane: Lane) -> &Arc<Semaphore> {
        match lane {
            Lane::Control => &self.control,
            Lane::Provision => &self.provision,
            Lane::Bulk => &self.bulk,
        }
    }

    /// Workers that are free now.
    pub fn free(&self) -> PerLane {
        let count = |lane| u32::try_from(self.pool(lane).available_permits()).unwrap_or(u32::MAX);
        PerLane { control: count(Lane::Control), provision: count(Lane::Provision), bulk: count(Lane::Bulk) }
    }

    /// Whether all workers are free.
    pub fn is_idle(&self) -> bool {
        self.free() == self.sizes
    }

    /// A worker, if one is free.
    pub fn try_take(&self, lane: Lane) -> Option<Slot> {
        Arc::clone(self.pool(lane)).try_acquire_owned().ok().map(|permit| Worker { _permit: permit }.into())
    }

    /// A worker, as soon as one is free.
    pub async fn take(&self, lane: Lane) -> Slot {
        let permit = Arc::clone(self.pool(lane)).acquire_owned().await;
        Worker { _permit: permit.expect("the pools are never closed") }.into()
    }
}

impl From<Worker> for Slot {
    fn from(worker: Worker) -> Self {
        Some(Arc::new(worker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promise_14_a_lane_that_hangs_takes_no_worker_from_another() {
        let lanes = Lanes::default();
        let hung: Vec<_> = std::iter::from_fn(|| lanes.try_take(Lane::Bulk)).collect();
        assert_eq!(hung.len(), 2);
        assert_eq!(lanes.free(), PerLane { bulk: 0, ..LIMITS });
        assert!(lanes.try_take(Lane::Control).is_some() && lanes.try_take(Lane::Provision).is_some());
        // A thread of a run that is over still holds its slot.
        let thread = hung[0].clone();
        drop(hung);
        assert!(lanes.free().bulk == 1 && !lanes.is_idle());
        drop(thread);
        assert!(lanes.free() == LIMITS && lanes.is_idle());
    }

    #[tokio::test]
    async fn a_worker_is_waited_for() {
        let lanes = Lanes::new(PerLane { control: 1, ..PerLane::default() });
        let first = lanes.take(Lane::Control).await;
        let waits = tokio::spawn({
            let lanes = lanes.clone();
            async move { lanes.take(Lane::Control).await.is_some() }
        });
        drop(first);
        assert!(waits.await.expect("it got one"));
    }
}
