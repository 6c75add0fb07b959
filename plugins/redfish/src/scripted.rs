//! A BMC for tests: it gives the answers that it was made with, the last one again and again.
//!
//! **Invariant:** what it was asked is kept, in order.

use std::collections::VecDeque;

use serde_json::Value;

use crate::{Answer, Bmc, NoAnswer, Request};

pub(crate) struct Scripted {
    answers: VecDeque<Result<Answer, NoAnswer>>,
    pub(crate) asked: Vec<Request>,
    left_ms: u64,
}

pub(crate) fn answer(status: u16, body: Value) -> Answer {
    Answer { status, body, ..Answer::default() }
}

impl Scripted {
    pub(crate) fn new<const N: usize>(answers: [Answer; N]) -> Self {
        Self::of(answers.into_iter().map(Ok).collect())
    }

    pub(crate) fn of(answers: Vec<Result<Answer, NoAnswer>>) -> Self {
        Self { answers: answers.into(), asked: Vec::new(), left_ms: 300_000 }
    }
}

impl Bmc for Scripted {
    fn ask(&mut self, request: &Request) -> Result<Answer, NoAnswer> {
        self.asked.push(request.clone());
        let next = if self.answers.len() > 1 { self.answers.pop_front() } else { self.answers.front().cloned() };
        next.expect("a test gives at least one answer")
    }

    fn pause(&mut self, duration_ms: u32) {
        self.left_ms = self.left_ms.saturating_sub(duration_ms.into());
    }

    fn left_ms(&mut self) -> u64 {
        self.left_ms
    }

    fn tell(&mut self, _: &str) {}
}
