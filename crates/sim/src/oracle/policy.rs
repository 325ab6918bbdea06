//! What a queue's settings may have been while something happened, as far as they decide what becomes of its messages; and
//! which of its messages may have died, as far as that decides which of them it keeps.
//!
//! A setting is noticed by whoever acts on a message next. So whatever happened to a message at an unknown moment is judged by
//! all values that may have been in force since it came to stand as it does.

use std::collections::BTreeMap;

use super::window::{Seq, Span};

/// Settings by which messages stand, by the names that the store gives them.
pub(crate) const DEAD_TTL: &str = "dead_ttl";
pub(crate) const DEAD_MAX: &str = "dead_max";
pub(crate) const ON_EXPIRY: &str = "on_expiry";
pub(crate) const MAX_LEASED: &str = "max_leased";
pub(crate) const LAPSE_BACKOFF: &str = "lapse_backoff";
pub(crate) const BACKOFF: &str = "backoff";

const WATCHED: [&str; 6] = [DEAD_TTL, DEAD_MAX, ON_EXPIRY, MAX_LEASED, LAPSE_BACKOFF, BACKOFF];

/// The last instant there is: 9999-12-31T23:59:59.999Z.
const LAST_MS: i64 = 253_402_300_799_999;

/// One write of a setting, and when it may have been made.
#[derive(Clone, Debug)]
struct Write {
    op: Seq,
    begin: Seq,
    end: Seq,
    value: Option<String>,
    /// Whether it is known to have been made.
    heard: bool,
    /// The latest that the wall clock had been seen to show by then.
    wall: i64,
}

/// A message that may have died, and by when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dying {
    /// The number of its put.
    pub(super) no: u64,
    /// The latest instant of its last death.
    pub(super) by: i64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    written: BTreeMap<&'static str, Vec<Write>>,
    /// All messages of the queue that may have died, by the latest instant of that. Kept where the queue limits their number.
    pub(super) crowd: Vec<Dying>,
}

/// How long a message waits after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Backoff {
    base_ms: i128,
    factor_percent: i128,
    cap_ms: i128,
    jitter_percent: i128,
}

impl Policy {
    /// A setting is about to be written.
    pub(super) fn begin(&mut self, op: Seq, at: Seq, setting: &str, value: Option<String>) {
        let Some(setting) = WATCHED.into_iter().find(|watched| *watched == setting) else { return };
        let writes = self.written.entry(setting).or_insert_with(|| vec![Write::initial()]);
        writes.push(Write { op, begin: at, end: Seq::MAX, value, heard: false, wall: i64::MAX });
    }

    /// All settings are about to be reset.
    pub(super) fn begin_reset(&mut self, op: Seq, at: Seq) {
        for setting in WATCHED {
            if self.written.contains_key(setting) {
                self.begin(op, at, setting, None);
            }
        }
    }

    /// What the command was to write was written by then, if it was `heard`; else it may have been.
    pub(super) fn end(&mut self, op: Seq, at: Seq, wall: i64, heard: bool) {
        let writes = self.written.values_mut().flatten().filter(|write| write.op == op);
        writes.for_each(|write| (write.end, write.wall, write.heard) = (at, wall, heard));
    }

    /// The command was refused, and has written nothing.
    pub(super) fn refused(&mut self, op: Seq) {
        self.written.values_mut().for_each(|writes| writes.retain(|write| write.op != op));
    }

    /// A setting was shown.
    pub(super) fn read(&mut self, begin: Seq, end: Seq, wall: i64, setting: &str, value: &Option<String>) {
        if self.possible(setting, end, end).len() < 2 {
            return;
        }
        if let Some(writes) = self.written.get_mut(setting) {
            writes.push(Write { op: begin, begin, end, value: value.clone(), heard: true, wall });
        }
    }

