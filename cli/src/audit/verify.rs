//! `audit verify`: the whole log, against what was seen of it before.
//!
//! **Invariant:** the server's hashes decide nothing: the tree is computed here, from the entries.

use std::path::PathBuf;
use std::process::ExitCode;

use bc_host::api::types::{Consistency, LogEntry, LogHead, ProveConsistency, ShowLogHead};
use bc_proto::audit::{self, Head};
use bc_proto::merkle::stored::{Frontier, leaf_hash};
use bc_proto::merkle::{self, Hash};
use bc_proto::sign::{self, PublicKey};
use clap::Args;
use serde_json::json;

use super::remembered::{self, Remembered, Seen};
use super::{checked, each, receipt, root};
use crate::client::{Client, Connect, Patience};
use crate::{exit, output, shell};

/// The arguments.
#[derive(Debug, Args)]
pub struct Verify {
    /// Check this receipt in place of the log; no server is asked
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// A root of command signing that you trust: its public key, or a file with it. May be repeated; for the log, those given
    /// before are remembered
    #[arg(long = "root", value_name = "HEX|FILE")]
    roots: Vec<String>,
    /// With --receipt: the node authority's certificate (PEM), to check that the node itself stands for its result
    #[arg(long, value_name = "FILE", requires = "receipt")]
    node_authority: Option<PathBuf>,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Why a log is not to be trusted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    #[error("the head is not signed, and was to be")]
    Unsigned,
    #[error("the head is signed, and no root is known to check it with")]
    NoRoots,
    #[error("the head's signature does not hold: {0}")]
    Signature(sign::Error),
    #[error("the head's root is no hash")]
    NoHash,
    #[error("the log had {before} entries the last time, and has {now}: it was cut, or this is another log")]
    Shrunk { before: u64, now: u64 },
    #[error("entry {0}: its hash is not that of what it says: it was changed")]
    Entry(u64),
    #[error("entry {0} is missing")]
    Missing(u64),
    #[error("the entries do not come to the head's root: what is shown is not what was published")]
    Tree,
    #[error("the first {0} entries are not those of the last time: the log was rewritten")]
    Rewritten(u64),
    #[error("no proof that it only grew: {0}")]
    Consistency(merkle::Error),
}

impl Verify {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        let roots = self.roots.iter().map(|word| root(word)).collect::<anyhow::Result<Vec<_>>>()?;
        if let Some(file) = &self.receipt {
            return receipt::verify(file, &roots, self.node_authority.as_deref(), self.json);
        }
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let path = remembered::path()?;
        let remembered = Remembered::read(&path)?;
        let mut seen = remembered.of(client.url());
        for root in roots {
            if !seen.roots.contains(&root) {
                seen.roots.push(root);
            }
        }
        let ask = ShowLogHead { tenant_id: client.tenant().await? };
        let head = checked(client.call::<LogHead>("audit.head", &ask).await?)?;
        let found = check(&client, &head, &seen).await?;
        if let Err(wrong) = &found {
            if self.json {
                output::say(&json!({ "ok": false, "error": wrong.to_string(), "head": head }).to_string());
            }
            output::complain(&format!("error: {wrong}\n  → {}", remedy(wrong)));
            return Ok(if *wrong == Wrong::NoRoots { ExitCode::FAILURE } else { ExitCode::from(exit::NOT_TRUE) });
        }
        let since = seen.head.as_ref().map(|it| it.size);
        let is_signed = head.signature.is_some();
        if self.json {
            output::say(&json!({ "ok": true, "signed": is_signed, "head": head, "since": since }).to_string());
        } else {
            let since = since.map_or("the first time".to_owned(), |size| format!("it only grew since it had {size}"));
            output::say(&format!("the log is whole: {} entries, root {}; {since}", head.size, head.root));
        }
        if !is_signed && head.size > 0 {
            output::complain(
                "nobody signs this log: whoever has the database could have made another one from the start",
            );
        }
        remembered.keep(&path, client.url(), Seen { head: Some(head), roots: seen.roots })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn remedy(wrong: &Wrong) -> &'static str {
    match wrong {
        Wrong::NoRoots => "give the public key of the root of command signing: --root HEX, from somebody you trust",
        _ => {
            "keep what you have of this log (receipts, and audit.json beside the contexts) and find out who changed it; \
             nothing new is remembered"
        }
    }
}

/// Checks the log against its head and what was seen before. The outer error: it could not be read.
async fn check(client: &Client, head: &Head, seen: &Seen) -> anyhow::Result<Result<(), Wrong>> {
    if let Err(wrong) = signed(head, &seen.roots) {
        return Ok(Err(wrong));
    }
    let Some(root) = head.hash() else { return Ok(Err(Wrong::NoHash)) };
    let before = match &seen.head {
        Some(before) if before.size > head.size => {
            return Ok(Err(Wrong::Shrunk { before: before.size, now: head.size }));
        }
        before => before.as_ref().and_then(|it| Some((it.size, it.hash()?))),
    };
    let mut tree = Recomputed { frontier: Frontier::default(), before, wrong: None };
    each(client, 0, head.size, |entry| tree.take(&entry)).await?;
    if let Err(wrong) = tree.end(head.size, &root) {
        return Ok(Err(wrong));
    }
    let Some((from, from_root)) = before else { return Ok(Ok(())) };
    let ask = ProveConsistency { tenant_id: client.tenant().await?, from, to: Some(head.size) };
    let proven: Consistency = client.call("audit.consistency", &ask).await?;
    let proof = hex::decode(&proven.proof).unwrap_or_default();
    Ok(merkle::verify_consistency(from, &from_root, head.size, &root, &proof).map_err(Wrong::Consistency))
}

