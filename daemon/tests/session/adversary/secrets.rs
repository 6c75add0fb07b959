//! Secrets that the control plane did not seal for what was asked. In memory, through the checks that the daemon makes.

use bc_proto::id::{CommandId, NodeId};
use bc_proto::secret::{OneTimeKey, Purpose, Sealed, SecretValue, seal};
use bc_proto::sign::WorkerSignature;
use bc_proto::sign::body::SealedSecretBody;

use super::control_plane::{ControlPlane, bundle, other_node};
use super::{NOTHING, Table};
use crate::gateway::{SERVER_TIME_MS as NOW, id, node_id};

/// The one-time key that the node made; `asked(0)` was the last one.
fn asked(seed: u8) -> OneTimeKey {
    OneTimeKey::from_seed(&[seed; 32])
}

/// An answer, signed or not.
struct Answer {
    sealed: Sealed,
    signature: Option<WorkerSignature>,
}

fn answer(by: &ControlPlane, command: CommandId, node: NodeId, secret_ref: &str, seed: u8) -> Answer {
    let value = SecretValue::from_bytes(b"what the attacker wants it to be".to_vec()).expect("a secret");
    let key = asked(seed);
    let sealed =
        seal(&value, key.public(), Purpose { command, node, secret_ref }, |bytes| bytes.fill(7)).expect("sealed");
    let (one_time_key, sealed_sha256) = (hex::encode(key.public()), sealed.sha256_hex());
    let body =
        SealedSecretBody { command, node, secret_ref, one_time_key: &one_time_key, sealed_sha256: &sealed_sha256 };
    Answer { signature: Some(by.sign(&body)), sealed }
}

/// What the daemon does with an answer to its request: command 1, `token`, the one-time key 1.
fn judge(answer: &Answer) -> Result<(), String> {
    let (command, node, secret_ref) = (id(1), node_id(), "token");
    let (one_time_key, sealed_sha256) = (hex::encode(asked(1).public()), answer.sealed.sha256_hex());
    let body =
        SealedSecretBody { command, node, secret_ref, one_time_key: &one_time_key, sealed_sha256: &sealed_sha256 };
    bundle(1).sealed_secret(&body, answer.signature.as_ref(), NOW).map_err(|error| error.to_string())?;
    let opened = asked(1).open(&answer.sealed, Purpose { command, node, secret_ref });
    opened.map(drop).map_err(|error| error.to_string())
}

pub(super) fn play() -> Table {
    let mut table = Table::new("Secrets (in memory, through the daemon's checks)");
    let honest = ControlPlane::honest();
    let good = || answer(&honest, id(1), node_id(), "token", 1);
    judge(&good()).expect("the true answer opens");
    let own = || answer(&ControlPlane::attacker(), id(1), node_id(), "token", 1);
    let attempts = [
        ("a value that the gateway sealed, unsigned", Answer { signature: None, ..own() }),
        ("a value that the gateway sealed and signed", own()),
        (
            "a value that the gateway sealed, under the true signature",
            Answer { sealed: answer(&honest, id(2), node_id(), "token", 1).sealed, ..good() },
        ),
        ("the answer to another command", answer(&honest, id(2), node_id(), "token", 1)),
        ("the answer for another reference", answer(&honest, id(1), node_id(), "other", 1)),
        ("the answer to another node", answer(&honest, id(1), other_node(), "token", 1)),
        ("an answer of before, to another one-time key", answer(&honest, id(1), node_id(), "token", 2)),
        ("a command's signature", Answer { signature: honest.command(1).signature, ..good() }),
    ];
    for (attempt, answer) in attempts {
        let refused_by = judge(&answer).expect_err(attempt);
        table.row(attempt, &refused_by, NOTHING);
    }
    table
}
