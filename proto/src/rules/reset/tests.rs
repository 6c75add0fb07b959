//! **Invariant:** every text and exit code that is known of the tool is a case here.

use proptest::prelude::*;

use super::*;

fn targets() -> [Target; 2] {
    [("GPU-a", "0000:1a:00.0"), ("GPU-b", "0000:3b:00.0")]
        .map(|(uuid, pci)| Target { uuid: uuid.into(), pci: pci.into() })
}

/// The code of each GPU; `reset`, or `?` where it is not known.
fn codes(exit: Exit, text: &str) -> [String; 2] {
    let verdicts = read(&targets(), exit, text);
    let told = |verdict: &Verdict| match verdict {
        Verdict::Reset(_) => "reset".to_owned(),
        Verdict::NotReset(code, _) => code.to_string(),
        Verdict::Unknown(_) => "?".to_owned(),
    };
    [told(&verdicts[0]), told(&verdicts[1])]
}

const OK_A: &str = "GPU 00000000:1A:00.0 was successfully reset.\n";
const OK_B: &str = "GPU 00000000:3B:00.0 was successfully reset.\n";

#[test]
fn every_text_of_the_tool_has_its_code() {
    let paragraph = "2 devices are currently being used by one or more other processes (e.g., Fabric Manager, CUDA \
                     application, graphics application such as an X server). Please first kill all processes.";
    let cases: Vec<(i32, String, &str, &str)> = vec![
        (0, format!("{OK_A}{OK_B}All done.\n"), "reset", "reset"),
        (0, format!("{OK_A}All done.\n"), "reset", "?"),
        (
            255,
            format!("GPU 00000000:1A:00.0 is currently in use by another process.\n\n{}", paragraph.replace('2', "1")),
            "gpu-busy",
            "gpu-busy",
        ),
        (255, paragraph.into(), "gpu-busy", "gpu-busy"),
        (
            255,
            "The following GPUs could not be reset:\n  GPU 00000000:1A:00.0: In use by another client\n\n".into(),
            "gpu-busy",
            "refused-together",
        ),
        (
            255,
            format!("{OK_B}The following GPUs could not be reset:\n  GPU 00000000:1A:00.0: In use by another client\n"),
            "gpu-busy",
            "reset",
        ),
        (3, "Resetting GPU 00000000:1A:00.0 is not supported.\n".into(), "reset-not-supported", "refused-together"),
        (
            3,
            "GPU 00000000:1A:00.0 is the primary GPU and cannot be reset.\n".into(),
            "primary-gpu",
            "refused-together",
        ),
        (
            3,
            "GPU Reset couldn't run because GPU 00000000:3B:00.0 is in vGPU mode.\n".into(),
            "refused-together",
            "vgpu-mode",
        ),
        (
            255,
            "GPU Reset couldn't progress because not all GPUs were named (e.g. NVLink connected GPUs must be reset \
             together). Please append the following device indexes: 2,3\n"
                .into(),
            "peers-needed",
            "peers-needed",
        ),
        (
            255,
            "GPU Reset couldn't run because fabric state could not be determined: Timeout\n".into(),
            "fabric-unknown",
            "fabric-unknown",
        ),
        (
            255,
            format!("{OK_A}1 device did not complete reset successfully, and may be in an unstable state. Please reboot your system.\n"),
            "reset",
            "reset-incomplete",
        ),
        (
            255,
            "Warning: MIG mode is in pending disable state for GPU 00000000:1A:00.0:In use by another client\n".into(),
            "mig-pending",
            "refused-together",
        ),
        (
            255,
            "Warning: MIG mode is in pending disable state for GPU 00000000:1A:00.0:In use by another client\nThe following \
             GPUs could not be reset:\n  GPU 00000000:1A:00.0: In use by another client\n"
                .into(),
            "gpu-busy",
            "refused-together",
        ),
        (
            15,
            "Unable to determine the device handle for GPU 00000000:1A:00.0: GPU is lost.  Reboot the system to recover this \
             GPU\n"
                .into(),
            "gpu-is-lost",
            "refused-together",
        ),
        (4, "GPU Reset couldn't run because of insufficient permissions.\n".into(), "no-permission", "no-permission"),
        (6, "No devices were found\n".into(), "not-found", "not-found"),
        (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n".into(), "driver-not-loaded", "driver-not-loaded"),
        (12, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n".into(), "library-not-found", "library-not-found"),
    ];
    for (exit, text, first, second) in cases {
        assert_eq!(codes(Exit::Code(exit), &text), [first, second], "{exit}: {text}");
    }
}

#[test]
fn a_code_counts_where_the_text_says_nothing() {
    for (exit, code) in [
        (2, "invalid-argument"),
        (3, "reset-not-supported"),
        (4, "no-permission"),
        (6, "not-found"),
        (8, "insufficient-power"),
        (9, "driver-not-loaded"),
        (10, "irq-issue"),
        (12, "library-not-found"),
        (13, "function-not-found"),
        (14, "corrupted-inforom"),
        (15, "gpu-is-lost"),
        (255, "reset-failed"),
        (77, "reset-failed"),
    ] {
        for text in ["", "words of a release to come"] {
            assert_eq!(codes(Exit::Code(exit), text), [code, code], "{exit}");
        }
    }
    let verdict = read(&targets(), Exit::Code(8), "").remove(0).to_string();
    assert_eq!(verdict, "insufficient-power: it said nothing and ended with 8");
}

#[test]
fn promise_32_a_tool_that_was_cut_off_is_known_only_where_it_spoke() {
    for exit in [Exit::TimedOut, Exit::Stuck, Exit::Signal(9)] {
        assert_eq!(codes(exit, OK_A), ["reset", "?"], "{exit:?}");
        assert_eq!(codes(exit, ""), ["?", "?"], "{exit:?}");
    }
    let told = read(&targets(), Exit::TimedOut, OK_A).remove(1).to_string();
    assert!(told.starts_with("could-not-be-known: the tool did not end in its time"), "{told}");
    assert_eq!(codes(Exit::Code(0), "All done."), ["?", "?"], "it does not say of which");
}

fn no<T>() -> Result<T, String> {
    Err("no answer".into())
}

#[test]
fn promise_32_health_is_known_only_where_everything_could_be_asked() {
    let well = Readings { is_listed: Ok(true), rows: Ok(Some((false, false))), recovery_action: Ok(Some(0)) };
    let told = |readings: Readings| match health(&readings) {
        Health::Healthy => "healthy".to_owned(),
        Health::Sick(why) => format!("sick: {why}"),
        Health::Unknown(why) => format!("unknown: {why}"),
    };
    for (readings, expected) in [
        (well.clone(), "healthy"),
        (Readings { rows: Ok(None), recovery_action: Ok(None), ..well.clone() }, "healthy"),
        (Readings { is_listed: Ok(false), ..well.clone() }, "sick: the driver does not list it"),
        (Readings { is_listed: no(), ..well.clone() }, "unknown: no answer"),
        (
            Readings { rows: Ok(Some((true, false))), recovery_action: no(), ..well.clone() },
            "sick: rows of its memory still wait for a reset",
        ),
        (Readings { rows: Ok(Some((false, true))), ..well.clone() }, "sick: a remap of its rows failed"),
        (
            Readings { rows: no(), recovery_action: Ok(Some(2)), ..well.clone() },
            "sick: the driver advises recovery action 2",
        ),
        (Readings { rows: no(), ..well.clone() }, "unknown: no answer"),
        (Readings { recovery_action: no(), ..well }, "unknown: no answer"),
    ] {
        assert_eq!(told(readings.clone()), expected, "{readings:?}");
    }
}

proptest! {
    /// Whatever the tool prints: no panic, one verdict for each, and no reset that it did not name.
    #[test]
    fn no_text_makes_a_reset_of_what_was_not_named(text in ".{0,300}", code in -300_i32..300) {
        let verdicts = read(&targets(), Exit::Code(code), &text);
        prop_assert_eq!(verdicts.len(), 2);
        if !text.contains("was successfully reset") {
            prop_assert!(verdicts.iter().all(|verdict| !matches!(verdict, Verdict::Reset(_))));
        }
        prop_assert!(verdicts.iter().all(|verdict| verdict.to_string().len() < 900));
    }
}
