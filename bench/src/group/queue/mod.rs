//! A: the queue, the control plane alone, with null nodes in this process.
//!
//! Each figure is beside the least that Postgres can be asked to do (`raw`) and beside other queues (`peer`), all on one
//! private server, in turns. Peers keep weaker contracts: some delete what is done, most know no order and no keys.
//!
//! **Invariant:** at the end of a drain and of a cycle nothing of ours is left ready or in flight, or the run fails.

mod churn;
mod contest;
mod peer;
mod plane;
mod rates;
mod raw;
mod runner;
mod site;
mod size;
mod wal;
mod work;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use self::peer::{Answer, Peer};
use self::plane::Plane;
use self::raw::Raw;
use crate::bench::Bench;

pub(super) use self::churn::claims;
pub(super) use self::contest::rate;
pub(super) use self::plane::{MANIFEST, uuid};
pub(super) use self::rates::{bulk, cycle, cycles, drain, enqueue, hand_overs, handed_over, one_node, rest};
pub(super) use self::runner::leased;
pub(super) use self::site::{Site, folder};
pub(super) use self::size::sizes;
pub(super) use self::wal::per_command;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// Nodes of the fleet.
    pub(crate) nodes: usize,
    /// Connections that enqueue.
    pub(crate) clients: usize,
    /// For how long rates are measured.
    pub(crate) time: Duration,
    /// Commands of one bulk statement.
    pub(crate) bulk: usize,
    /// Commands of a drain.
    pub(crate) drain: usize,
    /// Turns of a latency.
    pub(crate) turns: usize,
}

impl Size {
    const WHOLE: Self =
        Self { nodes: 1024, clients: 8, time: Duration::from_secs(2), bulk: 1000, drain: 20_000, turns: 200 };
    const QUICK: Self = Self { nodes: 16, clients: 2, time: Duration::ZERO, bulk: 20, drain: 40, turns: 3 };
}

/// What the figures of the group share.
pub(crate) struct Setting {
    pub(super) site: Rc<Site>,
    plane: Plane,
    raw: Raw,
    pub(super) size: Size,
    peers: Vec<Peer>,
    notes: RefCell<Vec<String>>,
    scores: RefCell<BTreeMap<&'static str, Score>>,
}

/// What is said of a peer.
#[derive(Default)]
struct Score {
    version: String,
    figures: BTreeMap<&'static str, String>,
    locked: u64,
}

impl Setting {
    /// Starts the server, and installs the peers if they are to be measured.
    pub(crate) fn new(bench: &Bench) -> anyhow::Result<Self> {
        let server = Rc::new(Site::start(bench.is_quick())?);
        let size = if bench.is_quick() { Size::QUICK } else { Size::WHOLE };
        let found = match bench.peers() {
            Some(folder) => bench.runtime.block_on(peer::set_up(&server, folder))?,
            None => Vec::new(),
        };
        let (mut peers, mut notes) = (Vec::new(), Vec::new());
        for (name, found) in found {
            match found {
                Ok(peer) => peers.push(peer),
                Err(reason) => notes.push(format!("{name}: not measured, {reason}")),
            }
        }
        let (plane, raw) = bench.runtime.block_on(async {
            anyhow::Ok((Plane::new(&server, "plane", size.nodes).await?, Raw::new(server.clone()).await?))
        })?;
        Ok(Self { site: server, plane, raw, size, peers, notes: notes.into(), scores: RefCell::default() })
    }

    fn peers(&self) -> Vec<Option<&Peer>> {
        self.peers.iter().map(Some).collect()
    }

    fn note(&self, text: String) {
        self.notes.borrow_mut().push(text);
    }

    fn note_peer(&self, peer: &'static str, answer: &Answer) {
        let mut scores = self.scores.borrow_mut();
        let score = scores.entry(peer).or_default();
        score.version.clone_from(&answer.version);
        score.locked = score.locked.max(answer.locked);
    }

    fn score(&self, peer: &'static str, figure: &'static str, text: String) {
        self.scores.borrow_mut().entry(peer).or_default().figures.insert(figure, text);
    }

    /// What was measured of every peer, as a Markdown table, and what could not be; empty without peers.
    pub(crate) fn peers_in_words(&self) -> String {
        let (scores, notes) = (self.scores.borrow(), self.notes.borrow());
        let figures: std::collections::BTreeSet<_> =
            scores.values().flat_map(|it| it.figures.keys().copied()).collect();
        let mut text = String::new();
        if !scores.is_empty() {
            let mut table = Table::new();
            let head = ["peer", "version"].into_iter().chain(figures.iter().copied()).chain(["left locked"]);
            table.load_preset(ASCII_MARKDOWN).set_header(head);
            for (name, score) in scores.iter() {
                let mut row = vec![(*name).to_owned(), score.version.clone()];
                row.extend(figures.iter().map(|it| score.figures.get(it).cloned().unwrap_or_else(|| "–".into())));
                row.push(score.locked.to_string());
                table.add_row(row);
            }
            text = table.to_string();
        }
        if !notes.is_empty() {
            text += "\n";
            notes.iter().for_each(|note| text += &format!("\n- {note}"));
        }
        text
    }
}
