//! Which files below `/var/log` are collected, and in which order.
//!
//! **Invariant:** the newest come first, so that what there is no room for is the oldest.

use sdk::files::{Entry, FileType};

/// Where logs are.
pub(crate) const FOLDER: &str = "/var/log";
/// What NVIDIA's report is written to, before the script adds `.gz`.
pub(crate) const NVIDIA_REPORT: &str = "/var/log/nvidia-bug-report-bcd.log";
pub(crate) const DAY_S: u64 = 24 * 60 * 60;

/// Files that are no logs to read, with the reason.
const LEFT_OUT: [(&str, &str); 4] = [
    ("btmp", "holds what people typed as names, passwords among it"),
    ("lastlog", "is a table by user, and no log"),
    ("faillog", "is a table by user, and no log"),
    ("nvidia-bug-report-bcd.log", "is the report of the source `nvidia`"),
];

/// A file that is there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Found {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) modified_ms: Option<u64>,
}

/// What becomes of an entry.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Choice {
    Take(Found),
    Descend(String),
    /// Nobody asked for it.
    Ignore,
    Skip(String, String),
}

/// Decides about one entry of a folder.
pub(crate) fn choose(folder: &str, entry: &Entry, patterns: &[String]) -> Choice {
    let path = format!("{folder}/{}", entry.name);
    match entry.file_type {
        // journald's own files are read by journalctl.
        FileType::Folder if path == "/var/log/journal" => Choice::Ignore,
        FileType::Folder => Choice::Descend(path),
        _ if !patterns.iter().any(|pattern| matches(pattern, &path)) => Choice::Ignore,
        FileType::File => {
            let base = |name: &str| {
                name == entry.name || entry.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
            };
            match LEFT_OUT.iter().find(|(name, _)| folder == FOLDER && base(name)) {
                Some((_, reason)) => Choice::Skip(path, (*reason).to_owned()),
                None => Choice::Take(Found { path, bytes: entry.size_bytes, modified_ms: entry.modified_ms }),
            }
        }
        FileType::Link => Choice::Skip(path, "is a link".to_owned()),
        FileType::Other => Choice::Skip(path, "is a pipe, a socket or a device".to_owned()),
    }
}

/// The newest first; those that were changed last before `since_s` are not in it. Times are compared with the newest of them and not with
/// a clock: the node's may be wrong by any amount, and all of them were told by it.
pub(crate) fn newest_first(mut found: Vec<Found>, since_s: u64) -> (Vec<Found>, usize) {
    let newest = found.iter().filter_map(|file| file.modified_ms).max().unwrap_or(0);
    let from = newest.saturating_sub(since_s.saturating_mul(1000));
    let all = found.len();
    found.retain(|file| file.modified_ms.is_none_or(|at| at >= from));
    found.sort_by(|a, b| b.modified_ms.cmp(&a.modified_ms).then_with(|| a.path.cmp(&b.path)));
    let old = all - found.len();
    (found, old)
}

/// Whether a path fits a pattern in which `*` stands for any run of characters.
fn matches(pattern: &str, path: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = path.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A span such as `30m`, `24h` or `7d` in seconds.
pub(crate) fn span_s(text: &str) -> Option<u64> {
    let unit_s = match text.chars().last()? {
        'm' => 60,
        'h' => 60 * 60,
        'd' => DAY_S,
        _ => return None,
    };
    let count: u64 = text[..text.len() - 1].parse().ok().filter(|count| *count > 0)?;
    count.checked_mul(unit_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, file_type: FileType) -> Entry {
        Entry { name: name.into(), file_type, size_bytes: 5, modified_ms: Some(1) }
    }

    #[test]
    fn patterns_fit_whole_paths() {
        for (pattern, path, fits) in [
            ("*", "/var/log/a", true),
            ("/var/log/syslog*", "/var/log/syslog.1", true),
            ("/var/log/syslog*", "/var/log/x/syslog", false),
            ("/var/log/*.log", "/var/log/a/b.log", true),
            ("/var/log/*.log", "/var/log/b.log.1", false),
            ("/var/log/a*b*c", "/var/log/a1b2c", true),
            ("/var/log/a*b*c", "/var/log/a1c2b", false),
            ("/var/log/a", "/var/log/ab", false),
            ("/var/log/aa*aa", "/var/log/aaa", false),
        ] {
            assert_eq!(matches(pattern, path), fits, "{pattern} {path}");
        }
    }

    #[test]
    fn links_pipes_and_what_is_no_log_are_left_out_with_the_reason() {
        let all = ["*".to_owned()];
        let skipped = |name, file_type| matches!(choose(FOLDER, &entry(name, file_type), &all), Choice::Skip(..));
        assert!(skipped("link", FileType::Link) && skipped("pipe", FileType::Other));
        assert!(
            skipped("btmp", FileType::File) && skipped("btmp.1", FileType::File) && skipped("lastlog", FileType::File)
        );
        assert!(skipped("nvidia-bug-report-bcd.log.gz", FileType::File));
        assert!(!skipped("btmpx", FileType::File) && !skipped("syslog", FileType::File));
        assert_eq!(choose(FOLDER, &entry("journal", FileType::Folder), &all), Choice::Ignore);
        assert_eq!(choose(FOLDER, &entry("apt", FileType::Folder), &all), Choice::Descend("/var/log/apt".into()));
        assert_eq!(choose(FOLDER, &entry("a", FileType::Link), &["/var/log/b".into()]), Choice::Ignore);
    }

    #[test]
    fn the_newest_come_first_by_the_clock_that_wrote_them() {
        let found = |path: &str, modified_ms| Found { path: path.into(), bytes: 1, modified_ms };
        let files =
            vec![found("old", Some(1_000)), found("new", Some(100_000)), found("mid", Some(50_000)), found("x", None)];
        let (kept, old) = newest_first(files, 60);
        let names: Vec<_> = kept.iter().map(|file| file.path.as_str()).collect();
        assert_eq!((names, old), (vec!["new", "mid", "x"], 1));
    }

    #[test]
    fn spans_are_read_as_people_write_them() {
        assert_eq!([span_s("30m"), span_s("24h"), span_s("7d")], [Some(1_800), Some(86_400), Some(604_800)]);
        for wrong in ["", "h", "0h", "1", "1w", "-1h", "1.5h", "ä", "99999999999999999999d", "999999999999999999d"] {
            assert_eq!(span_s(wrong), None, "{wrong}");
        }
    }
}
