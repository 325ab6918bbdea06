//! Messages that expire while they are cold: found by the expiries of their files, and handed over.
//!
//! What can not be read then is set aside by the file: a chunk of its expiries, or a block of its entries. So one rotten
//! block keeps no other message from expiring, and is not read again by each call, but after a second, two, four, and so
//! on up to a minute; and at once where a call asks for it. It is forgotten with its file.

use std::collections::BTreeMap;

use dwell_model::{Now, QueueName, Timestamp};
use dwell_store::core::ColdMessage;
use dwell_store::{Error, Result};

use super::file::ColdFile;
use super::{ColdSet, Spot};
use crate::due::{Found, LaneState};
use crate::journal::segment::Place;
use crate::sealed::ReadError;

/// What was set aside waits so long at first before it is tried again, and so long at most.
const FIRST_WAIT_MS: u64 = 1_000;
const LONGEST_WAIT_MS: u64 = 60_000;
/// After so many reads that failed in one call nothing more is tried in it: the medium may be gone.
const FAILURES: usize = 16;

/// Where a file's expiries go on: what lies before this was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Progress {
    /// The how-manieth chunk.
    chunk: u32,
    /// The how-manieth of the chunk.
    pair: u32,
}

/// What could not be read of a file when its time had come.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// Chunks of expiries, with the earliest of each.
    chunks: BTreeMap<u32, Timestamp>,
    /// By block and lane the earliest that expires there.
    blocks: BTreeMap<(u32, u32), Timestamp>,
    /// Not to be tried before this, on the monotonic clock.
    again_ms: u64,
    /// How long it was to wait the last time.
    waited_ms: u64,
    /// What was wrong when something was set aside last.
    reason: Box<str>,
}

impl Aside {
    /// Something is about to be set aside for the first time.
    fn beginning(now: Now) -> Box<Aside> {
        let reason = "too much else could not be read".into();
        let mut aside = Box::new(Aside { reason, ..Aside::default() });
        aside.wait(now);
        aside
    }

    fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.blocks.is_empty()
    }

    /// Its bytes in memory.
    pub(super) fn memory(&self) -> usize {
        size_of::<Aside>()
            + (self.chunks.len() + self.blocks.len()) * 2 * size_of::<((u32, u32), Timestamp)>()
    }

    fn has_block(&self, block: u32) -> bool {
        self.blocks.range((block, 0)..=(block, u32::MAX)).next().is_some()
    }

    fn add_block(&mut self, block: u32, lane: u32, expires: Timestamp) {
        let earliest = self.blocks.entry((block, lane)).or_insert(expires);
        *earliest = expires.min(*earliest);
    }

    /// Something of it was tried, and failed still, or it is new.
    fn wait(&mut self, now: Now) {
        self.waited_ms = (2 * self.waited_ms).clamp(FIRST_WAIT_MS, LONGEST_WAIT_MS);
        self.again_ms = now.mono_ms.saturating_add(self.waited_ms);
    }
}

/// What one call may still read.
struct Purse {
    /// So many more messages.
    messages: usize,
    failures: usize,
}

impl Purse {
    fn may_try(&self) -> bool {
        self.failures < FAILURES
    }

    /// Something was set aside, after a read that failed, or untried.
    fn failed(&mut self, error: Option<ReadError>, aside: &mut Aside) {
        if let Some(error) = error {
            aside.reason = error.to_string().into();
            self.failures += 1;
        }
    }
}

impl ColdFile {
    /// Whether an entry has not been handed over, and can expire.
    fn may_expire(&self, ordinal: u32) -> bool {
        let lane = &self.file.lanes()[self.file.lane_of(ordinal)];
        lane.state != LaneState::Dead && !self.out.has(ordinal)
    }

    /// Whether something of a queue that expires by `wall` is set aside.
    fn has_aside(&self, queue: &QueueName, wall: Timestamp) -> bool {
        let Some(aside) = &self.aside else { return false };
        let is_over = |earliest: &Timestamp| *earliest <= wall;
        let in_chunks = aside.chunks.values().any(is_over);
        let lanes = self.file.lanes().iter().zip(0u32..);
        let mut lanes = lanes.filter(|(lane, _)| lane.queue == *queue && lane.state != LaneState::Dead);
        lanes.any(|(lane, at)| {
            let live = |from: u32, to: u32| from < to && self.out.live(from..to) > 0;
            let range = lane.range();
            let in_block = |block: u32| {
                let of_block = self.file.ordinals_of(block);
                live(range.start.max(of_block.start), range.end.min(of_block.end))
            };
            let blocks = aside.blocks.iter().filter(|((_, lane), _)| *lane == at);
            in_chunks && live(range.start, range.end)
                || blocks.into_iter().any(|((block, _), earliest)| is_over(earliest) && in_block(*block))
        })
    }

