//! The NVML capability through the real `nvml-wrapper`, against the fake library.

use std::{fs, path::Path, sync::Arc};

use bc_daemon::capability::nvml::{NvmlLibrary, XidReader};
use bc_runtime::capability::{Answer, Error, Nvml, nvml::Identity};
use fake_nvml::{
    Context, Preset, Process, SimulatedNode, State,
    smi::{self, Outcome},
    write_library_without,
};
use tempfile::TempDir;

/// A simulated node in a folder of its own, and the capability on it.
struct Bench {
    _folder: TempDir,
    node: SimulatedNode,
    library: NvmlLibrary,
}

impl Bench {
    fn new(state: &State) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let node = SimulatedNode::create(folder.path(), state).expect("a node");
        let library = NvmlLibrary::new(node.library(), None, no_xids());
        Self { _folder: folder, node, library }
    }

    /// Eight healthy GPUs, changed so.
    fn changed(change: impl FnOnce(&mut State)) -> Self {
        let mut state = State::eight_h100();
        change(&mut state);
        Self::new(&state)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        self.node.update(change).expect("the state changes");
    }
}

fn no_xids() -> XidReader {
    Box::new(|_| Err(Error::new("test", "not asked here")))
}

fn uuid(index: usize) -> String {
    State::eight_h100().gpus.swap_remove(index).uuid
}

fn identities(library: &NvmlLibrary) -> Vec<Answer<Identity>> {
    let devices = library.devices().expect("the driver answers");
    assert!(devices.iter().zip(0..).all(|(device, index)| device.index == index), "indexes are in order");
    devices.into_iter().map(|device| device.identity).collect()
}

#[track_caller]
fn refused<T>(answer: Answer<T>, code: &str, native: Option<i32>) {
    let error = answer.err().expect("an error");
    assert_eq!((error.code.as_str(), error.native), (code, native), "{}", error.message);
}

#[test]
fn a_healthy_node_tells_its_driver_and_who_its_gpus_are() {
    let bench = Bench::new(&State::eight_h100());
    let driver = bench.library.driver().expect("a driver");
    assert_eq!((driver.version.as_str(), driver.cuda_version), ("570.124.06", Some(12080)));
    let identities = identities(&bench.library);
    assert_eq!(identities.len(), 8);
    let first = identities[0].clone().expect("an identity");
    assert_eq!(
        first,
        Identity {
            uuid: "GPU-51d00000-0000-4000-8000-000000000000".into(),
            name: "NVIDIA H100 80GB HBM3 (simulated)".into(),
            pci_address: "0000:1b:00.0".into(),
            serial: Some("SIM0000000000".into()),
            minor: Some(0),
            mig_enabled: Some(false),
            persistence: Some(true),
        }
    );
}

#[test]
fn a_healthy_gpu_has_no_errors_a_full_link_and_no_advice() {
    let bench = Bench::new(&State::eight_h100());
    let gpu = uuid(7);
    let ecc = bench.library.ecc_errors(&gpu).expect("counts");
    assert!(ecc.enabled && ecc.volatile_uncorrected == 0 && ecc.aggregate_uncorrected == 0);
    let rows = bench.library.remapped_rows(&gpu).expect("rows");
    assert!(!rows.pending && !rows.failure && rows.correctable == 0 && rows.uncorrectable == 0);
    let link = bench.library.pcie_link(&gpu).expect("a link");
    assert_eq!((link.current_width, link.max_width, link.current_generation, link.max_generation), (16, 16, 5, 5));
    assert_eq!(bench.library.recovery_action(&gpu), Ok(0));
    assert_eq!(bench.library.processes(&gpu), Ok(vec![]));
}

