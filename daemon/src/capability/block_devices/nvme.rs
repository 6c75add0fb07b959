//! NVMe drives, through `nvme` of nvme-cli (1.9 and later, whose JSON differs between versions).
//!
//! **Invariant:** a format always names a secure erase (`--ses`): without one it is no erase.

use std::time::Duration;

use bc_runtime::capability::{Answer, Error};
use serde_json::{Value, json};

use super::erase::{Erased, Erasing};
use super::list::Disk;
use super::tools::{QUESTION, run};
use crate::capability::process::Programs;

const NVME: &str = "nvme";

/// How long a format may take. Ours: drives say minutes.
const FORMAT: Duration = Duration::from_hours(4);

/// How often in a row the log may be unreadable while a sanitize runs: a drive that resets does not answer for a while.
const UNREADABLE: u32 = 30;

/// What the controller says of itself (NVMe base specification, Identify Controller).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Features {
    /// Sanitize capabilities.
    sanicap: u64,
    /// Format NVM attributes.
    fna: u64,
    /// Optional admin commands.
    oacs: u64,
}

impl Features {
    pub(super) fn to_json(self) -> Value {
        json!({ "sanicap": self.sanicap, "fna": self.fna, "oacs": self.oacs })
    }

    /// Whether it carries out a method, or why not. `siblings`: other namespaces of the controller.
    pub(super) fn supports(self, method: Method, siblings: &[String]) -> Result<(), String> {
        let bit = |field: u64, bit: u32| field >> bit & 1 == 1;
        let (has, whole) = match method {
            Method::SanitizeCrypto => (bit(self.sanicap, 0), true),
            Method::SanitizeBlock => (bit(self.sanicap, 1), true),
            Method::FormatUser => (bit(self.oacs, 1), bit(self.fna, 0) || bit(self.fna, 1)),
            Method::FormatCrypto => (bit(self.oacs, 1) && bit(self.fna, 2), bit(self.fna, 0) || bit(self.fna, 1)),
        };
        if !has {
            return Err(format!(
                "the controller does not offer it (SANICAP {:#x}, FNA {:#x}, OACS {:#x})",
                self.sanicap, self.fna, self.oacs
            ));
        }
        if whole && !siblings.is_empty() {
            return Err(format!("it would also erase {}, of the same controller", siblings.join(", ")));
        }
        Ok(())
    }
}

/// What can be done to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    SanitizeBlock,
    SanitizeCrypto,
    FormatUser,
    FormatCrypto,
}

/// Asks the controller.
pub(super) fn features(programs: &Programs, disk: &Disk) -> Answer<Features> {
    let path = disk.node.to_string_lossy();
    let said = run(programs, NVME, &["id-ctrl", &path, "-o", "json"], QUESTION)?;
    if said.code != 0 {
        return Err(Error::native("tool-failed", said.code, format!("`nvme id-ctrl {}`: {}", disk.path, said.words())));
    }
    parse_features(&said.out).ok_or_else(|| {
        Error::new("tool-failed", format!("`nvme id-ctrl {}` gave no JSON with sanicap, fna and oacs", disk.path))
    })
}

fn parse_features(text: &str) -> Option<Features> {
    let json: Value = serde_json::from_str(text).ok()?;
    let field = |name: &str| json.get(name).and_then(Value::as_u64);
    Some(Features { sanicap: field("sanicap")?, fna: field("fna")?, oacs: field("oacs")? })
}

/// Erases one.
pub(super) fn erase(erasing: &Erasing<'_>, method: Method) -> Answer<Erased> {
    match method {
        Method::FormatUser => format(erasing, "--ses=1"),
        Method::FormatCrypto => format(erasing, "--ses=2"),
        Method::SanitizeBlock => sanitize(erasing, "2"),
        Method::SanitizeCrypto => sanitize(erasing, "4"),
    }
}

fn format(erasing: &Erasing<'_>, ses: &str) -> Answer<Erased> {
    let disk = erasing.disk;
    let path = disk.node.to_string_lossy();
    let timeout = format!("--timeout={}", FORMAT.as_millis());
    erasing.progress(0, None, "", "is formatted with a secure erase");
    let said = run(erasing.programs, NVME, &["format", &path, ses, "--force", &timeout], FORMAT + QUESTION)?;
    if said.code == 0 {
        return Ok(Erased { level: "purge", log: None });
    }
    Err(refused(erasing, "format", &said))
}

fn refused(erasing: &Erasing<'_>, command: &str, said: &super::tools::Said) -> Error {
    let refusals = ["Invalid Command Opcode", "Invalid Field in Command", "INVALID_OPCODE", "INVALID_FIELD"];
    let is_refused = refusals.iter().any(|words| said.says(words));
    let code = match () {
        () if is_refused => "not-supported",
        () if !erasing.disk.node.exists() => "gone",
        () => "erase-failed",
    };
    Error::native(code, said.code, format!("`nvme {command} {}`: {}", erasing.disk.path, said.words()))
}

