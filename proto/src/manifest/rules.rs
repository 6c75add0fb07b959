//! The rules of a manifest, each with its own message.

use std::time::Duration;

use super::{Manifest, Trait, Violation};
use crate::quantity::{Bytes, Span};
use crate::schema::Schema;

/// Long enough for a disk wipe (8 h) with room, short enough that nothing is in progress for ever.
const MAX_TIMEOUT: Duration = Duration::from_hours(24);
/// wasm32 could take 4 GiB; a kind that needs a quarter of that should stream.
const MAX_MEMORY: Bytes = Bytes::mib(1024);
/// One wasm page is 64 KiB; a Rust guest's stack alone is 1 MiB.
const MIN_MEMORY: Bytes = Bytes::mib(1);
const MIN_CPU: Duration = Duration::from_millis(10);
const MAX_SUMMARY: usize = 120;
const MAX_EXAMPLES: usize = 32;

pub(super) fn violations(manifest: &Manifest) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut rule = |holds: bool, field: &str, message: String| {
        if !holds {
            found.push(Violation { field: field.to_owned(), rule: message });
        }
    };
    rule(
        is_kind_name(&manifest.name),
        "name",
        format!(
            "'{}' is not a kind name: 2 to 4 words of letters, digits and '-' joined by '.', each starting with a \
             lower-case letter, 64 bytes at most",
            manifest.name.escape_debug()
        ),
    );
    rule(
        is_module_name(&manifest.module),
        "module",
        format!(
            "'{}' is not a module name: lower-case letters, digits and '-', starting with a letter, 32 bytes at most",
            manifest.module.escape_debug()
        ),
    );
    rule(
        (1..=MAX_SUMMARY).contains(&manifest.summary.chars().count()) && !manifest.summary.contains(char::is_control),
        "summary",
        format!("must be one line of 1 to {MAX_SUMMARY} characters"),
    );
    rule(
        (Duration::from_secs(1)..=MAX_TIMEOUT).contains(&manifest.timeout.0),
        "timeout",
        format!("must be between 1s and {}, but is {}", Span(MAX_TIMEOUT), manifest.timeout),
    );
    rule(!manifest.roles.is_empty(), "roles", "must name at least one of host, ramdisk, site, gateway".to_owned());
    rule(
        !(manifest.is(Trait::SelfTerminating) && manifest.is(Trait::RetrySafe)),
        "traits",
        "self-terminating and retry-safe exclude each other: a reboot that is repeated after each boot never ends"
            .to_owned(),
    );
    rule(
        (MIN_MEMORY..=MAX_MEMORY).contains(&manifest.limits.memory),
        "limits.memory",
        format!("must be between {MIN_MEMORY} and {MAX_MEMORY}, but is {}", manifest.limits.memory),
    );
    rule(
        (MIN_CPU..=manifest.timeout.0.max(MIN_CPU)).contains(&manifest.limits.cpu.0),
        "limits.cpu",
        format!("must be between 10ms and the timeout ({}), but is {}", manifest.timeout, manifest.limits.cpu),
    );
    rule(
        manifest.examples.len() <= MAX_EXAMPLES,
        "examples",
        format!("at most {MAX_EXAMPLES} are allowed, but there are {}", manifest.examples.len()),
    );
    found.extend(capability_violations(manifest));
    found.extend(schema_violations(manifest));
    found
}

fn capability_violations(manifest: &Manifest) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut rule = |holds: bool, field: &str, message: &str| {
        if !holds {
            found.push(Violation { field: format!("capabilities.{field}"), rule: message.to_owned() });
        }
    };
    let declared = &manifest.capabilities;
    if let Some(process) = &declared.process {
        rule(!process.programs.is_empty(), "process.programs", "must list at least one program");
        for program in &process.programs {
            let name = &program.program;
            let bare = !name.is_empty() && !name.contains('/');
            let absolute = name.starts_with('/') && !name.ends_with('/') && !name.split('/').any(|part| part == "..");
            rule(
                (bare || absolute) && !name.contains(|c: char| c.is_control() || c == '*'),
                "process.programs.program",
                &format!("'{}' must be a bare name or an absolute path, without '..' or '*'", name.escape_debug()),
            );
        }
    }
    if let Some(disks) = &declared.block_devices {
        rule(
            !(disks.erase || disks.write) || !disks.devices.is_empty(),
            "block-devices.devices",
            "must list the devices that erase or write may touch",
        );
        for device in &disks.devices {
            rule(
                device.0.starts_with("/dev/") && !device.0.contains(".."),
                "block-devices.devices",
                &format!("'{}' must be a path below /dev/", device.0.escape_debug()),
            );
        }
    }
    if let Some(secrets) = &declared.secrets {
        rule(!secrets.refs.is_empty(), "secrets.refs", "must list at least one reference");
    }
    if let Some(http) = &declared.http {
        rule(!http.origins.is_empty(), "http.origins", "must list at least one origin, `https://bmc-*.example`");
        for origin in &http.origins {
            rule(
                ["http://", "https://", "*"].iter().any(|start| origin.0.starts_with(start)),
                "http.origins",
                &format!("'{}' must begin with http:// or https://, or be *", origin.0.escape_debug()),
            );
        }
    }
    found
}

fn schema_violations(manifest: &Manifest) -> Vec<Violation> {
    let violation = |field: String, rule: String| Violation { field, rule };
    let mut found = Vec::new();
    if let Err(problem) = Schema::compile(&manifest.result) {
        found.push(violation("result".into(), format!("is not a JSON Schema (draft 2020-12): {problem}")));
    }
    if manifest.payload.get("type").and_then(|kind| kind.as_str()) != Some("object") {
        found.push(violation("payload".into(), "must be a schema of an object (type = \"object\")".into()));
    }
    match Schema::compile(&manifest.payload) {
        Err(problem) => {
            found.push(violation("payload".into(), format!("is not a JSON Schema (draft 2020-12): {problem}")));
        }
        Ok(schema) => {
            for (index, example) in manifest.examples.iter().enumerate() {
                for problem in schema.problems(&example.payload) {
                    found.push(violation(format!("examples[{index}].payload"), problem.to_string()));
                }
            }
        }
    }
    found
}

fn is_kind_name(name: &str) -> bool {
    let words: Vec<_> = name.split('.').collect();
    name.len() <= 64
        && (2..=4).contains(&words.len())
        && words.iter().all(|word| {
            word.starts_with(|c: char| c.is_ascii_lowercase())
                && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        })
}

fn is_module_name(name: &str) -> bool {
    name.len() <= 32
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}
