//! SATA drives, through `hdparm`.
//!
//! **Invariant:** whatever way a secure erase ends, its password is taken off the drive again, or the error says that it is on it and
//! which it is.

use std::time::Duration;

use bc_runtime::capability::{Answer, Error};
use serde_json::{Value, json};

use super::erase::{Erased, Erasing};
use super::list::Disk;
use super::tools::{QUESTION, Said, run};
use crate::capability::process::Programs;

const HDPARM: &str = "hdparm";

/// No secret: it only has to be known to whoever unlocks a drive that a power failure left locked.
pub(super) const PASSWORD: &str = "better-compute";

/// How long a secure erase may take: drives that hang were seen to do so for 18 hours.
const SECURE_ERASE: Duration = Duration::from_hours(20);

/// How often in a row the status may be unreadable while a sanitize runs.
const UNREADABLE: u32 = 30;

/// What `hdparm -I` says of erasing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are the drive's own bits")]
pub(super) struct Features {
    block_erase: bool,
    crypto_scramble: bool,
    security: bool,
    enhanced: bool,
    enabled: bool,
    locked: bool,
    frozen: bool,
}

impl Features {
    pub(super) fn to_json(self) -> Value {
        json!({
            "blockErase": self.block_erase, "cryptoScramble": self.crypto_scramble, "security": self.security,
            "enhanced": self.enhanced, "enabled": self.enabled, "locked": self.locked, "frozen": self.frozen,
        })
    }

    pub(super) fn sanitizes(self) -> Result<(), String> {
        if self.block_erase || self.crypto_scramble {
            Ok(())
        } else {
            Err("the drive has neither BLOCK_ERASE_EXT nor CRYPTO_SCRAMBLE_EXT".into())
        }
    }

    /// The level that its secure erase reaches, or why it has none.
    pub(super) fn secure_erases(self) -> Result<&'static str, String> {
        if !self.security {
            return Err("the drive has no security feature set".into());
        }
        if self.locked || self.enabled {
            return Err("the drive has a password already: disable it with `hdparm --security-disable`".into());
        }
        if self.frozen {
            return Err(
                "the drive's security is frozen, by the firmware at boot: suspend and resume the machine, or plug the \
                        drive in again, and repeat"
                    .into(),
            );
        }
        Ok(if self.enhanced { "purge" } else { "clear" })
    }
}

/// Asks the drive.
pub(super) fn features(programs: &Programs, disk: &Disk) -> Answer<Features> {
    let path = disk.node.to_string_lossy();
    let said = run(programs, HDPARM, &["-I", &path], QUESTION)?;
    if said.code != 0 {
        return Err(Error::native("tool-failed", said.code, format!("`hdparm -I {}`: {}", disk.path, said.words())));
    }
    Ok(parse_features(&said.out))
}

/// A feature that is on has a star before it; a line of the security section that is not so begins with `not`.
fn parse_features(text: &str) -> Features {
    let mut features = Features::default();
    let mut in_security = false;
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match &words[..] {
            ["Security:", ..] => in_security = true,
            ["*", "BLOCK_ERASE_EXT", ..] => features.block_erase = true,
            ["*", "CRYPTO_SCRAMBLE_EXT", ..] => features.crypto_scramble = true,
            ["supported"] if in_security => features.security = true,
            ["supported:", "enhanced", "erase"] if in_security => features.enhanced = true,
            ["enabled"] if in_security => features.enabled = true,
            ["locked"] if in_security => features.locked = true,
            ["frozen"] if in_security => features.frozen = true,
            _ => {}
        }
    }
    features
}

pub(super) fn sanitize(erasing: &Erasing<'_>, features: Features) -> Answer<Erased> {
    let disk = erasing.disk;
    let path = disk.node.to_string_lossy();
    // Of the two, the one whose outcome a look at the drive can confirm.
    let (flag, action) = if features.block_erase {
        ("--sanitize-block-erase", "block-erase")
    } else {
        ("--sanitize-crypto-scramble", "crypto-scramble")
    };
    let said = run(erasing.programs, HDPARM, &["--yes-i-know-what-i-am-doing", flag, &path], QUESTION)?;
    if said.code != 0 || said.says("sense data") {
        return Err(refused(erasing, flag, &said));
    }
    let mut unreadable = 0;
    loop {
        let said = run(erasing.programs, HDPARM, &["--sanitize-status", &path], QUESTION);
        match said.map(|said| (sanitize_state(&said), said)) {
            Ok((Some(State::Done), said)) => {
                let log = json!({ "action": action, "status": words(&said.out) });
                return Ok(Erased { level: "purge", log: Some(log.to_string()) });
            }
            Ok((Some(State::Failed), said)) => {
                let message = format!("the sanitize of {} failed, says the drive: {}", disk.path, words(&said.out));
                return Err(Error::new("erase-failed", message));
            }
            Ok((Some(State::Running(percent)), _)) => {
                unreadable = 0;
                erasing.progress(percent, Some(100), "percent", "is sanitized");
            }
            Ok((None, said)) if unreadable >= UNREADABLE => {
                let code = if disk.node.exists() { "unknown-state" } else { "gone" };
                let message =
                    format!("the drive {} does not say what became of its sanitize: {}", disk.path, said.words());
                return Err(Error::new(code, message));
            }
            Err(error) if unreadable >= UNREADABLE => return Err(error),
            Ok((None, _)) | Err(_) => unreadable += 1,
        }
        erasing.wait_a_turn()?;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Running(u64),
    Done,
    Failed,
}

fn sanitize_state(said: &Said) -> Option<State> {
    if said.says("SD2 Sanitize operation In Process") {
        let percent = said.out.split_once("Progress:").and_then(|(_, rest)| rest.split_once('('));
        let percent =
            percent.and_then(|(_, rest)| rest.split_once('%')).and_then(|(number, _)| number.trim().parse().ok());
        return Some(State::Running(percent.unwrap_or(0)));
    }
    if said.says("Completed Without Error") {
        return Some(State::Done);
    }
    let is_failed = ["Completed With Error", "Sanitize Operation Failed", "SD3", "SD1 Sanitize Frozen"];
    is_failed.iter().any(|words| said.says(words)).then_some(State::Failed)
}

pub(super) fn secure_erase(erasing: &Erasing<'_>, features: Features, level: &'static str) -> Answer<Erased> {
    let disk = erasing.disk;
    let path = disk.node.to_string_lossy();
    let set = ["--user-master", "u", "--security-set-pass", PASSWORD, &path];
    let said = run(erasing.programs, HDPARM, &set, QUESTION);
    let erased = match said {
        Ok(said) if said.code != 0 => Err(refused(erasing, "--security-set-pass", &said)),
        Err(error) => Err(error),
        Ok(_) => {
            let flag = if features.enhanced { "--security-erase-enhanced" } else { "--security-erase" };
            erasing.progress(0, None, "", "erases itself");
            let argv = ["--user-master", "u", flag, PASSWORD, &path];
            run(erasing.programs, HDPARM, &argv, SECURE_ERASE).and_then(|said| {
                if said.code == 0 && !said.says("sense data") { Ok(flag) } else { Err(refused(erasing, flag, &said)) }
            })
        }
    };
    let unlocked = unlock(erasing);
    match (erased, unlocked) {
        (Ok(flag), Ok(())) => {
            Ok(Erased { level, log: Some(json!({ "action": flag.trim_start_matches("--") }).to_string()) })
        }
        (Ok(_), Err(locked)) => Err(Error::new("drive-locked", locked)),
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(locked)) => Err(Error { message: format!("{}; and {locked}", error.message), ..error }),
    }
}