    /// All values that a setting may have had at some moment from `from` to `to`.
    fn possible(&self, setting: &str, from: Seq, to: Seq) -> Vec<Option<&str>> {
        let Some(writes) = self.written.get(setting) else { return vec![None] };
        let overwritten = |write: &Write| {
            writes.iter().any(|later| later.heard && write.end < later.begin && later.end < from)
        };
        let mut values: Vec<Option<&str>> = writes
            .iter()
            .filter(|write| write.begin <= to && !overwritten(write))
            .map(|write| write.value.as_deref())
            .collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    fn numbers(&self, setting: &str, from: Seq, to: Seq) -> impl Iterator<Item = Option<i64>> {
        let number = |text: &str| text.parse().expect("it was written as a number");
        self.possible(setting, from, to).into_iter().map(move |value| value.map(number))
    }

    /// The same with the latest that the wall clock may have shown while the setting had that value.
    fn until(&self, setting: &str, from: Seq, to: Seq) -> Vec<(Option<&str>, i64)> {
        let Some(writes) = self.written.get(setting) else { return vec![(None, i64::MAX)] };
        let in_time = writes.iter().filter(|write| write.begin <= to);
        let lasted = in_time.filter_map(|write| {
            let overwrites = writes.iter().filter(|later| later.heard && write.end < later.begin);
            let mut until = i64::MAX;
            for later in overwrites {
                if later.end < from {
                    return None;
                }
                until = until.min(later.wall);
            }
            Some((write.value.as_deref(), until))
        });
        lasted.collect()
    }

    /// How long its dead may have been kept, in milliseconds; nothing for no limit.
    pub(super) fn dead_ttls(&self, from: Seq, to: Seq) -> impl Iterator<Item = Option<i64>> {
        self.numbers(DEAD_TTL, from, to)
    }

    /// Whether a message may have been discarded that died at `death`, where the wall clock has shown `peak` at the latest.
    pub(super) fn may_be_over(&self, from: Seq, to: Seq, death: i64, peak: i64) -> bool {
        self.until(DEAD_TTL, from, to).into_iter().any(|(ttl, until)| {
            let ttl = ttl.map(|ttl| ttl.parse::<i64>().expect("it was written as a number"));
            ttl.is_some_and(|ttl| death.saturating_add(ttl) <= peak.min(until))
        })
    }

    /// How many of its dead may have been kept.
    pub(super) fn dead_maxes(&self, from: Seq, to: Seq) -> impl Iterator<Item = Option<i64>> {
        self.numbers(DEAD_MAX, from, to)
    }

    /// How many of its messages may have been allowed to be leased at a time.
    pub(super) fn max_leased(&self, from: Seq, to: Seq) -> impl Iterator<Item = Option<i64>> {
        self.numbers(MAX_LEASED, from, to)
    }

    /// Whether what expires at an instant may have been dropped, and whether it may have been kept.
    pub(super) fn drops(&self, from: Seq, to: Seq, expires: i64) -> impl Iterator<Item = bool> {
        let until = self.until(ON_EXPIRY, from, to).into_iter();
        let mut drops: Vec<bool> =
            until.filter(|(_, until)| expires <= *until).map(|(value, _)| value == Some("drop")).collect();
        drops.sort_unstable();
        drops.dedup();
        drops.into_iter()
    }

    /// Whether the setting may ever have had a value of the queue's own.
    pub(crate) fn was_ever_set(&self, setting: &str) -> bool {
        self.written.get(setting).is_some_and(|writes| writes.iter().any(|write| write.value.is_some()))
    }

    /// How many messages may have died that are not this one, at the instant `at` or later.
    pub(super) fn died_since(&self, at: i64, no: u64) -> i64 {
        self.crowd.iter().filter(|dying| dying.by >= at && dying.no != no).count() as i64
    }

    /// How long a message may wait whose lease has run out with so many attempts spent; nothing where it is as it was before.
    pub(super) fn lapse_delays(&self, from: Seq, to: Seq, id: Option<u128>, spent: u32) -> Vec<Option<Span>> {
        let mut delays = Vec::new();
        for value in self.possible(LAPSE_BACKOFF, from, to) {
            let waits = match value {
                Some("first") => spent >= 1,
                Some("second") => spent >= 2,
                _ => false,
            };
            if !waits {
                delays.push(None);
                continue;
            }
            let backoffs = self.possible(BACKOFF, from, to).into_iter().map(Backoff::read);
            delays.extend(backoffs.map(|backoff| Some(backoff.after_lapse(id, spent))));
        }
        delays.dedup();
        delays
    }
}

impl Write {
    /// By default, since ever.
    fn initial() -> Write {
        Write { op: 0, begin: 0, end: 0, value: None, heard: true, wall: 0 }
    }
}

impl Backoff {
    /// As it is written: base, factor, cap, jitter; the default where it is not.
    fn read(text: Option<&str>) -> Backoff {
        let text = text.unwrap_or("1000 200 3600000 20");
        let mut numbers = text.split(' ').map(|word| word.parse().expect("a backoff is four numbers"));
        let mut next = || numbers.next().expect("a backoff is four numbers");
        Backoff { base_ms: next(), factor_percent: next(), cap_ms: next(), jitter_percent: next() }
    }

