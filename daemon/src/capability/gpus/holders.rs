//! Who has a GPU open: for people who have to end it.
//!
//! **Invariant:** what cannot be read is left out: this names who can be named, and proves nothing about who else there is.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// How many of one GPU are named.
const NAMED: usize = 8;

/// Processes that have `/dev/nvidia<minor>` open, `4242 (python3)`, by the GPU's minor number. `root` holds `proc` and `dev`.
pub(super) fn of_devices(root: &Path, minors: &[u32]) -> BTreeMap<u32, Vec<String>> {
    let files: Vec<_> = minors.iter().map(|minor| (*minor, root.join(format!("dev/nvidia{minor}")))).collect();
    let mut found: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut pids: Vec<u32> = fs::read_dir(root.join("proc"))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    for pid in pids {
        let process = root.join("proc").join(pid.to_string());
        let open: Vec<_> = fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .collect();
        for (minor, file) in &files {
            if open.contains(file) {
                found.entry(*minor).or_default().push(format!("{pid} ({})", name(root, pid)));
            }
        }
    }
    for names in found.values_mut() {
        if names.len() > NAMED {
            let more = names.len() - NAMED;
            names.truncate(NAMED);
            names.push(format!("and {more} more"));
        }
    }
    found
}

/// The name of a process; `?` for one that is gone or cannot be read.
pub(super) fn name(root: &Path, pid: u32) -> String {
    let name = fs::read_to_string(root.join(format!("proc/{pid}/comm")));
    name.map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned())
}
