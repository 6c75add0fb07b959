//! Attested results: what a node signs of a command's end, and how anybody checks it.
//!
//! **Invariant:** what was signed is the command, the end and every byte of the result. A signature over another command, another
//! end or another result does not count, and neither does one that another key made.

use crate::canonical;
use crate::id::CommandId;
use crate::rules::state::State;
use crate::sign::body::UpdateBody;
use crate::sign::{Error, PublicKey, Purpose, SecretKey, Signature};
use crate::wire::{Report, Update};

/// Signs a report of an end; `None` where nothing has ended. The same report is signed the same.
pub fn sign(key: &SecretKey, update: &Update) -> Option<Signature> {
    let state = end(update.report)?;
    Some(with_body(update.command, state, &update.result, |body| key.sign(body)))
}

/// Whether one of the keys signed that a command ended so, with this result: the one that did.
pub fn verify<'a>(
    keys: impl IntoIterator<Item = &'a PublicKey>,
    command: CommandId,
    state: State,
    result: &[u8],
    node_sig: &[u8],
) -> Result<PublicKey, Error> {
    let signature = Signature::from_slice(node_sig)?;
    with_body(command, state, result, |body| {
        let by = keys.into_iter().copied().find(|key| key.verify(body, &signature).is_ok());
        by.ok_or(Error::Wrong(Purpose::CommandUpdate))
    })
}

/// The state that a report of an end leads to; `None` for other reports.
pub fn end(report: Report) -> Option<State> {
    State::Dispatched.on(report.event()).ok().filter(|state| state.is_terminal())
}

fn with_body<T>(command: CommandId, state: State, result: &[u8], then: impl FnOnce(&UpdateBody<'_>) -> T) -> T {
    let (state, result_sha256) = (state.to_string(), canonical::sha256_hex(result));
    then(&UpdateBody { command, state: &state, result_sha256: &result_sha256 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn id(n: u128) -> CommandId {
        CommandId::from_uuid(Uuid::from_u128(n))
    }

    fn update(report: Report) -> Update {
        let result = br#"{"wiped":["/dev/nvme0n1"]}"#.to_vec();
        Update { command: id(1), report, reason: String::new(), result, at_ms: 5, node_sig: vec![] }
    }

    #[test]
    fn only_ends_are_signed_and_each_end_differs() {
        let key = SecretKey::from_seed([1; 32]);
        for report in [Report::Running, Report::Busy] {
            assert_eq!(sign(&key, &update(report)), None);
        }
        let ends = [Report::Succeeded, Report::Failed, Report::Cancelled, Report::Rejected];
        let made = ends.map(|report| sign(&key, &update(report)).expect("it is an end"));
        for (at, one) in made.iter().enumerate() {
            for (report, which) in ends.iter().zip(0..) {
                let state = end(*report).expect("it is an end");
                let checked = verify([&key.public()], id(1), state, &update(*report).result, one.as_bytes());
                assert_eq!(checked.is_ok(), at == which, "{at} as {state}");
            }
        }
        assert_eq!(made[0], sign(&key, &Update { at_ms: 9, ..update(Report::Succeeded) }).expect("an end"));
    }

    #[test]
    fn a_signature_that_is_missing_cut_forged_replayed_or_swapped_does_not_count() {
        let (key, other) = (SecretKey::from_seed([1; 32]), SecretKey::from_seed([2; 32]));
        let good = update(Report::Succeeded);
        let made = sign(&key, &good).expect("an end");
        let made = made.as_bytes();
        let keys = [other.public(), key.public()];
        let check = |command, state, result: &[u8], sig: &[u8]| {
            verify(&keys, command, state, result, sig).map(|by| by == key.public())
        };
        let wrong = Err(Error::Wrong(Purpose::CommandUpdate));
        assert_eq!(check(id(1), State::Succeeded, &good.result, made), Ok(true));
        assert_eq!(check(id(1), State::Succeeded, &good.result, &[]), Err(Error::Missing));
        assert_eq!(check(id(1), State::Succeeded, &good.result, &made[..63]), Err(Error::Truncated(63)));
        assert_eq!(check(id(2), State::Succeeded, &good.result, made), wrong, "another command's");
        assert_eq!(check(id(1), State::Failed, &good.result, made), wrong, "another end");
        assert_eq!(check(id(1), State::Succeeded, b"{}", made), wrong, "another result");
        let forged = SecretKey::from_seed([3; 32]);
        let forged = sign(&forged, &good).expect("an end");
        assert_eq!(check(id(1), State::Succeeded, &good.result, forged.as_bytes()), wrong, "another key");
        assert!(verify([], id(1), State::Succeeded, &good.result, made).is_err(), "no key at all");
    }

    proptest! {
        #[test]
        fn every_byte_counts(at in 0..64_usize, bit in 0..8_u8, place in 0..26_usize) {
            let key = SecretKey::from_seed([1; 32]);
            let good = update(Report::Succeeded);
            let mut sig = *sign(&key, &good).expect("an end").as_bytes();
            let mut result = good.result.clone();
            result[place] ^= 1 << bit;
            prop_assert!(verify([&key.public()], id(1), State::Succeeded, &result, &sig).is_err());
            sig[at] ^= 1 << bit;
            prop_assert!(verify([&key.public()], id(1), State::Succeeded, &good.result, &sig).is_err());
        }
    }
}
