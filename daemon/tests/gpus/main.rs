//! Holds and resets of GPUs, with the fake `nvidia-smi` and `systemctl` as real processes.

mod bench;

use std::fs::{self, File};
use std::time::{Duration, Instant};

use bc_daemon::spec::Held;
use bc_proto::id::AllocationId;
use bc_proto::spec::{Hold, Instance, NodeSpec};
use bc_runtime::capability::{Gpus, Nvml};
use fake_nvml::{Context, HangOn, Preset, Process, RemappedRows, ResetAnswer, State};
use rustix::process::{Pid, Signal, kill_process};
use uuid::Uuid;

use crate::bench::{Bench, SERVICES, uuid};

type Change = fn(&mut State);

fn process(pid: u32, context: Context) -> Process {
    Process { pid, context, ..Process::default() }
}

#[test]
fn a_reset_takes_everybody_off_and_puts_everybody_back() {
    let bench = Bench::changed(|state| {
        let rows = RemappedRows { uncorrectable: 1, pending: true, ..RemappedRows::default() };
        state.gpus[1].remapped_rows = Some(rows);
        state.gpus[2].persistence = false;
    });
    let before = bench.switches();
    let outcomes = bench.reset(&[1, 2]).expect("it works");
    assert!(outcomes.iter().all(|outcome| outcome.reset), "{outcomes:?}");
    assert_eq!(outcomes[0].message, "GPU 00000000:43:00.0 was successfully reset.");
    assert!(!bench.nvml.remapped_rows(&uuid(1)).expect("rows").pending);
    assert_eq!((bench.switches(), bench.has_leftovers()), (before, false));
    let (a, b) = (uuid(1), uuid(2));
    let expected = [
        "systemctl stop nvidia-dcgm".to_owned(),
        format!("nvidia-smi -pm 0 -i {a}"),
        format!("nvidia-smi --gpu-reset -i {a},{b}"),
        format!("nvidia-smi -pm 1 -i {a}"),
        "systemctl start nvidia-dcgm".to_owned(),
    ];
    assert_eq!(bench.changes(), expected);
}

#[test]
fn promise_33_persistence_mode_and_services_are_put_back_on_every_exit() {
    let cases: [(Change, &str); 14] = [
        (|s| s.gpus[0].reset = ResetAnswer::Unsupported, "reset-not-supported"),
        (|s| s.gpus[0].reset = ResetAnswer::Primary, "primary-gpu"),
        (|s| s.gpus[0].reset = ResetAnswer::Vgpu, "vgpu-mode"),
        (|s| s.gpus[0].reset = ResetAnswer::PeersNeeded(vec![0, 1, 2]), "peers-needed"),
        (|s| s.gpus[0].reset = ResetAnswer::Fails, "reset-incomplete"),
        (|s| s.gpus[1].reset = ResetAnswer::Vanishes, "gpu-is-lost"),
        (|s| s.smi.fabric_error = Some("timeout".into()), "fabric-unknown"),
        (|s| s.gpus[7].processes = vec![process(4242, Context::Compute)], "gpu-busy"),
        (|s| s.gpus[1].processes = vec![process(4242, Context::Graphics)], "gpu-busy"),
        (|s| s.smi.not_root = true, "persistence-not-off"),
        (|s| s.smi.hang_on = Some(HangOn::Reset), "could-not-be-known"),
        (|s| s.smi.library_missing = true, "persistence-not-off"),
        (
            |s| {
                s.services.get_mut(SERVICES[1]).expect("a service").active = true;
                s.services.get_mut(SERVICES[1]).expect("a service").stuck = true;
            },
            "service-not-stopped",
        ),
        (
            |s| {
                let mig = s.gpus[0].mig.as_mut().expect("MIG");
                (mig.enabled, mig.pending) = (true, false);
                s.gpus[6].processes = vec![process(1, Context::Compute)];
            },
            "gpu-busy",
        ),
    ];
    for (change, code) in cases {
        let bench = Bench::changed(change);
        let mut before = bench.switches();
        let said = match bench.reset(&[0, 1]) {
            Err(error) => format!("{}: {}", error.code, error.message),
            Ok(outcomes) => {
                let not =
                    outcomes.iter().find(|outcome| !outcome.reset).unwrap_or_else(|| panic!("{code}: {outcomes:?}"));
                not.message.clone()
            }
        };
        assert!(said.starts_with(code), "{code}: {said}");
        if code == "gpu-is-lost" {
            // What is gone cannot be switched; it is tried again when a process begins, and before the next reset.
            before.0[1] = false;
        }
        assert_eq!(bench.switches(), before, "{code}: {said}");
        if code == "persistence-not-off" {
            // It can be switched neither off nor on, as far as anybody can tell: it is tried again before the next reset.
            continue;
        }
        assert_eq!(bench.has_leftovers(), code == "gpu-is-lost", "{code}: {said}");
    }
}

