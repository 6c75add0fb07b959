//! Settings of the host: what a spec wants, and what the machine is.
//!
//! **Invariant:** nothing is changed here, and what cannot be read is said to differ: it is not known to fit.

use std::fs;
use std::path::Path;

use bc_proto::rules::cpus;
use bc_proto::spec::HostSettings;

/// Where the kernel's command line stands, below the root.
const COMMAND_LINE: &str = "proc/cmdline";
/// How many huge pages of 1 GiB there are, below the root.
const HUGE_PAGES_1G: &str = "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages";
/// Has an entry for each group of devices, where an IOMMU is on; below the root.
const IOMMU_GROUPS: &str = "sys/kernel/iommu_groups";

/// What differs between the machine below a root and what is wanted, in words; empty when it fits.
pub fn differences(root: &Path, wanted: &HostSettings) -> Vec<String> {
    let mut differ = Vec::new();
    if let Some(wanted) = wanted.huge_pages_1g {
        // A processor that has no such pages has no such file.
        let text = fs::read_to_string(root.join(HUGE_PAGES_1G)).unwrap_or_else(|_| "0".to_owned());
        let found = text.trim();
        if found.parse() != Ok(wanted) {
            differ.push(format!("huge pages of 1 GiB: wants {wanted}, has {found}"));
        }
    }
    if let Some(wanted) = &wanted.isolated_cpus {
        match fs::read_to_string(root.join(COMMAND_LINE)) {
            Ok(line) => {
                let found = isolated(&line);
                if cpus::parse(&found) != cpus::parse(wanted) {
                    let found = if found.is_empty() { "none" } else { &found };
                    let wanted = if wanted.is_empty() { "none" } else { wanted };
                    differ.push(format!("isolated processors: wants {wanted}, has {found}"));
                }
            }
            Err(error) => differ.push(format!("isolated processors: wants {wanted}, but /{COMMAND_LINE}: {error}")),
        }
    }
    if let Some(wanted) = wanted.iommu {
        let found = fs::read_dir(root.join(IOMMU_GROUPS)).is_ok_and(|mut groups| groups.next().is_some());
        if found != wanted {
            let word = |is_on| if is_on { "on" } else { "off" };
            differ.push(format!("IOMMU: wants {}, is {}", word(wanted), word(found)));
        }
    }
    differ
}

/// The processors of `isolcpus=`, without the flags that may stand before them. The last one on the line counts, as it does for
/// the kernel.
fn isolated(command_line: &str) -> String {
    let value = command_line.split_whitespace().filter_map(|word| word.strip_prefix("isolcpus=")).next_back();
    let is_cpus = |part: &&str| part.starts_with(|first: char| first.is_ascii_digit());
    value.unwrap_or_default().split(',').filter(is_cpus).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_said_and_what_is_not_wanted_is_not_looked_at() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a file")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        assert_eq!(differences(root, &HostSettings::default()), [] as [String; 0]);
        let wanted = HostSettings { huge_pages_1g: Some(16), isolated_cpus: Some("2-5,8".into()), iommu: Some(true) };
        let said = differences(root, &wanted);
        assert_eq!((said.len(), said[0].as_str()), (3, "huge pages of 1 GiB: wants 16, has 0"));
        assert!(said[1].contains("proc/cmdline") && said[2] == "IOMMU: wants on, is off", "{said:?}");

        write(HUGE_PAGES_1G, "16\n");
        write(COMMAND_LINE, "quiet isolcpus=1 isolcpus=managed_irq,domain,8,2-5\n");
        write("sys/kernel/iommu_groups/0/type", "DMA\n");
        assert_eq!(differences(root, &wanted), [] as [String; 0]);
        write(COMMAND_LINE, "quiet\n");
        assert_eq!(differences(root, &wanted), ["isolated processors: wants 2-5,8, has none"]);
        let none = HostSettings { isolated_cpus: Some(String::new()), iommu: Some(false), ..HostSettings::default() };
        assert_eq!(differences(root, &none), ["IOMMU: wants off, is on"]);
    }
}
