//! A diagnosis for people: what needs attention with its reasons, gravest first, and one line for all that passed.
//!
//! **Invariant:** every check that is not a pass is shown with its reason; only passes are summed up.

use comfy_table::ColumnConstraint::LowerBoundary;
use comfy_table::Width::Fixed;
use serde_json::Value;

use super::table;

/// What a check is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Node,
    /// By its place in the driver's list, with its UUID where it has one.
    Indexed(u64, Option<String>),
    /// A GPU that the driver does not list.
    Unlisted(String),
}

/// Checks of one subject that say the same.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    status: String,
    names: Vec<String>,
    reason: String,
}

/// Subjects with the same findings.
struct Group {
    subjects: Vec<Subject>,
    findings: Vec<Finding>,
}

/// The whole text.
pub(super) fn report(result: &Value, checks: &[Value]) -> String {
    let driver = match (result.get("driver"), result["driver"]["version"].as_str()) {
        (_, Some(version)) => format!(" (driver {version})"),
        (Some(_), None) => " (no driver)".to_owned(),
        (None, None) => String::new(),
    };
    let mut text = format!("{}: {}{driver}", word(&result["status"]), counts(checks));
    let (passed, mut others): (Vec<_>, Vec<_>) =
        groups(checks).into_iter().partition(|group| group.findings.is_empty());
    others.sort_by_key(|group| gravity(&group.findings[0].status));
    for group in &others {
        text += &format!("\n\n{}\n{}", heading(&group.subjects), findings(&group.findings, checks));
    }
    for group in passed {
        text += &format!("\n\nevery check passed: {}", heading(&group.subjects));
    }
    text
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The gravest first; what a later version of a kind may add comes before passes.
fn gravity(status: &str) -> u8 {
    match status {
        "fail" => 0,
        "unknown" => 1,
        "pass" => 3,
        _ => 2,
    }
}

/// `1 fail, 2 unknown, 39 pass`.
fn counts(checks: &[Value]) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for check in checks {
        let status = word(&check["status"]);
        match counts.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += 1,
            None => counts.push((status, 1)),
        }
    }
    counts.sort_by_key(|(status, _)| gravity(status));
    counts.iter().map(|(status, count)| format!("{count} {status}")).collect::<Vec<_>>().join(", ")
}

fn groups(checks: &[Value]) -> Vec<Group> {
    let mut by_subject: Vec<(Subject, Vec<Finding>)> = Vec::new();
    for check in checks {
        let subject = match (check["index"].as_u64(), check["gpu"].as_str()) {
            (Some(index), gpu) => Subject::Indexed(index, gpu.map(str::to_owned)),
            (None, Some(gpu)) => Subject::Unlisted(gpu.to_owned()),
            (None, None) => Subject::Node,
        };
        let at = by_subject.iter().position(|(known, _)| *known == subject).unwrap_or_else(|| {
            by_subject.push((subject, Vec::new()));
            by_subject.len() - 1
        });
        let (status, name, reason) = (word(&check["status"]), word(&check["name"]), word(&check["reason"]));
        let findings = &mut by_subject[at].1;
        if status == "pass" {
            continue;
        }
        match findings.iter_mut().find(|known| (&known.status, &known.reason) == (&status, &reason)) {
            Some(known) => known.names.push(name),
            None => findings.push(Finding { status, names: vec![name], reason }),
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    for (subject, mut findings) in by_subject {
        findings.sort_by_key(|finding| gravity(&finding.status));
        match groups.iter_mut().find(|group| group.findings == findings) {
            Some(group) => group.subjects.push(subject),
            None => groups.push(Group { subjects: vec![subject], findings }),
        }
    }
    groups
}

/// `node, GPUs 0–2, 5`; a single GPU is named by its UUID too.
fn heading(subjects: &[Subject]) -> String {
    if let [Subject::Indexed(index, Some(uuid))] = subjects {
        return format!("GPU {index}  {uuid}");
    }
    let mut words: Vec<String> = Vec::new();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for subject in subjects {
        match subject {
            Subject::Node => words.insert(0, "node".to_owned()),
            Subject::Unlisted(uuid) => words.push(uuid.clone()),
            Subject::Indexed(index, _) => match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => ranges.push((*index, *index)),
            },
        }
    }
    if !ranges.is_empty() {
        let plural = if ranges.iter().any(|(first, last)| first != last) || ranges.len() > 1 { "s" } else { "" };
        let range = |(first, last): &(u64, u64)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}–{last}"),
        };
        words.push(format!("GPU{plural} {}", ranges.iter().map(range).collect::<Vec<_>>().join(", ")));
    }
    words.join(", ")
}

/// The findings as lines of status, checks and reason. Columns are as wide as the longest word of the whole report, so that
/// they line up from group to group.
fn findings(findings: &[Finding], checks: &[Value]) -> String {
    let widest = |field| checks.iter().filter_map(|check| check[field].as_str()).map(str::len).max().unwrap_or(0);
    let rows = findings.iter().map(|finding| {
        let Finding { status, names, reason } = finding;
        vec![status.clone(), names.join("\n"), reason.clone()]
    });
    let mut table = table(rows, 2);
    let width = |field, padding| LowerBoundary(Fixed(u16::try_from(widest(field) + padding).unwrap_or(u16::MAX)));
    for (column, constraint) in table.column_iter_mut().zip([width("status", 4), width("name", 2)]) {
        column.set_constraint(constraint);
    }
    table.trim_fmt()
}
