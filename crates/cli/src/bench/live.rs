//! The line on a terminal that shows the progress of a bench.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::report::{count, percentile, us};
use super::tally::BenchCounters;

pub(super) struct Live {
    bar: ProgressBar,
    on_terminal: bool,
}

impl Live {
    /// Hidden unless `on_terminal`.
    pub(super) fn new(on_terminal: bool) -> Live {
        let target = if on_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{spinner} {elapsed}  {msg}").expect("the template is one");
        bar.set_style(style);
        Live { bar, on_terminal }
    }

    /// Redraws the line.
    pub(super) fn show(&self, tally: &BenchCounters) {
        if self.on_terminal {
            self.bar.set_message(line(tally));
            self.bar.tick();
        }
    }

    /// Removes the line.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn line(tally: &BenchCounters) -> String {
    let seconds = (tally.now_us() as f64 / 1e6).max(0.001);
    let counts = tally.counts();
    let per_s = |messages: u64| count((messages as f64 / seconds) as u64);
    let (put, acked) = (counts.put.messages, counts.acked.messages);
    let refused: u64 = counts.refused.values().sum();
    let mut line = format!("put {} ({}/s)", count(put), per_s(put));
    if counts.taken.messages > 0 {
        let late = |percent| percentile(&counts.late_us, percent).map_or_else(String::new, us);
        line += &format!("  acked {} ({}/s)", count(acked), per_s(acked));
        line += &format!("  late p50 {}, p99 {}", late(50.0), late(99.0));
    }
    line += &format!("  in the queue {}", count(put.saturating_sub(acked)));
    if refused > 0 {
        line += &format!("  refused {}", count(refused));
    }
    line
}
