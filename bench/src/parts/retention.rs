//! Retention: the dead messages of a queue, and how they go once the queue keeps fewer of them or keeps them for less long.
//!
//! Parameters of `bury`: `dead`, the number of messages of the first queue that are buried, at many instants. Parameters of
//! `retention`: `dead`; `left`, the number of them that stay; and `dead_max` or `dead_ttl_ms`, which is set. Until that many
//! are left, other calls are made: a synced put, a take and an ack in another queue.

use std::time::Duration;

use dwell_model::{QueueName, Setting, SettingChange, State, StateKind};
use dwell_store::{DeathCounts, DiscardCounts, Put, Take};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::{OpenedEngine, sweep};
use crate::Result;
use crate::own_process::{Part, count};
use crate::resources::space_bytes;
use crate::run::progress;
use crate::stopwatch::{Stopwatch, pause};
use crate::workload::BODY_BYTES;

pub(crate) const BURY: Part = Part { name: "bury", run: bury };
pub(crate) const PART: Part = Part { name: "retention", run };

/// The number of messages that are buried at one instant.
const AT_ONE_INSTANT: u64 = 10_000;
/// The minimum number of other calls, until the dead are gone and after it,
const OTHERS: usize = 500;
/// and the pause after each of them.
const PAUSE: Duration = Duration::from_millis(1);
/// How long the dead may take to go.
const PATIENCE: Duration = Duration::from_secs(3_600);

fn bury(parameters: &Value) -> Result<Value> {
    let opened = OpenedEngine::open(parameters)?;
    let (dead, queue) = (count(parameters, "dead")?, opened.mix.queue_name(0));
    let bar = progress("bury", dead);
    let watch = Stopwatch::start();
    let mut buried = 0;
    while buried < dead {
        let now = sweep::bury(&opened, &queue, AT_ONE_INSTANT.min(dead - buried), &bar)?;
        if now == 0 {
            return Err(format!("{buried} of {dead} could be buried").into());
        }
        buried += now;
        opened.clock.advance(1);
    }
    bar.finish_and_clear();
    let per_s = watch.per_second(buried);
    opened.settle_down()?;
    let space = space_bytes(&opened.folder)?;
    opened.close(json!({ "per_s": per_s, "space_bytes": space }))
}

fn run(parameters: &Value) -> Result<Value> {
    let opened = OpenedEngine::open(parameters)?;
    let (dead, left, queue) =
        (count(parameters, "dead")?, count(parameters, "left")?, opened.mix.queue_name(0));
    let setting = match parameters["dead_ttl_ms"].as_u64() {
        Some(ms) => Setting::DeadTtlMs(ms),
        None => Setting::DeadMax(count(parameters, "dead_max")?),
    };
    let (calls, cold) = (opened.ours.calls(), opened.counters().cold);
    let before = calls.stats(queue.clone())?.counts.dead;
    if before != dead || cold < dead / 2 {
        return Err(format!("{before} of {dead} are dead, and {cold} are in tables").into());
    }
    let bar = progress("discard", dead - left);
    let mut micros: Histogram<u64> = Histogram::new(3)?;
    let watch = Stopwatch::start();
    calls.configure(queue.clone(), vec![SettingChange::Set(setting.clone())])?;
    let set_ms = watch.elapsed().as_secs_f64() * 1_000.0;
    let (mut others, mut gone_ms) = (OTHERS, None);
    while others > 0 || gone_ms.is_none() {
        micros.record(u64::try_from(other_call(&opened)?.as_micros())?)?;
        others = others.saturating_sub(1);
        let now = calls.stats(queue.clone())?.counts.dead;
        bar.set_position(dead.saturating_sub(now));
        if now == left {
            gone_ms = gone_ms.or_else(|| Some(watch.elapsed().as_secs_f64() * 1_000.0));
        } else if now < left || gone_ms.is_some() || watch.elapsed() > PATIENCE {
            return Err(format!("{now} are dead, and {left} should be left of {dead}").into());
        }
        pause(PAUSE);
    }
    bar.finish_and_clear();
    are_counted(&opened, &queue, &setting, dead - left)?;
    are_the_youngest(&opened, &queue, left)?;
    opened.settle_down()?;
    let space = space_bytes(&opened.folder)?;
    let ms = |micros: u64| micros as f64 / 1_000.0;
    opened.close(json!({
        "cold": cold,
        "set_ms": set_ms,
        "gone_ms": gone_ms,
        "others": micros.len(),
        "others_p99_ms": ms(micros.value_at_quantile(0.99)),
        "others_max_ms": ms(micros.max()),
        "space_bytes": space,
    }))
}

/// A put, a take and an ack of another queue. Returns the time they took together.
fn other_call(opened: &OpenedEngine) -> Result<Duration> {
    let other: QueueName = "other".parse().expect("it is a queue's name");
    let watch = Stopwatch::start();
    let one = |_| vec![Put::new(other.clone(), vec![0; BODY_BYTES])];
    opened.ours.put_patiently(one(0), one)?;
    match opened.ours.take_from(Take::from(other.clone()).max(1), |_| {})? {
        1 => Ok(watch.elapsed()),
        taken => Err(format!("a take brought {taken}, and one message was put").into()),
    }
}

/// Fails unless the store has counted `gone` discards of the queue, all for the setting, and no death.
fn are_counted(opened: &OpenedEngine, queue: &QueueName, setting: &Setting, gone: u64) -> Result<()> {
    let expected = match setting {
        Setting::DeadTtlMs(_) => DiscardCounts { dead_ttl: gone, ..DiscardCounts::default() },
        _ => DiscardCounts { dead_max: gone, ..DiscardCounts::default() },
    };
    let all = opened.ours.calls().deaths()?;
    let counted = all.into_iter().find(|counted| counted.queue.as_ref() == Some(queue)).unwrap_or_default();
    if counted.discarded != expected || counted.deaths != DeathCounts::default() {
        return Err(format!("{gone} were discarded, and the store counts {counted:?}").into());
    }
    Ok(())
}

/// Fails unless `left` dead messages are listed, and are those that died last.
fn are_the_youngest(opened: &OpenedEngine, queue: &QueueName, left: u64) -> Result<()> {
    let calls = opened.ours.calls();
    let (mut listed, mut cursor) = (Vec::new(), None);
    loop {
        let page = calls.list(queue.clone(), StateKind::Dead, cursor, 1_000)?;
        if let Some((id, error)) = page.unread.into_iter().next() {
            return Err(format!("{id} cannot be read: {error}").into());
        }
        listed.extend(page.messages.iter().filter_map(|message| match message.standing.state {
            State::Dead(death) => Some(death.at),
            _ => None,
        }));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let (first, last) = (listed.iter().min(), listed.iter().max());
    let span_ms = first.zip(last).map_or(0, |(first, last)| last.as_ms() - first.as_ms());
    if listed.len() as u64 != left || span_ms as u64 > left.div_ceil(AT_ONE_INSTANT) {
        return Err(format!("{} are listed as dead, from {first:?} to {last:?}", listed.len()).into());
    }
    Ok(())
}
