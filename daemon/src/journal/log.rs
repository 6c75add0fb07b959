//! SQLite's write-ahead log, looked at before SQLite does.
//!
//! SQLite reads the log up to the first frame whose checksum does not fit and drops the rest: right after a power cut, since
//! such a frame was never committed, and wrong for a log that was damaged later. The next write shows which it was: it begins
//! only when the one before it is on the disk.
//!
//! **Invariant:** a log that lost a transaction which others follow is damage, never an earlier state of the journal. The last
//! transaction alone, or a log that was cut, cannot be told from a power cut. The format is in SQLite's "WAL-mode File Format".

/// The page size that the journal is made with.
pub(super) const PAGE_BYTES: u32 = 4096;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
const FRAME: usize = FRAME_HEADER + PAGE_BYTES as usize;

/// What is wrong with a log.
pub(super) fn damage(log: &[u8]) -> Option<String> {
    let (header, frames) = log.split_at_checked(HEADER)?;
    let frames: Vec<&[u8]> = frames.chunks_exact(FRAME).collect();
    // The magic number's last bit is the byte order of the checksums.
    let big_endian = header[3] & 1 == 1;
    let sum_of_header = sum((0, 0), &header[..24], big_endian);
    let header_fits = stored(&header[24..]) == sum_of_header && header[..3] == [0x37, 0x7f, 0x06];
    // Each use of the log has salts of its own; frames with others are left over from an earlier one.
    let salts = if header_fits { &header[16..24] } else { &frames.first()?[8..16] };
    let mut chain = sum_of_header;
    let mut fits = |frame: &[u8]| {
        chain = sum(sum(chain, &frame[..8], big_endian), &frame[FRAME_HEADER..], big_endian);
        frame[8..16] == *salts && stored(&frame[16..24]) == chain
    };
    let good = if header_fits { frames.iter().take_while(|frame| fits(frame)).count() } else { 0 };
    // A frame that commits says how many pages the database has. The damaged one is taken at its word: its salts may be what
    // is damaged.
    let commits = |frame: &[u8]| frame[4..8] != [0; 4];
    let (broken, after) = frames[good..].split_first()?;
    let mut after = after.iter().filter(|frame| frame[8..16] == *salts);
    ((commits(broken) || after.any(|frame| commits(frame))) && after.next().is_some())
        .then(|| format!("its write-ahead log is damaged at frame {good}, and transactions follow"))
}

fn stored(bytes: &[u8]) -> (u32, u32) {
    (word(&bytes[..4], true), word(&bytes[4..8], true))
}

fn word(bytes: &[u8], big_endian: bool) -> u32 {
    let bytes = bytes.try_into().expect("four bytes");
    if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

/// SQLite's running checksum over pairs of words.
fn sum((mut first, mut second): (u32, u32), bytes: &[u8], big_endian: bool) -> (u32, u32) {
    for pair in bytes.chunks_exact(8) {
        first = first.wrapping_add(word(&pair[..4], big_endian)).wrapping_add(second);
        second = second.wrapping_add(word(&pair[4..], big_endian)).wrapping_add(first);
    }
    (first, second)
}
