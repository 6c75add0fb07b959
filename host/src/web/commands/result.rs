//! A result for people: a diagnosis by GPU, an inventory by section, anything else as JSON.
//!
//! **Invariant:** every check that is not a pass is shown with its reason, and nothing that a kind answered is left out: what has no form
//! of its own here is JSON. All of it is text that a node wrote.

use bc_proto::quantity::Bytes;
use serde_json::{Map, Value};

/// How deep an inventory's objects are unfolded; deeper ones are JSON.
const DEPTH: usize = 6;

/// What is shown.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shown {
    /// Checks, by what they are about.
    Diagnosis(Diagnosis),
    /// Sections of an inventory.
    Inventory(Vec<Section>),
    /// Anything.
    Json(String),
}

/// Checks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Diagnosis {
    /// `fail`, `unknown` or `pass`.
    pub(super) status: String,
    /// The kind's own line.
    pub(super) summary: String,
    /// The driver's version, where the result tells of a driver.
    pub(super) driver: Option<String>,
    /// The gravest first.
    pub(super) subjects: Vec<Subject>,
}

/// A GPU, or the node itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Subject {
    /// `node`, `GPU 3`
    pub(super) name: String,
    /// Its UUID, where it has one.
    pub(super) uuid: String,
    /// The gravest of its checks.
    pub(super) status: String,
    /// What is no pass.
    pub(super) findings: Vec<Finding>,
    /// The names of those that passed.
    pub(super) passed: Vec<String>,
}

/// A check that is no pass.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    /// `fail`, `unknown`, `skipped`
    pub(super) status: String,
    /// Its name.
    pub(super) name: String,
    /// Why.
    pub(super) reason: String,
}

/// A section of an inventory.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Section {
    /// `gpus`
    pub(super) name: String,
    /// Names and values.
    pub(super) facts: Vec<(String, String)>,
    /// Things of one kind.
    pub(super) tables: Vec<Table>,
    /// What could not be read.
    pub(super) problems: Vec<String>,
}

/// Things of one kind.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Table {
    /// What they are; empty where the section says it.
    pub(super) title: String,
    /// The fields that any of them has.
    pub(super) head: Vec<String>,
    /// A line each, a cell for each field.
    pub(super) rows: Vec<Vec<String>>,
}

/// By its form: results of different kinds share it.
pub(super) fn shown(result: &Value) -> Shown {
    if let Some(checks) = result["checks"].as_array().filter(|checks| checks.iter().all(Value::is_object)) {
        return Shown::Diagnosis(diagnosis(result, checks));
    }
    match result["sections"].as_object() {
        Some(sections) if sections.values().all(Value::is_object) => {
            Shown::Inventory(sections.iter().map(|(name, value)| section(name, value)).collect())
        }
        _ => Shown::Json(format!("{result:#}")),
    }
}

/// The gravest first; a word of a later version comes before a pass.
fn gravity(status: &str) -> u8 {
    match status {
        "fail" => 0,
        "unknown" => 1,
        "pass" => 4,
        "skipped" => 3,
        _ => 2,
    }
}

fn diagnosis(result: &Value, checks: &[Value]) -> Diagnosis {
    let mut subjects: Vec<Subject> = Vec::new();
    for check in checks {
        let (name, uuid) = match (check["index"].as_u64(), check["gpu"].as_str()) {
            (Some(index), uuid) => (format!("GPU {index}"), uuid.unwrap_or_default()),
            (None, Some(uuid)) => ("GPU".to_owned(), uuid),
            (None, None) => ("node".to_owned(), ""),
        };
        let at = subjects.iter().position(|it| it.name == name && it.uuid == uuid).unwrap_or_else(|| {
            let (findings, passed) = (Vec::new(), Vec::new());
            subjects.push(Subject { name, uuid: uuid.to_owned(), status: "pass".to_owned(), findings, passed });
            subjects.len() - 1
        });
        let subject = &mut subjects[at];
        let (status, name) = (word(&check["status"]), word(&check["name"]));
        if gravity(&status) < gravity(&subject.status) {
            subject.status.clone_from(&status);
        }
        if status == "pass" {
            subject.passed.push(name);
        } else {
            subject.findings.push(Finding { status, name, reason: word(&check["reason"]) });
        }
    }
    for subject in &mut subjects {
        subject.findings.sort_by_key(|finding| gravity(&finding.status));
    }
    subjects.sort_by_key(|subject| gravity(&subject.status));
    Diagnosis {
        status: word(&result["status"]),
        summary: word(&result["summary"]),
        driver: result
            .get("driver")
            .map(|driver| driver["version"].as_str().map_or_else(|| "did not answer".to_owned(), str::to_owned)),
        subjects,
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn section(name: &str, value: &Value) -> Section {
    let mut shown = Section { name: name.to_owned(), facts: Vec::new(), tables: Vec::new(), problems: Vec::new() };
    unfold("", &value["data"], 0, &mut shown);
    let problems = value["problems"].as_array().into_iter().flatten();
    shown.problems.extend(problems.map(word));
    let others = value.as_object().into_iter().flatten();
    for (key, other) in others.filter(|(key, _)| !["data", "problems", "collectedAtMs"].contains(&key.as_str())) {
        unfold(key, other, 0, &mut shown);
    }
    shown
}

fn unfold(path: &str, value: &Value, depth: usize, into: &mut Section) {
    match value {
        Value::Object(fields) if depth < DEPTH => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                unfold(&path, value, depth + 1, into);
            }
        }
        Value::Array(items) if !items.is_empty() && items.iter().all(Value::is_object) => {
            into.tables.push(table(path, items));
        }
        Value::Null if path.is_empty() => {}
        _ => into.facts.push((path.to_owned(), named(path, value))),
    }
}

