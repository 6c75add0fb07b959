//! The refusal `gpu-busy`, which every kind that loads or resets GPUs has in common.
//!
//! **Invariant:** one GPU in use refuses the whole command, and everything that uses any of them is named.

use sdk::gpus::{Hold, PassThrough};
use sdk::nvml::Process;
use sdk::{Failure, gpus, nvml};
use serde::Serialize;

/// A GPU and the programs that work on it.
pub struct Use {
    /// `GPU-<uuid>`.
    pub gpu: String,
    /// As NVML lists them.
    pub processes: Vec<Process>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Holder {
    gpu: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    assignment: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
}

/// Refuses the whole command while anything uses any of the GPUs, and lists everything that does.
pub fn all_free(uses: &[Use], holds: &[Hold], pass_throughs: &[PassThrough]) -> Result<(), Failure> {
    let (mut reasons, mut holders) = (Vec::new(), Vec::new());
    for Use { gpu, processes } in uses {
        let is_it = |other: &str| other.eq_ignore_ascii_case(gpu);
        let none =
            || Holder { gpu: gpu.clone(), assignment: None, held: None, instance: None, pid: None, context: None };
        let held: Vec<_> = holds.iter().filter(|hold| is_it(&hold.gpu)).collect();
        if !held.is_empty() {
            reasons.push(format!("{gpu} has a live assignment"));
        }
        holders.extend(held.into_iter().map(|hold| Holder {
            assignment: Some(hold.assignment.clone()),
            held: Some(hold.held.clone()),
            ..none()
        }));
        for passed in pass_throughs.iter().filter(|passed| is_it(&passed.gpu)) {
            reasons.push(format!("{gpu} is passed through to {}", passed.instance));
            holders.push(Holder { instance: Some(passed.instance.clone()), ..none() });
        }
        for process in processes {
            reasons.push(format!("{gpu} is used by process {} ({})", process.pid, process.context));
            holders.push(Holder { pid: Some(process.pid), context: Some(process.context.clone()), ..none() });
        }
    }
    if reasons.is_empty() {
        return Ok(());
    }
    let details = serde_json::json!({ "reasons": reasons, "holders": holders });
    Err(Failure::new("gpu-busy", reasons.join("; ")).retryable().with_details(&details))
}

/// Asks who uses the GPUs, and refuses the whole command when anybody does. What cannot be asked is a failure: nobody knows then
/// that they are free.
pub fn refuse_used(uuids: &[String]) -> Result<(), Failure> {
    let (holds, pass_throughs) = (gpus::holds()?, gpus::pass_throughs()?);
    let mut uses = Vec::new();
    for gpu in uuids {
        uses.push(Use { gpu: gpu.clone(), processes: nvml::processes(gpu)? });
    }
    all_free(&uses, &holds, &pass_throughs)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn free(gpu: &str) -> Use {
        Use { gpu: gpu.into(), processes: Vec::new() }
    }

    fn process(pid: u32, context: &str) -> Process {
        Process { pid, context: context.into(), used_memory_bytes: None }
    }

    fn hold(gpu: &str, held: &str) -> Hold {
        Hold { gpu: gpu.into(), held: held.into(), assignment: "alloc_1".into() }
    }

    fn details(failure: &Failure) -> Value {
        serde_json::from_str(failure.details.as_deref().expect("details")).expect("JSON")
    }

    #[test]
    fn promise_33_every_holder_of_every_gpu_is_named() {
        let uses = [
            Use { gpu: "GPU-a".into(), processes: vec![process(4242, "compute"), process(17, "graphics")] },
            free("GPU-b"),
            free("GPU-c"),
            free("GPU-d"),
        ];
        let holds = [hold("GPU-b", "MIG-b1"), hold("gpu-B", "GPU-b/slot-0"), hold("GPU-e", "GPU-e")];
        let passed = [PassThrough { gpu: "GPU-c".into(), instance: "vm-1".into() }];
        let failure = all_free(&uses, &holds, &passed).expect_err("busy");
        assert_eq!((failure.code.as_str(), failure.retryable), ("gpu-busy", true));
        let said = "GPU-a is used by process 4242 (compute); GPU-a is used by process 17 (graphics); GPU-b has a live \
                    assignment; GPU-c is passed through to vm-1";
        assert_eq!(failure.message, said);
        let holders = details(&failure)["holders"].take();
        assert_eq!(holders.as_array().expect("a list").len(), 5);
        let slot = serde_json::json!({ "gpu": "GPU-b", "assignment": "alloc_1", "held": "GPU-b/slot-0" });
        assert_eq!(holders[3], slot);
        assert_eq!(all_free(&[free("GPU-d")], &holds, &passed), Ok(()), "what is in use elsewhere is of no account");
    }
}