#[test]
fn promise_33_what_a_hang_kept_off_is_switched_on_by_the_next_process() {
    let mut bench = Bench::changed(|state| state.smi.hang_on = Some(HangOn::PersistenceOn));
    let before = bench.switches();
    let outcomes = bench.reset(&[0]).expect("the reset itself works");
    assert!(outcomes[0].reset && outcomes[0].message.contains("persistence mode of"), "{outcomes:?}");
    assert_eq!(
        (bench.switches().1, bench.has_leftovers()),
        (before.1.clone(), true),
        "the services are on all the same"
    );
    assert!(!bench.switches().0[0]);
    bench.node.update(|state| state.smi.hang_on = None).expect("a state");
    bench.restart();
    bench.gpus.put_back_leftovers();
    assert_eq!((bench.switches(), bench.has_leftovers()), (before, false));
}

/// The daemon was killed in the middle: what it wrote before it switched anything off is what the next one has.
#[test]
fn promise_33_a_reset_that_was_cut_off_is_put_back_before_the_next() {
    let bench = Bench::changed(|state| {
        state.gpus[3].persistence = false;
        state.services.get_mut(SERVICES[0]).expect("a service").active = false;
    });
    let kept = format!("{{\"persistence\":[\"{}\"],\"services\":[\"{}\"]}}", uuid(3), SERVICES[0]);
    fs::write(bench.path("gpu-restore.json"), kept).expect("a file");
    bench.reset(&[0]).expect("it works");
    assert_eq!(bench.switches(), (vec![true; 8], vec![true, false]));
    assert!(!bench.has_leftovers());
}

/// It plays a child in D state: the supervisor can neither kill it nor say a word.
#[test]
fn promise_35_a_tool_that_cannot_be_killed_is_not_waited_for() {
    let mut bench = Bench::changed(|_| ());
    let before = bench.switches();
    let pids = bench.path("stuck");
    bench.restart_with(&format!(
        "case \"$*\" in *--gpu-reset*) echo $PPID $$ > {}; kill -STOP $PPID; exec sleep 1000;; esac\nexec $REAL \"$@\"",
        pids.display()
    ));
    let began = Instant::now();
    let outcomes = bench.reset(&[0]).expect("nobody knows");
    let took = began.elapsed();
    let stuck = fs::read_to_string(&pids).expect("it began");
    for pid in stuck.split_whitespace() {
        let pid = Pid::from_raw(pid.parse().expect("an id")).expect("an id");
        kill_process(pid, Signal::KILL).expect("it is there");
    }
    assert!(outcomes[0].message.starts_with("could-not-be-known: the tool hangs in the kernel"), "{outcomes:?}");
    assert!(!outcomes[0].reset && took < Duration::from_secs(30), "{took:?}");
    assert_eq!((bench.switches(), bench.has_leftovers()), (before, false));
}

#[test]
fn promise_33_the_holders_are_named() {
    let own = std::process::id();
    let bench = Bench::changed(|state| state.gpus[0].processes = vec![process(std::process::id(), Context::Compute)]);
    let error = bench.reset(&[0]).expect_err("busy");
    let name = fs::read_to_string("/proc/self/comm").expect("a name");
    let said = format!("{} is used by process {own} ({}, compute)", uuid(0), name.trim());
    assert_eq!((error.code.as_str(), error.message), ("gpu-busy", said));
    assert_eq!(bench.changes(), [] as [&str; 0], "nothing was switched off");

    // A client that NVML does not list, such as a monitor: who has the device open is found by its file.
    let bench = Bench::changed(|_| ());
    let device = bench.path("dev/nvidia0");
    fs::write(&device, "").expect("a file");
    let _open = File::open(&device).expect("a file");
    let clients = File::create(bench.path("fake-nvml.json.clients")).expect("a file");
    clients.lock_shared().expect("held");
    let error = bench.reset(&[0]).expect_err("busy");
    assert_eq!(error.code, "gpu-busy");
    let holder = format!("In use by another client; it is open in {own} ({})", name.trim());
    assert!(error.message.contains(&holder), "{}", error.message);
}

#[test]
fn gpus_that_are_not_there_are_refused_before_anything_is_done() {
    let bench = Bench::changed(|state| state.gpus[4].lost = true);
    for (gpus, code, said) in [
        (vec![], "invalid-argument", "no GPU is named"),
        (vec![uuid(0), uuid(0)], "invalid-argument", "named twice"),
        (vec![uuid(0), "GPU-of-another-node".into()], "not-found", "GPU-of-another-node"),
        (vec![uuid(4)], "not-found", &uuid(4)),
    ] {
        let error = bench.gpus.reset(&gpus).expect_err(code);
        assert!(error.code == code && error.message.contains(said), "{error:?}");
    }
    assert_eq!(bench.changes(), [] as [&str; 0]);
}