fn table(title: &str, items: &[Value]) -> Table {
    let things: Vec<&Map<String, Value>> = items.iter().filter_map(Value::as_object).collect();
    let mut head: Vec<String> = Vec::new();
    for key in things.iter().flat_map(|thing| thing.keys()) {
        if !head.contains(key) {
            head.push(key.clone());
        }
    }
    let row = |thing: &&Map<String, Value>| {
        head.iter().map(|key| thing.get(key).map(|value| named(key, value)).unwrap_or_default()).collect()
    };
    let rows = things.iter().map(row).collect();
    Table { title: title.to_owned(), head, rows }
}

/// A value by its field's name, whose ending tells the unit.
fn named(key: &str, value: &Value) -> String {
    match value {
        Value::Number(number) if key.ends_with("Bytes") || key == "bytes" => {
            number.as_u64().map_or_else(|| number.to_string(), |bytes| Bytes(bytes).to_string())
        }
        Value::Null => "–".to_owned(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) if items.iter().all(|it| !it.is_object() && !it.is_array()) => {
            items.iter().map(word).collect::<Vec<_>>().join(", ")
        }
        other => word(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_failed_comes_first_with_its_reason() {
        let check = |name, index: Option<u8>, status, reason: Option<&str>| {
            let gpu = index.map(|index| format!("GPU-{index}"));
            json!({ "name": name, "gpu": gpu, "index": index, "status": status, "reason": reason })
        };
        let result = json!({
            "status": "fail", "summary": "one GPU has errors", "driver": { "version": "570.1" },
            "checks": [
                check("nvml.init", None, "pass", None),
                check("pcie.link", Some(0), "pass", None),
                check("pcie.link", Some(1), "unknown", Some("not asked")),
                check("ecc.uncorrectable", Some(1), "fail", Some("<b>1</b> error")),
            ],
        });
        let Shown::Diagnosis(shown) = shown(&result) else { panic!("a diagnosis") };
        let lines: Vec<_> = shown.subjects.iter().map(|it| (it.name.as_str(), it.status.as_str())).collect();
        assert_eq!(lines, [("GPU 1", "fail"), ("node", "pass"), ("GPU 0", "pass")]);
        let reasons: Vec<_> = shown.subjects[0].findings.iter().map(|it| it.reason.as_str()).collect();
        assert_eq!(reasons, ["<b>1</b> error", "not asked"]);
    }

    #[test]
    fn an_inventory_keeps_every_value_and_every_problem() {
        let result = json!({ "rescanned": true, "sections": { "memory": {
            "collectedAtMs": 1, "problems": ["no DMI"],
            "data": { "totalBytes": 1_073_741_824_u64, "slots": [{ "name": "A" }, { "name": "B", "size": null }], "numa": { "nodes": 2 } },
        }}});
        let Shown::Inventory(sections) = shown(&result) else { panic!("an inventory") };
        assert_eq!(
            sections[0].facts,
            [("numa.nodes".to_owned(), "2".to_owned()), ("totalBytes".to_owned(), "1.0 GiB".to_owned())]
        );
        assert_eq!(sections[0].tables[0].rows, [["A", ""], ["B", "–"]]);
        assert_eq!(sections[0].problems, ["no DMI"]);
    }

    #[test]
    fn any_other_form_is_json() {
        for value in
            [json!(null), json!([1]), json!({ "checks": [1] }), json!({ "sections": { "a": 1 } }), json!("<b>")]
        {
            assert_eq!(shown(&value), Shown::Json(format!("{value:#}")));
        }
    }
}
