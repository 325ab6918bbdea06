//! The ledger: the state of each line, and the checks on it. It takes a few dozen bytes per line, whatever the body.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use dwell_model::Timestamp;

use super::order::DeliveryOrder;
use crate::jsonl::InputLine;

/// How far the end of a lease may deviate from the reported one, in ms: leases run on the monotonic clock, which NTP does
/// not slew, but are reported and carried across restarts by the wall clock.
const LEASE_TOLERANCE_MS: i64 = 25;

/// The state of one line.
#[derive(Clone, Copy, Debug, Default)]
struct LedgerEntry {
    /// The id of its message; 0 before it is known.
    id: u128,
    /// When its answer was read, in milliseconds of the monotonic clock plus one, so that 0 is "not yet".
    answered_ms: u64,
    /// Whether it was delivered.
    delivered: bool,
    /// Whether its ack was answered.
    acked: bool,
    /// Whether it was found in the server at the end.
    left: bool,
}

/// A lease that a consumer holds, or held with an unknown end.
#[derive(Clone, Copy, Debug)]
struct HeldMessage {
    lease_until: Timestamp,
    /// The number of kills before it was granted.
    kills: u32,
    /// Whether an ack of unknown outcome was sent.
    maybe_acked: bool,
}

/// A message as a consumer received it, or as the inventory found it.
#[derive(Clone, Debug)]
pub(in crate::load) struct SeenMessage<'a> {
    pub(in crate::load) id: u128,
    pub(in crate::load) queue: &'a str,
    pub(in crate::load) key: Option<&'a str>,
    pub(in crate::load) body: &'a [u8],
    pub(in crate::load) due: Timestamp,
    pub(in crate::load) created: Timestamp,
    pub(in crate::load) attempt: u32,
}

/// The additional data of a delivery.
#[derive(Clone, Copy, Debug)]
pub(in crate::load) struct TakenMessage {
    pub(in crate::load) begun_ms: u64,
    pub(in crate::load) taken_at: Timestamp,
    pub(in crate::load) lease_until: Timestamp,
}

/// The counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadCounts {
    /// Lines that were answered.
    pub(crate) answered: u64,
    /// Deliveries, including repeated ones.
    pub(crate) delivered: u64,
    /// Lines that were delivered.
    pub(crate) delivered_lines: u64,
    /// Deliveries of lines that were delivered before a kill and not acked.
    pub(crate) redelivered: u64,
    /// Deliveries of lines whose lease had run out.
    pub(crate) lapsed: u64,
    /// Messages left in the server at the end.
    pub(crate) left: u64,
}

/// The ledger; see the [module](self).
#[derive(Debug)]
pub(crate) struct LoadLedger {
    seed: u64,
    entries: Vec<LedgerEntry>,
    held: HashMap<u64, HeldMessage>,
    orders: BTreeMap<String, DeliveryOrder>,
    kills: u32,
    /// Queues of which a take was lost in a kill.
    lost_takes: BTreeMap<String, u32>,
    /// For each consumer, the begin of its last take that returned less than its maximum.
    caught_up: BTreeMap<u32, u64>,
    counts: LoadCounts,
    violations: Vec<String>,
}

impl LoadLedger {
    /// A ledger for `lines` lines of `seed`.
    pub(in crate::load) fn new(seed: u64, lines: u64) -> LoadLedger {
        LoadLedger {
            seed,
            entries: vec![
                LedgerEntry::default();
                usize::try_from(lines).expect("a file of lines fits into memory")
            ],
            held: HashMap::new(),
            orders: BTreeMap::new(),
            kills: 0,
            lost_takes: BTreeMap::new(),
            caught_up: BTreeMap::new(),
            counts: LoadCounts::default(),
            violations: Vec::new(),
        }
    }

    /// The counters so far.
    pub(in crate::load) fn counts(&self) -> LoadCounts {
        self.counts
    }

    /// The violations so far.
    pub(in crate::load) fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Records a violation.
    pub(in crate::load) fn accuse(&mut self, text: impl fmt::Display) {
        self.violations.push(text.to_string());
    }