    /// Entries that expire by `wall` and were not looked at before. What was is not looked at again.
    fn next_over(&mut self, now: Now, purse: &mut Purse) -> Vec<(u32, Timestamp)> {
        let mut over = Vec::new();
        while let Some(from) = self.file.expiry_chunk_from(self.expired_to.chunk) {
            self.next_expiry = Some(from);
            if from > now.wall || purse.messages == 0 {
                return over;
            }
            let chunk = self.expired_to.chunk;
            let next = Progress { chunk: chunk + 1, pair: 0 };
            let Some(pairs) = self.read_chunk(chunk, from, now, purse) else {
                self.expired_to = next;
                continue;
            };
            let seen = self.expired_to.pair as usize;
            let fresh = pairs[seen..].iter().take_while(|(at, _)| *at <= now.wall).take(purse.messages);
            let fresh: Vec<(u32, Timestamp)> = fresh.map(|(at, ordinal)| (*ordinal, *at)).collect();
            purse.messages -= fresh.len();
            let pair = seen + fresh.len();
            over.extend(fresh.into_iter().filter(|(ordinal, _)| self.may_expire(*ordinal)));
            if let Some((at, _)) = pairs.get(pair) {
                self.expired_to.pair = u32::try_from(pair).expect("a chunk has few pairs");
                self.next_expiry = Some(*at);
                return over;
            }
            self.expired_to = next;
        }
        self.next_expiry = None;
        over
    }

    /// A chunk, unless it can not be read: then it is set aside.
    fn read_chunk(
        &mut self,
        chunk: u32,
        from: Timestamp,
        now: Now,
        purse: &mut Purse,
    ) -> Option<Vec<(Timestamp, u32)>> {
        if self.aside.as_ref().is_some_and(|aside| aside.chunks.contains_key(&chunk)) {
            return None;
        }
        let read = if purse.may_try() { Some(self.file.expiry_chunk(chunk)) } else { None };
        let failed = match read {
            Some(Ok(pairs)) => return Some(pairs),
            Some(Err(error)) => Some(error),
            None => None,
        };
        let aside = self.aside.get_or_insert_with(|| Aside::beginning(now));
        aside.chunks.insert(chunk, from);
        purse.failed(failed, aside);
        None
    }
}

impl ColdSet {
    /// See [`Cold::expired`](dwell_store::core::Cold::expired).
    pub(super) fn hand_over_expired(&mut self, now: Now, most: usize, into: &mut Vec<ColdMessage<Place>>) {
        let has_fresh = self.next_expiry.is_some_and(|next| next <= now.wall);
        let has_again = self.again_ms.is_some_and(|again| again <= now.mono_ms);
        if !has_fresh && !has_again {
            return;
        }
        let mut purse = Purse { messages: most, failures: 0 };
        if has_again {
            let is_due = |aside: &Aside| aside.again_ms <= now.mono_ms;
            let due = self.files.iter().filter(|(_, file)| file.aside.as_deref().is_some_and(is_due));
            for number in due.map(|(number, _)| *number).collect::<Vec<u32>>() {
                self.try_aside(number, now, &mut purse, into);
            }
        }
        self.look_at_fresh(now, &mut purse, into);
    }

    /// See [`Cold::expired_of`](dwell_store::core::Cold::expired_of).
    pub(super) fn hand_over_expired_of(
        &mut self,
        queue: &QueueName,
        now: Now,
        most: usize,
        into: &mut Vec<ColdMessage<Place>>,
    ) -> Result<()> {
        if self.again_ms.is_none() {
            return Ok(());
        }
        let has_aside = |set: &ColdSet| -> Vec<u32> {
            let files = set.files.iter().filter(|(_, file)| file.has_aside(queue, now.wall));
            files.map(|(number, _)| *number).collect()
        };
        let mut purse = Purse { messages: most, failures: 0 };
        for number in has_aside(self) {
            self.try_aside(number, now, &mut purse, into);
        }
        self.look_at_fresh(now, &mut purse, into);
        let Some(number) = has_aside(self).first().copied() else { return Ok(()) };
        let reason = self.files[&number].aside.as_ref().map_or("", |aside| &*aside.reason);
        Err(Error::Unavailable {
            reason: format!("messages of queue '{queue}' have expired that can not be read: {reason}").into(),
        })
    }