fn signed(head: &Head, roots: &[PublicKey]) -> Result<(), Wrong> {
    match &head.signature {
        // An empty log has no head that anybody could have signed.
        None if roots.is_empty() || head.size == 0 => Ok(()),
        None => Err(Wrong::Unsigned),
        Some(_) if roots.is_empty() => Err(Wrong::NoRoots),
        Some(signature) => {
            let now_ms = u64::try_from(shell::now().unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
            signature.verify(&head.body(), roots, now_ms).map_err(Wrong::Signature)
        }
    }
}

/// The tree, from what the server shows of its entries.
struct Recomputed {
    frontier: Frontier,
    /// Size and root of the last time.
    before: Option<(u64, Hash)>,
    wrong: Option<Wrong>,
}

impl Recomputed {
    fn take(&mut self, entry: &LogEntry) {
        if self.wrong.is_some() {
            return;
        }
        let index = self.frontier.size();
        let hash = audit::hash(&entry.leaf_hash);
        self.wrong = match (hash, &entry.body) {
            _ if entry.index != index => Some(Wrong::Missing(index)),
            (None, _) => Some(Wrong::Entry(index)),
            (Some(hash), Some(body)) if leaf_hash(body.as_bytes()) != hash => Some(Wrong::Entry(index)),
            (Some(hash), _) => {
                self.frontier.push(hash);
                None
            }
        };
        if let Some((size, root)) = self.before
            && size == self.frontier.size()
            && root != self.frontier.root()
        {
            self.wrong.get_or_insert(Wrong::Rewritten(size));
        }
    }

    fn end(self, size: u64, root: &Hash) -> Result<(), Wrong> {
        match self.wrong {
            Some(wrong) => Err(wrong),
            None if self.frontier.size() < size => Err(Wrong::Missing(self.frontier.size())),
            None if self.frontier.root() != *root => Err(Wrong::Tree),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bc_proto::sign::{SecretKey, WorkerKey};

    use super::*;

    fn entry(index: u64, text: &str) -> LogEntry {
        LogEntry { index, leaf_hash: hex::encode(leaf_hash(text.as_bytes())), body: Some(text.to_owned()) }
    }

    fn root_of(texts: &[&str]) -> Hash {
        let mut frontier = Frontier::default();
        for text in texts {
            frontier.push(leaf_hash(text.as_bytes()));
        }
        frontier.root()
    }

    fn recompute(entries: &[LogEntry], before: Option<(u64, Hash)>) -> Result<(), Wrong> {
        let mut tree = Recomputed { frontier: Frontier::default(), before, wrong: None };
        for entry in entries {
            tree.take(entry);
        }
        tree.end(3, &root_of(&["a", "b", "c"]))
    }

    #[test]
    fn every_way_in_which_entries_can_be_wrong_is_told() {
        let good = [entry(0, "a"), entry(1, "b"), entry(2, "c")];
        let with = |at: usize, other: LogEntry| {
            let mut entries = good.clone();
            entries[at] = other;
            entries
        };
        let before = Some((2, root_of(&["a", "b"])));
        assert_eq!(recompute(&good, before), Ok(()));
        let foreign = LogEntry { body: None, ..good[1].clone() };
        assert_eq!(recompute(&with(1, foreign), before), Ok(()), "another tenant's counts by its hash");
        let changed = LogEntry { body: Some("x".into()), ..good[1].clone() };
        assert_eq!(recompute(&with(1, changed), None), Err(Wrong::Entry(1)));
        let no_hash = LogEntry { leaf_hash: "x".into(), ..good[1].clone() };
        assert_eq!(recompute(&with(1, no_hash), None), Err(Wrong::Entry(1)));
        assert_eq!(recompute(&good[..2], None), Err(Wrong::Missing(2)));
        assert_eq!(recompute(&[good[0].clone(), good[2].clone()], None), Err(Wrong::Missing(1)));
        assert_eq!(recompute(&with(2, entry(2, "x")), before), Err(Wrong::Tree));
        assert_eq!(recompute(&with(1, entry(1, "x")), before), Err(Wrong::Rewritten(2)));
        assert_eq!(recompute(&good, Some((3, root_of(&["a", "b", "x"])))), Err(Wrong::Rewritten(3)));
    }

    #[test]
    fn a_head_is_signed_by_a_known_root_or_nobody_expects_it() {
        let (root, worker) = (SecretKey::from_seed([1; 32]), SecretKey::from_seed([2; 32]));
        let now_ms = u64::try_from(shell::now().unix_timestamp_nanos() / 1_000_000).expect("after 1970");
        let key = WorkerKey::certify(&root, worker.public(), now_ms - 1_000);
        let mut head = Head { size: 1, root: "ab".repeat(32), signature: None };
        let roots = [root.public()];
        assert_eq!((signed(&head, &[]), signed(&head, &roots)), (Ok(()), Err(Wrong::Unsigned)));
        head.signature = Some(key.sign(&worker, &head.body(), now_ms));
        assert_eq!((signed(&head, &[]), signed(&head, &roots)), (Err(Wrong::NoRoots), Ok(())));
        head.size = 2;
        assert!(matches!(signed(&head, &roots), Err(Wrong::Signature(_))));
        assert!(matches!(signed(&head, &[worker.public()]), Err(Wrong::Signature(sign::Error::UnknownRoot(_)))));
    }
}
