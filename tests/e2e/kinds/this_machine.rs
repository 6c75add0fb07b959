//! The diagnosis of the machine that the tests run on: nothing is simulated.
//!
//! **Invariant:** both tests run everywhere; which of the two things they assert is decided by NVML itself.

use bc_tests::programs;
use nvml_wrapper::Nvml;
use serde_json::Value;

use super::diagnosis::Diagnosis;

fn diagnosis() -> Diagnosis {
    let mut bcd = programs::command("bcd");
    let said = programs::run(bcd.args(["kind", "run", "--grant-declared"]).arg(programs::kind("diag.nvml")));
    assert_eq!(said.code, Some(0), "{said:?}");
    let mut report: Value = serde_json::from_str(&said.out).expect("a report");
    Diagnosis::new(report["result"].take())
}

#[test]
fn promise_32_a_machine_without_driver_fails_and_one_with_a_driver_is_told_as_nvml_tells_it() {
    let diagnosis = diagnosis();
    match Nvml::init() {
        Err(error) => {
            let (status, reason) = diagnosis.check("nvml.init", None);
            let known = ["library-not-found", "driver-not-loaded"].iter().any(|code| reason.contains(code));
            assert!(status == "fail" && known, "NVML says {error}, the check {status}: {reason}");
            assert_eq!(diagnosis.status(), "fail");
            assert!(diagnosis.checks().iter().all(|check| check["status"] != "pass"), "{}", diagnosis.0);
        }
        Ok(nvml) => agrees(&diagnosis, &nvml),
    }
}

/// On a machine with a driver: same driver, same GPUs, and what NVML answers now is what the checks say.
fn agrees(diagnosis: &Diagnosis, nvml: &Nvml) {
    assert_eq!(diagnosis.check("nvml.init", None), ("pass", ""));
    assert_eq!(diagnosis.0["driver"]["version"], nvml.sys_driver_version().expect("a version"));
    for index in 0..nvml.device_count().expect("a count") {
        let Ok(device) = nvml.device_by_index(index) else { continue };
        let index = Some(u64::from(index));
        let uuid = device.uuid().expect("a UUID");
        assert!(diagnosis.checks().iter().any(|check| check["gpu"] == uuid.as_str()), "{uuid} is not in the report");
        let link = device.current_pcie_link_width().and_then(|now| Ok(now >= device.max_pcie_link_width()?));
        let expected = link.map_or("unknown", |full| if full { "pass" } else { "fail" });
        let found = diagnosis.check("pcie.link", index).0;
        assert!(found == expected || found == "skipped", "pcie.link of {uuid} is {found}, NVML says {expected}");
        if device.is_ecc_enabled().is_ok_and(|ecc| !ecc.currently_enabled) {
            assert_eq!(diagnosis.check("ecc.uncorrectable", index).0, "skipped");
        }
        if device.mig_mode().is_ok_and(|mig| mig.current == 1) && device.mig_device_by_index(0).is_ok() {
            assert_eq!(diagnosis.check("row-remap.pending", index).0, "skipped");
        }
    }
}
