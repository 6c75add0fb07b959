//! From the host's inventory to the kind's result. Pure.
//!
//! **Invariant:** an answer that is not an object of sections is a failure, never an empty inventory.

use std::collections::BTreeMap;

use sdk::{Error, Failure, Problem, describe};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A part of the inventory.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Section {
    System,
    Os,
    Cpu,
    Memory,
    Disks,
    Nics,
    Gpus,
}

impl Section {
    /// Its name towards the host.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Os => "os",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Disks => "disks",
            Self::Nics => "nics",
            Self::Gpus => "gpus",
        }
    }
}

/// The kind's result.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    pub(crate) rescanned: bool,
    /// Each section as the host wrote it.
    pub(crate) sections: BTreeMap<String, Box<RawValue>>,
}

/// Sections named more than once.
pub(crate) fn repeated(sections: &[Section]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (place, section) in sections.iter().enumerate() {
        if sections[..place].contains(section) {
            problems.push(Problem::new(format!("/sections/{place}"), format!("{} is named twice", section.name())));
        }
    }
    problems
}

/// Makes the result of what the host answered.
pub(crate) fn answer(rescanned: bool, inventory: Result<String, Error>) -> Result<Answer, Failure> {
    let text = inventory.map_err(|error| match error.code.as_str() {
        // An older node: it knows fewer sections than this kind.
        "not-found" => {
            Failure::new("unknown-section", format!("the node does not collect a section: {}", describe(&error)))
        }
        _ => Failure::from(error),
    })?;
    let sections = serde_json::from_str(&text).map_err(|error| {
        Failure::new("invalid-inventory", format!("the node's inventory was not understood: {error}"))
    })?;
    Ok(Answer { rescanned, sections })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_error(code: &str) -> Result<String, Error> {
        Err(Error { code: code.into(), native: None, message: "no section \"dpus\"".into() })
    }

    #[test]
    fn sections_are_passed_on_as_the_host_wrote_them() {
        let host = r#"{"gpus":{"collectedAtMs":1,"data":[1.10, null],"problems":["x"]},"cpu":{}}"#;
        for rescanned in [true, false] {
            let answer = answer(rescanned, Ok(host.into())).expect("an object");
            let json = serde_json::to_string(&answer).expect("serialises");
            let sections = r#"{"cpu":{},"gpus":{"collectedAtMs":1,"data":[1.10, null],"problems":["x"]}}"#;
            assert_eq!(json, format!(r#"{{"rescanned":{rescanned},"sections":{sections}}}"#));
        }
    }

    #[test]
    fn a_section_that_the_node_does_not_know_is_a_failure() {
        let failure = answer(false, host_error("not-found")).expect_err("unknown");
        assert_eq!((failure.code.as_str(), failure.retryable), ("unknown-section", false));
        assert!(failure.message.contains("dpus"), "{}", failure.message);
    }

    #[test]
    fn other_host_errors_keep_their_code() {
        assert_eq!(answer(true, host_error("io")).expect_err("error").code, "io");
    }

    #[test]
    fn what_is_not_an_object_is_never_an_empty_inventory() {
        for text in ["", "[]", "null", "7", "{\"gpus\":"] {
            assert_eq!(answer(false, Ok(text.into())).expect_err(text).code, "invalid-inventory");
        }
    }

    #[test]
    fn a_section_named_twice_is_a_problem_at_its_place() {
        use Section::{Cpu, Gpus};
        assert_eq!(repeated(&[Gpus, Cpu]), []);
        let expected = |place: &str| Problem::new(place, "gpus is named twice");
        assert_eq!(repeated(&[Gpus, Cpu, Gpus, Gpus]), [expected("/sections/2"), expected("/sections/3")]);
    }

    #[test]
    fn every_section_is_read_by_the_name_that_the_host_uses() {
        for name in ["system", "os", "cpu", "memory", "disks", "nics", "gpus"] {
            let section: Section = serde_json::from_str(&format!("\"{name}\"")).expect(name);
            assert_eq!(section.name(), name);
        }
    }
}
