//! Webhooks: which events go where, which addresses are reached, and what follows from an attempt.
//!
//! **Invariant:** an address that is not of the public internet is reached only where the server's operator allows it by name: a
//! tenant's operator, who chooses URLs, cannot make the server call what stands beside it.

// Addresses are values: `core` has them, and has no sockets.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;

/// The most topics of one webhook.
pub const MAX_TOPICS: usize = 50;

/// The longest URL, bytes.
pub const MAX_URL_BYTES: usize = 2_000;

/// How long a webhook may fail without one success before nothing is sent to it any more.
pub const FAILING: Duration = Duration::from_hours(5 * 24);

/// The waits between attempts, as the Standard Webhooks specification proposes them: ten attempts over three days.
const WAITS: [Duration; 9] = [
    Duration::from_secs(5),
    Duration::from_mins(5),
    Duration::from_mins(30),
    Duration::from_hours(2),
    Duration::from_hours(5),
    Duration::from_hours(10),
    Duration::from_hours(14),
    Duration::from_hours(20),
    Duration::from_hours(24),
];

/// The share of a wait that is drawn, and comes on top: what failed together does not come back together.
const JITTER: f64 = 0.2;

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// There was an answer with this HTTP status.
    Answered {
        /// The status.
        status: u16,
        /// How long it asks not to be called, where it says so.
        retry_after: Option<Duration>,
    },
    /// There was none: no address, no connection, no certificate that holds, no answer in time.
    Unanswered,
}

/// What follows for the delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is over, and well.
    Delivered,
    /// Try again after so long.
    Retry(Duration),
    /// Give it up.
    Dead,
}

/// What follows for the webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It works.
    Works,
    /// It fails, and may recover.
    Fails,
    /// It says that it is gone: nothing more is sent.
    Gone,
    /// It has failed for so long that nothing more is sent.
    FailedTooLong,
}

/// What follows from an attempt, the `attempts`-th of its delivery, where the webhook has failed for `failing`. `random` is uniform
/// over 0..1.
pub fn decide(outcome: Outcome, attempts: u32, failing: Duration, random: f64) -> (Next, Standing) {
    let asked = match outcome {
        Outcome::Answered { status: 200..=299, .. } => return (Next::Delivered, Standing::Works),
        Outcome::Answered { status: 410, .. } => return (Next::Dead, Standing::Gone),
        Outcome::Answered { retry_after, .. } => retry_after.unwrap_or_default(),
        Outcome::Unanswered => Duration::ZERO,
    };
    let standing = if failing >= FAILING { Standing::FailedTooLong } else { Standing::Fails };
    let index = usize::try_from(attempts.max(1) - 1).unwrap_or(usize::MAX);
    let next = WAITS.get(index).map_or(Next::Dead, |wait| {
        let jitter = wait.mul_f64(JITTER * random.clamp(0.0, 1.0));
        // Nobody is put off for longer than the longest wait.
        Next::Retry((*wait + jitter).max(asked.min(WAITS[WAITS.len() - 1])))
    });
    (next, standing)
}

/// Whether one of these patterns means a topic: the topic itself, its beginning followed by `.*`, or `*`.
pub fn wants<'a>(patterns: impl IntoIterator<Item = &'a str>, topic: &str) -> bool {
    patterns.into_iter().any(|pattern| {
        pattern == "*"
            || pattern == topic
            || pattern
                .strip_suffix(".*")
                .is_some_and(|stem| topic.strip_prefix(stem).is_some_and(|rest| rest.starts_with('.')))
    })
}

/// Whether this is a pattern of topics.
pub fn is_pattern(pattern: &str) -> bool {
    let stem = pattern.strip_suffix(".*").unwrap_or(pattern);
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    pattern == "*" || (pattern.len() <= 100 && stem.split('.').all(is_word))
}

/// What is reached though it is not of the public internet: hosts by name, addresses and networks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allow {
    hosts: Vec<String>,
    networks: Vec<IpNet>,
}

/// Not a host and not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no host's name, no address and no network; for example \"hooks.internal\", \"10.1.2.3\" or \"10.0.0.0/8\""
)]
pub struct InvalidAllow(pub String);

