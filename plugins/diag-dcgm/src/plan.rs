//! Which GPUs, and with which arguments. Pure.
//!
//! **Invariant:** DCGM's number of a GPU is NVML's index of it, and a UUID without one refuses the command.

use std::collections::BTreeMap;

use sdk::nvml::Device;
use sdk::{Error, Failure, Problem, describe};

use crate::Payload;

/// From this level on DCGM loads the GPUs; level 1 only looks at the deployment.
pub(crate) const LOADS_GPUS: u8 = 2;

/// What the schema cannot say.
pub(crate) fn problems(payload: &Payload) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !(1..=4).contains(&payload.level) {
        problems.push(Problem::new("/level", "is not one of the levels 1 to 4"));
    }
    let gpus = payload.gpus.as_deref().unwrap_or_default();
    if payload.gpus.is_some() && gpus.is_empty() {
        problems.push(Problem::new("/gpus", "names no GPU: leave it out for all of them"));
    }
    for (place, gpu) in gpus.iter().enumerate() {
        if gpus[..place].iter().any(|before| before.eq_ignore_ascii_case(gpu)) {
            problems.push(Problem::new(format!("/gpus/{place}"), format!("{gpu} is named twice")));
        }
    }
    let is_plain = |text: &str, also: &str| {
        (1..=81).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
    };
    for (name, value) in &payload.parameters {
        let pointer = || format!("/parameters/{}", name.replace('~', "~0").replace('/', "~1"));
        if !is_plain(name, "_.") || name.split('.').filter(|part| !part.is_empty()).count() != 2 {
            problems.push(Problem::new(pointer(), "is not `test.parameter` of letters, digits and `_`"));
        }
        if !is_plain(value, "._-") {
            problems.push(Problem::new(pointer(), "has a value with more than letters, digits, `.`, `_` and `-`"));
        }
    }
    problems
}

/// The GPUs of the node, as NVML lists them.
pub(crate) struct Gpus(Result<BTreeMap<u32, String>, Error>);

impl Gpus {
    pub(crate) fn new(devices: Result<Vec<Device>, Error>) -> Self {
        Self(devices.map(|devices| {
            devices.into_iter().filter_map(|device| Some((device.index, device.identity.ok()?.uuid))).collect()
        }))
    }

    /// The UUID of one of DCGM's numbers, where NVML names it.
    pub(crate) fn uuid(&self, index: u32) -> Option<&String> {
        self.0.as_ref().ok()?.get(&index)
    }

    fn all(&self) -> Result<&BTreeMap<u32, String>, Failure> {
        let could_not_ask = |error: &Error| {
            Failure::new("could-not-be-known", format!("which GPUs there are could not be asked: {}", describe(error)))
        };
        self.0.as_ref().map_err(could_not_ask)
    }

    /// DCGM's numbers of the named ones; none for all.
    pub(crate) fn indexes(&self, named: Option<&[String]>) -> Result<Vec<u32>, Failure> {
        let Some(named) = named else { return Ok(Vec::new()) };
        let all = self.all()?;
        let find = |gpu: &String| all.iter().find(|(_, uuid)| *uuid == gpu).map(|(index, _)| *index);
        let unknown: Vec<_> = named.iter().filter(|gpu| find(gpu).is_none()).cloned().collect();
        if !unknown.is_empty() {
            let message = format!("the driver does not list {}: nothing was run", unknown.join(", "));
            return Err(Failure::new("unknown-gpu", message).with_details(&serde_json::json!({ "gpus": unknown })));
        }
        Ok(named.iter().filter_map(find).collect())
    }

    /// The UUIDs that the command is about: the named ones, else all.
    pub(crate) fn named(&self, named: Option<&[String]>) -> Result<Vec<String>, Failure> {
        match named {
            Some(named) => Ok(named.to_vec()),
            None => Ok(self.all()?.values().cloned().collect()),
        }
    }
}

/// The arguments of `dcgmi`.
pub(crate) fn arguments(payload: &Payload, indexes: &[u32]) -> Vec<String> {
    let mut argv = vec!["diag".to_owned(), "-r".to_owned(), payload.level.to_string(), "-j".to_owned()];
    if !indexes.is_empty() {
        argv.push("-i".to_owned());
        argv.push(indexes.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    }
    if !payload.parameters.is_empty() {
        let parameters: Vec<_> = payload.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        argv.push("-p".to_owned());
        argv.push(parameters.join(";"));
    }
    argv
}

/// What is run, and how long it usually takes: DCGM says nothing until it is over.
pub(crate) fn expectation(level: u8) -> String {
    let usual = ["some seconds", "about two minutes", "about a quarter of an hour", "an hour or more"];
    format!("level {level} runs, which usually takes {}", usual[usize::from(level.clamp(1, 4)) - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(text: &str) -> Payload {
        serde_json::from_str(text).expect("a payload")
    }

    #[test]
    fn what_is_wrong_with_a_payload_is_said_with_its_place() {
        let said = |text| -> Vec<String> { problems(&payload(text)).into_iter().map(|it| it.pointer).collect() };
        assert_eq!(said(r#"{"level":3,"gpus":["GPU-a"],"parameters":{"memory.is_allowed":"true"}}"#), [] as [&str; 0]);
        assert_eq!(said(r#"{"level":5}"#), ["/level"]);
        assert_eq!(said(r#"{"level":1,"gpus":[]}"#), ["/gpus"]);
        assert_eq!(said(r#"{"level":1,"gpus":["GPU-a","gpu-A"]}"#), ["/gpus/1"]);
        assert_eq!(
            said(r#"{"level":1,"parameters":{"a/b":"1","m.x":"1;n.y=2"}}"#),
            ["/parameters/a~1b", "/parameters/m.x"]
        );
    }

    #[test]
    fn arguments_name_the_gpus_by_their_index() {
        let words = |text, indexes: &[u32]| arguments(&payload(text), indexes).join(" ");
        assert_eq!(words(r#"{"level":1}"#, &[]), "diag -r 1 -j");
        let all = r#"{"level":3,"parameters":{"b.y":"2","a.x":"1"}}"#;
        assert_eq!(words(all, &[0, 7]), "diag -r 3 -j -i 0,7 -p a.x=1;b.y=2");
    }

    #[test]
    fn a_gpu_without_a_number_refuses_the_command() {
        let gpus = Gpus(Ok(BTreeMap::from([(0, "GPU-a".to_owned()), (2, "GPU-c".to_owned())])));
        let named = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(gpus.indexes(Some(&named(&["GPU-c", "GPU-a"]))), Ok(vec![2, 0]));
        assert_eq!(gpus.indexes(None), Ok(vec![]));
        assert_eq!(gpus.named(None), Ok(named(&["GPU-a", "GPU-c"])));
        let refused = gpus.indexes(Some(&named(&["GPU-b"]))).expect_err("not listed");
        assert_eq!(refused.code, "unknown-gpu");
        let silent = Gpus(Err(Error { code: "timeout".into(), native: None, message: "no answer".into() }));
        assert_eq!(silent.named(None).expect_err("could not ask").code, "could-not-be-known");
        assert_eq!((silent.indexes(None), silent.uuid(0)), (Ok(vec![]), None), "level 1 goes on without names");
    }
}