#[test]
fn every_fault_is_told_of_the_gpu_that_has_it() {
    let bench = Bench::new(&Preset::Faulty.state());
    let rows = |index| bench.library.remapped_rows(&uuid(index)).expect("rows");
    assert!(rows(1).pending && !rows(1).failure, "GPU 1 waits for a remap");
    assert!(rows(2).failure && !rows(2).pending && rows(2).uncorrectable == 8, "GPU 2 failed one");
    assert_eq!(bench.library.recovery_action(&uuid(1)), Ok(1));
    assert_eq!(bench.library.pcie_link(&uuid(4)).expect("a link").current_width, 8);
    let ecc = bench.library.ecc_errors(&uuid(5)).expect("counts");
    assert_eq!((ecc.volatile_corrected, ecc.volatile_uncorrected), (2, 1));
    assert_eq!((ecc.aggregate_corrected, ecc.aggregate_uncorrected), (40, 3));
}

#[test]
fn promise_32_a_lost_gpu_keeps_its_index_and_hides_no_other() {
    let bench = Bench::changed(|state| state.gpus[3].lost = true);
    let identities = identities(&bench.library);
    assert_eq!(identities.len(), 8);
    refused(identities[3].clone(), "gpu-is-lost", Some(15));
    assert!(identities.iter().enumerate().all(|(index, identity)| identity.is_ok() == (index != 3)));
    refused(bench.library.ecc_errors(&uuid(3)), "gpu-is-lost", Some(15));
    // NVML stops at the lost one on its way to this one.
    assert!(bench.library.ecc_errors(&uuid(6)).is_ok());
}

#[test]
fn a_gpu_is_known_by_its_address_after_it_is_lost_and_after_a_restart() {
    let bench = Bench::new(&State::eight_h100());
    let file = bench.node.state_file().with_file_name("addresses.json");
    let start = || NvmlLibrary::new(bench.node.library(), Some(&file), no_xids());
    let library = start();
    assert_eq!(library.uuid_of("0000:61:00.0"), None, "nothing was asked yet");
    identities(&library);
    bench.change(|state| state.gpus[3].lost = true);
    identities(&library);
    assert_eq!(library.uuid_of("0000:61:00.0"), Some(uuid(3)));
    assert_eq!(start().uuid_of("0000:61:00"), Some(uuid(3)));
}

#[test]
fn xids_are_read_without_the_driver_and_name_gpus_seen_before() {
    let bench = Bench::new(&State::eight_h100());
    let reader: XidReader = Box::new(|uuid_of| Ok(uuid_of("0000:1b:00").unwrap_or_default()));
    let library = NvmlLibrary::new(bench.node.library(), None, reader);
    identities(&library);
    bench.change(|state| state.init = Some(9));
    assert_eq!(library.xids(), Ok(uuid(0)));
}

#[test]
fn promise_32_remapped_rows_are_not_told_while_mig_instances_are_active() {
    // The only instance left sits behind two gaps.
    let bench = Bench::new(&Preset::MigSplit.state());
    bench.change(|state| {
        state.gpus[0].mig.as_mut().expect("MIG").instances.remove(&0);
        state.trace = Some(bench.node.state_file().with_file_name("trace"));
    });
    refused(bench.library.remapped_rows(&uuid(0)), "not-supported", Some(3));
    let trace = fs::read_to_string(bench.node.state_file().with_file_name("trace")).expect("a trace");
    assert!(!trace.contains("nvmlDeviceGetRemappedRows"), "a driver that answers zeros is not asked");
    let first = identities(&bench.library)[0].clone().expect("an identity");
    assert_eq!(first.mig_enabled, Some(true));
    assert!(bench.library.remapped_rows(&uuid(1)).is_ok(), "another GPU is not concerned");

    bench.change(|state| state.gpus[0].mig.as_mut().expect("MIG").instances.clear());
    assert!(bench.library.remapped_rows(&uuid(0)).is_ok(), "MIG without instances is no obstacle");
}

#[test]
fn what_a_gpu_does_not_have_is_none_and_not_an_error() {
    let bench = Bench::changed(|state| {
        let gpu = &mut state.gpus[0];
        (gpu.serial, gpu.minor, gpu.mig) = (None, None, None);
    });
    let first = identities(&bench.library)[0].clone().expect("an identity");
    assert_eq!((first.serial, first.minor, first.mig_enabled), (None, None, None));
}

