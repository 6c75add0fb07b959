//! One line of the kernel log, as the driver generations write it.
//!
//! ```text
//! NVRM: Xid (PCI:dddd:bb:dd[ GPU-I:NN[ GPU-CI:NN]]): CODE[, pid=P, name=N], MSG[ caused by previous Xid M]
//! ```
//!
//! Before 2013 there was no `PCI:`. Drivers 515 to 565 always print pid and name, as `pid='<unknown>', name=<unknown>` where
//! they know none; 570 leaves them out then. 575 added the suffix. The MIG instances are printed since 515, in decimal.
//! Source: NVIDIA's open kernel modules, 515 to 595.
//!
//! **Invariant:** the line must begin with `NVRM: `: other kernel messages can contain text that a user chose.

use super::pci::PciAddress;

/// What a line of the kernel log says about a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// An XID.
    Xid(Xid<'a>),
    /// It begins like an XID but does not read as one.
    Unreadable,
    /// `NVRM: GPU at PCI:dddd:bb:dd: GPU-<uuid>`, which the driver prints before a GPU's first XID.
    GpuAt {
        /// Where the GPU is.
        pci: PciAddress,
        /// Its `GPU-<uuid>`.
        uuid: &'a str,
    },
    /// `NVRM: The NVIDIA GPU dddd:bb:dd.f`: the first line of several messages, one of which is the loss of the GPU.
    TheGpu(PciAddress),
    /// A middle line of such a message: `NVRM: (PCI ID: …) installed in this system has`.
    Installed,
    /// `NVRM: fallen off the bus and is not responding to commands.`: the last line of the loss.
    FallenOff,
    /// `NVRM: GPU dddd:bb:dd.f: GPU has fallen off the bus.`: printed beside XID 79.
    HasFallenOff(PciAddress),
    /// Another line of the driver.
    Driver,
    /// Not the driver's.
    Foreign,
}

/// An XID line's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xid<'a> {
    /// Where the GPU is.
    pub pci: PciAddress,
    /// The MIG GPU instance (`GPU-I`).
    pub gi: Option<u32>,
    /// The MIG compute instance (`GPU-CI`).
    pub ci: Option<u32>,
    /// The XID.
    pub code: u32,
    /// The process that used the channel; none when unknown.
    pub pid: Option<u32>,
    /// Its name. Best effort: a name may contain the comma that ends it.
    pub name: Option<&'a str>,
    /// The rest, without the suffix.
    pub message: &'a str,
    /// The XID that caused this one, where the driver says so (it does for 45).
    pub caused_by: Option<u32>,
}

/// Reads one line, without a timestamp or level before it.
pub fn parse(line: &str) -> Line<'_> {
    let Some(text) = line.trim().strip_prefix("NVRM: ").map(str::trim_start) else {
        return Line::Foreign;
    };
    if let Some(rest) = text.strip_prefix("Xid (") {
        return xid(rest).map_or(Line::Unreadable, Line::Xid);
    }
    if text.starts_with("Xid") {
        return Line::Unreadable;
    }
    if let Some(rest) = text.strip_prefix("GPU at ") {
        return gpu_at(rest).unwrap_or(Line::Driver);
    }
    if let Some(rest) = text.strip_prefix("The NVIDIA GPU ") {
        return first_word_address(rest).map_or(Line::Driver, Line::TheGpu);
    }
    if text.starts_with("fallen off the bus") {
        return Line::FallenOff;
    }
    if text.starts_with("(PCI ID:") || text.starts_with("installed in this system") {
        return if text.contains("fallen off the bus") { Line::FallenOff } else { Line::Installed };
    }
    if let Some((address, rest)) = text.strip_prefix("GPU ").and_then(|rest| rest.split_once(": "))
        && rest.starts_with("GPU has fallen off the bus")
    {
        return address.parse().map_or(Line::Driver, Line::HasFallenOff);
    }
    Line::Driver
}

/// `PCI:0000:01:00: GPU-<uuid>`; old drivers without `PCI:`.
fn gpu_at(text: &str) -> Option<Line<'_>> {
    let (address, uuid) = text.rsplit_once(": ")?;
    let pci = address.strip_prefix("PCI:").unwrap_or(address).parse().ok()?;
    let well_formed =
        uuid.starts_with("GPU-") && uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || b"GPU-".contains(&byte));
    well_formed.then_some(Line::GpuAt { pci, uuid })
}

fn first_word_address(text: &str) -> Option<PciAddress> {
    text.split_whitespace().next()?.parse().ok()
}

/// What follows `NVRM: Xid (`.
fn xid(text: &str) -> Option<Xid<'_>> {
    let (place, tail) = text.split_once("):")?;
    let mut words = place.split_whitespace();
    let address = words.next()?;
    let pci = address.strip_prefix("PCI:").unwrap_or(address).parse().ok()?;
    let (mut gi, mut ci) = (None, None);
    for word in words {
        if let Some(number) = word.strip_prefix("GPU-I:") {
            gi = Some(number.parse().ok()?);
        } else if let Some(number) = word.strip_prefix("GPU-CI:") {
            ci = Some(number.parse().ok()?);
        }
    }

    let tail = tail.trim_start();
    let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
    let (code, tail) = tail.split_at(digits);
    let code = code.parse().ok()?;
    let tail = match tail.strip_prefix(',') {
        Some(rest) => rest.trim_start(),
        None if tail.is_empty() => tail,
        None => return None,
    };
    let (pid, name, tail) = process(tail);
    let (message, caused_by) = suffix(tail);
    Some(Xid { pci, gi, ci, code, pid, name, message, caused_by })
}

/// Takes `pid=P, name=N, ` off the front, where it is there.
fn process(text: &str) -> (Option<u32>, Option<&str>, &str) {
    let Some(rest) = text.strip_prefix("pid=") else {
        return (None, None, text);
    };
    let (pid, rest) = rest.split_once(", ").unwrap_or((rest, ""));
    let pid = pid.trim_matches('\'').parse().ok();
    let Some(rest) = rest.strip_prefix("name=") else {
        return (pid, None, rest);
    };
    let (name, message) = split_name(rest);
    (pid, (name != "<unknown>").then_some(name), message)
}

/// Where the name ends: at the first comma behind which something looks like the start of a message, else at the first.
fn split_name(text: &str) -> (&str, &str) {
    let pieces = || text.match_indices(", ").map(|(at, comma)| (&text[..at], &text[at + comma.len()..]));
    pieces().find(|(_, message)| starts_like_a_message(message)).or_else(|| pieces().next()).unwrap_or((text, ""))
}

/// The driver's messages begin with a capital letter or a number, except for these.
fn starts_like_a_message(text: &str) -> bool {
    const LOWER_CASE_STARTS: [&str; 2] = ["channel ", "engmask "];
    text.starts_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit())
        || LOWER_CASE_STARTS.iter().any(|start| text.starts_with(start))
}

/// Takes ` caused by previous Xid M` off the end.
fn suffix(text: &str) -> (&str, Option<u32>) {
    match text.rsplit_once(" caused by previous Xid ").map(|(message, code)| (message, code.parse())) {
        Some((message, Ok(code))) => (message, Some(code)),
        _ => (text, None),
    }
}
