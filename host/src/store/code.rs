//! The words that the schema's enums use for the domain's.
//!
//! **Invariant:** each word is the one of manifests, protocol and API.

use bc_proto::manifest::{Lane, Role, Trait};
use bc_proto::rules::state::State;

/// The enum `lane`.
pub const fn lane(lane: Lane) -> &'static str {
    match lane {
        Lane::Control => "control",
        Lane::Provision => "provision",
        Lane::Bulk => "bulk",
    }
}

/// Reads the enum `lane`.
pub fn parse_lane(word: &str) -> Option<Lane> {
    Lane::ALL.into_iter().find(|&it| lane(it) == word)
}

/// The enum `role`.
pub const fn role(role: Role) -> &'static str {
    match role {
        Role::Host => "host",
        Role::Ramdisk => "ramdisk",
        Role::Site => "site",
        Role::Gateway => "gateway",
    }
}

/// Reads the enum `role`.
pub fn parse_role(word: &str) -> Option<Role> {
    [Role::Host, Role::Ramdisk, Role::Site, Role::Gateway].into_iter().find(|&it| role(it) == word)
}

/// A word in `kinds.traits`.
pub const fn trait_of_kind(it: Trait) -> &'static str {
    match it {
        Trait::Destructive => "destructive",
        Trait::RetrySafe => "retry-safe",
        Trait::SelfTerminating => "self-terminating",
        Trait::Attested => "attested",
    }
}

/// Reads a word in `kinds.traits`.
pub fn parse_trait(word: &str) -> Option<Trait> {
    [Trait::Destructive, Trait::RetrySafe, Trait::SelfTerminating, Trait::Attested]
        .into_iter()
        .find(|&it| trait_of_kind(it) == word)
}

/// Reads the enums `in_flight_state` and `terminal_state`, and the view's `pending`.
pub fn parse_state(word: &str) -> Option<State> {
    State::ALL.into_iter().find(|state| state.to_string() == word)
}

#[cfg(test)]
mod tests {
    use serde_json::to_value;

    use super::*;

    #[test]
    fn the_words_are_those_of_manifests() {
        for it in Lane::ALL {
            assert_eq!(to_value(it).expect("a word"), lane(it));
            assert_eq!(parse_lane(lane(it)), Some(it));
        }
        for it in [Role::Host, Role::Ramdisk, Role::Site, Role::Gateway] {
            assert_eq!(to_value(it).expect("a word"), role(it));
            assert_eq!(parse_role(role(it)), Some(it));
        }
        for it in [Trait::Destructive, Trait::RetrySafe, Trait::SelfTerminating, Trait::Attested] {
            assert_eq!(to_value(it).expect("a word"), trait_of_kind(it));
            assert_eq!(parse_trait(trait_of_kind(it)), Some(it));
        }
        assert!(State::ALL.into_iter().all(|state| parse_state(&state.to_string()) == Some(state)));
    }
}
