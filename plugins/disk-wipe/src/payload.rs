//! What the command asks for.
//!
//! **Invariant:** a payload names its disks either one by one or as all of a known number, never both and never "whatever there is".

use sdk::Problem;
use serde::{Deserialize, Serialize};

/// Samples of a disk, where the payload does not say: with each place drawn evenly, 64 of them miss a disk of which a tenth was left
/// about once in a thousand.
pub(crate) const SAMPLES: u32 = 64;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Payload {
    #[serde(default)]
    pub(crate) devices: Vec<Named>,
    #[serde(default)]
    pub(crate) all: bool,
    #[serde(default, deserialize_with = "sdk::payload::present")]
    pub(crate) expected: Option<usize>,
    pub(crate) minimum_level: Level,
    #[serde(default, deserialize_with = "sdk::payload::present")]
    pub(crate) methods: Option<Vec<Method>>,
    #[serde(default)]
    pub(crate) verify: Verify,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Named {
    pub(crate) path: String,
    #[serde(default, deserialize_with = "sdk::payload::present")]
    pub(crate) serial: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Verify {
    #[serde(default, deserialize_with = "sdk::payload::present")]
    pub(crate) samples: Option<u32>,
    #[serde(default, deserialize_with = "sdk::payload::present")]
    pub(crate) seed: Option<u64>,
}

/// As in NIST SP 800-88; the later is the stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Clear,
    Purge,
}

impl Level {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "clear" => Some(Self::Clear),
            "purge" => Some(Self::Purge),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Purge => "purge",
        }
    }
}

/// In the order in which they are preferred, where the payload does not say: first those whose outcome reading back can confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Method {
    NvmeSanitizeBlock,
    NvmeSanitizeCrypto,
    AtaSanitize,
    NvmeFormatUser,
    NvmeFormatCrypto,
    AtaSecureErase,
    ZeroOut,
    Overwrite,
}

impl Method {
    pub(crate) const ALL: [Self; 8] = [
        Self::NvmeSanitizeBlock,
        Self::NvmeSanitizeCrypto,
        Self::AtaSanitize,
        Self::NvmeFormatUser,
        Self::NvmeFormatCrypto,
        Self::AtaSecureErase,
        Self::ZeroOut,
        Self::Overwrite,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NvmeSanitizeBlock => "nvme-sanitize-block",
            Self::NvmeSanitizeCrypto => "nvme-sanitize-crypto",
            Self::AtaSanitize => "ata-sanitize",
            Self::NvmeFormatUser => "nvme-format-user",
            Self::NvmeFormatCrypto => "nvme-format-crypto",
            Self::AtaSecureErase => "ata-secure-erase",
            Self::ZeroOut => "zero-out",
            Self::Overwrite => "overwrite",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == text)
    }
}

impl Payload {
    /// What the schema cannot say.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        match (self.devices.is_empty(), self.all) {
            (true, false) => problems.push(Problem::new("", "name `devices`, or say `all` with `expected`")),
            (false, true) => problems.push(Problem::new("/all", "stands beside `devices`: give one of the two")),
            _ => {}
        }
        if self.all && self.expected.is_none() {
            problems.push(Problem::new("/expected", "`all` needs the number of disks that the machine has"));
        }
        if !self.all && self.expected.is_some() {
            problems.push(Problem::new("/expected", "belongs to `all`"));
        }
        for (index, device) in self.devices.iter().enumerate() {
            if self.devices[..index].iter().any(|other| other.path == device.path) {
                problems.push(Problem::new(format!("/devices/{index}/path"), "is named twice"));
            }
        }
        problems
    }

    /// Whether a disk has to be looked at.
    pub(crate) fn may_mean(&self, path: &str) -> bool {
        self.all || self.devices.iter().any(|device| device.path == path)
    }
}

/// A number that follows from a text, small enough for JSON: FNV-1a, whose top bits are left off.
pub(crate) fn seed_of(text: &str) -> u64 {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash >> 11
}
