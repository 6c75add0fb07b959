//! What a schedule is about: the kinds, and the switches with which a rule is broken to see the simulation notice.
//!
//! **Invariant:** the default switches are the programs as they are. A switch changes the simulator, never `bc_proto`.

use std::collections::BTreeSet;

use bc_proto::manifest::{Lane, Role, Trait};
use bc_proto::rules::daemon::Availability;

/// When a claim is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claims {
    /// Before any of it is sent.
    Durable,
    /// Some time after it was sent, except when one of the commands is not retry-safe.
    RelaxedWhenRetrySafe,
    /// Some time after it was sent.
    Relaxed,
}

/// How the programs behave. Each field but the first is a rule that they keep.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is one rule, broken on its own")]
pub(crate) struct Rules {
    pub(crate) claims: Claims,
    /// The gateway's writes are fenced by the session's epoch.
    pub(crate) gateway_fences: bool,
    /// The daemon tells frames of an older session from those of the present one.
    pub(crate) node_fences: bool,
    /// A step is saved before it is said and started.
    pub(crate) saves_first: bool,
    /// A result that was not acknowledged is said again.
    pub(crate) repeats_results: bool,
    /// Each lane has workers of its own.
    pub(crate) lanes_apart: bool,
    /// A hello that does not know of the node's newest session is answered with that one's epoch and changes nothing.
    pub(crate) compares_epochs: bool,
    /// A hello with another journal settles what is not retry-safe.
    pub(crate) settles_lost_journals: bool,
    /// A hello in another boot or role settles what was to bring it about.
    pub(crate) settles_reboots: bool,
    /// What is to reboot a machine is carried out by the process that wrote it down, and by no later one.
    pub(crate) reboots_once: bool,
    /// Destructive commands are bound to a life of their node.
    pub(crate) binds_incarnations: bool,
    /// The sweeper ends what is in flight.
    pub(crate) sweeps_in_flight: bool,
    /// A command that is settled leaves the table where it stood.
    pub(crate) settles_by_moving: bool,
    /// Outstanding commands take credits.
    pub(crate) counts_credits: bool,
    /// Claims go by seq.
    pub(crate) claims_in_order: bool,
    /// The daemon tells time by the monotonic clock.
    pub(crate) ignores_wall_clock: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            claims: Claims::Durable,
            gateway_fences: true,
            node_fences: true,
            saves_first: true,
            repeats_results: true,
            lanes_apart: true,
            compares_epochs: true,
            settles_lost_journals: true,
            settles_reboots: true,
            reboots_once: true,
            binds_incarnations: true,
            sweeps_in_flight: true,
            settles_by_moving: true,
            counts_credits: true,
            claims_in_order: true,
            ignores_wall_clock: true,
        }
    }
}

/// A kind of the simulation.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) lane: Lane,
    pub(crate) traits: &'static [Trait],
    pub(crate) timeout_ms: u64,
}

impl Kind {
    pub(crate) fn is(&self, wanted: Trait) -> bool {
        self.traits.contains(&wanted)
    }

    pub(crate) fn traits(&self) -> BTreeSet<Trait> {
        self.traits.iter().copied().collect()
    }
}

const fn kind(name: &'static str, lane: Lane, traits: &'static [Trait], timeout_ms: u64) -> Kind {
    Kind { name, lane, traits, timeout_ms }
}

/// The first of each lane is the retry-safe one that probes it.
pub(crate) const KINDS: [Kind; 9] = [
    kind("look", Lane::Control, &[Trait::RetrySafe], 60_000),
    kind("converge", Lane::Provision, &[Trait::RetrySafe], 120_000),
    kind("pull", Lane::Bulk, &[Trait::RetrySafe], 300_000),
    kind("count", Lane::Control, &[], 60_000),
    kind("set-up", Lane::Provision, &[], 120_000),
    kind("copy", Lane::Bulk, &[], 300_000),
    kind("wipe", Lane::Provision, &[Trait::Destructive], 120_000),
    kind("reset", Lane::Bulk, &[Trait::Destructive, Trait::RetrySafe], 60_000),
    kind("reboot", Lane::Control, &[Trait::Destructive, Trait::SelfTerminating], 600_000),
];

/// What every node knows of them.
pub(crate) fn availability(name: &str) -> Availability {
    let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else { return Availability::Unsupported };
    let roles = vec![Role::Host, Role::Ramdisk];
    Availability::Loaded { lane: kind.lane, traits: kind.traits(), roles, timeout_ms: kind.timeout_ms }
}
