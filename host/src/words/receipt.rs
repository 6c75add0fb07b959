//! What a receipt proves.
//!
//! **Invariant:** what was not checked or not signed is said as such.

use bc_proto::rules::receipt::{Attested, Proven};
use time::OffsetDateTime;

use super::instant;

/// What a receipt proves, a sentence each.
pub fn proven(proven: &Proven) -> Vec<String> {
    let moment = |ms: u64| {
        let seconds = i64::try_from(ms / 1000).unwrap_or(i64::MAX);
        OffsetDateTime::from_unix_timestamp(seconds).map(instant).unwrap_or_default()
    };
    let mut lines = vec![format!(
        "{} ({}) was queued for {} at {}",
        proven.command,
        proven.kind,
        proven.node,
        moment(proven.queued_at_ms)
    )];
    if let Some(batch) = &proven.batch {
        let approvers: Vec<_> = proven.approvers.iter().map(ToString::to_string).collect();
        lines.push(match approvers.as_slice() {
            [] => format!("it belongs to {batch}; no approvals are in the receipt"),
            keys => format!("it belongs to {batch}, approved by the keys {}", keys.join(", ")),
        });
    }
    lines.push(match &proven.outcome {
        None => "how it ended is not in the receipt".to_owned(),
        Some(it) => {
            let reason = if it.reason.is_empty() { String::new() } else { format!(" ({})", it.reason) };
            let by = match it.attested {
                Attested::Yes => "the node signed its result",
                Attested::NotChecked => "the node's signature was not checked: give --node-authority",
                Attested::No => "the control plane's word: the node did not sign",
            };
            format!("it ended {}{reason} at {}, as the {} says; {by}", it.state, moment(it.at_ms), it.decided_by)
        }
    });
    let yes = |is: bool| if is { "signed" } else { "not signed" };
    lines.push(format!(
        "the log's head is {}, the command itself {}",
        yes(proven.is_head_signed),
        yes(proven.is_command_signed)
    ));
    if !proven.is_head_signed {
        lines.push("nobody signed: whoever has the database could have made this".to_owned());
    }
    lines
}
