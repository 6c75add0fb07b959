//! Memory, huge pages and swap.
//!
//! **Invariant:** bytes everywhere; the kernel's kB are 1024 bytes.

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
    let info = facts.text("proc/meminfo");
    let mut bytes = |name| {
        let bytes = bytes_of(info.as_deref()?, name);
        if bytes.is_none() {
            facts.problem(format!("/proc/meminfo: it tells no {name} in kB"));
        }
        bytes
    };
    Memory { total_bytes: bytes("MemTotal"), swap_total_bytes: bytes("SwapTotal"), huge_pages: huge_pages(facts) }
}

/// The value of the line `name:   123 kB`. Other lines may be missing: kernels and containers differ in what they tell.
fn bytes_of(info: &str, name: &str) -> Option<u64> {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
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

#[cfg(test)]
mod tests {
    use super::bytes_of;

    #[test]
    fn a_quantity_is_found_by_its_whole_name_and_only_in_kb() {
        let info = "MemTotal:        1024 kB\nSwapCached:  1 kB\nHugePages_Total:  8\nBig: 99999999999999999999 kB\n";
        for (name, expected) in
            [("MemTotal", Some(1 << 20)), ("Mem", None), ("SwapTotal", None), ("HugePages_Total", None), ("Big", None)]
        {
            assert_eq!(bytes_of(info, name), expected, "{name}");
        }
    }
}
