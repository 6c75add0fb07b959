//! The running kernel and the distribution around it.
//!
//! **Invariant:** the boot id is the kernel's own, so that two reports with the same one are of the same boot.

use serde::Serialize;

use super::facts::Facts;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Os {
    hostname: Option<String>,
    kernel_release: Option<String>,
    boot_id: Option<String>,
    /// os-release's `ID`, for example `debian`.
    distribution: Option<String>,
    /// Its `VERSION_ID`; rolling distributions have none.
    version: Option<String>,
    /// Its `PRETTY_NAME`.
    name: Option<String>,
}

pub(super) fn collect(facts: &mut Facts<'_>) -> Os {
    let release = facts.try_text("etc/os-release").or_else(|_| facts.try_text("usr/lib/os-release"));
    if let Err(error) = &release {
        facts.problem(format!("/etc/os-release: {error}"));
    }
    let mut field = |key: &str| {
        let value = release.as_ref().ok().and_then(|release| value(release, key));
        if release.is_ok() && value.is_none() {
            facts.problem(format!("/etc/os-release: it has no {key}"));
        }
        value
    };
    let (distribution, version, name) = (field("ID"), field("VERSION_ID"), field("PRETTY_NAME"));
    Os {
        hostname: facts.text("proc/sys/kernel/hostname"),
        kernel_release: facts.text("proc/sys/kernel/osrelease"),
        boot_id: facts.text("proc/sys/kernel/random/boot_id"),
        distribution,
        version,
        name,
    }
}

/// A variable's value. Shell escapes in it are left as they are: none of the three fields has any in practice.
fn value(release: &str, key: &str) -> Option<String> {
    let value = release.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='))?;
    let value = value.trim().trim_matches(['"', '\'']);
    (!value.is_empty()).then(|| value.to_owned())
}