#[test]
fn promise_32_a_function_that_fails_is_an_error_with_its_code() {
    type Ask = fn(&NvmlLibrary, &str) -> Answer<()>;
    let questions: [(&str, Ask); 9] = [
        ("nvmlDeviceGetEccMode", |library, gpu| library.ecc_errors(gpu).map(drop)),
        ("nvmlDeviceGetTotalEccErrors", |library, gpu| library.ecc_errors(gpu).map(drop)),
        ("nvmlDeviceGetRemappedRows", |library, gpu| library.remapped_rows(gpu).map(drop)),
        ("nvmlDeviceGetMigMode", |library, gpu| library.remapped_rows(gpu).map(drop)),
        ("nvmlDeviceGetMaxPcieLinkGeneration", |library, gpu| library.pcie_link(gpu).map(drop)),
        ("nvmlDeviceGetComputeRunningProcesses_v3", |library, gpu| library.processes(gpu).map(drop)),
        ("nvmlDeviceGetGraphicsRunningProcesses_v3", |library, gpu| library.processes(gpu).map(drop)),
        ("nvmlDeviceGetFieldValues", |library, gpu| library.recovery_action(gpu).map(drop)),
        ("nvmlDeviceGetFieldValues/230", |library, gpu| library.recovery_action(gpu).map(drop)),
    ];
    let bench = Bench::new(&State::eight_h100());
    for (function, ask) in questions {
        for (number, code) in
            [(4242, "unknown-error"), (999, "unknown-error"), (16, "reset-required"), (28, "gpu-not-found")]
        {
            bench.change(|state| state.gpus[0].errors = [(function.to_owned(), number)].into());
            refused(ask(&bench.library, &uuid(0)), code, i32::try_from(number).ok());
            assert_eq!(ask(&bench.library, &uuid(1)), Ok(()), "{function} fails for GPU 0 only");
        }
    }
}

#[test]
fn promise_32_an_identity_that_could_not_be_asked_whole_is_an_error() {
    let bench = Bench::changed(|state| state.gpus[2].errors = [("nvmlDeviceGetSerial".to_owned(), 4242)].into());
    let identities = identities(&bench.library);
    refused(identities[2].clone(), "unknown-error", Some(4242));
    assert!(identities[1].is_ok());
}

#[test]
fn promise_32_advice_that_the_driver_does_not_give_is_an_error_and_unknown_advice_is_passed_on() {
    let bench =
        Bench::changed(|state| (state.gpus[0].recovery_action, state.gpus[1].recovery_action) = (None, Some(77)));
    refused(bench.library.recovery_action(&uuid(0)), "not-supported", Some(3));
    assert_eq!(bench.library.recovery_action(&uuid(1)), Ok(77));
}

#[test]
fn promise_32_memory_errors_of_a_gpu_without_ecc_are_an_error_and_switched_off_is_told() {
    let bench = Bench::changed(|state| {
        state.gpus[0].ecc = None;
        state.gpus[1].ecc.as_mut().expect("ECC").enabled = false;
    });
    refused(bench.library.ecc_errors(&uuid(0)), "not-supported", Some(3));
    assert!(!bench.library.ecc_errors(&uuid(1)).expect("counts").enabled);
}

#[test]
fn promise_32_without_a_library_every_question_is_library_not_found() {
    let library = NvmlLibrary::new("libnvidia-ml-of-no-machine.so.1", None, no_xids());
    refused(library.driver(), "library-not-found", None);
    refused(library.devices(), "library-not-found", None);
    refused(library.remapped_rows(&uuid(0)), "library-not-found", None);
    let no_library = NvmlLibrary::new(Path::new("/dev/null"), None, no_xids());
    refused(no_library.driver(), "library-not-found", None);
}

