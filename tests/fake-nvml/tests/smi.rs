//! What the fake `nvidia-smi` says, and the code it exits with.

use std::{fs, process::Command};

use fake_nvml::{
    BusyText, Context, Gpu, Preset, Process, ResetAnswer, STATE_VARIABLE, State,
    smi::{self, Outcome},
};
use tempfile::TempDir;

type Change = fn(&mut State);

/// A state on disk, and the program as it is run: as a process.
struct Machine {
    folder: TempDir,
}

impl Machine {
    fn new(state: &State) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        state.store(&folder.path().join("state.json")).expect("state stored");
        Self { folder }
    }

    /// Eight idle GPUs, changed so; persistence mode is off, so that nothing holds them.
    fn changed(change: impl FnOnce(&mut State)) -> Self {
        let mut state = State::eight_h100();
        state.gpus.iter_mut().for_each(|gpu| gpu.persistence = false);
        change(&mut state);
        Self::new(&state)
    }

    #[expect(clippy::disallowed_methods, reason = "the program is what is tested")]
    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvidia-smi"));
        command.args(arguments.split_whitespace()).env(STATE_VARIABLE, self.folder.path().join("state.json"));
        command
    }

    #[track_caller]
    fn check(&self, arguments: &str, code: i32, text: &str) {
        let output = self.command(arguments).output().expect("runs");
        let said = String::from_utf8(output.stdout).expect("text");
        assert_eq!(output.status.code(), Some(code), "{arguments}: {said}");
        assert!(said.contains(text), "{arguments}: {said}");
    }

    fn gpu(&self, index: usize) -> Gpu {
        State::load(&self.folder.path().join("state.json")).expect("a state").gpus.remove(index)
    }
}

fn process(context: Context) -> Process {
    Process { pid: 4242, context, ..Process::default() }
}

#[test]
fn a_reset_clears_what_waited_for_it_and_only_on_the_gpus_named() {
    let machine = Machine::changed(|state| {
        let faulty = Preset::Faulty.state();
        state.gpus = [&faulty.gpus[1], &faulty.gpus[5], &faulty.gpus[1]].map(Clone::clone).to_vec();
        state.gpus.iter_mut().for_each(|gpu| gpu.persistence = false);
    });
    machine.check(
        "--gpu-reset -i 0,1",
        0,
        "GPU 00000000:43:00.0 was successfully reset.\nGPU 00000000:C3:00.0 was succ",
    );
    let waits = |index| machine.gpu(index).remapped_rows.expect("rows").pending;
    assert_eq!((waits(0), waits(2)), (false, true));
    assert_eq!(machine.gpu(0).recovery_action, Some(0));
    let ecc = machine.gpu(1).ecc.expect("ECC");
    assert_eq!((ecc.volatile_uncorrected, ecc.aggregate_uncorrected), (0, 3));
}

#[test]
fn a_reset_without_index_resets_all() {
    let machine = Machine::changed(|_| {});
    machine.check("--gpu-reset", 0, "GPU 00000000:DF:00.0 was successfully reset.\nAll done.\n");
}

#[test]
fn a_gpu_in_use_is_not_reset_whatever_holds_it() {
    let newer = "The following GPUs could not be reset:\n  GPU 00000000:1B:00.0: In use by another client\n";
    let holders: [Change; 4] = [
        |state| state.gpus[0].persistence = true,
        |state| state.gpus[0].processes = vec![process(Context::Compute)],
        |state| state.gpus[0].processes = vec![process(Context::Graphics)],
        |state| state.gpus[7].processes = vec![process(Context::Compute)],
    ];
    for hold in holders {
        let machine = Machine::changed(hold);
        machine.check("--gpu-reset -i 0", 255, newer);
    }
    Machine::changed(|state| {
        state.gpus[7].processes = vec![process(Context::Compute)];
        state.smi.idle_node_needed = false;
    })
    .check("--gpu-reset -i 0", 0, "All done.");
    let older = Machine::changed(|state| {
        state.gpus[0].persistence = true;
        state.smi.busy_text = BusyText::Older;
    });
    older.check(
        "-r -i 0",
        255,
        "GPU 00000000:1B:00.0 is currently in use by another process.\n\n1 device is currently",
    );
}

#[test]
fn an_open_nvml_handle_holds_every_gpu() {
    let machine = Machine::changed(|_| {});
    let clients = fs::File::create(machine.folder.path().join("state.json.clients")).expect("the clients' file");
    clients.lock_shared().expect("held");
    machine.check("--gpu-reset -i 0", 255, "In use by another client");
    drop(clients);
    machine.check("--gpu-reset -i 0", 0, "All done.");
}

