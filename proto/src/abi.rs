//! The names and versions of the WIT packages, and what an import of a component asks for.
//!
//! **Invariant:** the answer depends on the import's name alone; whether it is granted is decided elsewhere.

use semver::Version;

use crate::grants::Capability;

/// The host ABI that this build provides, `better-compute:host@1.1.0`. Minor versions only add interfaces and functions.
pub const HOST_ABI: Version = Version::new(1, 1, 0);

/// The export that every kind has.
pub const COMMAND_EXPORT: &str = "better-compute:kind/command@1.0.0";

/// Interfaces without power over the node: always granted, never declared.
pub const AMBIENT: [&str; 4] = ["types", "log", "progress", "clock"];

/// What an import asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Import {
    /// Types, log, progress or clock.
    Ambient,
    /// A capability that has to be declared and granted.
    Capability(Capability),
    /// Part of a host ABI that this build does not have; the version that has it.
    NewerHost(Version),
    /// Nothing that any node provides.
    Foreign,
}

/// Reads an import's name, for example `better-compute:host/nvml@1.0.0`.
pub fn classify(import: &str) -> Import {
    let Some((interface, version)) = import.strip_prefix("better-compute:host/").and_then(|rest| rest.split_once('@'))
    else {
        if let Some(import) = wasi(import) {
            return import;
        }
        // The kind package's types are records without behaviour: a component that exports `command` imports them.
        return match import.strip_prefix("better-compute:kind/types@").and_then(|v| Version::parse(v).ok()) {
            Some(version) if version.major == HOST_ABI.major => Import::Ambient,
            _ => Import::Foreign,
        };
    };
    let Ok(version) = Version::parse(version) else { return Import::Foreign };
    if version.major != HOST_ABI.major {
        return if version.major > HOST_ABI.major { Import::NewerHost(version) } else { Import::Foreign };
    }
    if version > HOST_ABI {
        return Import::NewerHost(version);
    }
    if AMBIENT.contains(&interface) {
        return Import::Ambient;
    }
    Capability::from_interface(interface).map_or(Import::Foreign, Import::Capability)
}

/// What an import of WASI 0.2 asks for: sending HTTP requests is a capability, and what a request is made of has no power by
/// itself. The rest of WASI is not provided.
fn wasi(import: &str) -> Option<Import> {
    let (interface, version) = import.strip_prefix("wasi:")?.split_once('@')?;
    let version = Version::parse(version).ok()?;
    if (version.major, version.minor) != (0, 2) {
        return None;
    }
    match interface {
        "http/outgoing-handler" => Some(Import::Capability(Capability::Http)),
        "http/types" | "io/error" | "io/poll" | "io/streams" | "clocks/monotonic-clock" => Some(Import::Ambient),
        _ => None,
    }
}

/// The name under which a capability of this host ABI is imported.
pub fn import_name(capability: Capability) -> String {
    let since = match capability {
        Capability::Http => return "wasi:http/outgoing-handler@0.2".to_owned(),
        Capability::Files => Version::new(1, 1, 0),
        _ => Version::new(1, 0, 0),
    };
    format!("better-compute:host/{}@{since}", capability.interface())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_is_ambient_a_capability_newer_or_foreign() {
        for (import, meaning) in [
            ("better-compute:host/log@1.0.0", Import::Ambient),
            ("better-compute:kind/types@1.0.0", Import::Ambient),
            ("better-compute:host/nvml@1.0.0", Import::Capability(Capability::Nvml)),
            ("better-compute:host/block-devices@1.0.0", Import::Capability(Capability::BlockDevices)),
            ("better-compute:host/nvml@1.3.0", Import::NewerHost(Version::new(1, 3, 0))),
            ("better-compute:host/nvml@2.0.0", Import::NewerHost(Version::new(2, 0, 0))),
            ("better-compute:host/teleport@1.0.0", Import::Foreign),
            ("better-compute:host/nvml", Import::Foreign),
            ("better-compute:host/nvml@x", Import::Foreign),
            ("wasi:sockets/tcp@0.2.0", Import::Foreign),
            ("wasi:http/outgoing-handler@0.2.3", Import::Capability(Capability::Http)),
            ("wasi:http/outgoing-handler@0.3.0", Import::Foreign),
            ("wasi:http/outgoing-handler", Import::Foreign),
            ("wasi:http/incoming-handler@0.2.3", Import::Foreign),
            ("wasi:io/streams@0.2.12", Import::Ambient),
            ("", Import::Foreign),
        ] {
            assert_eq!(classify(import), meaning, "{import}");
        }
    }
}
