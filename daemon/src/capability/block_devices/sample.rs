//! Samples of a device: is it zero where it is looked at?
//!
//! **Invariant:** the same seed gives the same places, and the first and the last are always among them.

use bc_runtime::capability::block_devices::SampleReport;
use bc_runtime::capability::{Answer, Error};

use super::disk_io::{ALIGN_BYTES, Buffer, Device};
use super::list::Disk;

/// The most samples of one call: about a minute on a disk that turns.
const MAX_SAMPLES: u32 = 10_000;

/// Reads them, in the order of their places. `go_on` is asked before each.
pub(super) fn sample(disk: &Disk, count: u32, seed: u64, go_on: impl Fn() -> Answer<()>) -> Answer<SampleReport> {
    if count > MAX_SAMPLES {
        let message = format!("{count} samples are too many: one call reads at most {MAX_SAMPLES}");
        return Err(Error::new("too-many-samples", message));
    }
    let device = Device::read(disk)?;
    device.drop_cache();
    let mut buffer = Buffer::new(ALIGN_BYTES);
    let mut report = SampleReport { read: 0, nonzero: 0, sample_bytes: 4096 };
    for offset in places(disk.size_bytes, count, seed) {
        go_on()?;
        device.read_at(buffer.bytes_mut(), offset)?;
        report.read += 1;
        report.nonzero += u32::from(buffer.bytes().iter().any(|byte| *byte != 0));
    }
    Ok(report)
}

/// Offsets in bytes, ascending.
fn places(size_bytes: u64, count: u32, seed: u64) -> Vec<u64> {
    let block = ALIGN_BYTES as u64;
    let blocks = size_bytes / block;
    if blocks == 0 {
        return Vec::new();
    }
    let mut places = vec![0];
    // The end of a device need not be a multiple of the sample's size, but is one of 512 bytes.
    if size_bytes > block {
        places.push((size_bytes - block) / 512 * 512);
    }
    let mut state = seed;
    places.extend((2..count).map(|_| next(&mut state) % blocks * block));
    places.sort_unstable();
    places
}

/// SplitMix64, by its published constants.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn places_are_inside_and_hold_both_ends(sectors in 8_u64..1 << 40, count in 0_u32..200, seed: u64) {
            let size = sectors * 512;
            let places = places(size, count, seed);
            prop_assert_eq!(&places, &super::places(size, count, seed));
            prop_assert_eq!(places[0], 0);
            prop_assert_eq!(places[places.len() - 1], size - 4096);
            prop_assert!(places.iter().all(|place| place % 512 == 0 && place + 4096 <= size));
            prop_assert!(places.len() >= usize::try_from(count).unwrap_or(0).min(places.len()));
        }
    }

    #[test]
    fn another_seed_gives_other_places() {
        assert_ne!(places(1 << 40, 50, 1), places(1 << 40, 50, 2));
        assert_eq!(places(1 << 40, 50, 1).len(), 50);
        assert_eq!(places(4096, 50, 1)[..1], [0]);
    }
}
