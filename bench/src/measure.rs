//! Measuring sides in turns, and what is said of their samples.
//!
//! **Invariant:** a ratio compares the medians of one round; rounds are never mixed, so that what slows the machine for a
//! while slows both sides of it.

use std::time::{Duration, Instant};

/// One of the things that are compared.
pub(crate) struct Side<'a> {
    ops: usize,
    measure: Box<dyn FnMut(usize) -> anyhow::Result<Vec<Duration>> + 'a>,
}

impl<'a> Side<'a> {
    /// A side that is done `ops` times in a round. `measure` does it as often as it is told and says how long each took.
    pub(crate) fn new(ops: usize, measure: impl FnMut(usize) -> anyhow::Result<Vec<Duration>> + 'a) -> Self {
        Self { ops, measure: Box::new(measure) }
    }

    /// The same for something that is done by one blocking call, which answers what is dropped after its time was taken.
    pub(crate) fn blocking<T>(ops: usize, mut once: impl FnMut() -> anyhow::Result<T> + 'a) -> Self {
        Self::new(ops, move |ops| {
            let timed = |_| {
                let started = Instant::now();
                let done = once()?;
                let took = started.elapsed();
                drop(done);
                Ok(took)
            };
            (0..ops).map(timed).collect()
        })
    }
}

/// How long one side took, round after round.
#[derive(Debug, Clone)]
pub(crate) struct Samples(Vec<Vec<Duration>>);

/// Measures all sides in every round, each round beginning with another one. A tenth as many warm-ups go before each batch
/// and do not count: they load the caches that the side before has emptied.
pub(crate) fn interleave<const N: usize>(rounds: usize, mut sides: [Side<'_>; N]) -> anyhow::Result<[Samples; N]> {
    let mut samples = std::array::from_fn(|_| Samples(Vec::with_capacity(rounds)));
    for round in 0..rounds {
        for turn in 0..N {
            let which = (round + turn) % N;
            let Side { ops, measure } = &mut sides[which];
            if *ops >= 10 {
                measure(*ops / 10)?;
            }
            samples[which].0.push(measure(*ops)?);
        }
    }
    Ok(samples)
}

impl Samples {
    /// Samples that were taken beside, one list a round.
    pub(crate) fn new(rounds: Vec<Vec<Duration>>) -> Self {
        Self(rounds)
    }

    /// Half of all took at most this long.
    pub(crate) fn p50(&self) -> Duration {
        self.quantile(0.5)
    }

    /// 99 of 100 took at most this long.
    pub(crate) fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    fn quantile(&self, share: f64) -> Duration {
        quantile(self.0.iter().flatten().copied().collect(), share)
    }

    /// Each round's median, in seconds.
    fn medians(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|round| quantile(round.clone(), 0.5).as_secs_f64())
    }

    /// What one of `ops` equal steps takes, by the difference to runs without them: one sample a round.
    pub(crate) fn per_step(&self, without: &Self, ops: u32) -> Self {
        let step =
            |(with, without): (f64, f64)| vec![Duration::from_secs_f64(((with - without) / f64::from(ops)).max(0.0))];
        Self(self.medians().zip(without.medians()).map(step).collect())
    }
}

/// A number of every round: the median, and the extremes in brackets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// Combines the medians of two sides, round by round.
pub(crate) fn compare(ours: &Samples, other: &Samples, combine: impl Fn(f64, f64) -> f64) -> Spread {
    let mut of_rounds: Vec<f64> = ours.medians().zip(other.medians()).map(|(a, b)| combine(a, b)).collect();
    of_rounds.sort_by(f64::total_cmp);
    let last = of_rounds.len() - 1;
    Spread { median: of_rounds[last.div_ceil(2)], least: of_rounds[0], most: of_rounds[last] }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index into the samples")]
fn quantile(mut sorted: Vec<Duration>, share: f64) -> Duration {
    sorted.sort_unstable();
    let last = sorted.len() - 1;
    sorted[(last as f64 * share).ceil() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rounds: &[&[u64]]) -> Samples {
        Samples(rounds.iter().map(|round| round.iter().copied().map(Duration::from_micros).collect()).collect())
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let ours = samples(&[&[2, 2, 9], &[20, 20, 90], &[6, 6, 6]]);
        let floor = samples(&[&[1, 1, 1], &[10, 10, 10], &[2, 2, 2]]);
        let ratio = compare(&ours, &floor, |ours, floor| (ours / floor * 100.0).round() / 100.0);
        assert_eq!(ratio, Spread { median: 2.0, least: 2.0, most: 3.0 });
    }

    #[test]
    fn a_step_is_the_difference_divided() {
        let step = samples(&[&[1010], &[2010]]).per_step(&samples(&[&[10], &[10]]), 1000);
        assert_eq!(step.0, [vec![Duration::from_micros(1)], vec![Duration::from_micros(2)]]);
    }

    #[test]
    fn sides_take_turns() {
        let order = std::cell::RefCell::new(String::new());
        let side = |name| {
            let order = &order;
            Side::blocking(2, move || {
                order.borrow_mut().push(name);
                Ok(())
            })
        };
        interleave(3, [side('a'), side('b')]).expect("nothing fails");
        assert_eq!(order.into_inner(), "aabbbbaaaabb");
    }
}