#[test]
fn each_refusal_has_its_words_and_code() {
    let cases: [(Change, i32, &str); 12] = [
        (|s| s.gpus[0].reset = ResetAnswer::Unsupported, 3, "Resetting GPU 00000000:1B:00.0 is not supported."),
        (|s| s.gpus[0].reset = ResetAnswer::Primary, 3, "GPU 00000000:1B:00.0 is the primary GPU and cannot be reset."),
        (|s| s.gpus[0].reset = ResetAnswer::Vgpu, 3, "because GPU 00000000:1B:00.0 is in vGPU mode."),
        (
            |s| s.gpus[0].reset = ResetAnswer::PeersNeeded(vec![0, 1, 2]),
            255,
            "append the following device indexes: 1,2",
        ),
        (
            |s| s.gpus[0].reset = ResetAnswer::Fails,
            255,
            "1 device did not complete reset successfully, and may be in an",
        ),
        (|s| s.gpus[0].lost = true, 15, "GPU is lost"),
        (|s| s.smi.fabric_error = Some("timeout".into()), 255, "fabric state could not be determined: timeout"),
        (|s| s.smi.not_root = true, 4, "permissions"),
        (|s| s.smi.library_missing = true, 12, "couldn't find libnvidia-ml.so library"),
        (|s| s.init = Some(9), 9, "couldn't communicate with the NVIDIA driver"),
        (|s| s.gpus.clear(), 6, "No devices were found"),
        (
            |s| {
                s.gpus[0].mig.as_mut().expect("MIG").enabled = true;
                s.gpus[0].persistence = true;
            },
            255,
            "Warning: MIG mode is in pending disable state for GPU 00000000:1B:00.0:In use by another client",
        ),
    ];
    for (change, code, text) in cases {
        let machine = Machine::changed(change);
        machine.check("--gpu-reset -i 0", code, text);
    }
}

#[test]
fn arguments_that_make_no_sense_exit_with_2_and_unknown_gpus_with_6() {
    let machine = Machine::changed(|_| {});
    for arguments in ["", "--gpu-reset -L", "-pm 2", "-pm", "--query-gpu=uuid", "-L --format=csv", "--burn"] {
        machine.check(arguments, 2, "");
    }
    machine.check("--query-gpu=uid --format=csv", 2, "Field \"uid\" is not a valid field to query.");
    machine.check("--gpu-reset -i 8", 6, "No devices were found");
    machine.check("-L -i GPU-unknown", 6, "No devices were found");
}

#[test]
fn persistence_mode_is_switched_by_uuid_address_or_index() {
    let machine = Machine::changed(|_| {});
    let uuid = machine.gpu(1).uuid;
    machine.check(&format!("-pm 1 -i {uuid}"), 0, "Enabled persistence mode for GPU 00000000:43:00.0.\nAll done.\n");
    assert!(machine.gpu(1).persistence && !machine.gpu(0).persistence);
    machine.check("-pm 1 -i 0000:43:00.0", 0, "Persistence mode is already Enabled for GPU 00000000:43:00.0.");
    machine.check("-pm 0 -i 1", 0, "Disabled persistence mode for GPU 00000000:43:00.0.");
    assert!(!machine.gpu(1).persistence);
}

#[test]
fn queries_answer_as_csv_and_lists_show_mig_devices() {
    let machine = Machine::new(&Preset::MigSplit.state());
    let fields = "index,uuid,name,pci.bus_id,serial,persistence_mode,driver_version";
    let row = "1, GPU-51d00000-0000-4000-8000-000000000001, NVIDIA H100 80GB HBM3 (simulated), 00000000:43:00.0, \
               SIM0000000001, Enabled, 570.124.06\n";
    machine.check(&format!("--query-gpu={fields} --format=csv,noheader -i 1"), 0, row);
    machine.check(&format!("--query-gpu={fields} --format=csv"), 0, &(fields.replace(',', ", ") + "\n0, GPU-"));
    machine.check("-L", 0, "  MIG 1g.10gb      Device  2: (UUID: MIG-51d00000-0000-5000-8000-000000000002)\n");
    machine.check(
        "-L",
        0,
        "GPU 7: NVIDIA H100 80GB HBM3 (simulated) (UUID: GPU-51d00000-0000-4000-8000-000000000007)\n",
    );
}

#[test]
fn a_program_stuck_in_the_driver_says_nothing_whatever_it_is_asked() {
    let machine = Machine::changed(|state| state.smi.hang = true);
    let state_file = machine.folder.path().join("state.json");
    for argument in ["-L", "--gpu-reset", "--burn"] {
        assert_eq!(smi::run(&[argument.to_owned()], &state_file), Outcome::Hangs, "{argument}");
    }
}
