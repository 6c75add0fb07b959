//! What XIDs 144 to 150 (NVLink on Blackwell and later) say besides their code.
//!
//! **Invariant:** decoding only adds detail. The action stays [`super::Action::Workflow`]: which part to exchange follows
//! from several GPUs' and switches' events together.

use super::grammar::Xid;

/// An NVLink event, from a message such as
/// `NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 …)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEvent<'a> {
    /// The unit of the link that reports, with the event: `NETIR_LINK_EVT`.
    pub unit: &'a str,
    /// Whether the driver calls it fatal; none where it says neither.
    pub fatal: Option<bool>,
    /// The NVLink's number on this GPU.
    pub link: Option<u32>,
    /// The first word in the parenthesis.
    pub intr_info: u32,
    /// The second word: which bits mean what depends on the unit and the subcode.
    pub error_status: u32,
}

impl<'a> LinkEvent<'a> {
    /// The codes whose messages have this form.
    pub const CODES: std::ops::RangeInclusive<u32> = 144..=150;

    /// Decodes the message; none for other codes and for messages of another form.
    pub fn of(xid: &Xid<'a>) -> Option<Self> {
        if !Self::CODES.contains(&xid.code) {
            return None;
        }
        let (head, words) = xid.message.rsplit_once('(')?;
        let mut words =
            words.split([' ', ')']).filter_map(|word| u32::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        let (intr_info, error_status) = (words.next()?, words.next()?);
        let mut heads = head.split_whitespace();
        let unit = heads.next()?;
        let fatal = match heads.next() {
            Some("Fatal") => Some(true),
            Some("Nonfatal" | "Non-fatal") => Some(false),
            _ => None,
        };
        let link = head.rsplit_once("Link ").and_then(|(_, number)| number.trim().parse().ok());
        Some(Self { unit, fatal, link, intr_info, error_status })
    }

    /// Which of the unit's errors it is: `(intrinfo >> 20) & 0x3F`, as NVIDIA's XID catalog decodes 144 to 150.
    pub fn subcode(&self) -> u8 {
        ((self.intr_info >> 20) & 0x3F) as u8
    }
}