/// Takes the password off, if it is on; a successful erase has done so by itself. With programs of its own, since the run's may have
/// been ended.
fn unlock(erasing: &Erasing<'_>) -> Result<(), String> {
    let programs = erasing.new_programs();
    let path = erasing.disk.node.to_string_lossy();
    let still = |error: &str| {
        format!(
            "{} may still have the password `{PASSWORD}` ({error}): take it off with `hdparm --security-disable`",
            erasing.disk.path
        )
    };
    let features = features(&programs, erasing.disk).map_err(|error| still(&error.message))?;
    if !features.enabled {
        return Ok(());
    }
    let argv = ["--user-master", "u", "--security-disable", PASSWORD, &path];
    let said = run(&programs, HDPARM, &argv, QUESTION).map_err(|error| still(&error.message))?;
    if said.code == 0 { Ok(()) } else { Err(still(&said.words())) }
}

fn refused(erasing: &Erasing<'_>, flag: &str, said: &Said) -> Error {
    let code = match () {
        () if !erasing.disk.node.exists() => "gone",
        () if said.says("not support") => "not-supported",
        () => "erase-failed",
    };
    Error::native(code, said.code, format!("`hdparm {flag} {}`: {}", erasing.disk.path, said.words()))
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DRIVE: &str = "\nATA device, with non-removable media\nCommands/features:\n\tEnabled\tSupported:\n\t   *\tSMART feature set\n\
        \t   *\tSANITIZE feature set\n\t    \tCRYPTO_SCRAMBLE_EXT command\n\t   *\tBLOCK_ERASE_EXT command\n\
        Security: \n\tMaster password revision code = 65534\n\t\tsupported\n\tnot\tenabled\n\tnot\tlocked\n\t\tfrozen\n\
        \tnot\texpired: security count\n\t\tsupported: enhanced erase\n\t2min for SECURITY ERASE UNIT. 2min for ENHANCED SECURITY ERASE UNIT.\n";

    #[test]
    fn a_drive_s_features_are_read() {
        let features = parse_features(DRIVE);
        let expected =
            Features { block_erase: true, security: true, enhanced: true, frozen: true, ..Features::default() };
        assert_eq!(features, expected);
        assert!(features.secure_erases().expect_err("frozen").contains("frozen"));
        let thawed = parse_features(&DRIVE.replace("\t\tfrozen", "\tnot\tfrozen"));
        assert_eq!((thawed.sanitizes(), thawed.secure_erases()), (Ok(()), Ok("purge")));
        let plain = Features { enhanced: false, ..thawed };
        assert_eq!(plain.secure_erases(), Ok("clear"), "a plain secure erase may leave what was remapped");
        let locked = Features { locked: true, ..thawed };
        assert!(locked.secure_erases().is_err());
        assert!(Features::default().sanitizes().is_err());
    }

    #[test]
    fn a_sanitize_s_states_are_told_apart() {
        let state = |out: &str| sanitize_state(&Said { code: 0, out: out.into(), err: String::new() });
        let running = "/dev/sda:\nIssuing SANITIZE_STATUS command\nSanitize status:\n    State:    SD2 Sanitize operation In Process\n    Progress: 0x41c2 (25%)\n";
        assert_eq!(state(running), Some(State::Running(25)));
        let done =
            "Sanitize status:\n    State:    SD0 Sanitize Idle\n    Last Sanitize Operation Completed Without Error\n";
        assert_eq!(state(done), Some(State::Done));
        assert_eq!(state("    State:    SD3 Sanitize Operation Failed\n"), Some(State::Failed));
        assert_eq!(state("    State:    SD0 Sanitize Idle\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            let _ = (parse_features(&text), sanitize_state(&Said { code: 0, out: text, err: String::new() }));
        }
    }
}
