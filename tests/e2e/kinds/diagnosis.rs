//! What the tests of `diag.nvml` ask and assert.
//!
//! **Invariant:** every run asserted here kept the promise that a status other than pass has a reason.

use bc_tests::machine::Machine;
use serde_json::{Value, json};

/// The result of `diag.nvml`.
pub(crate) struct Diagnosis(pub(crate) Value);

impl Diagnosis {
    /// Runs it.
    pub(crate) fn of(machine: &Machine) -> Self {
        Self::with(machine, &json!({}))
    }

    /// Runs it with a payload.
    pub(crate) fn with(machine: &Machine, payload: &Value) -> Self {
        Self::new(machine.result("diag.nvml", payload))
    }

    /// Takes a result.
    pub(crate) fn new(result: Value) -> Self {
        let diagnosis = Self(result);
        for check in diagnosis.checks() {
            assert_eq!(check["reason"].is_null(), check["status"] == "pass", "only a pass has no reason: {check}");
        }
        diagnosis
    }

    pub(crate) fn status(&self) -> &str {
        self.0["status"].as_str().expect("a status")
    }

    pub(crate) fn checks(&self) -> &[Value] {
        self.0["checks"].as_array().expect("checks")
    }

    /// Status and reason of one check of the GPU at an index, or of the node.
    pub(crate) fn check(&self, name: &str, index: Option<u64>) -> (&str, &str) {
        let is_it = |check: &&Value| check["name"] == name && check["index"].as_u64() == index;
        let found = self.checks().iter().find(is_it).unwrap_or_else(|| panic!("no {name} of {index:?} in {}", self.0));
        (found["status"].as_str().expect("a status"), found["reason"].as_str().unwrap_or(""))
    }

    /// One line per check that is not a pass, after the overall status and summary.
    pub(crate) fn not_passed(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let mut lines = vec![format!("{}: {}", text(&self.0["status"]), text(&self.0["summary"]))];
        for check in self.checks().iter().filter(|check| check["status"] != "pass") {
            let index = check["index"].as_u64().map_or("-".to_owned(), |index| index.to_string());
            let [status, name, gpu, reason] = ["status", "name", "gpu", "reason"].map(|field| text(&check[field]));
            lines.push(format!("{status} {name} {index} {gpu}\n    {reason}"));
        }
        lines.join("\n")
    }

    /// Asserts that all checks of the GPUs at other indexes pass.
    pub(crate) fn assert_others_pass(&self, faulty: &[u64]) {
        for check in self.checks() {
            if let Some(index) = check["index"].as_u64().filter(|index| !faulty.contains(index)) {
                assert_eq!(check["status"], "pass", "GPU {index} is healthy: {check}");
            }
        }
    }
}