    /// Records that the server was killed.
    pub(in crate::load) fn killed(&mut self) {
        self.kills += 1;
    }

    /// Records that a take from these queues was lost with its server.
    pub(in crate::load) fn lost_take<'a>(&mut self, queues: impl Iterator<Item = &'a str>) {
        for queue in queues {
            *self.lost_takes.entry(queue.to_owned()).or_default() += 1;
        }
    }

    /// Records that a consumer's take, begun at `begun_ms`, returned all that was due.
    pub(in crate::load) fn caught_up(&mut self, consumer: u32, begun_ms: u64) {
        self.caught_up.insert(consumer, begun_ms);
    }

    /// Whether all consumers have caught up since then.
    pub(in crate::load) fn caught_up_since(&self, since_ms: u64, consumers: u32) -> bool {
        (0..consumers).all(|consumer| self.caught_up.get(&consumer).is_some_and(|begun| *begun > since_ms))
    }

    /// Records the answer to a line: it is stored, with this id.
    pub(in crate::load) fn answered(&mut self, number: u64, id: u128, now_ms: u64) {
        let Some(entry) = self.entry(number) else { return };
        if entry.answered_ms > 0 {
            return self.accuse(format!("line {number} was answered twice"));
        }
        entry.answered_ms = now_ms + 1;
        self.counts.answered += 1;
        self.identify(number, id);
    }

    /// Records the refusal of a line, which is always a violation.
    pub(in crate::load) fn refused(&mut self, number: u64, code: &str) {
        self.accuse(format!("line {number} was refused: {code}"));
    }

    /// Records a delivery. Returns the line; `None` if the message is not one of the file.
    pub(in crate::load) fn delivered(&mut self, seen: &SeenMessage<'_>, taken: TakenMessage) -> Option<u64> {
        self.counts.delivered += 1;
        let number = self.recognise(seen)?;
        if taken.taken_at < seen.due {
            self.accuse(format!(
                "early: line {number} was taken at {} and due at {}",
                taken.taken_at, seen.due
            ));
        }
        let entry = self.entries[number as usize];
        if entry.acked {
            self.accuse(format!("line {number} was delivered after its ack was answered"));
        }
        self.count_again(number, entry, seen, taken);
        if seen.attempt == 1 && entry.answered_ms > 0 {
            let order = self.orders.entry(seen.queue.to_owned()).or_default();
            if let Some(later) = order.overtaken((seen.due.as_ms(), seen.id), entry.answered_ms - 1) {
                self.accuse(format!(
                    "out of order: line {number}, due at {}, came after a message that sorts behind it: {later:?}",
                    seen.due
                ));
            }
        }
        self.counts.delivered_lines += u64::from(!entry.delivered);
        self.entries[number as usize].delivered = true;
        let held = HeldMessage { lease_until: taken.lease_until, kills: self.kills, maybe_acked: false };
        self.held.insert(number, held);
        Some(number)
    }

    /// Checks whether a repeated delivery is allowed, and counts it by its reason.
    fn count_again(&mut self, number: u64, entry: LedgerEntry, seen: &SeenMessage<'_>, taken: TakenMessage) {
        match self.held.get(&number).copied() {
            Some(held) if held.lease_until.as_ms() > taken.taken_at.as_ms() + LEASE_TOLERANCE_MS => {
                let text = format!(
                    "line {number} was handed out at {} though it was held until {}",
                    taken.taken_at, held.lease_until
                );
                self.accuse(text);
            }
            Some(held) if held.kills < self.kills => self.counts.redelivered += 1,
            Some(_) => self.counts.lapsed += 1,
            None if seen.attempt > 1 && !entry.delivered => {
                if self.lost_takes.contains_key(seen.queue) {
                    self.counts.redelivered += 1;
                } else {
                    let attempt = seen.attempt;
                    self.accuse(format!("line {number} came as attempt {attempt}, and was never handed out"));
                }
            }
            None => {}
        }
    }

    /// Records the deliveries of a take from one queue.
    pub(in crate::load) fn took(
        &mut self,
        queue: &str,
        taken: TakenMessage,
        places: impl IntoIterator<Item = (i64, u128)>,
    ) {
        let order = self.orders.entry(queue.to_owned()).or_default();
        order.took(taken.begun_ms, taken.taken_at.as_ms(), places);
    }

    /// Records that the ack of a line was answered: it is gone.
    pub(in crate::load) fn acked(&mut self, number: u64) {
        self.entries[number as usize].acked = true;
        self.held.remove(&number);
    }

    /// Records that an ack was sent and has an unknown outcome.
    pub(in crate::load) fn ack_unknown(&mut self, number: u64) {
        if let Some(held) = self.held.get_mut(&number) {
            held.maybe_acked = true;
        }
    }

    /// Records that an ack was refused because the lease is lost: right if it had run out, or if an earlier ack took effect.
    pub(in crate::load) fn ack_lost(&mut self, number: u64, now: Timestamp) {
        let Some(held) = self.held.get(&number) else { return };
        if !held.maybe_acked && held.lease_until > now {
            let until = held.lease_until;
            self.accuse(format!("the lease of line {number} was lost before it ended at {until}"));
        }
    }

    /// Records that a message was found in the server at the end.
    pub(in crate::load) fn found(&mut self, seen: &SeenMessage<'_>) {
        let Some(number) = self.recognise(seen) else { return };
        self.counts.left += 1;
        let entry = &mut self.entries[number as usize];
        let (twice, acked) = (entry.left, entry.acked);
        entry.left = true;
        if twice {
            self.accuse(format!("line {number} is there twice"));
        }
        if acked {
            self.accuse(format!("line {number} is still there, though its ack was answered"));
        }
    }

    /// The final check of every line: each was answered, and is either gone by an ack or still there.
    pub(in crate::load) fn finish(&mut self) {
        for number in 0..self.entries.len() as u64 {
            let entry = self.entries[number as usize];
            if entry.answered_ms == 0 {
                self.accuse(format!("line {number} was never answered"));
            }
            let maybe_acked = self.held.get(&number).is_some_and(|held| held.maybe_acked);
            if !entry.acked && !entry.left && !maybe_acked {
                self.accuse(format!("line {number} is lost"));
            }
        }
    }

    /// The line of a message, if all its bytes match.
    fn recognise(&mut self, seen: &SeenMessage<'_>) -> Option<u64> {
        let number = InputLine::number_in(seen.body).filter(|number| *number < self.entries.len() as u64);
        let Some(number) = number else {
            self.accuse(format!("a message in {} is no line: {:?}", seen.queue, seen.body));
            return None;
        };
        let line = InputLine::make(self.seed, number);
        if line.body != seen.body || line.key.as_deref() != seen.key || line.queue_name() != seen.queue {
            self.accuse(format!("line {number} came back with another body, key or queue"));
        }
        if seen.attempt <= 1 && seen.due.ms_since(seen.created) != line.delay_ms {
            let (created, due, delay_ms) = (seen.created, seen.due, line.delay_ms);
            self.accuse(format!("line {number}: put at {created}, due at {due}, delay {delay_ms} ms"));
        }
        self.identify(number, seen.id);
        Some(number)
    }

    /// Checks the id: a line is stored once, so all reports of it have the same id.
    fn identify(&mut self, number: u64, id: u128) {
        let Some(entry) = self.entry(number) else { return };
        if entry.id == 0 {
            entry.id = id;
        } else if entry.id != id {
            self.accuse(format!("line {number} is stored twice, under two ids"));
        }
    }

    fn entry(&mut self, number: u64) -> Option<&mut LedgerEntry> {
        if number >= self.entries.len() as u64 {
            self.accuse(format!("line {number} is answered, and there is none"));
            return None;
        }
        Some(&mut self.entries[number as usize])
    }
}

#[cfg(test)]
mod tests;
