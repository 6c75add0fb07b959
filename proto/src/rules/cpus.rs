//! Lists of processors as the kernel writes them: `2-5,8`.
//!
//! **Invariant:** two lists that mean the same processors are equal, however they are written.

use std::collections::BTreeSet;

/// The most processors that the kernel knows of.
const MAX: u32 = 8_191;

/// The processors of a list; `None` for what is no list. The empty text is the empty list.
pub fn parse(text: &str) -> Option<BTreeSet<u32>> {
    let mut named = BTreeSet::new();
    for range in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return None;
        }
        named.extend(first..=last);
    }
    Some(named)
}

/// Digits alone: `parse` would take a sign.
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number <= MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_what_it_means() {
        assert_eq!(parse("2-4,8"), Some([2, 3, 4, 8].into()));
        assert_eq!(parse("8,4,2-3"), parse("2-4,8"));
        assert_eq!(parse(""), Some([].into()));
        for wrong in ["a", "1-", "-1", "3-2", "1,,2", "+1", "1 2", "0-9000", "99999999999"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
