//! What the kernel's log of this boot says about each GPU: which XIDs fail it.
//!
//! The host reads and folds the log and knows each code's action; this module decides what an action means for a GPU's
//! health. An application's own error (`restart-app`: 13, 31, 94 …) and a notice (`ignore`: 63, 92 …) never fail a GPU,
//! however often they are logged.
//!
//! **Invariant:** silence passes only when the whole log of this boot was read.

use sdk::Error;
use serde::Deserialize;

use crate::report::Verdict;

/// What `nvml.xids` answers; fields that this kind does not use are left out.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KernelLog {
    /// Whether the start of this boot is still there.
    complete: bool,
    #[serde(default)]
    problems: Vec<String>,
    pub(crate) events: Vec<Event>,
}

/// Log lines about the same thing, folded.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    /// None for a GPU that fell off the bus without an XID.
    code: Option<u32>,
    pub(crate) pci: String,
    pub(crate) gpu: Option<String>,
    gi: Option<u32>,
    ci: Option<u32>,
    count: u64,
    action: String,
    #[serde(default)]
    last_message: String,
}

/// What an event means for its GPU, the gravest last.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Weight {
    Benign,
    Undecided,
    Failing,
}

/// How many events one reason tells; the rest are counted.
const TOLD: usize = 4;
/// How many characters of a log line a reason quotes.
const QUOTED: usize = 160;

impl KernelLog {
    /// Reads the host's answer; the reason says why there is none.
    pub(crate) fn parse(answer: &Result<String, Error>) -> Result<Self, String> {
        let text = answer.as_ref().map_err(|e| format!("the kernel's log could not be read: {}", sdk::describe(e)))?;
        serde_json::from_str(text).map_err(|e| format!("the kernel's log was not understood: {e}"))
    }

    /// What some of the log's events say together. `told` writes one event for people.
    pub(crate) fn verdict(&self, events: &[&Event], told: impl Fn(&Event) -> String) -> Verdict {
        let weigh = |weight| {
            let those: Vec<_> = events.iter().filter(|event| event.weight() == weight).collect();
            let mut texts: Vec<_> = those.iter().take(TOLD).map(|event| told(event)).collect();
            if those.len() > TOLD {
                texts.push(format!("and {} more", those.len() - TOLD));
            }
            (!texts.is_empty()).then(|| texts.join("; "))
        };
        if let Some(reason) = weigh(Weight::Failing) {
            Verdict::fail(reason)
        } else if let Some(reason) = weigh(Weight::Undecided) {
            Verdict::unknown(reason)
        } else if self.complete {
            Verdict::pass()
        } else {
            let mut reason = "nothing found, but the kernel's log of this boot is not complete".to_owned();
            if !self.problems.is_empty() {
                reason.push_str(": ");
                reason.push_str(&self.problems.join("; "));
            }
            Verdict::unknown(reason)
        }
    }
}

impl Event {
    /// Whether it is about this GPU: named by the host, or else at its PCI address (`dddd:bb:dd.f`).
    pub(crate) fn is_about(&self, uuid: &str, pci_address: &str) -> bool {
        match &self.gpu {
            Some(gpu) => gpu == uuid,
            None => pci_address.split('.').next() == self.pci.split('.').next(),
        }
    }

    fn weight(&self) -> Weight {
        match (self.code, self.action.as_str()) {
            // It fell off the bus: there is no code to look up.
            (None, _) | (_, "reset-gpu" | "restart-bm" | "restart-vm" | "contact-support" | "mechanical") => {
                Weight::Failing
            }
            // 45 is the echo of another error or of a killed program; nodes log thousands.
            (Some(45), "workflow") | (_, "restart-app" | "ignore") => Weight::Benign,
            (_, "workflow") => Weight::Failing,
            // A code or an action of a newer driver: whether it matters cannot be told.
            _ => Weight::Undecided,
        }
    }

    /// The event for people, for example `XID 79 (restart-bm), 2 times: GPU has fallen off the bus.`
    pub(crate) fn told(&self) -> String {
        let what = match (self.code, self.action.as_str()) {
            (None, _) => "fell off the bus without an XID".to_owned(),
            (Some(code), "workflow") => format!("XID {code}, see workflow"),
            (Some(code), action) => format!("XID {code} ({action})"),
        };
        let place = match (self.gi, self.ci) {
            (Some(gi), Some(ci)) => format!(" on MIG GI {gi} CI {ci}"),
            (Some(gi), None) => format!(" on MIG GI {gi}"),
            (None, _) => String::new(),
        };
        let times = if self.count > 1 { format!(", {} times", self.count) } else { String::new() };
        let message: String = self.last_message.trim().chars().take(QUOTED).collect();
        let separator = if message.is_empty() { "" } else { ": " };
        format!("{what}{place}{times}{separator}{message}")
    }

    /// The same with its PCI address, for a GPU that has no name.
    pub(crate) fn told_with_address(&self) -> String {
        format!("{}: {}", self.pci, self.told())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::Status;

    pub(crate) const UUID: &str = "GPU-11111111-2222-3333-4444-555555555555";

    fn verdict(complete: bool, events: &str) -> Verdict {
        let log = format!(r#"{{"complete":{complete},"source":"test","problems":["rotated"],"events":[{events}]}}"#);
        let log = KernelLog::parse(&Ok(log)).expect("understood");
        log.verdict(&log.events.iter().collect::<Vec<_>>(), Event::told)
    }

    fn event(code: &str, action: &str, count: u32, message: &str) -> String {
        format!(
            r#"{{"code":{code},"pci":"0000:3b:00","gpu":"{UUID}","gi":null,"ci":null,"count":{count},
            "action":"{action}","lastMessage":"{message}","firstMs":1,"lastMs":null}}"#
        )
    }

