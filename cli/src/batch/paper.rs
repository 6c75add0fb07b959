//! What an approver reads before signing: the document, and the whole scope that its root stands for.
//!
//! **Invariant:** whoever signs has seen the scope: the root is computed from what is shown, and compared. The server is not
//! believed.

use anyhow::{Context, bail};
use bc_host::api::types::Batch;
use bc_proto::batch::{self, Approval, Document, Leaf};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::format::moment;
use crate::output;

/// A batch to sign; what `batch export` writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paper {
    /// What is signed.
    pub(super) document: Document,
    /// What its root stands for.
    pub(super) scope: Vec<Leaf>,
}

/// An approval on its way; what `batch approve --out` writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Signed {
    /// Whose the batch is.
    pub(super) tenant_id: String,
    /// The batch.
    pub(super) batch_id: String,
    /// The approval.
    pub(super) approval: Approval,
}

impl Paper {
    /// As the server tells it.
    pub(super) fn of(batch: &Batch) -> anyhow::Result<Self> {
        let leaf = |leaf: &bc_host::api::types::BatchLeaf| Leaf {
            subject: leaf.subject.clone(),
            kind: leaf.kind.clone(),
            payload_sha256: leaf.payload_sha256.clone(),
        };
        let scope = batch.scope.as_ref().context("the server does not say what the batch allows")?;
        Ok(Self { document: batch.document.clone(), scope: scope.iter().map(leaf).collect() })
    }

    /// Refuses a scope that is not the one which is signed.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let (document, scope) = (&self.document, &self.scope);
        let root = hex::encode(batch::tree(scope).root());
        if root != document.root || scope.len() as u64 != document.size {
            bail!(
                "the scope that is shown is not what would be signed: it has {} leaves and the root {root}, the document says \
                 {} and {}. Do not sign this; somebody changed it",
                scope.len(),
                document.size,
                document.root
            );
        }
        Ok(())
    }

    /// The document in words, and every leaf.
    pub(super) fn text(&self, now: OffsetDateTime) -> String {
        let document = &self.document;
        let at = |ms: u64| OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).ok();
        let facts = [
            ("batch", document.batch_id.to_string()),
            ("tenant", document.tenant_id.to_string()),
            ("reason", plain(&document.reason)),
            ("requested by", plain(&document.requested_by)),
            ("created", moment(at(document.created_at_ms), now)),
            ("expires", moment(at(document.expires_at_ms), now)),
            ("root", document.root.clone()),
        ];
        let facts = output::table(facts.into_iter().map(|(name, value)| vec![name.to_owned(), value]), 0).trim_fmt();
        format!("{facts}\n\n{}", self.leaves())
    }

    /// Every leaf, in order.
    pub(super) fn leaves(&self) -> String {
        let header = ["#", "SUBJECT", "KIND", "PAYLOAD"].map(str::to_owned).to_vec();
        let row = |(at, leaf): (usize, &Leaf)| {
            let payload =
                leaf.payload_sha256.as_ref().map_or_else(|| "any".to_owned(), |hash| format!("sha256:{}", plain(hash)));
            vec![at.to_string(), plain(&leaf.subject), plain(&leaf.kind), payload]
        };
        output::table(std::iter::once(header).chain(self.scope.iter().enumerate().map(row)), 0).trim_fmt()
    }
}

/// Text from elsewhere, with nothing in it that moves a terminal's cursor or hides what stands there.
fn plain(text: &str) -> String {
    let shown =
        |it: char| it.is_alphanumeric() || it == ' ' || it.is_ascii_punctuation() || (!it.is_ascii() && !is_hidden(it));
    text.chars().map(|it| if shown(it) { it.to_string() } else { it.escape_unicode().to_string() }).collect()
}

/// Controls, and characters that turn the direction of text or have no width.
fn is_hidden(it: char) -> bool {
    it.is_control()
        || matches!(it, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper() -> Paper {
        let leaf = |n: u8, hash: Option<&str>| Leaf {
            subject: format!("node_{n}"),
            kind: "disk.wipe".into(),
            payload_sha256: hash.map(|it| it.repeat(32)),
        };
        let scope = vec![leaf(1, None), leaf(2, Some("ab"))];
        let document = Document {
            batch_id: "batch_01h455vb4pex5vsknk084sn02q".parse().expect("an id"),
            tenant_id: "tenant_01h455vb4pex5vsknk084sn02q".parse().expect("an id"),
            reason: "decommission\u{1b}[2K\u{202e} rack 7".into(),
            requested_by: "ada".into(),
            root: hex::encode(batch::tree(&scope).root()),
            size: 2,
            created_at_ms: 1_700_000_000_000,
            expires_at_ms: 1_700_003_600_000,
        };
        Paper { document, scope }
    }

    #[test]
    fn all_that_is_signed_is_shown_and_nothing_hides_in_it() {
        let now = OffsetDateTime::from_unix_timestamp(1_700_000_060).expect("a time");
        paper().check().expect("it is what it says");
        insta::assert_snapshot!(paper().text(now));
    }

    #[test]
    fn a_scope_that_is_not_the_signed_one_is_refused() {
        let attempts: [&dyn Fn(&mut Paper); 5] = [
            &|it| it.scope[0].subject = "node_3".into(),
            &|it| it.scope[1].payload_sha256 = None,
            &|it| it.scope.swap(0, 1),
            &|it| it.scope.truncate(1),
            &|it| it.document.size = 3,
        ];
        for change in attempts {
            let mut changed = paper();
            change(&mut changed);
            let refused = changed.check().expect_err("it is another scope").to_string();
            assert!(refused.contains("Do not sign this"), "{refused}");
        }
    }
}
