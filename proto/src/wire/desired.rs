//! Checked types of desired state: bindings and conditions, as nodes say them.
//!
//! **Invariant:** what is kept of a binding is what came, to the byte; the checked form only says what it claims.

use super::checked::{Invalid, invalid};
use super::v1;
use crate::canonical;
use crate::sign::Signature;
use crate::sign::body::AllocationBoundBody;

/// The most conditions of a node.
pub const MAX_CONDITIONS: usize = 256;

/// The longest body of a binding, bytes.
const MAX_BODY: usize = 4_096;

/// A binding that reads as one. Whether its signature holds is another question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// What it claims.
    pub body: AllocationBoundBody,
    /// The claim, exactly as it came.
    pub bytes: Vec<u8>,
    /// The node's signature.
    pub signature: Signature,
}

/// Something that is the matter with a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `RowRemapPending`, `RebootRequired`, …
    pub kind: String,
    /// What has it: a GPU's UUID; empty for the node.
    pub subject: String,
    /// Why, in words.
    pub message: String,
    /// Since when, milliseconds since the Unix epoch, server time.
    pub since_ms: u64,
}

impl TryFrom<v1::AllocationBound> for Bound {
    type Error = Invalid;

    fn try_from(bound: v1::AllocationBound) -> Result<Self, Invalid> {
        const M: &str = "AllocationBound";
        let not_a_body = || invalid(M, "body", "must be the canonical JSON of a binding, at most 4096 bytes");
        if bound.body.len() > MAX_BODY {
            return Err(not_a_body());
        }
        let body: AllocationBoundBody = serde_json::from_slice(&bound.body).map_err(|_| not_a_body())?;
        if canonical::to_vec(&body).ok().as_ref() != Some(&bound.body) {
            return Err(not_a_body());
        }
        let signature = Signature::from_slice(&bound.node_sig);
        let signature = signature.map_err(|_| invalid(M, "node_sig", "must have 64 bytes"))?;
        Ok(Self { body, bytes: bound.body, signature })
    }
}

impl From<Bound> for v1::AllocationBound {
    fn from(bound: Bound) -> Self {
        Self { body: bound.bytes, node_sig: bound.signature.as_bytes().to_vec() }
    }
}

impl v1::Conditions {
    /// The conditions, each type and subject once.
    pub fn checked(self) -> Result<Vec<Condition>, Invalid> {
        if self.conditions.len() > MAX_CONDITIONS {
            return Err(invalid("Conditions", "conditions", "must have at most 256 items"));
        }
        let mut checked: Vec<Condition> = Vec::with_capacity(self.conditions.len());
        for condition in self.conditions {
            let condition = Condition::try_from(condition)?;
            if checked.iter().any(|it| it.kind == condition.kind && it.subject == condition.subject) {
                return Err(invalid("Conditions", "conditions", "must name each type and subject once"));
            }
            checked.push(condition);
        }
        Ok(checked)
    }
}

impl TryFrom<v1::Condition> for Condition {
    type Error = Invalid;

    fn try_from(condition: v1::Condition) -> Result<Self, Invalid> {
        const M: &str = "Condition";
        let kind = condition.r#type;
        if !(1..=64).contains(&kind.len()) || !kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(invalid(M, "type", "must have 1 to 64 letters and digits"));
        }
        if condition.subject.len() > 200 || condition.subject.contains(char::is_control) {
            return Err(invalid(M, "subject", "must have at most 200 printable bytes"));
        }
        if condition.message.len() > 1_024 || condition.message.contains('\0') {
            return Err(invalid(M, "message", "must have at most 1024 bytes and no NUL"));
        }
        Ok(Self { kind, subject: condition.subject, message: condition.message, since_ms: condition.since_ms })
    }
}

impl From<Condition> for v1::Condition {
    fn from(condition: Condition) -> Self {
        let Condition { kind, subject, message, since_ms } = condition;
        Self { r#type: kind, subject, message, since_ms }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::id::{AllocationId, NodeId};
    use crate::sign::SecretKey;

    fn bound() -> v1::AllocationBound {
        let body = AllocationBoundBody {
            allocation: AllocationId::from_uuid(Uuid::from_u128(1)),
            node: NodeId::from_uuid(Uuid::from_u128(2)),
            incarnation: 1,
            gpu: "GPU-a".into(),
            generation: 3,
            bound_at_ms: 4,
        };
        let signature = SecretKey::from_seed([1; 32]).sign(&body);
        let body = canonical::to_vec(&body).expect("a body is JSON");
        v1::AllocationBound { body, node_sig: signature.as_bytes().to_vec() }
    }

    #[test]
    fn a_binding_is_read_only_in_its_one_form() {
        let good = Bound::try_from(bound()).expect("a binding");
        assert_eq!(v1::AllocationBound::from(good), bound());
        let spaced = String::from_utf8(bound().body).expect("text").replace(',', ", ").into_bytes();
        let more = String::from_utf8(bound().body).expect("text").replace('}', ",\"z\":1}").into_bytes();
        for body in [spaced, more, b"{}".to_vec(), Vec::new(), vec![b' '; 5_000]] {
            let refused = Bound::try_from(v1::AllocationBound { body, ..bound() }).expect_err("refused");
            assert_eq!(refused.field, "body");
        }
        for node_sig in [Vec::new(), vec![1; 63], vec![1; 65]] {
            let refused = Bound::try_from(v1::AllocationBound { node_sig, ..bound() }).expect_err("refused");
            assert_eq!(refused.field, "node_sig");
        }
    }

    #[test]
    fn conditions_that_do_not_fit_name_their_field() {
        let good = v1::Condition {
            r#type: "RebootRequired".into(),
            subject: String::new(),
            message: "huge pages".into(),
            since_ms: 7,
        };
        let all = |conditions| v1::Conditions { conditions }.checked();
        assert_eq!(all(vec![good.clone()]).map(|it| it.len()), Ok(1));
        for (bad, field) in [
            (vec![v1::Condition { r#type: String::new(), ..good.clone() }], "type"),
            (vec![v1::Condition { r#type: "Reboot Required".into(), ..good.clone() }], "type"),
            (vec![v1::Condition { subject: "a\nb".into(), ..good.clone() }], "subject"),
            (vec![v1::Condition { message: "\0".into(), ..good.clone() }], "message"),
            (vec![v1::Condition { message: "x".repeat(1_025), ..good.clone() }], "message"),
            (vec![good.clone(), good.clone()], "conditions"),
            (vec![good.clone(); 257], "conditions"),
        ] {
            assert_eq!(all(bad).expect_err(field).field, field);
        }
    }
}