    #[test]
    fn every_action_weighs_as_the_catalogue_says() {
        use Status::{Fail, Pass, Unknown};
        for (code, action, expected) in [
            ("13", "restart-app", Pass),
            ("94", "restart-app", Pass),
            ("63", "ignore", Pass),
            ("92", "ignore", Pass),
            ("64", "reset-gpu", Fail),
            ("95", "reset-gpu", Fail),
            ("119", "reset-gpu", Fail),
            ("79", "restart-bm", Fail),
            ("151", "restart-vm", Fail),
            ("123", "contact-support", Fail),
            ("54", "mechanical", Fail),
            ("45", "workflow", Pass),
            ("48", "workflow", Fail),
            ("74", "workflow", Fail),
            ("144", "workflow", Fail),
            ("150", "workflow", Fail),
            // 154 comes with the action that it printed.
            ("154", "ignore", Pass),
            ("154", "reset-gpu", Fail),
            ("154", "restart-bm", Fail),
            ("154", "unknown", Unknown),
            ("999", "unknown", Unknown),
            ("7", "an-action-of-tomorrow", Unknown),
            ("null", "unknown", Fail),
            ("null", "ignore", Fail),
        ] {
            let found = verdict(true, &event(code, action, 1, "m"));
            assert_eq!(found.status, expected, "{code} {action}");
            assert_eq!(found.reason.is_none(), expected == Pass, "{code} {action}");
        }
    }

    #[test]
    fn a_reason_tells_code_action_times_and_the_last_line() {
        let told = |code, action, count, message| verdict(true, &event(code, action, count, message)).reason;
        let expected = "XID 79 (restart-bm): GPU has fallen off the bus.";
        assert_eq!(told("79", "restart-bm", 1, "GPU has fallen off the bus.").as_deref(), Some(expected));
        assert_eq!(told("48", "workflow", 3, "DBE").as_deref(), Some("XID 48, see workflow, 3 times: DBE"));
        assert_eq!(told("null", "unknown", 1, "").as_deref(), Some("fell off the bus without an XID"));
        let long = told("64", "reset-gpu", 1, &"ä".repeat(500)).expect("reason");
        assert_eq!(long.chars().count(), "XID 64 (reset-gpu): ".len() + QUOTED);
    }

    #[test]
    fn thousands_of_benign_lines_pass_and_do_not_hide_a_failure() {
        let benign = [event("45", "workflow", 11_000, "Ch 1"), event("94", "restart-app", 90, "Contained")].join(",");
        assert_eq!(verdict(true, &benign), Verdict::pass());
        let both = [benign, event("79", "restart-bm", 1, "off")].join(",");
        assert_eq!(verdict(true, &both).reason.as_deref(), Some("XID 79 (restart-bm): off"));
    }

    #[test]
    fn a_reason_has_an_end() {
        let many: Vec<_> = (0..20).map(|_| event("64", "reset-gpu", 1, "m")).collect();
        let reason = verdict(true, &many.join(",")).reason.expect("fails");
        assert_eq!(reason.matches("XID 64").count(), TOLD);
        assert!(reason.ends_with("; and 16 more"), "{reason}");
    }

    #[test]
    fn silence_passes_only_when_the_whole_log_was_read() {
        assert_eq!(verdict(true, ""), Verdict::pass());
        for benign in [String::new(), event("45", "workflow", 1, "m")] {
            let found = verdict(false, &benign);
            assert_eq!(found.status, Status::Unknown);
            let expected = "nothing found, but the kernel's log of this boot is not complete: rotated";
            assert_eq!(found.reason.as_deref(), Some(expected));
        }
        assert_eq!(verdict(false, &event("79", "restart-bm", 1, "off")).status, Status::Fail);
    }

    #[test]
    fn an_event_of_a_mig_instance_names_it() {
        for (gi, ci, expected) in
            [("5", "0", "XID 64 (reset-gpu) on MIG GI 5 CI 0: m"), ("5", "null", "XID 64 (reset-gpu) on MIG GI 5: m")]
        {
            let event = event("64", "reset-gpu", 1, "m")
                .replace(r#""gi":null"#, &format!(r#""gi":{gi}"#))
                .replace(r#""ci":null"#, &format!(r#""ci":{ci}"#));
            assert_eq!(verdict(true, &event).reason.as_deref(), Some(expected));
        }
    }

    #[test]
    fn what_cannot_be_read_or_understood_says_why() {
        let error = Error { code: "io".into(), native: Some(13), message: "open /dev/kmsg".into() };
        let reason = KernelLog::parse(&Err(error)).expect_err("error");
        assert_eq!(reason, "the kernel's log could not be read: open /dev/kmsg (io, 13)");
        for text in ["", "[]", "{}", r#"{"complete":true}"#, r#"{"complete":true,"events":[{}]}"#] {
            let reason = KernelLog::parse(&Ok(text.into())).expect_err(text);
            assert!(reason.starts_with("the kernel's log was not understood: "), "{reason}");
        }
    }
}