fn sanitize(erasing: &Erasing<'_>, action: &str) -> Answer<Erased> {
    let disk = erasing.disk;
    let path = disk.node.to_string_lossy();
    if let Ok((log, _)) = read_log(erasing)
        && log.state == 2
    {
        let message = format!("{} is being sanitized already: wait until it has ended", disk.path);
        return Err(Error::new("in-use", message));
    }
    let said = run(erasing.programs, NVME, &["sanitize", &path, "-a", action], QUESTION)?;
    if said.code != 0 {
        return Err(refused(erasing, "sanitize", &said));
    }
    let mut unreadable = 0;
    loop {
        match read_log(erasing) {
            // 4: as 1, and blocks were not deallocated.
            Ok((SanitizeLog { state: 1 | 4, .. }, log)) => return Ok(Erased { level: "purge", log: Some(log) }),
            Ok((SanitizeLog { state: 3, .. }, log)) => {
                let message = format!(
                    "the sanitize of {} failed, says the drive: {log}. It takes no reads or writes until another succeeds",
                    disk.path
                );
                return Err(Error::native("erase-failed", 3, message));
            }
            Ok((SanitizeLog { state: 2, done }, _)) => {
                unreadable = 0;
                erasing.progress(done, Some(65_536), "parts", "is sanitized");
            }
            // Not begun, or a word that this version does not know.
            Ok((SanitizeLog { state, .. }, log)) if unreadable >= UNREADABLE => {
                let message = format!("the drive {} does not say what became of its sanitize: {log}", disk.path);
                return Err(Error::native("unknown-state", state, message));
            }
            Err(error) if unreadable >= UNREADABLE || error.code == "cancelled" => {
                let message =
                    format!("the drive {} does not say what became of its sanitize: {}", disk.path, error.message);
                let code = if disk.node.exists() { "unknown-state" } else { "gone" };
                return Err(Error::new(code, message));
            }
            Ok(_) | Err(_) => unreadable += 1,
        }
        erasing.wait_a_turn()?;
    }
}

#[derive(Debug, PartialEq, Eq)]
struct SanitizeLog {
    /// SSTAT's low three bits: 0 never, 1 done, 2 running, 3 failed, 4 done without deallocating.
    state: i32,
    /// SPROG: of 65,536.
    done: u64,
}

/// The log, read and as its text.
fn read_log(erasing: &Erasing<'_>) -> Answer<(SanitizeLog, String)> {
    let path = erasing.disk.node.to_string_lossy();
    let said = run(erasing.programs, NVME, &["sanitize-log", &path, "-o", "json"], QUESTION)?;
    let log = (said.code == 0).then(|| parse_log(&said.out)).flatten();
    log.ok_or_else(|| Error::native("tool-failed", said.code, format!("`nvme sanitize-log`: {}", said.words())))
}

/// Either the log itself or one field, named like the device, that holds it; SSTAT is a number, or an object in which some field says
/// `(1) Most Recent Sanitize Command Completed Successfully.`
fn parse_log(text: &str) -> Option<(SanitizeLog, String)> {
    let json: Value = serde_json::from_str(text).ok()?;
    let is_log = |value: &&Value| value.get("sprog").is_some() && value.get("sstat").is_some();
    let log = Some(&json).filter(is_log).or_else(|| json.as_object()?.values().find(is_log))?;
    let state = match &log["sstat"] {
        Value::Number(number) => i32::try_from(number.as_u64()? & 7).ok()?,
        Value::Object(fields) => fields.values().find_map(|value| {
            let (number, _) = value.as_str()?.strip_prefix('(')?.split_once(')')?;
            number.parse().ok()
        })?,
        _ => return None,
    };
    Some((SanitizeLog { state, done: log["sprog"].as_u64()? }, log.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn logs_of_several_versions_are_read() {
        let said = r#"{"nvme0n1":{"sprog":32768,"sstat":{"global_erased":0,"no_cmplted_passes":0,"status":"(2) Sanitize in Progress."},"cdw10_info":2}}"#;
        assert_eq!(parse_log(said).map(|(log, _)| log), Some(SanitizeLog { state: 2, done: 32768 }));
        let keyed = r#"{"nvme0":{"sprog":65535,"sstat":{"global_erased":1,"Most Recent Sanitize Command Completed Successfully.":"(1) Most Recent Sanitize Command Completed Successfully."}}}"#;
        assert_eq!(parse_log(keyed).map(|(log, _)| log), Some(SanitizeLog { state: 1, done: 65535 }));
        let number = r#"{"sprog":65535,"sstat":257}"#;
        assert_eq!(parse_log(number).map(|(log, _)| log), Some(SanitizeLog { state: 1, done: 65535 }));
        for wrong in ["", "{}", r#"{"sprog":1}"#, r#"{"sprog":1,"sstat":{"status":"fine"}}"#, "[]"] {
            assert_eq!(parse_log(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_controller_s_bits_say_what_it_can() {
        let all = Features { sanicap: 0b11, fna: 0b100, oacs: 0b10 };
        let none = Features { sanicap: 0, fna: 0, oacs: 0 };
        let whole = Features { fna: 0b110, ..all };
        let siblings = ["/dev/nvme0n2".to_owned()];
        for method in [Method::SanitizeBlock, Method::SanitizeCrypto, Method::FormatUser, Method::FormatCrypto] {
            assert_eq!(all.supports(method, &[]), Ok(()));
            assert!(none.supports(method, &[]).is_err());
            assert!(whole.supports(method, &siblings).expect_err("it reaches further").contains("/dev/nvme0n2"));
        }
        assert_eq!(all.supports(Method::FormatUser, &siblings), Ok(()));
        assert!(all.supports(Method::SanitizeBlock, &siblings).is_err(), "a sanitize is one of the whole subsystem");
        assert!(Features { fna: 0, ..all }.supports(Method::FormatCrypto, &[]).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,120}") {
            let _ = (parse_log(&text), parse_features(&text));
        }
    }
}
