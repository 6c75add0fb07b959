//! `/dev/kmsg`: the kernel's ring buffer, one record for each read.
//!
//! A record is `prio,seq,time_us,flags[,…];text`, then lines of its dictionary that begin with a space. Bytes that are no
//! printable ASCII come as `\xNN`. Source: the kernel's Documentation/ABI/testing/dev-kmsg.
//!
//! **Invariant:** only records of facility 0 count. Anybody who may write to the device can add others, but the kernel gives
//! those another facility.

use std::path::Path;

use bc_proto::xid::Scanner;
use rustix::{
    fs::{Mode, OFlags, open},
    io::{Errno, read as read_fd},
};

use super::{Reading, Unreadable};

/// Larger than any record: the kernel answers `EINVAL` to a smaller buffer, and its own limit is 8 KiB.
const RECORD_BYTES: usize = 16 * 1024;

/// The most records read. Ours: the largest ring that can be configured (32 MiB) holds fewer, so reaching it means that the
/// kernel logs faster than we read.
const MAX_RECORDS: u32 = 2_000_000;

/// One record.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    /// 0 is the kernel.
    facility: u32,
    /// Counts from 0 at boot.
    sequence: u64,
    time_us: u64,
    text: String,
}

pub(super) fn read(path: &Path) -> Result<Reading, Unreadable> {
    let unreadable = |errno: Errno| Unreadable::io(path.display(), &errno.into());
    let device = open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).map_err(unreadable)?;
    let mut buffer = vec![0; RECORD_BYTES];
    let mut log = Log::default();
    for _ in 0..MAX_RECORDS {
        match read_fd(&device, &mut buffer[..]) {
            Ok(0) | Err(Errno::AGAIN) => return log.finish(path),
            Ok(length) => log.take(&buffer[..length]),
            Err(Errno::INTR) => {}
            // The records behind the reading position were overwritten; the next read gives the oldest there is.
            Err(Errno::PIPE) => log.overwritten += 1,
            Err(errno) => return Err(unreadable(errno)),
        }
    }
    log.cut_off = true;
    log.finish(path)
}

#[derive(Default)]
struct Log {
    scanner: Scanner,
    first_sequence: Option<u64>,
    overwritten: u32,
    malformed: u32,
    cut_off: bool,
}

impl Log {
    fn take(&mut self, bytes: &[u8]) {
        let Some(record) = parse(bytes) else {
            self.malformed += 1;
            return;
        };
        self.first_sequence.get_or_insert(record.sequence);
        if record.facility == 0 {
            self.scanner.record(&record.text, Some(record.time_us));
        }
    }

    fn finish(self, path: &Path) -> Result<Reading, Unreadable> {
        let Some(first_sequence) = self.first_sequence else {
            return Err(Unreadable::new(format!("{}: it holds no records", path.display())));
        };
        let mut problems = Vec::new();
        if first_sequence > 0 {
            problems.push(format!(
                "the kernel's ring buffer no longer holds the first {first_sequence} records of this boot"
            ));
        }
        if self.overwritten > 0 {
            problems.push("the kernel overwrote records while they were read".to_owned());
        }
        if self.malformed > 0 {
            problems.push(format!("{} records of the kernel's log could not be read", self.malformed));
        }
        if self.cut_off {
            problems.push(format!("only {MAX_RECORDS} records were read: the kernel logs without end"));
        }
        let complete = first_sequence == 0 && self.overwritten == 0 && !self.cut_off;
        Ok(Reading { source: "kmsg", complete, problems, findings: self.scanner.finish() })
    }
}

fn parse(bytes: &[u8]) -> Option<Record> {
    let record = std::str::from_utf8(bytes).ok()?;
    let (head, body) = record.split_once(';')?;
    let mut fields = head.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    let sequence = fields.next()?.parse().ok()?;
    let time_us = fields.next()?.parse().ok()?;
    let text = body.split('\n').next()?;
    // The lower three bits are the level.
    Some(Record { facility: priority >> 3, sequence, time_us, text: unescape(text) })
}

fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        if let Some(byte) = escaped(rest) {
            bytes.push(byte);
            rest = &rest[4..];
        } else {
            bytes.push(first);
            rest = behind;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The byte that `\xNN` at the front stands for.
fn escaped(bytes: &[u8]) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = bytes else {
        return None;
    };
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bc_proto::xid::Action;
    use proptest::prelude::*;

    use super::{Log, Record, parse};

    const LOST: &[u8] = b"3,7,5000000,-;NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: (PCI ID: 10de:2330) installed in this system \
        has\\x0aNVRM: fallen off the bus and is not responding to commands.\n SUBSYSTEM=pci\n DEVICE=+pci:0000:b3:00.0\n";

    fn log(records: &[&[u8]]) -> Log {
        let mut log = Log::default();
        for record in records {
            log.take(record);
        }
        log
    }

    #[test]
    fn records_are_read_without_their_dictionary_and_escapes() {
        let record = parse(b"6,339,5140900,-,caller=T1;a \\x5c \\xc3\\xa4 \\xZZ \\x4\n SUBSYSTEM=net\n")
            .expect("it is a record");
        let text = "a \\ ä \\xZZ \\x4".to_owned();
        assert_eq!(record, Record { facility: 0, sequence: 339, time_us: 5_140_900, text });
        assert_eq!(parse(b"no record"), None);
        assert_eq!(parse(b"6,1;short"), None);
    }

    #[test]
    fn promise_31_the_loss_of_a_gpu_in_one_record_is_found() {
        let reading = log(&[b"6,0,0,-;Linux\n", LOST]).finish(Path::new("kmsg")).expect("it has records");
        assert!(reading.complete, "{reading:?}");
        let [condition] = &reading.findings.conditions[..] else { panic!("{reading:?}") };
        assert_eq!((condition.code, condition.action, condition.first_us), (None, Action::RestartBm, Some(5_000_000)));
    }

    #[test]
    fn only_the_kernel_is_believed() {
        let by_a_user = b"12,1,9,-;NVRM: Xid (PCI:0000:99:00): 79, GPU has fallen off the bus.\n";
        let reading = log(&[b"6,0,0,-;Linux\n", by_a_user]).finish(Path::new("kmsg")).expect("it has records");
        assert_eq!(reading.findings.conditions, []);
    }

    #[test]
    fn a_ring_that_lost_the_start_of_the_boot_is_incomplete() {
        let reading = log(&[b"6,12,99,-;late\n"]).finish(Path::new("kmsg")).expect("it has records");
        assert!(!reading.complete);
        assert_eq!(reading.problems, ["the kernel's ring buffer no longer holds the first 12 records of this boot"]);

        let mut overwritten = log(&[b"6,0,0,-;Linux\n"]);
        overwritten.overwritten = 1;
        assert!(!overwritten.finish(Path::new("kmsg")).expect("it has records").complete);
        assert!(log(&[]).finish(Path::new("kmsg")).is_err(), "no record at all is not an empty log");
    }

    proptest! {
        #[test]
        fn no_record_makes_it_panic(bytes: Vec<u8>, text in "[0-9]{1,3},[0-9]{1,3},[0-9]{1,3},-;(\\\\x[0-9a-fg]{0,3}|\\PC){0,9}") {
            log(&[&bytes, text.as_bytes()]);
        }
    }
}