impl Allow {
    /// What these words allow.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidAllow> {
        let mut allow = Self::default();
        for word in words {
            if let Ok(network) = IpNet::from_str(word) {
                allow.networks.push(network);
            } else if let Ok(address) = IpAddr::from_str(word) {
                allow.networks.push(address.into());
            } else if is_host(word) {
                allow.hosts.push(word.to_ascii_lowercase());
            } else {
                return Err(InvalidAllow(word.to_owned()));
            }
        }
        Ok(allow)
    }

    /// Whether a host is allowed by its own name, whatever its addresses are; an address by itself or its network.
    pub fn names(&self, host: &str) -> bool {
        match literal(host) {
            Some(address) => self.holds(address),
            None => self.hosts.contains(&plain(host)),
        }
    }

    fn holds(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// Whether a connection to this address of this host may be opened.
    pub fn reaches(&self, host: &str, address: IpAddr) -> bool {
        self.names(host) || self.holds(address) || is_public(address)
    }
}

/// The name as it is compared: in lower case, without the dot of a name that is written whole.
fn plain(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// The address that stands in place of a name, with or without brackets.
fn literal(host: &str) -> Option<IpAddr> {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host).parse().ok()
}

fn is_host(word: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    // What ends in a number is read as an address by URLs, and this one is none.
    let is_name = word.rsplit('.').next().is_some_and(|last| !last.bytes().all(|byte| byte.is_ascii_digit()));
    word.len() <= 253 && is_name && word.split('.').all(is_label)
}

/// The parts of a URL that are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// `https`.
    pub scheme: &'a str,
    /// A name or an address; that of IPv6 with its brackets or without.
    pub host: &'a str,
    /// Whether it holds a user or a password.
    pub has_credentials: bool,
    /// Whether it has a part after `#`.
    pub has_fragment: bool,
}

/// Why a URL is refused. Each is a rule, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is not https.
    Scheme,
    /// It holds a user or a password.
    Credentials,
    /// It has a fragment.
    Fragment,
    /// It has no host.
    Host,
    /// Its address is not of the public internet.
    Address,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => {
                "must begin with https://; http:// is for hosts that the server's operator allows under [webhooks]"
            }
            Self::Credentials => "must hold no user and no password: deliveries are signed, verify the signature",
            Self::Fragment => "must end without `#`: that part is never sent",
            Self::Host => "must name a host",
            Self::Address => {
                "must be an address of the public internet, or one that the server's operator allows under [webhooks]"
            }
        })
    }
}

/// Whether events may be sent to a URL, as far as that is known without looking its host up.
pub fn check(target: Target<'_>, allow: &Allow) -> Result<(), Refused> {
    if target.host.is_empty() {
        return Err(Refused::Host);
    }
    if target.scheme != "https" && !(target.scheme == "http" && allow.names(target.host)) {
        return Err(Refused::Scheme);
    }
    if target.has_credentials {
        return Err(Refused::Credentials);
    }
    if target.has_fragment {
        return Err(Refused::Fragment);
    }
    let is_local_name = plain(target.host) == "localhost" || plain(target.host).ends_with(".localhost");
    if is_local_name && !allow.names(target.host) && !allow.holds(Ipv4Addr::LOCALHOST.into()) {
        return Err(Refused::Address);
    }
    match literal(target.host) {
        Some(address) if !allow.reaches(target.host, address) => Err(Refused::Address),
        _ => Ok(()),
    }
}

