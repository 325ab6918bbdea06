//! Takes and acks: all messages of some queues, or those that become due while the clock runs.
//!
//! Parameters of `drain`: `from` and `to`, indexes of queues in the mix; paused queues are resumed first. `most`,
//! optional: after this many messages it reports so, and then waits to be killed. Parameters of `month`: `steps` of an
//! hour for which the clock runs, after a change of one in twenty each.

use std::time::Duration;

use dwell_model::{Message, MessageId, Pause, QueueName, Setting, SettingChange, Timestamp};
use dwell_store::Take;
use serde_json::{Value, json};

use super::OpenedEngine;
use super::change::{is_cancelled, is_moved};
use crate::Result;
use crate::ours::start;
use crate::own_process::{Part, count, say};
use crate::run::progress;
use crate::stopwatch::{Stopwatch, pause};
use crate::workload::{BATCH, Tally};

pub(crate) const PART: Part = Part { name: "drain", run };
pub(crate) const MONTH: Part = Part { name: "month", run: month };

/// The parameters for these queues.
pub(crate) fn queues(queues: std::ops::Range<u64>) -> Value {
    json!({ "from": queues.start, "to": queues.end })
}

const HOUR_MS: u64 = 3_600_000;

fn run(parameters: &Value) -> Result<Value> {
    let opened = OpenedEngine::open(parameters)?;
    let mix = opened.mix;
    let queues = count(parameters, "from")? as usize..count(parameters, "to")? as usize;
    let names: Vec<QueueName> = queues.clone().map(|queue| mix.queue_name(queue)).collect();
    for name in &names {
        let running = SettingChange::Set(Setting::Pause(Pause::Running));
        opened.ours.calls().configure(name.clone(), vec![running])?;
    }
    let expected = mix.tally(|number| queues.contains(&mix.queue(number)));
    let mut draining = Draining::new(&opened, names, "drain", expected.count);
    if let Some(most) = parameters["most"].as_u64() {
        draining.some(most)?;
        say(&json!({ "taken": draining.tally.count }))?;
        pause(Duration::from_secs(3_600));
        return Err("nobody has ended this".into());
    }
    draining.all()?;
    let found = draining.finish(expected)?;
    opened.close(found)
}

fn month(parameters: &Value) -> Result<Value> {
    let opened = OpenedEngine::open(parameters)?;
    let (mix, steps) = (opened.mix, count(parameters, "steps")?);
    let end = start().saturating_after(steps * HOUR_MS);
    let is_wanted = |number| {
        let due = if is_moved(number) { mix.moved_due(number) } else { mix.due(number) };
        !is_cancelled(number, 1) && due <= end
    };
    let expected = mix.tally(is_wanted);
    let mut draining = Draining::new(&opened, mix.queue_names(), "a month", expected.count);
    for _ in 0..steps {
        opened.clock.advance(HOUR_MS);
        draining.all()?;
    }
    let found = draining.finish(expected)?;
    opened.close(found)
}

struct Draining<'a> {
    opened: &'a OpenedEngine,
    queues: Vec<QueueName>,
    tally: Tally,
    spent: Duration,
    bar: indicatif::ProgressBar,
}

impl<'a> Draining<'a> {
    fn new(opened: &'a OpenedEngine, queues: Vec<QueueName>, label: &str, count: u64) -> Draining<'a> {
        let bar = progress(label, count);
        Draining { opened, queues, tally: Tally::default(), spent: Duration::ZERO, bar }
    }

    /// Takes and acks until nothing more is due.
    fn all(&mut self) -> Result<()> {
        self.some(u64::MAX)
    }

    /// The same, but at most `most` messages, rounded up to a batch.
    fn some(&mut self, most: u64) -> Result<()> {
        let mut last: Option<(u32, Timestamp, MessageId)> = None;
        loop {
            let (tally, mut is_in_order) = (&mut self.tally, true);
            let see = |message: &Message| {
                let place = (message.standing.priority, message.standing.due, message.id);
                is_in_order &= last.replace(place).is_none_or(|last| last < place);
                tally.add(&message.body);
            };
            let take = Take::from_all(self.queues.iter().cloned()).max(BATCH);
            let watch = Stopwatch::start();
            let count = self.opened.ours.take_from(take, see)?;
            self.spent += watch.elapsed();
            if !is_in_order {
                return Err("messages come out of order".into());
            }
            if count == 0 || self.tally.count >= most {
                return Ok(());
            }
            self.bar.inc(count as u64);
        }
    }

    fn finish(self, expected: Tally) -> Result<Value> {
        self.bar.finish_and_clear();
        if self.tally != expected {
            let Tally { count, .. } = self.tally;
            return Err(format!("{count} of {} came, or with other bytes", expected.count).into());
        }
        Ok(json!({ "taken": expected.count, "per_s": expected.count as f64 / self.spent.as_secs_f64() }))
    }
}
