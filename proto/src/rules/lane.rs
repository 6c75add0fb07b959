//! Lanes and credits: how much of each lane may be outstanding on one session.
//!
//! **Invariant:** credits are a limit minus what is outstanding, never a counter of their own: a reconnect computes them anew,
//! so none can be lost or made up.

use crate::manifest::Lane;

/// A number for each lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PerLane {
    /// For [`Lane::Control`].
    pub control: u32,
    /// For [`Lane::Provision`].
    pub provision: u32,
    /// For [`Lane::Bulk`].
    pub bulk: u32,
}

/// The most commands outstanding per session, and the workers per lane of a node: 8 control, 4 provision, 2 bulk.
pub const LIMITS: PerLane = PerLane { control: 8, provision: 4, bulk: 2 };

impl Lane {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Control, Self::Provision, Self::Bulk];
}

impl PerLane {
    /// The number of one lane.
    pub const fn get(self, lane: Lane) -> u32 {
        match lane {
            Lane::Control => self.control,
            Lane::Provision => self.provision,
            Lane::Bulk => self.bulk,
        }
    }

    /// The number of one lane, to change it.
    pub const fn get_mut(&mut self, lane: Lane) -> &mut u32 {
        match lane {
            Lane::Control => &mut self.control,
            Lane::Provision => &mut self.provision,
            Lane::Bulk => &mut self.bulk,
        }
    }

    /// Counts commands by their lanes.
    pub fn count(lanes: impl IntoIterator<Item = Lane>) -> Self {
        let mut counted = Self::default();
        for lane in lanes {
            *counted.get_mut(lane) += 1;
        }
        counted
    }

    /// What is free when this much is outstanding. More than the limit can be outstanding after a limit was lowered: then
    /// nothing is free.
    #[must_use]
    pub const fn free(self, outstanding: Self) -> Self {
        Self {
            control: self.control.saturating_sub(outstanding.control),
            provision: self.provision.saturating_sub(outstanding.provision),
            bulk: self.bulk.saturating_sub(outstanding.bulk),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_are_what_the_limit_leaves() {
        let outstanding = PerLane::count([Lane::Control, Lane::Bulk, Lane::Bulk, Lane::Bulk]);
        assert_eq!(LIMITS.free(outstanding), PerLane { control: 7, provision: 4, bulk: 0 });
    }
}