/// Whether an address is one of the public internet: neither of a machine, a site, a link, nor reserved for anything else.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = a == 0
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        // From 224.0.0.0: multicast, reserved, broadcast.
        || a >= 224
        // RFC 6598, shared by carriers; a cloud's metadata is at 100.100.100.200.
        || (a == 100 && (64..128).contains(&b))
        // RFC 6890 and RFC 7526.
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        // RFC 2544, benchmarks.
        || (a == 198 && (18..20).contains(&b));
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match segments {
        // An IPv4 address in another form is what that one is: mapped (RFC 4291), translated (RFC 6052), 6to4 (RFC 3056).
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            is_public_v4(embedded(high, low))
        }
        // RFC 6890: Teredo, benchmarks, ORCHID and what else is below 2001::/23; RFC 3849 and RFC 9637, documentation.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // All that is global unicast today; unique local, link-local, multicast and the rest lie outside.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answered(status: u16) -> Outcome {
        Outcome::Answered { status, retry_after: None }
    }

    #[test]
    fn ten_attempts_are_made_over_three_days() {
        let waits: Vec<_> = (1..=10).map(|attempt| decide(answered(500), attempt, Duration::ZERO, 0.0).0).collect();
        let seconds = [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400];
        let expected = seconds.map(|seconds| Next::Retry(Duration::from_secs(seconds)));
        assert_eq!(waits[..9], expected);
        assert_eq!(waits[9], Next::Dead);
        assert_eq!(seconds.iter().sum::<u64>() / 3600, 75);
    }

    #[test]
    fn only_a_success_delivers_and_only_410_disables_at_once() {
        for status in [200, 201, 204, 299] {
            assert_eq!(decide(answered(status), 3, FAILING * 2, 0.5), (Next::Delivered, Standing::Works), "{status}");
        }
        assert_eq!(decide(answered(410), 1, Duration::ZERO, 0.5), (Next::Dead, Standing::Gone));
        // A redirect is not followed, so it is a failure.
        for outcome in
            [100, 199, 300, 301, 308, 400, 404, 429, 500, 599].map(answered).into_iter().chain([Outcome::Unanswered])
        {
            let (next, standing) = decide(outcome, 1, FAILING.saturating_sub(Duration::from_secs(1)), 0.0);
            assert_eq!((next, standing), (Next::Retry(Duration::from_secs(5)), Standing::Fails), "{outcome:?}");
            assert_eq!(decide(outcome, 1, FAILING, 0.0).1, Standing::FailedTooLong);
        }
    }

    #[test]
    fn who_asks_for_time_gets_it_up_to_a_day() {
        let wait = |seconds| {
            let outcome = Outcome::Answered { status: 429, retry_after: Some(Duration::from_secs(seconds)) };
            decide(outcome, 1, Duration::ZERO, 0.0).0
        };
        assert_eq!(wait(1), Next::Retry(Duration::from_secs(5)));
        assert_eq!(wait(120), Next::Retry(Duration::from_mins(2)));
        assert_eq!(wait(u64::MAX), Next::Retry(Duration::from_hours(24)));
    }

    proptest! {
        #[test]
        fn waits_are_bounded_whatever_comes(status: u16, attempts: u32, random: f64, asked: u64, failing: u64) {
            let retry_after = Some(Duration::from_secs(asked));
            let outcome = Outcome::Answered { status, retry_after };
            if let (Next::Retry(wait), _) = decide(outcome, attempts, Duration::from_secs(failing), random) {
                prop_assert!(wait >= WAITS[0] && wait <= WAITS[8].mul_f64(1.0 + JITTER), "{wait:?}");
            }
        }

        #[test]
        fn no_text_makes_the_rules_panic(text: String, host: String) {
            let _ = is_pattern(&text);
            let _ = wants([text.as_str()], &host);
            let allow = Allow::parse([text.as_str()]).unwrap_or_default();
            let _ = check(Target { scheme: "https", host: &host, has_credentials: false, has_fragment: false }, &allow);
        }

        #[test]
        fn an_address_means_the_same_in_its_forms_of_ipv6(bits: u32) {
            let v4 = Ipv4Addr::from(bits);
            let [a, b, c, d] = v4.octets();
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            for v6 in [
                v4.to_ipv6_mapped(),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            ] {
                prop_assert_eq!(is_public(v6.into()), is_public(v4.into()), "{}", v6);
            }
        }
    }

    #[test]
    fn patterns_mean_topics_and_what_is_below_them() {
        for (pattern, topic, expected) in [
            ("*", "command.settled", true),
            ("command.settled", "command.settled", true),
            ("command.*", "command.settled", true),
            ("node.*", "node.command.queued", true),
            ("node.command.*", "node.command.queued", true),
            ("command.*", "commands.settled", false),
            ("command.*", "command", false),
            ("command", "command.settled", false),
        ] {
            assert_eq!(wants([pattern], topic), expected, "{pattern} {topic}");
            assert!(is_pattern(pattern), "{pattern}");
        }
        for pattern in ["", ".*", "**", "a*", "a.*.b", "a..b", "A.b", "a b", "*.a", &"a".repeat(101)] {
            assert!(!is_pattern(pattern), "{pattern}");
        }
    }

    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        for (address, expected) in [
            ("8.8.8.8", true),
            ("1.1.1.1", true),
            ("100.63.255.255", true),
            ("100.128.0.1", true),
            ("172.15.0.1", true),
            ("172.32.0.1", true),
            ("198.17.255.255", true),
            ("198.20.0.0", true),
            ("223.255.255.255", true),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("10.0.0.1", false),
            ("100.64.0.1", false),
            ("100.100.100.200", false),
            ("127.0.0.1", false),
            ("127.255.255.254", false),
            ("169.254.169.254", false),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("192.0.0.192", false),
            ("192.0.2.1", false),
            ("192.88.99.1", false),
            ("192.168.1.1", false),
            ("198.18.0.1", false),
            ("198.51.100.1", false),
            ("203.0.113.1", false),
            ("224.0.0.1", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("2606:4700:4700::1111", true),
            ("2a00:1450::1", true),
            ("::", false),
            ("::1", false),
            ("::127.0.0.1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("::ffff:8.8.8.8", true),
            ("64:ff9b::10.0.0.1", false),
            ("64:ff9b::8.8.8.8", true),
            ("64:ff9b:1::1", false),
            ("100::1", false),
            ("2001::1", false),
            ("2001:db8::1", false),
            ("2002:7f00:1::1", false),
            ("3fff::1", false),
            ("fc00::1", false),
            ("fd00:ec2::254", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_public(address.parse().expect(address)), expected, "{address}");
        }
    }

    #[test]
    fn the_table_of_urls() {
        let none = Allow::default();
        let some = Allow::parse(["hooks.internal", "10.1.0.0/16", "::1", "127.0.0.1"]).expect("all are words");
        let mut table = String::new();
        for (scheme, host) in [
            ("https", "hooks.example"),
            ("http", "hooks.example"),
            ("ftp", "hooks.internal"),
            ("https", ""),
            ("https", "hooks.internal"),
            ("http", "hooks.internal"),
            ("http", "HOOKS.internal."),
            ("http", "not-hooks.internal"),
            ("https", "localhost"),
            ("https", "a.localhost."),
            ("https", "127.0.0.1"),
            ("http", "127.0.0.1"),
            ("https", "127.0.0.2"),
            ("https", "[::1]"),
            ("https", "[::ffff:127.0.0.1]"),
            ("https", "[::ffff:7f00:2]"),
            ("https", "10.1.2.3"),
            ("http", "10.1.2.3"),
            ("https", "10.2.2.3"),
            ("https", "169.254.169.254"),
            ("https", "[fd00:ec2::254]"),
            ("https", "8.8.8.8"),
            ("http", "8.8.8.8"),
        ] {
            let target = Target { scheme, host, has_credentials: false, has_fragment: false };
            let word = |allow| check(target, allow).map_or_else(|refused| format!("{refused:?}"), |()| "yes".into());
            table += &format!("{scheme}://{host}: {}, where allowed: {}\n", word(&none), word(&some));
        }
        insta::assert_snapshot!(table);
        let plain = Target { scheme: "https", host: "hooks.example", has_credentials: false, has_fragment: false };
        assert_eq!(check(Target { has_credentials: true, ..plain }, &some), Err(Refused::Credentials));
        assert_eq!(check(Target { has_fragment: true, ..plain }, &some), Err(Refused::Fragment));
    }

    #[test]
    fn a_name_is_judged_by_the_addresses_that_it_turns_out_to_have() {
        let allow = Allow::parse(["hooks.internal", "10.1.0.0/16"]).expect("all are words");
        for (host, address, expected) in [
            ("hooks.example", "8.8.8.8", true),
            ("hooks.example", "127.0.0.1", false),
            ("hooks.example", "::ffff:10.2.0.1", false),
            ("hooks.example", "10.1.0.1", true),
            ("hooks.example", "::ffff:10.1.0.1", true),
            ("hooks.internal", "192.168.0.1", true),
        ] {
            assert_eq!(allow.reaches(host, address.parse().expect(address)), expected, "{host} {address}");
        }
        for word in ["", "a b", "10.0.0.0/40", "10.1.2", "https://a", "a/b", "a:80", "*"] {
            assert!(Allow::parse([word]).is_err(), "{word}");
        }
    }
}
