//! Ours, its floor and its peers in turns, and the row that comes of it.
//!
//! **Invariant:** a ratio is taken within one round. A goal that names what was not measured is neither met nor missed.

use std::time::Duration;

use super::{Setting, Size};
use crate::figure::{Figure, spread};
use crate::measure::{Samples, compare};

/// Measures one round of a side: how long an operation took, one by one or on average.
pub(in super::super) type Measure<'a> = Box<dyn FnMut() -> anyhow::Result<Vec<Duration>> + 'a>;

/// All sides of a figure.
pub(super) struct Contest {
    ours: Samples,
    floor: Option<Samples>,
    peers: Vec<(&'static str, Samples)>,
}

/// What ours has to reach, as a ratio of rates.
#[derive(Debug, Clone, Copy)]
pub(super) enum Goal {
    /// Of the floor.
    Floor(f64),
    /// Of the best peer.
    Best(f64),
    /// Of this peer.
    Peer(&'static str, f64),
    /// Of the best peer that is not this one.
    BestBut(&'static str, f64),
}

impl Contest {
    /// Measures everybody in every round, each round beginning with another one. A peer that fails is left out from then on.
    pub(super) fn hold(
        setting: &Setting,
        rounds: usize,
        peer_figure: Option<&str>,
        size: Size,
        mut ours: Measure<'_>,
        mut floor: Option<Measure<'_>>,
    ) -> anyhow::Result<Self> {
        let mut peers: Vec<_> = peer_figure.map(|_| setting.peers()).unwrap_or_default();
        let (mut of_ours, mut of_floor) = (Vec::new(), Vec::new());
        let mut of_peers = vec![Vec::new(); peers.len()];
        let sides = 2 + peers.len();
        for round in 0..rounds {
            for turn in 0..sides {
                match (round + turn) % sides {
                    0 => of_ours.push(ours()?),
                    1 => of_floor.extend(floor.as_mut().map(|floor| floor()).transpose()?),
                    other => {
                        let at = other - 2;
                        let (Some(peer), Some(figure)) = (peers[at], peer_figure) else { continue };
                        match peer.measure(figure, size) {
                            Ok(answer) => {
                                setting.note_peer(peer.name, &answer);
                                of_peers[at].push(answer.took);
                            }
                            Err(error) => {
                                setting.note(format!("{}: {error:#}", peer.name));
                                peers[at] = None;
                            }
                        }
                    }
                }
            }
        }
        let finished = peers.into_iter().zip(of_peers);
        let peers = finished.filter_map(|(peer, rounds)| Some((peer?.name, Samples::new(rounds)))).collect();
        Ok(Self { ours: Samples::new(of_ours), floor: (!of_floor.is_empty()).then(|| Samples::new(of_floor)), peers })
    }

    /// The fastest peer, but for one.
    fn best(&self, but: Option<&str>) -> Option<&(&'static str, Samples)> {
        self.peers.iter().filter(|(name, _)| Some(*name) != but).min_by_key(|(_, samples)| samples.p50())
    }

    /// A row of rates.
    pub(super) fn rates(
        &self,
        setting: &Setting,
        key: &'static str,
        name: impl Into<String>,
        goals: &[Goal],
    ) -> Figure {
        for (peer, samples) in &self.peers {
            setting.score(peer, key, rate(samples));
        }
        let mut ratios = Vec::new();
        let mut words = Vec::new();
        let mut met = Some(true);
        for &goal in goals {
            let (at_least, side, of) = match goal {
                Goal::Floor(at_least) => (at_least, self.floor.as_ref().map(|it| ("floor", it)), "floor".to_owned()),
                Goal::Best(at_least) => (at_least, self.best(None).map(|(name, it)| (*name, it)), "peer".to_owned()),
                Goal::Peer(name, at_least) => {
                    let found = self.peers.iter().find(|(peer, _)| *peer == name);
                    (at_least, found.map(|(name, it)| (*name, it)), name.to_owned())
                }
                Goal::BestBut(name, at_least) => {
                    let found = self.best(Some(name)).map(|(name, it)| (*name, it));
                    (at_least, found, "job queue".to_owned())
                }
            };
            words.push(format!("≥ {at_least} {of}"));
            let Some((side, samples)) = side else {
                met = met.filter(|met| !met);
                continue;
            };
            let ratio = compare(&self.ours, samples, |ours, other| other / ours);
            ratios.push(format!("{} {side}", spread(ratio)));
            met = if ratio.median < at_least { Some(false) } else { met };
        }
        let peer = self.best(None).map(|(name, samples)| format!("{name} {}", rate(samples)));
        Figure::of(
            name,
            rate(&self.ours),
            self.floor.as_ref().map(rate),
            peer,
            ratios.join(", "),
            words.join(", "),
            met,
        )
    }

    /// A row of latencies: p50 against the floor and the best peer, p99 against that peer.
    pub(super) fn latencies(
        &self,
        setting: &Setting,
        key: &'static str,
        name: impl Into<String>,
        (of_floor, of_peer): (f64, f64),
    ) -> Figure {
        for (peer, samples) in &self.peers {
            setting.score(peer, key, both(samples));
        }
        let mut ratios = Vec::new();
        let mut is_met = true;
        if let Some(floor) = &self.floor {
            let ratio = compare(&self.ours, floor, |ours, floor| ours / floor);
            ratios.push(format!("{} floor", spread(ratio)));
            is_met &= ratio.median <= of_floor;
        }
        let best = self.best(None);
        if let Some((name, peer)) = best {
            let ratio = compare(&self.ours, peer, |ours, peer| ours / peer);
            let p99 = self.ours.p99().as_secs_f64() / peer.p99().as_secs_f64();
            ratios.push(format!("{} {name}, p99 {p99:.2} ×", spread(ratio)));
            is_met &= ratio.median <= of_peer && p99 <= 1.0;
        }
        let met = (best.is_some() || !is_met).then_some(is_met);
        let goal = format!("p50 ≤ {of_floor} floor, ≤ {of_peer} peer; p99 ≤ peer");
        let peer = best.map(|(name, samples)| format!("{name} {}", both(samples)));
        Figure::of(name, both(&self.ours), self.floor.as_ref().map(both), peer, ratios.join(", "), goal, met)
    }
}

fn both(samples: &Samples) -> String {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    format!("{:.2} / {:.2} ms", ms(samples.p50()), ms(samples.p99()))
}

/// Operations a second, by how long each took.
pub(in super::super) fn rate(samples: &Samples) -> String {
    let rate = 1.0 / samples.p50().as_secs_f64();
    format!("{} /s", grouped(rate))
}

/// Three digits, and commas.
fn grouped(number: f64) -> String {
    let digits = number.log10().floor().max(0.0);
    let unit = 10f64.powf((digits - 2.0).max(0.0));
    let text = format!("{:.0}", (number / unit).round() * unit);
    let groups: Vec<&str> = text.as_bytes().rchunks(3).rev().map(|it| str::from_utf8(it).expect("digits")).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits_and_commas() {
        assert_eq!(
            [7.0, 1234.0, 12_345.0, 118_499.0, 1e6].map(grouped),
            ["7", "1,230", "12,300", "118,000", "1,000,000"]
        );
    }
}
