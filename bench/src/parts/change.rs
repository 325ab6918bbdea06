//! Cancels and reschedules messages, in random order, in batches: by key those that have one, the others by id.
//!
//! Parameters of `change`: `ids`, `cancel`: the number in twenty to cancel, and `move`: whether one in twenty is moved.
//! Parameters of `one`: `times`, the number of times that a single message is rescheduled.

use std::time::Duration;

use dwell_model::MessageId;
use dwell_store::{Cancelled, Put, Rescheduled, Target, When};
use serde_json::{Value, json};

use super::OpenedEngine;
use crate::Result;
use crate::mix::{Ids, Mix};
use crate::ours::start;
use crate::own_process::{Part, count};
use crate::resources::space_bytes;
use crate::run::progress;
use crate::stopwatch::Stopwatch;
use crate::workload::BATCH;

pub(crate) const PART: Part = Part { name: "change", run };
pub(crate) const ONE: Part = Part { name: "one", run: one };

/// The index of a message within its group of twenty decides what is done to it.
const OF: u64 = 20;
/// One in twenty is moved: the one at this index.
const MOVED: u64 = 8;
/// Those from this index on are cancelled, wrapping around.
const CANCELLED: u64 = 12;

/// Whether a message is moved, if one in twenty is.
pub(crate) fn is_moved(number: u64) -> bool {
    number % OF == MOVED
}

/// Whether a message is cancelled, if `in_twenty` of twenty are.
pub(crate) fn is_cancelled(number: u64, in_twenty: u64) -> bool {
    (number % OF + OF - CANCELLED) % OF < in_twenty
}

/// Whether a message is moved or cancelled, if one in twenty is moved and one cancelled.
pub(crate) fn is_changed(number: u64) -> bool {
    is_moved(number) || is_cancelled(number, 1)
}

fn run(parameters: &Value) -> Result<Value> {
    let opened = OpenedEngine::open(parameters)?;
    let ids = Ids::parse(&parameters["ids"])?;
    let (cancelled, moves) = (count(parameters, "cancel")?, parameters["move"] == true);
    let mix = opened.mix;
    let mut found = json!({});
    let each = |label: &str, wanted: &dyn Fn(u64) -> bool, many: u64, change: &Change<'_>| {
        all(&opened, label, wanted, many, ids, change)
    };
    if moves {
        let change = |queue: usize, numbers: &[u64], targets: Vec<Target>| {
            let moves =
                targets.into_iter().zip(numbers.iter().map(|number| When::At(mix.moved_due(*number))));
            let answers = opened.ours.calls().reschedule(mix.queue_name(queue), moves.collect());
            for answer in answers {
                let Rescheduled::Moved(..) = answer? else { return Err("a message is not there".into()) };
            }
            Ok(())
        };
        found["moved_per_s"] = each("reschedule", &is_moved, mix.count / OF, &change)?.into();
    }
    if cancelled > 0 {
        let change = |queue: usize, _: &[u64], targets: Vec<Target>| {
            for answer in opened.ours.calls().cancel(mix.queue_name(queue), targets) {
                let Cancelled::Cancelled(_) = answer? else { return Err("a message is not there".into()) };
            }
            Ok(())
        };
        let wanted = |number| is_cancelled(number, cancelled);
        found["cancelled_per_s"] = each("cancel", &wanted, mix.count / OF * cancelled, &change)?.into();
    }
    opened.settle_down()?;
    found["space_bytes"] = space_bytes(&opened.folder)?.into();
    opened.close(found)
}

type Change<'a> = dyn Fn(usize, &[u64], Vec<Target>) -> Result<()> + 'a;

/// Changes all messages that `wanted` selects, in an order that is independent of that of their puts.
///
/// Returns the number per second.
fn all(
    opened: &OpenedEngine,
    label: &str,
    wanted: &dyn Fn(u64) -> bool,
    many: u64,
    ids: Ids,
    change: &Change<'_>,
) -> Result<f64> {
    let mix = opened.mix;
    let mut batches: Vec<Vec<u64>> = vec![Vec::new(); mix.queues as usize];
    let (mut spent, mut changed) = (Duration::ZERO, 0);
    let bar = progress(label, many);
    let mut flush = |queue: usize, numbers: &mut Vec<u64>| {
        let targets = numbers.iter().map(|number| ids.target(&mix, *number)).collect::<Result<Vec<_>>>()?;
        let watch = Stopwatch::start();
        change(queue, numbers, targets)?;
        spent += watch.elapsed();
        changed += numbers.len() as u64;
        bar.inc(numbers.len() as u64);
        numbers.clear();
        Result::Ok(())
    };
    for number in shuffled(mix.count).filter(|number| wanted(*number)) {
        let queue = mix.queue(number);
        batches[queue].push(number);
        if batches[queue].len() == BATCH {
            flush(queue, &mut batches[queue])?;
        }
    }
    for (queue, numbers) in batches.iter_mut().enumerate() {
        flush(queue, numbers)?;
    }
    bar.finish_and_clear();
    Ok(changed as f64 / spent.as_secs_f64())
}

/// Every number below `count` once, in strides coprime to it.
fn shuffled(count: u64) -> impl Iterator<Item = u64> {
    let divides = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let about = (count as f64 * 0.618_034) as u64;
    let stride = (about..).find(|stride| divides(count, *stride) == 1).unwrap_or(1);
    let mut at = 0;
    (0..count).map(move |_| {
        at = (at + stride) % count;
        at
    })
}

/// Reschedules one message again and again.
fn one(parameters: &Value) -> Result<Value> {
    let opened = OpenedEngine::open(parameters)?;
    let times = count(parameters, "times")?;
    let queue = opened.mix.queue_name(0);
    let put = Put::new(queue.clone(), Mix::body(0).to_vec()).at(opened.mix.due(0));
    let id: MessageId = opened.ours.calls().put_one(put)?.id;
    let (bar, mut most, watch) = (progress("reschedule one", times), 0, Stopwatch::start());
    for batch in 0..times.div_ceil(BATCH as u64) {
        let moves = (0..BATCH as u64).map(|place| {
            let due = start().saturating_after(1 + (batch * 7 + place) % opened.mix.span_ms);
            (Target::Id(id), When::At(due))
        });
        for answer in opened.ours.calls().reschedule(queue.clone(), moves.collect()) {
            let Rescheduled::Moved(..) = answer? else { return Err("the message is not there".into()) };
        }
        if batch % 64 == 0 {
            most = most.max(space_bytes(&opened.folder)?);
        }
        bar.inc(BATCH as u64);
    }
    bar.finish_and_clear();
    let per_s = watch.per_second(times);
    opened.settle_down()?;
    let space = space_bytes(&opened.folder)?;
    opened.close(json!({ "per_s": per_s, "space_bytes": space, "most_space_bytes": most.max(space) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_has_every_number_once() {
        for count in [1, 2, 20, 1_000, 1_024] {
            let mut numbers: Vec<u64> = shuffled(count).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..count).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn so_many_in_twenty_are_changed_and_none_twice() {
        for in_twenty in [0, 1, 19] {
            let cancelled = (0..1_000).filter(|number| is_cancelled(*number, in_twenty)).count();
            assert_eq!(cancelled as u64, 50 * in_twenty);
        }
        assert_eq!((0..1_000).filter(|number| is_moved(*number)).count(), 50);
        assert!(!(0..1_000).any(|number| is_moved(number) && is_cancelled(number, 1)));
    }
}
