//! A text file that stands for the kernel's log on a simulated node.
//!
//! **Invariant:** it is the whole log by definition, so that only its size can make it incomplete.

use std::{fs::File, io::BufReader, path::Path};

use bc_proto::xid::Scanner;

use super::{Reading, Unreadable, lines};

pub(super) fn read(path: &Path) -> Result<Reading, Unreadable> {
    let unreadable = |error| Unreadable::io(path.display(), &error);
    let file = File::open(path).map_err(unreadable)?;
    let mut scanner = Scanner::new();
    let mut last_us = None;
    let extent = lines::each(BufReader::new(file), |line| {
        let line = String::from_utf8_lossy(line);
        let (time_us, text) = timestamp(&line);
        // dmesg prints the time of a record of several lines only before the first.
        last_us = time_us.or(last_us);
        scanner.record(text, last_us);
    })
    .map_err(unreadable)?;
    Ok(Reading { source: "file", complete: !extent.cut_off, problems: extent.problems(), findings: scanner.finish() })
}

/// Takes dmesg's `[   12.345678] ` off, and the `[  T123] ` that it prints behind with `CONFIG_PRINTK_CALLER`.
fn timestamp(line: &str) -> (Option<u64>, &str) {
    let Some((stamp, text)) = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
        return (None, line);
    };
    let Some(time_us) = microseconds(stamp.trim()) else {
        return (None, line);
    };
    let caller = text.trim_start().strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let text = match caller {
        Some((caller, text)) if caller.trim().starts_with(['T', 'C']) => text,
        _ => text,
    };
    (Some(time_us), text)
}

/// Seconds with six decimals.
fn microseconds(stamp: &str) -> Option<u64> {
    let (seconds, fraction) = stamp.split_once('.')?;
    if fraction.len() != 6 {
        return None;
    }
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::timestamp;

    #[test]
    fn timestamps_of_dmesg() {
        let check = |line: &str, time_us, text: &str| assert_eq!(timestamp(line), (time_us, text), "{line}");
        check("[   12.345678] NVRM: a", Some(12_345_678), " NVRM: a");
        check("[14387.209961][ T1234] NVRM: a", Some(14_387_209_961), " NVRM: a");
        check("[    0.000000] [Firmware Bug]: a", Some(0), " [Firmware Bug]: a");
        check("NVRM: a", None, "NVRM: a");
        check("               NVRM: a", None, "               NVRM: a");
        check("[12.5] a", None, "[12.5] a");
        check("[99999999999999999999.000000] a", None, "[99999999999999999999.000000] a");
        check("[", None, "[");
    }
}
