//! The fake library as `nvml-wrapper` sees it, where the daemon's own tests do not reach.

use std::{env, fs, process::Command, time::Duration};

use fake_nvml::{
    Event, Preset, Process, STATE_FILE, STATE_VARIABLE, SimulatedNode, State, TRACE_VARIABLE, library_path,
};
use nvml_wrapper::{Nvml, bitmasks::event::EventTypes, enums::event::XidError, error::NvmlError};
use tempfile::TempDir;

fn node(state: &State) -> (TempDir, SimulatedNode) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = SimulatedNode::create(folder.path(), state).expect("a node");
    (folder, node)
}

fn open(node: &SimulatedNode) -> Nvml {
    Nvml::builder().lib_path(node.library().as_os_str()).init().expect("initialised")
}

fn xid(gpu: u32, data: u64) -> Event {
    Event { gpu, kind: EventTypes::CRITICAL_XID_ERROR.bits(), data, ..Event::default() }
}

#[test]
fn events_after_registration_arrive_once_in_order_and_then_it_times_out() {
    let (_folder, node) = node(&State::eight_h100());
    node.update(|state| state.events.push(xid(0, 13))).expect("an event before");
    let nvml = open(&node);
    let set = nvml.create_event_set().expect("a set");
    let device = nvml.device_by_index(0).expect("a GPU");
    let set =
        device.register_events(EventTypes::CRITICAL_XID_ERROR, set).map_err(|error| error.error).expect("registered");
    node.update(|state| state.events.extend([xid(1, 31), xid(0, 79), xid(0, 999)])).expect("events after");
    let next = || set.wait(0).map(|event| event.event_data);
    assert!(matches!(next(), Ok(Some(XidError::Value(79)))), "GPU 1 is not registered");
    assert!(matches!(next(), Ok(Some(XidError::Unknown))));
    assert!(matches!(next(), Err(NvmlError::Timeout)));
}

#[test]
fn a_mig_device_is_found_by_index_and_uuid_and_shows_only_its_own_processes() {
    let mut state = Preset::MigSplit.state();
    let uuid = state.gpus[0].mig.as_ref().expect("MIG").instances[&2].uuid.clone();
    let process = |pid, gpu_instance| Process { pid, gpu_instance: Some(gpu_instance), ..Process::default() };
    state.gpus[0].processes = vec![process(1, 7), process(2, 9)];
    let (_folder, node) = node(&state);
    let nvml = open(&node);
    let gpu = nvml.device_by_index(0).expect("a GPU");
    assert!(matches!(gpu.mig_device_by_index(1), Err(NvmlError::NotFound)), "a gap");
    let mig = gpu.mig_device_by_index(2).expect("the one behind the gap");
    assert_eq!(mig.uuid().expect("a UUID"), uuid);
    let same = nvml.device_by_uuid(uuid.as_str()).expect("by UUID");
    assert_eq!(same.mig_parent_device().expect("a parent").uuid().expect("a UUID"), state.gpus[0].uuid);
    let pids = |device: &nvml_wrapper::Device<'_>| {
        device.running_compute_processes().expect("processes").iter().map(|info| info.pid).collect::<Vec<_>>()
    };
    assert_eq!((pids(&mig), pids(&gpu)), (vec![2], vec![1, 2]));
    assert!(matches!(mig.is_ecc_enabled(), Err(NvmlError::NotSupported)));
}

#[test]
fn each_call_leaves_a_line_in_the_trace() {
    let (folder, node) = node(&State::eight_h100());
    let trace = folder.path().join("trace");
    node.update(|state| {
        state.trace = Some(trace.clone());
        state.gpus[1].lost = true;
    })
    .expect("traced");
    let nvml = open(&node);
    nvml.device_by_index(0).and_then(|gpu| gpu.minor_number()).expect("a number");
    assert!(matches!(nvml.device_by_index(1), Err(NvmlError::GpuLost)));
    drop(nvml);
    let lines = [
        "nvmlInit_v2 -> 0",
        "nvmlSystemGetDriverVersion -> 0",
        "nvmlDeviceGetHandleByIndex_v2 -> 0",
        "nvmlDeviceGetMinorNumber 0 -> 0",
        "nvmlDeviceGetHandleByIndex_v2 -> 15",
        "nvmlShutdown -> 0",
    ];
    assert_eq!(fs::read_to_string(trace).expect("a trace").lines().collect::<Vec<_>>(), lines);
}

#[test]
fn a_simulated_node_has_sysfs_and_a_kernel_log() {
    let (_folder, node) = node(&State::eight_h100());
    let devices = node.sysfs().join("bus/pci/devices");
    assert_eq!(fs::read_dir(&devices).expect("devices").count(), 8);
    let read = |file| fs::read_to_string(devices.join("0000:df:00.0").join(file)).expect("a file");
    assert_eq!(
        (read("vendor"), read("device"), read("class")),
        ("0x10de\n".into(), "0x2330\n".into(), "0x030200\n".into())
    );
    let driver = fs::canonicalize(devices.join("0000:1b:00.0/driver")).expect("the driver's link leads somewhere");
    assert!(driver.ends_with("bus/pci/drivers/nvidia"));
    node.log(Duration::from_millis(61_500), "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.")
        .expect("logged");
    let log = fs::read_to_string(node.kernel_log()).expect("a log");
    let last = log.lines().last().expect("a last line");
    assert_eq!(last, "[   61.500000] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.");
}

/// Only means something when [`the_environment_names_state_and_trace`] runs it.
#[test]
#[ignore = "run by the_environment_names_state_and_trace with its environment"]
fn in_that_environment() {
    let library = library_path().expect("the library is built");
    let nvml = Nvml::builder().lib_path(library.as_os_str()).init().expect("initialised");
    assert_eq!(nvml.device_count().expect("a count"), 3);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "an environment is set for a process of its own")]
fn the_environment_names_state_and_trace() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (state_file, trace) = (folder.path().join(STATE_FILE), folder.path().join("trace"));
    let mut state = State::eight_h100();
    state.gpus.truncate(3);
    state.store(&state_file).expect("stored");
    let status = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "in_that_environment", "--ignored"])
        .envs([(STATE_VARIABLE, &state_file), (TRACE_VARIABLE, &trace)])
        .status();
    assert!(status.expect("runs").success());
    assert!(fs::read_to_string(trace).expect("a trace").contains("nvmlDeviceGetCount_v2 -> 0"));
}