fn spec(holds: &[(&str, Option<u32>)], pass_through: &[&str]) -> Held {
    let hold = |(gpu, slot): &(&str, Option<u32>)| Hold {
        allocation: AllocationId::from_uuid(Uuid::nil()),
        gpu: (*gpu).into(),
        slot: *slot,
    };
    let instance = Instance { id: "vm-1".into(), pass_through: pass_through.iter().map(ToString::to_string).collect() };
    Held::of(NodeSpec {
        generation: 1,
        holds: holds.iter().map(hold).collect(),
        instances: vec![instance],
        ..NodeSpec::default()
    })
}

#[test]
fn a_hold_of_a_mig_instance_or_a_slot_counts_for_its_gpu() {
    let instance = "MIG-51d00000-0000-5000-8000-000000000002";
    let older = format!("MIG-{}/7/0", uuid(5));
    let bench = Bench::changed(|state| state.gpus = Preset::MigSplit.state().gpus);
    bench.gpus.follow(spec(&[(instance, None), (&uuid(2), Some(3)), (&older, None)], &[&uuid(4)]));
    let holds: Vec<_> = bench.gpus.holds().expect("holds").into_iter().map(|hold| (hold.gpu, hold.held)).collect();
    let slot = format!("{}/slot-3", uuid(2));
    assert_eq!(holds, [(uuid(0), instance.into()), (uuid(2), slot), (uuid(5), older)]);
    let passed = bench.gpus.pass_throughs().expect("pass-throughs");
    assert_eq!((passed[0].gpu.as_str(), passed[0].instance.as_str()), (uuid(4).as_str(), "vm-1"));
    for (index, said) in [
        (0, "has a live assignment"),
        (2, "has a live assignment"),
        (4, "is passed through to vm-1"),
        (5, "has a live assignment"),
    ] {
        let error = bench.reset(&[1, index]).expect_err("in use");
        assert_eq!((error.code.as_str(), error.message), ("gpu-busy", format!("{} {said}", uuid(index))));
    }
    assert_eq!(bench.changes(), [] as [&str; 0]);
    bench.reset(&[1]).expect("nothing uses this one");
}

#[test]
fn promise_32_an_instance_of_which_nobody_knows_the_gpu_could_be_of_any() {
    let bench = Bench::changed(|_| ());
    bench.gpus.follow(spec(&[("MIG-of-nobody", None)], &[]));
    for error in [bench.gpus.holds().expect_err("unknown"), bench.reset(&[0]).expect_err("unknown")] {
        assert_eq!(error.code, "hold-not-resolved", "{}", error.message);
    }
    assert_eq!(bench.changes(), [] as [&str; 0]);
}

#[test]
fn errors_of_before_a_reset_that_cured_a_gpu_do_not_count_any_more() {
    let mut bench = Bench::changed(|state| state.gpus[2].reset = ResetAnswer::KeepsRows);
    bench
        .node
        .update(|state| state.gpus[2].remapped_rows = Some(RemappedRows { pending: true, ..RemappedRows::default() }))
        .expect("a state");
    let log = |second, line: &str| bench.node.log(Duration::from_secs(second), line).expect("logged");
    log(100, "NVRM: Xid (PCI:0000:1b:00): 119, Timeout after 6s of waiting for RPC response from GPU0 GSP!");
    log(101, "NVRM: Xid (PCI:0000:43:00): 95, Uncontained: SM (0x1)");
    log(102, "NVRM: Xid (PCI:0000:52:00): 95, Uncontained: SM (0x1)");
    let all = |bench: &Bench| [0, 1, 2].map(|index| bench.xids(index));
    assert_eq!(all(&bench), [vec![119], vec![95], vec![95]]);
    bench.reset(&[0, 2]).expect("both are reset");
    assert_eq!(all(&bench), [vec![], vec![95], vec![95]], "one was not reset, one is not healthy");
    bench.restart();
    assert_eq!(all(&bench), [vec![], vec![95], vec![95]], "after a restart too");
    bench
        .node
        .log(Duration::from_secs(200), "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.")
        .expect("logged");
    assert_eq!(bench.xids(0), [79], "what comes later counts");
    fs::write(bench.path("boot-id"), "boot-2\n").expect("a file");
    bench.restart();
    assert_eq!(bench.xids(0), [79, 119], "times in the log begin anew with each boot");
}
