//! What a waiting person sees meanwhile: a moving line on a terminal, plain lines elsewhere.
//!
//! **Invariant:** on a terminal it goes to standard error, so that results can be piped.

use std::time::Duration;

use bc_host::bus;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::mpsc;

use super::seen::Seen;
use crate::output;

/// The line, or the lines.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    last: String,
    quiet: bool,
    tell: Option<mpsc::Sender<String>>,
}

impl Progress {
    /// A moving line if standard error is a terminal.
    pub fn new(is_terminal: bool) -> Self {
        let bar = is_terminal.then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]").expect("the template is fixed");
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style);
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { bar, last: String::new(), quiet: false, tell: None }
    }

    /// None at all.
    pub fn silent() -> Self {
        Self { bar: None, last: String::new(), quiet: true, tell: None }
    }

    /// Told to somebody else, who may be slow: what they have no room for is not told.
    pub fn told(tell: mpsc::Sender<String>) -> Self {
        Self { bar: None, last: String::new(), quiet: false, tell: Some(tell) }
    }

    /// Shows where the command stands. How it ended is a result, which is shown elsewhere.
    pub fn stands(&mut self, seen: &Seen) {
        if seen.is_over() {
            return;
        }
        let stop = if seen.command.cancel_requested_at.is_some() { ", to stop" } else { "" };
        self.show(format!("{}{stop}", seen.line()));
    }

    /// Shows how far the run is.
    pub fn step(&mut self, step: &bus::Progress) {
        self.show(words(step));
    }

    /// Shows a remark.
    pub fn note(&mut self, text: &str) {
        self.show(text.to_owned());
    }

    /// Takes the moving line away.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.quiet = true;
    }

    fn show(&mut self, text: String) {
        if self.quiet || text == self.last {
            return;
        }
        match (&self.tell, &self.bar) {
            (Some(tell), _) => drop(tell.try_send(text.clone())),
            (None, Some(bar)) => bar.set_message(text.clone()),
            (None, None) => output::complain(&text),
        }
        self.last = text;
    }
}

/// `3 of 8 gpus: checking links`.
fn words(step: &bus::Progress) -> String {
    let total = step.total.map(|total| format!(" of {total}")).unwrap_or_default();
    let message = if step.message.is_empty() { String::new() } else { format!(": {}", step.message) };
    let unit = if step.unit.is_empty() { String::new() } else { format!(" {}", step.unit) };
    format!("{}{total}{unit}{message}", step.done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_told_with_what_is_known() {
        let id = "00000000000000000000000001";
        let mut step = bus::Progress {
            command_id: format!("cmd_{id}").parse().expect("an id"),
            node_id: format!("node_{id}").parse().expect("an id"),
            done: 3,
            total: Some(8),
            unit: "gpus".into(),
            message: "checking links".into(),
        };
        assert_eq!(words(&step), "3 of 8 gpus: checking links");
        (step.total, step.unit, step.message) = (None, String::new(), String::new());
        assert_eq!(words(&step), "3");
    }
}
