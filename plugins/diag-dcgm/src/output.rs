//! What `dcgmi diag -j` printed, of either generation. Pure.
//!
//! 3.x and 4.x differ in the root's key, in how a test says which GPU it is about, and in the form of warnings and infos. Releases
//! differ further, so whatever is not there is left out, and only the tree itself is demanded.
//!
//! **Invariant:** text that was cut off does not read; a status that is not known is neither a pass nor a fail.

use serde_json::Value;

/// What it printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// DCGM's version.
    pub(crate) version: Option<String>,
    pub(crate) results: Vec<TestResult>,
    /// What the tool says of all tests together (4.x): whether they failed.
    pub(crate) summary_failed: bool,
    /// Why nothing ran, or not all.
    pub(crate) runtime_error: Option<String>,
}

/// One test on one entity.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestResult {
    pub(crate) category: String,
    pub(crate) test: String,
    /// What it was about.
    pub(crate) entity: Option<Entity>,
    pub(crate) status: Status,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) info: Vec<String>,
}

/// What a test was about: `GPU` and a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entity {
    pub(crate) group: String,
    pub(crate) id: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Pass,
    Fail,
    Skip,
    Unknown,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    pub(crate) text: String,
    pub(crate) error_id: Option<i64>,
    pub(crate) category: Option<i64>,
    /// 0 none, 1 monitor, 2 isolate, 3 unknown, 4 triage, 5 config, 6 reset.
    pub(crate) severity: Option<i64>,
}

/// The roots of the generations.
const ROOTS: [&str; 2] = ["DCGM Diagnostic", "DCGM GPU Diagnostic"];

/// Reads it: from the first `{` to the last `}`, since warnings of the tool itself stand around it. The error says why it does not
/// read.
pub(crate) fn parse(text: &str) -> Result<Output, String> {
    let start = text.find('{').ok_or("it printed no JSON")?;
    let end = text.rfind('}').filter(|end| *end > start).ok_or("its JSON is cut off")?;
    let document: Value = serde_json::from_str(&text[start..=end]).map_err(|error| {
        if error.is_eof() { "its JSON is cut off".to_owned() } else { format!("its JSON does not read: {error}") }
    })?;
    let found = ROOTS.iter().find_map(|root| document.get(root));
    let runtime_error = [found, Some(&document)].into_iter().flatten().find_map(|it| it.get("runtime_error"));
    let runtime_error = runtime_error.map(text_of).filter(|text| !text.is_empty());
    let Some(root) = found else {
        let none = || "its JSON has neither of the roots of DCGM 3 and 4".to_owned();
        return runtime_error.map_or_else(
            || Err(none()),
            |error| {
                Ok(Output { version: None, results: Vec::new(), summary_failed: false, runtime_error: Some(error) })
            },
        );
    };
    let mut results = Vec::new();
    let mut summary_failed = false;
    for category in list(root, "test_categories") {
        let name = category.get("category").map(text_of).unwrap_or_default();
        for test in list(category, "tests") {
            summary_failed |= status(test.get("test_summary")) == Some(Status::Fail);
            let title = test.get("name").map(text_of).unwrap_or_default();
            let title = if title.is_empty() { test.get("test").map(text_of).unwrap_or_default() } else { title };
            results.extend(list(test, "results").map(|result| read(&name, &title, result)));
        }
    }
    let version = ["DCGM Version", "dcgm_version", "version"].iter().find_map(|key| root.get(key));
    let version = version.or_else(|| root.get("metadata")?.get("version")).map(text_of);
    Ok(Output { version, results, summary_failed, runtime_error })
}

fn read(category: &str, test: &str, result: &Value) -> TestResult {
    let info = match result.get("info") {
        Some(Value::Array(lines)) => lines.iter().map(text_of).collect(),
        Some(Value::Null) | None => Vec::new(),
        Some(line) => vec![text_of(line)],
    };
    let warnings = match result.get("warnings") {
        Some(Value::Array(warnings)) => warnings.iter().map(warning).collect(),
        Some(Value::Null) | None => Vec::new(),
        Some(other) => vec![warning(other)],
    };
    TestResult {
        category: category.to_owned(),
        test: test.to_owned(),
        entity: entity(result),
        status: status(Some(result)).unwrap_or(Status::Unknown),
        warnings,
        info,
    }
}

/// In 4.x by group and number; in 3.x `gpu_id`, as text or as a number.
fn entity(result: &Value) -> Option<Entity> {
    let number = |key: &str| {
        let value = result.get(key)?;
        let number = value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())?;
        u32::try_from(number).ok()
    };
    if let Some(id) = number("entity_id") {
        let group = result.get("entity_group").map(text_of).filter(|group| !group.is_empty());
        return Some(Entity { group: group.unwrap_or_else(|| "GPU".to_owned()), id });
    }
    number("gpu_id").map(|id| Entity { group: "GPU".to_owned(), id })
}

/// The text stands under `warning`, in the deployment tests of 3.x under `warnings`.
fn warning(value: &Value) -> Warning {
    let number = |key: &str| {
        let value = value.get(key)?;
        value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
    };
    let text = value.get("warning").or_else(|| value.get("warnings")).unwrap_or(value);
    Warning {
        text: text_of(text),
        error_id: number("error_id"),
        category: number("error_category"),
        severity: number("error_severity"),
    }
}

fn status(value: Option<&Value>) -> Option<Status> {
    let word = value?.get("status").map(text_of)?;
    Some(match word.trim().to_ascii_lowercase().as_str() {
        "pass" => Status::Pass,
        "fail" | "warn" => Status::Fail,
        "skip" | "not run" | "not_run" => Status::Skip,
        _ => Status::Unknown,
    })
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), |text| text.trim().to_owned())
}