    /// Looks at the files of which something expires that was not looked at.
    fn look_at_fresh(&mut self, now: Now, purse: &mut Purse, into: &mut Vec<ColdMessage<Place>>) {
        let numbers: Vec<u32> = self.files.keys().copied().collect();
        for number in numbers {
            let file = self.files.get_mut(&number).expect("it was just there");
            if purse.messages > 0 && file.next_expiry.is_some_and(|next| next <= now.wall) {
                let over = file.next_over(now, purse);
                self.read_over(number, over, now, purse, into);
            }
        }
        self.next_expiry = self.files.values().filter_map(|file| file.next_expiry).min();
        let aside = self.files.values().filter_map(|file| file.aside.as_ref());
        self.again_ms = aside.map(|aside| aside.again_ms).min();
    }

    /// Hands entries of a file over. What lies in a block that can not be read is set aside.
    fn read_over(
        &mut self,
        number: u32,
        mut over: Vec<(u32, Timestamp)>,
        now: Now,
        purse: &mut Purse,
        into: &mut Vec<ColdMessage<Place>>,
    ) {
        // In their order, each block is read once.
        over.sort_unstable();
        let mut found: Vec<(Spot, Found)> = Vec::with_capacity(over.len());
        for (ordinal, expires) in over {
            let file = self.files.get_mut(&number).expect("its entries were just listed");
            let (block, lane) = (file.file.block_of(ordinal), file.file.lane_of(ordinal));
            let is_aside = file.aside.as_ref().is_some_and(|aside| aside.has_block(block));
            let mut failed = None;
            if !is_aside && purse.may_try() {
                match self.blocks.entry(file, ordinal) {
                    Ok(one) => {
                        found.push((Spot { file: number, ordinal }, one.clone()));
                        continue;
                    }
                    Err(error) => failed = Some(error),
                }
            }
            let lane = u32::try_from(lane).expect("lanes are counted in 32 bits");
            let aside = file.aside.get_or_insert_with(|| Aside::beginning(now));
            aside.add_block(block, lane, expires);
            purse.failed(failed, aside);
        }
        self.hand_over(found, into);
    }

    /// Tries again what was set aside of a file.
    fn try_aside(&mut self, number: u32, now: Now, purse: &mut Purse, into: &mut Vec<ColdMessage<Place>>) {
        let file = self.files.get_mut(&number).expect("something of it is set aside");
        let mut aside = file.aside.take().expect("something of it is set aside");
        let chunks: Vec<u32> = aside.chunks.keys().copied().collect();
        for chunk in chunks {
            if !purse.may_try() {
                break;
            }
            match file.file.expiry_chunk(chunk) {
                // From there on it is looked at as if it had not been.
                Ok(_) => {
                    aside.chunks.remove(&chunk);
                    file.look_again_from(chunk);
                }
                Err(error) => purse.failed(Some(error), &mut aside),
            }
        }
        let mut blocks: Vec<u32> = aside.blocks.keys().map(|(block, _)| *block).collect();
        blocks.dedup();
        for block in blocks {
            if !purse.may_try() || purse.messages == 0 {
                break;
            }
            self.try_block(number, block, &mut aside, purse, into);
        }
        if aside.is_empty() {
            return;
        }
        if purse.messages > 0 {
            aside.wait(now);
        }
        self.files.get_mut(&number).expect("it was just there").aside = Some(aside);
    }

    /// Tries a block again: what of it was to expire is handed over, whatever the time is now.
    fn try_block(
        &mut self,
        number: u32,
        block: u32,
        aside: &mut Aside,
        purse: &mut Purse,
        into: &mut Vec<ColdMessage<Place>>,
    ) {
        let file = &self.files[&number];
        let lanes = aside.blocks.range((block, 0)..=(block, u32::MAX));
        let lanes: Vec<u32> = lanes.map(|((_, lane), _)| *lane).collect();
        let mut found = Vec::new();
        for ordinal in file.file.ordinals_of(block) {
            let is_one = |lane: usize| lanes.iter().any(|aside| *aside as usize == lane);
            if !is_one(file.file.lane_of(ordinal)) || !file.may_expire(ordinal) {
                continue;
            }
            match self.blocks.entry(file, ordinal) {
                // One that expires later does no harm in memory.
                Ok(one) if one.entry.standing.expires.is_some() => {
                    found.push((Spot { file: number, ordinal }, one.clone()));
                }
                Ok(_) => {}
                Err(error) => return purse.failed(Some(error), aside),
            }
        }
        aside.blocks.retain(|(kept, _), _| *kept != block);
        purse.messages = purse.messages.saturating_sub(found.len());
        self.hand_over(found, into);
    }
}

impl ColdFile {
    /// The expiries from a chunk on have to be looked at again.
    pub(super) fn look_again_from(&mut self, chunk: u32) {
        if chunk < self.expired_to.chunk || chunk == self.expired_to.chunk && self.expired_to.pair > 0 {
            self.expired_to = Progress { chunk, pair: 0 };
            self.next_expiry = self.file.expiry_chunk_from(chunk);
        }
    }
}
