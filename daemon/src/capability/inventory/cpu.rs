//! Processors: the model from `/proc/cpuinfo`, the counts from sysfs, which has them on every architecture.
//!
//! **Invariant:** a count is of all processors that are online, or null: one that cannot be read spoils it.

use std::{collections::BTreeSet, io::Cursor};

use procfs_core::{CpuInfo, FromBufRead};
use serde::Serialize;

use super::facts::Facts;

const CPUS: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";

/// The most processors believed. Ours: ten times what Linux is built for.
const MAX_CPUS: u32 = 81_920;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cpu {
    /// Null on ARM, where the kernel tells part numbers only.
    model: Option<String>,
    vendor: Option<String>,
    sockets: Option<usize>,
    /// Over all sockets.
    cores: Option<usize>,
    /// Logical processors, over all cores.
    threads: Option<usize>,
    numa_nodes: Option<Vec<NumaNode>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NumaNode {
    node: u32,
    /// As the kernel lists them: `0-63,128-191`. Null, with a problem, for a node that has memory alone.
    cpus: Option<String>,
}

pub(super) fn collect(facts: &mut Facts<'_>) -> Cpu {
    let (model, vendor) = model(facts);
    let online = online(facts);
    let sockets = online.as_ref().and_then(|cpus| {
        distinct(facts, cpus, "socket", |facts, cpu| {
            let package = facts.try_text(&format!("{CPUS}/cpu{cpu}/topology/physical_package_id")).ok()?;
            // -1 is the kernel's word for unknown.
            (package != "-1").then_some(package)
        })
    });
    let cores = online.as_ref().and_then(|cpus| {
        distinct(facts, cpus, "core", |facts, cpu| {
            let topology = format!("{CPUS}/cpu{cpu}/topology");
            let list = |name: &str| facts.try_text(&format!("{topology}/{name}")).ok();
            // Kernels before 5.5 have the second name alone.
            list("core_cpus_list").or_else(|| list("thread_siblings_list"))
        })
    });
    Cpu { model, vendor, sockets, cores, threads: online.map(|cpus| cpus.len()), numa_nodes: numa_nodes(facts) }
}

fn model(facts: &mut Facts<'_>) -> (Option<String>, Option<String>) {
    let Some(text) = facts.text("proc/cpuinfo") else {
        return (None, None);
    };
    // The parser's own words name the line of its source, over several lines.
    let Ok(info) = CpuInfo::from_buf_read(Cursor::new(text)) else {
        facts.problem("/proc/cpuinfo: it was not understood");
        return (None, None);
    };
    let mut field = |name: &str| {
        let value = info.get_field(0, name).filter(|value| !value.is_empty()).map(str::to_owned);
        if value.is_none() {
            facts.problem(format!("/proc/cpuinfo: it tells no {name}"));
        }
        value
    };
    (field("model name"), field("vendor_id"))
}

fn online(facts: &mut Facts<'_>) -> Option<BTreeSet<u32>> {
    let path = format!("{CPUS}/online");
    let list = facts.text(&path)?;
    let cpus = parse_list(&list);
    if cpus.is_none() {
        facts.problem(format!("/{path}: `{list}` is not a list of processors"));
    }
    cpus
}

/// How many different answers the processors give.
fn distinct(
    facts: &mut Facts<'_>,
    cpus: &BTreeSet<u32>,
    what: &str,
    of: impl Fn(&Facts<'_>, u32) -> Option<String>,
) -> Option<usize> {
    let mut seen = BTreeSet::new();
    for &cpu in cpus {
        let Some(answer) = of(facts, cpu) else {
            facts.problem(format!("/{CPUS}/cpu{cpu}/topology: it tells no {what}"));
            return None;
        };
        seen.insert(answer);
    }
    Some(seen.len())
}

fn numa_nodes(facts: &mut Facts<'_>) -> Option<Vec<NumaNode>> {
    let mut numbers: Vec<u32> =
        facts.names(NODES)?.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
    numbers.sort_unstable();
    let mut node = |node| NumaNode { node, cpus: facts.text(&format!("{NODES}/node{node}/cpulist")) };
    Some(numbers.into_iter().map(&mut node).collect())
}

/// Reads `0-3,8`.
fn parse_list(list: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for part in list.split(',') {
        let (first, end) = part.split_once('-').unwrap_or((part, part));
        let (first, end): (u32, u32) = (first.trim().parse().ok()?, end.trim().parse().ok()?);
        if first > end || end >= MAX_CPUS {
            return None;
        }
        cpus.extend(first..=end);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::parse_list;

    #[test]
    fn lists_of_processors() {
        let check = |list: &str, expected: Option<&[u32]>| {
            assert_eq!(
                parse_list(list).map(|cpus| cpus.into_iter().collect::<Vec<_>>()).as_deref(),
                expected,
                "{list}"
            );
        };
        check("0", Some(&[0]));
        check("0-2,8", Some(&[0, 1, 2, 8]));
        check("2-0", None);
        check("0-4294967295", None);
        check("", None);
        check("a", None);
    }
}