    /// The delay after a lapse with so many attempts spent. Exact where the id is known: the jitter is a hash of both.
    fn after_lapse(self, id: Option<u128>, spent: u32) -> Span {
        // In nanoseconds, each step rounded down.
        let (mut delay, cap) =
            ((self.base_ms * 1_000_000).min(self.cap_ms * 1_000_000), self.cap_ms * 1_000_000);
        for _ in 1..spent {
            delay = (delay * self.factor_percent / 100).min(cap);
        }
        let delay = delay / 1_000_000;
        let off = delay * self.jitter_percent / 100;
        let ms = |ms: i128| i64::try_from(ms).unwrap_or(i64::MAX);
        match id {
            Some(id) => Span::exact(ms(delay - ((off * i128::from(jitter(id, spent))) >> 32))),
            None => Span { lo: ms(delay - off), hi: ms(delay) },
        }
    }
}

/// Jenkins's one-at-a-time hash of the 16 bytes of an id and the 4 of an attempt, big-endian.
fn jitter(id: u128, spent: u32) -> u32 {
    let mut hash: u32 = 0;
    for byte in id.to_be_bytes().into_iter().chain(spent.to_be_bytes()) {
        hash = hash.wrapping_add(u32::from(byte));
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    }
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

/// So long after an instant, at the last one there is if that is sooner.
pub(super) fn later(at: Span, by: Span) -> Span {
    let end = |at: i64, by: i64| at.saturating_add(by).min(LAST_MS.max(at));
    Span { lo: end(at.lo, by.lo), hi: end(at.hi, by.hi) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Option<String> {
        Some(value.to_owned())
    }

    #[test]
    fn a_value_is_possible_until_a_later_one_is_known() {
        let mut policy = Policy::default();
        let ttls = |policy: &Policy, from, to| policy.dead_ttls(from, to).collect::<Vec<_>>();
        assert_eq!(ttls(&policy, 0, 9), [None]);
        policy.begin(5, 5, DEAD_TTL, text("100"));
        assert_eq!(ttls(&policy, 1, 4), [None]);
        assert_eq!(ttls(&policy, 6, 7), [None, Some(100)]);
        policy.end(5, 8, 70, true);
        assert_eq!(ttls(&policy, 7, 9), [None, Some(100)]);
        assert_eq!(ttls(&policy, 9, 9), [Some(100)]);
        policy.begin(10, 10, DEAD_TTL, None);
        policy.end(10, 12, 90, false);
        assert_eq!(ttls(&policy, 20, 20), [None, Some(100)]);
        policy.read(21, 22, 90, DEAD_TTL, &text("100"));
        assert_eq!(ttls(&policy, 23, 23), [Some(100)]);
        policy.begin(24, 24, DEAD_TTL, text("7"));
        policy.refused(24);
        assert_eq!(ttls(&policy, 25, 25), [Some(100)]);
        assert!(policy.was_ever_set(DEAD_TTL) && !policy.was_ever_set(DEAD_MAX));
    }

    #[test]
    fn a_wait_after_a_lapse_lies_within_its_jitter() {
        let mut policy = Policy::default();
        policy.begin(1, 1, LAPSE_BACKOFF, text("second"));
        policy.end(1, 2, 0, true);
        policy.begin(3, 3, BACKOFF, text("100 200 1000 10"));
        policy.end(3, 4, 0, true);
        assert_eq!(policy.lapse_delays(5, 5, Some(7), 1), [None]);
        assert_eq!(policy.lapse_delays(5, 5, None, 2), [Some(Span { lo: 180, hi: 200 })]);
        assert_eq!(policy.lapse_delays(5, 5, None, 9), [Some(Span { lo: 900, hi: 1_000 })]);
        let exact = policy.lapse_delays(5, 5, Some(7), 2);
        assert!(
            matches!(exact[..], [Some(Span { lo, hi })] if lo == hi && (180..=200).contains(&lo)),
            "{exact:?}"
        );
    }
}
