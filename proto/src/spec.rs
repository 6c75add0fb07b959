//! A node's desired state: what it should hold and be, generation by generation.
//!
//! **Invariant:** a spec is applied whole or not at all, and generations only count up: one that is older than what a node has
//! applied changes nothing there.

use serde::{Deserialize, Serialize};

use crate::id::AllocationId;

/// A generation of a node's spec. Its document is its canonical JSON, stored and relayed to the byte.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSpec {
    /// The generation, from 1.
    pub generation: u64,
    /// GPUs that are held for allocations.
    #[serde(default)]
    pub holds: Vec<Hold>,
    /// Virtual machines.
    #[serde(default)]
    pub instances: Vec<Instance>,
    /// Settings of the host.
    #[serde(default)]
    pub host: HostSettings,
}

/// A GPU that is held for an allocation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hold {
    /// The allocation.
    pub allocation: AllocationId,
    /// The GPU's UUID, or that of its MIG instance.
    pub gpu: String,
    /// A share of the GPU, where it is shared by time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
}

/// A virtual machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Instance {
    /// Its name on the node.
    pub id: String,
    /// UUIDs of the GPUs that are passed through to it.
    #[serde(default)]
    pub pass_through: Vec<String>,
}

/// Settings of the host; what is absent stays as it is. Each of them needs a boot to take effect.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostSettings {
    /// Huge pages of 1 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages_1g: Option<u32>,
    /// Processors that the scheduler leaves alone, as in `isolcpus=`: `2-5,8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated_cpus: Option<String>,
    /// Whether the IOMMU is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iommu: Option<bool>,
}
