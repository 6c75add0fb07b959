//! What stands in the way of touching a GPU: a live hold, or a virtual machine that has it.
//!
//! **Invariant:** a GPU is free only where nothing names it, none of its MIG instances and none of its slots.

use crate::spec::{Hold, Instance, NodeSpec};

/// Who uses a GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InUse {
    /// A hold names it, or one of its MIG instances or slots.
    #[error("{gpu} has a live assignment")]
    Held {
        /// The GPU that was asked about.
        gpu: String,
    },
    /// A virtual machine has it.
    #[error("{gpu} is passed through to {instance}")]
    PassedThrough {
        /// The GPU that was asked about.
        gpu: String,
        /// The virtual machine.
        instance: String,
    },
}

/// The holds that name a GPU, one of its MIG instances (`parts`, their UUIDs) or a slot of either.
pub fn holds_of<'a>(spec: &'a NodeSpec, gpu: &str, parts: &[String]) -> impl Iterator<Item = &'a Hold> {
    spec.holds.iter().filter(move |hold| is_of(&hold.gpu, gpu, parts))
}

/// The virtual machine that has a GPU or one of its MIG instances.
pub fn instance_of<'a>(spec: &'a NodeSpec, gpu: &str, parts: &[String]) -> Option<&'a Instance> {
    spec.instances.iter().find(|instance| instance.pass_through.iter().any(|it| is_of(it, gpu, parts)))
}

/// Whether nothing uses a GPU, whose MIG instances are `parts`. Holds count before virtual machines.
pub fn is_free(spec: &NodeSpec, gpu: &str, parts: &[String]) -> Result<(), InUse> {
    let asked = || gpu.to_owned();
    if holds_of(spec, gpu, parts).next().is_some() {
        return Err(InUse::Held { gpu: asked() });
    }
    match instance_of(spec, gpu, parts) {
        Some(instance) => Err(InUse::PassedThrough { gpu: asked(), instance: instance.id.clone() }),
        None => Ok(()),
    }
}

/// UUIDs are hexadecimal, and not everybody writes them in the same case.
fn is_of(named: &str, gpu: &str, parts: &[String]) -> bool {
    named.eq_ignore_ascii_case(gpu) || parts.iter().any(|part| part.eq_ignore_ascii_case(named))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::id::AllocationId;

    fn spec() -> NodeSpec {
        let hold = |gpu: &str, slot| Hold { allocation: AllocationId::from_uuid(Uuid::nil()), gpu: gpu.into(), slot };
        let instance = Instance { id: "vm-1".into(), pass_through: vec!["GPU-d".into(), "GPU-a".into()] };
        let holds = vec![hold("GPU-a", None), hold("GPU-b", Some(0)), hold("MIG-c1", None)];
        NodeSpec { generation: 1, holds, instances: vec![instance], ..NodeSpec::default() }
    }

    #[test]
    fn a_gpu_is_in_use_when_it_a_slot_or_an_instance_of_it_is() {
        let spec = spec();
        let parts = ["MIG-c0".to_owned(), "MIG-c1".to_owned()];
        for (gpu, parts, said) in [
            ("GPU-a", &[][..], "GPU-a has a live assignment"),
            ("gpu-A", &[], "gpu-A has a live assignment"),
            ("GPU-b", &[], "GPU-b has a live assignment"),
            ("GPU-c", &parts, "GPU-c has a live assignment"),
            ("MIG-c1", &[], "MIG-c1 has a live assignment"),
            ("GPU-d", &[], "GPU-d is passed through to vm-1"),
        ] {
            assert_eq!(is_free(&spec, gpu, parts).expect_err(gpu).to_string(), said);
        }
        for (gpu, parts) in [("GPU-c", &[][..]), ("GPU-e", &parts[..1]), ("MIG-c0", &[])] {
            assert_eq!(is_free(&spec, gpu, parts), Ok(()), "{gpu}");
        }
    }
}
