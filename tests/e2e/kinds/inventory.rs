//! `inventory.refresh` on a simulated node.

use std::fs;

use bc_tests::machine::Machine;
use fake_nvml::State;
use serde_json::{Value, json};

fn gpus(machine: &Machine, payload: &Value) -> Value {
    machine.result("inventory.refresh", payload)["sections"]["gpus"].take()
}

/// The GPUs alone.
fn only_gpus() -> Value {
    json!({ "sections": ["gpus"] })
}

#[test]
fn eight_gpus_are_merged_from_the_bus_and_nvml() {
    let machine = Machine::new(&State::eight_h100());
    let section = gpus(&machine, &only_gpus());
    assert_eq!(section["problems"], json!([]));
    assert_eq!(section["data"]["driverVersion"], "570.124.06");
    let list = section["data"]["gpus"].as_array().expect("a list");
    for ((index, gpu), expected) in list.iter().enumerate().zip(machine.node.state().expect("a state").gpus) {
        assert_eq!(gpu["pci"], expected.pci, "in the order of the bus");
        assert_eq!((&gpu["uuid"], &gpu["serial"]), (&json!(expected.uuid), &json!(expected.serial)));
        // NVML knows neither of these two, sysfs knows neither of those before.
        assert_eq!((&gpu["numaNode"], &gpu["kernelDriver"]), (&json!(index / 4), &json!("nvidia")));
        assert_eq!(gpu["sources"], json!(["pci", "nvml"]));
    }
    assert_eq!(list.len(), 8);
    insta::assert_json_snapshot!(list[0]);
}

#[test]
fn promise_32_a_lost_gpu_stays_in_the_list_with_nvmls_error() {
    let section = gpus(&Machine::changed(|state| state.gpus[3].lost = true), &only_gpus());
    let list = section["data"]["gpus"].as_array().expect("a list");
    assert_eq!(list.len(), 8, "the bus still shows it");
    let named = list.iter().filter(|gpu| gpu["uuid"].is_string()).count();
    assert_eq!(named, 7);
    insta::assert_json_snapshot!([&list[3], &section["problems"]]);
}

#[test]
fn promise_32_without_a_driver_the_bus_is_told_and_the_rest_is_a_problem() {
    let section = gpus(&Machine::changed(|state| state.init = Some(9)), &only_gpus());
    assert_eq!(section["data"]["gpus"].as_array().map(Vec::len), Some(8));
    assert!(section["data"]["driverVersion"].is_null() && section["data"]["gpus"][0]["uuid"].is_null());
    let problems = section["problems"].to_string();
    assert!(problems.contains("driver-not-loaded"), "{problems}");
}

#[test]
fn a_gpu_that_another_driver_has_is_told_by_the_bus_alone() {
    let machine = Machine::changed(|state| {
        state.gpus.pop();
    });
    let device = machine.node.sysfs().join("bus/pci/devices/0000:df:00.0");
    fs::create_dir_all(machine.node.sysfs().join("bus/pci/drivers/vfio-pci")).expect("a driver");
    fs::create_dir_all(&device).expect("a device");
    for (file, text) in [("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2330"), ("numa_node", "1")] {
        fs::write(device.join(file), text).expect("a file of sysfs");
    }
    std::os::unix::fs::symlink("../../drivers/vfio-pci", device.join("driver")).expect("a link of sysfs");
    let section = gpus(&machine, &only_gpus());
    let last = &section["data"]["gpus"][7];
    assert_eq!((&last["kernelDriver"], &last["sources"]), (&json!("vfio-pci"), &json!(["pci"])));
    assert!(section["problems"].to_string().contains("vfio-pci has it, so that NVML does not list it"));
}

#[test]
fn sections_are_those_asked_for_and_all_by_default() {
    let machine = Machine::new(&State::eight_h100());
    let names = |payload: &Value| -> Vec<String> {
        let result = machine.result("inventory.refresh", payload);
        result["sections"].as_object().expect("sections").keys().cloned().collect()
    };
    assert_eq!(names(&json!({})), ["cpu", "disks", "gpus", "memory", "nics", "os", "system"]);
    assert_eq!(names(&json!({ "sections": [] })).len(), 7);
    assert_eq!(names(&json!({ "sections": ["os", "gpus"] })), ["gpus", "os"]);
}

#[test]
fn promise_32_what_a_bare_root_does_not_tell_is_null_with_a_problem() {
    let result = Machine::new(&State::eight_h100()).result("inventory.refresh", &json!({}));
    for (name, section) in result["sections"].as_object().expect("sections").iter().filter(|(name, _)| *name != "gpus")
    {
        assert!(section["problems"].as_array().is_some_and(|problems| !problems.is_empty()), "{name}: {section}");
        let facts = section["data"].as_object();
        assert!(facts.is_none_or(|facts| facts.values().all(Value::is_null)), "{name}: {section}");
    }
}

#[test]
fn a_result_says_whether_it_was_collected_anew() {
    let machine = Machine::new(&State::eight_h100());
    for rescan in [false, true] {
        let result = machine.result("inventory.refresh", &json!({ "sections": ["gpus"], "rescan": rescan }));
        assert_eq!(result["rescanned"], rescan);
        assert!(result["sections"]["gpus"]["collectedAtMs"].as_u64().is_some_and(|ms| ms > 1_700_000_000_000));
    }
}

#[test]
fn a_section_that_does_not_exist_is_refused_before_anything_runs() {
    let machine = Machine::new(&State::eight_h100());
    let payload = json!({ "sections": ["gpus", "dpus", "gpus"], "rescan": "yes" });
    let (report, said) = machine.run("inventory.refresh", &payload);
    assert_eq!((report["outcome"].as_str(), said.code), (Some("invalid-payload"), Some(3)));
    assert_eq!(report["stats"]["hostCalls"], 0);
    insta::assert_json_snapshot!(report["problems"]);
}