#[test]
fn promise_32_a_function_that_the_library_lacks_is_symbol_missing() {
    let bench = Bench::new(&State::eight_h100());
    let older = bench.node.library().with_file_name("older.so");
    write_library_without(&older, &["nvmlDeviceGetRemappedRows", "nvmlDeviceGetMigMode"]).expect("an older library");
    let library = NvmlLibrary::new(older, None, no_xids());
    refused(library.remapped_rows(&uuid(0)), "symbol-missing", None);
    assert!(library.ecc_errors(&uuid(0)).is_ok(), "the other functions are there");
    assert_eq!(identities(&library)[0].clone().expect("an identity").mig_enabled, None);
}

#[test]
fn a_library_that_cannot_be_shut_down_is_refused_and_does_not_panic() {
    let bench = Bench::new(&State::eight_h100());
    let odd = bench.node.library().with_file_name("odd.so");
    write_library_without(&odd, &["nvmlShutdown"]).expect("an odd library");
    refused(NvmlLibrary::new(odd, None, no_xids()).driver(), "symbol-missing", None);
}

#[test]
fn promise_32_a_driver_that_is_not_loaded_is_an_error_until_it_is_loaded() {
    let bench = Bench::new(&Preset::NoDriver.state());
    refused(bench.library.driver(), "driver-not-loaded", Some(9));
    refused(bench.library.devices(), "driver-not-loaded", Some(9));
    bench.change(|state| state.init = None);
    assert_eq!(identities(&bench.library).len(), 8);
    bench.change(|state| state.init = Some(18));
    refused(bench.library.devices(), "lib-rm-version-mismatch", Some(18));
    fs::remove_file(bench.node.state_file()).expect("the state is removed");
    refused(bench.library.devices(), "driver-not-loaded", Some(9));
}

#[test]
fn all_holders_are_listed_even_when_more_start_meanwhile() {
    let running = |pid, context| Process { pid, context, used_memory_bytes: Some(1 << 30), ..Process::default() };
    let bench = Bench::changed(|state| {
        let gpu = &mut state.gpus[0];
        gpu.processes = vec![running(1, Context::Compute), running(2, Context::Graphics)];
        // More than the room that nvml-wrapper leaves.
        gpu.arriving = (10..30).map(|pid| running(pid, Context::Compute)).collect();
        gpu.processes[0].used_memory_bytes = None;
    });
    let processes = bench.library.processes(&uuid(0)).expect("processes");
    assert_eq!(processes.len(), 22);
    assert_eq!((processes[0].pid, processes[0].context.as_str(), processes[0].used_memory_bytes), (1, "compute", None));
    let last = processes.last().expect("a last one");
    assert_eq!((last.pid, last.context.as_str(), last.used_memory_bytes), (2, "graphics", Some(1 << 30)));
}

#[test]
fn a_gpu_that_is_not_there_is_not_found() {
    let bench = Bench::new(&State::eight_h100());
    refused(bench.library.pcie_link("GPU-of-another-node"), "not-found", Some(6));
    refused(bench.library.pcie_link("GPU-\0"), "unexpected-answer", None);
}

#[test]
fn promise_33_the_daemon_itself_holds_no_gpu_between_its_questions() {
    let bench = Bench::changed(|state| state.gpus.iter_mut().for_each(|gpu| gpu.persistence = false));
    let library: Arc<dyn Nvml> = Arc::new(NvmlLibrary::new(bench.node.library(), None, no_xids()));
    library.devices().expect("the driver answers");
    library.remapped_rows(&uuid(0)).expect("rows");
    refused(library.pcie_link("GPU-of-another-node"), "not-found", Some(6));
    match smi::run(&["--gpu-reset".to_owned()], &bench.node.state_file()) {
        Outcome::Exits { text, code } => assert_eq!(code, smi::exit::OK, "{text}"),
        Outcome::Hangs => panic!("no hang is asked for"),
    }
}
