//! Memory, huge pages and swap.
//!
//! **Invariant:** bytes everywhere; the kernel's kB are 1024 bytes.

use std::io::Cursor;

use procfs_core::{FromBufRead, Meminfo};
use serde::Serialize;

use super::facts::Facts;

const HUGE_PAGES: &str = "sys/kernel/mm/hugepages";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Memory {
    /// What the kernel manages: less than is installed, by what firmware and kernel reserve.
    total_bytes: Option<u64>,
    swap_total_bytes: Option<u64>,
    huge_pages: Option<Vec<HugePages>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct HugePages {
    page_size_bytes: u64,
    total: Option<u64>,
    free: Option<u64>,
}

pub(super) fn collect(facts: &mut Facts<'_>) -> Memory {
    let info = facts.text("proc/meminfo").and_then(|text| {
        let parsed = Meminfo::from_buf_read(Cursor::new(text));
        parsed.map_err(|error| facts.problem(format!("/proc/meminfo: {error}"))).ok()
    });
    Memory {
        total_bytes: info.as_ref().map(|info| info.mem_total),
        swap_total_bytes: info.as_ref().map(|info| info.swap_total),
        huge_pages: huge_pages(facts),
    }
}

/// By size, smallest first.
fn huge_pages(facts: &mut Facts<'_>) -> Option<Vec<HugePages>> {
    let names = facts.names(HUGE_PAGES)?;
    let size =
        |name: &String| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?.checked_mul(1024);
    let mut sizes: Vec<_> = names.iter().filter_map(|name| Some((size(name)?, name))).collect();
    sizes.sort_unstable();
    let pages = sizes.into_iter().map(|(page_size_bytes, name)| HugePages {
        page_size_bytes,
        total: facts.number(&format!("{HUGE_PAGES}/{name}/nr_hugepages")),
        free: facts.number(&format!("{HUGE_PAGES}/{name}/free_hugepages")),
    });
    Some(pages.collect())
}
