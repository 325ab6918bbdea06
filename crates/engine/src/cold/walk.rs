//! The cold messages of a queue in the orders that are asked for, merged over all lanes of all files.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use dwell_model::{DEFAULT_PRIORITY, MessageId, QueueName, StateKind, Timestamp};
use dwell_store::core::{ColdCounts, ColdHead};

use super::file::Head;
use super::{ColdSet, LaneAt, Spot};
use crate::due::{Lane, LaneState};
use crate::sealed;

/// An entry in a merge: its place in the order, then where it lies and where its part of the lane ends.
type Merged<K> = Reverse<(K, LaneAt, u32, u32)>;

impl ColdSet {
    fn lanes_of(&self, queue: &QueueName) -> Vec<LaneAt> {
        let lanes = self.by_queue.get(queue).map_or(&[][..], Vec::as_slice);
        let has_cold = |at: &&LaneAt| self.files[&at.file].lanes[at.lane as usize].live > 0;
        lanes.iter().filter(has_cold).copied().collect()
    }

    fn lane(&self, at: LaneAt) -> &Lane {
        &self.files[&at.file].file.lanes()[at.lane as usize]
    }

    /// By then entries of a scheduled lane are ready.
    fn ripe(&self, at: LaneAt, ripe: Timestamp) -> Timestamp {
        ripe.max(self.files[&at.file].ripe)
    }

    /// The due and id of an entry.
    fn place(&mut self, at: LaneAt, ordinal: u32) -> sealed::Result<(Timestamp, MessageId)> {
        let found = self.blocks.entry(&self.files[&at.file], ordinal)?;
        Ok((found.entry.standing.due, found.entry.id))
    }

    /// The first cold entry of a lane.
    fn first(&mut self, at: LaneAt) -> sealed::Result<Option<Head>> {
        let file = &self.files[&at.file];
        let state = file.lanes[at.lane as usize];
        let Some(ordinal) = file.next_live(at.lane as usize, state.from) else { return Ok(None) };
        let known = state.head.filter(|head| head.ordinal == ordinal);
        let head = match known {
            Some(head) => head,
            None => {
                let (due, id) = self.place(at, ordinal)?;
                Head { ordinal, due, id }
            }
        };
        let state = &mut self.files.get_mut(&at.file).expect("it was just there").lanes[at.lane as usize];
        (state.from, state.head) = (ordinal, Some(head));
        Ok(Some(head))
    }

    /// The ordinal from which on entries of a scheduled lane are not ready.
    fn unripe_from(&self, at: LaneAt, ripe: Timestamp) -> sealed::Result<u32> {
        let (lane, ripe) = (self.lane(at), self.ripe(at, ripe));
        if lane.max_due <= ripe {
            return Ok(lane.range().end);
        }
        self.files[&at.file].file.lower_bound(lane, (ripe.saturating_after(1), 0))
    }

    /// The part of a lane whose entries are in a state.
    fn part(&self, at: LaneAt, state: StateKind, ripe: Timestamp) -> sealed::Result<std::ops::Range<u32>> {
        let lane = self.lane(at);
        let (all, none) = (lane.range(), lane.first..lane.first);
        Ok(match (lane.state, state) {
            (LaneState::Ready, StateKind::Ready) | (LaneState::Dead, StateKind::Dead) => all,
            (LaneState::Scheduled, StateKind::Ready) => all.start..self.unripe_from(at, ripe)?,
            (LaneState::Scheduled, StateKind::Scheduled) => self.unripe_from(at, ripe)?..all.end,
            _ => none,
        })
    }

    /// The first ready entries, by (priority, due, id).
    pub(super) fn first_ready(
        &mut self,
        queue: &QueueName,
        ripe: Timestamp,
        most: usize,
    ) -> sealed::Result<Vec<Spot>> {
        let mut heap = BinaryHeap::new();
        for at in self.lanes_of(queue) {
            if self.lane(at).state == LaneState::Dead {
                continue;
            }
            let Some(head) = self.first(at)? else { continue };
            let is_ready = self.lane(at).state == LaneState::Ready || head.due <= self.ripe(at, ripe);
            if is_ready {
                let end = self.part(at, StateKind::Ready, ripe)?.end;
                heap.push(Reverse(((self.lane(at).priority, head.due, head.id), at, head.ordinal, end)));
            }
        }
        self.merge(heap, most, |lane, (due, id)| (lane.priority, due, id))
    }

    /// What goes out next.
    pub(super) fn next_ready(&mut self, queue: &QueueName, ripe: Timestamp) -> sealed::Result<ColdHead> {
        let mut next = ColdHead::default();
        for at in self.lanes_of(queue) {
            let Lane { state, priority, max_due, .. } = *self.lane(at);
            if state == LaneState::Dead {
                continue;
            }
            let Some(head) = self.first(at)? else { continue };
            let until = self.ripe(at, ripe);
            if state == LaneState::Ready || head.due <= until {
                let key = (priority, head.due, head.id);
                next.first = Some(next.first.map_or(key, |first| first.min(key)));
            }
            if state == LaneState::Ready || max_due <= until {
                continue;
            }
            let due = if head.due > until { Some(head.due) } else { self.first_unripe(at, ripe)? };
            next.next = next.next.into_iter().chain(due).min();
        }
        Ok(next)
    }

    /// When the first entry of a scheduled lane is due that is not ready.
    fn first_unripe(&mut self, at: LaneAt, ripe: Timestamp) -> sealed::Result<Option<Timestamp>> {
        let from = self.unripe_from(at, ripe)?;
        let Some(ordinal) = self.files[&at.file].next_live(at.lane as usize, from) else { return Ok(None) };
        Ok(Some(self.place(at, ordinal)?.0))
    }

    /// The first entries in a state after `after`, by (due, id).
    pub(super) fn first_after(
        &mut self,
        queue: &QueueName,
        state: StateKind,
        ripe: Timestamp,
        after: Option<(Timestamp, MessageId)>,
        most: usize,
    ) -> sealed::Result<Vec<Spot>> {
        let mut heap = BinaryHeap::new();
        for at in self.lanes_of(queue) {
            let mut part = self.part(at, state, ripe)?;
            if let Some((due, id)) = after {
                let behind = (due, id.as_bits().saturating_add(1));
                part.start = part.start.max(self.files[&at.file].file.lower_bound(self.lane(at), behind)?);
            }
            let next = self.files[&at.file].next_live(at.lane as usize, part.start);
            if let Some(ordinal) = next.filter(|next| *next < part.end) {
                heap.push(Reverse((self.place(at, ordinal)?, at, ordinal, part.end)));
            }
        }
        self.merge(heap, most, |_, place| place)
    }

    /// Takes `most` entries off a heap of lanes.
    fn merge<K: Ord>(
        &mut self,
        mut heap: BinaryHeap<Merged<K>>,
        most: usize,
        key: impl Fn(&Lane, (Timestamp, MessageId)) -> K,
    ) -> sealed::Result<Vec<Spot>> {
        let mut spots = Vec::new();
        while spots.len() < most
            && let Some(Reverse((_, at, ordinal, end))) = heap.pop()
        {
            spots.push(Spot { file: at.file, ordinal });
            let next = self.files[&at.file].next_live(at.lane as usize, ordinal + 1);
            if let Some(next) = next.filter(|next| *next < end) {
                let place = self.place(at, next)?;
                heap.push(Reverse((key(self.lane(at), place), at, next, end)));
            }
        }
        Ok(spots)
    }

    /// All cold dead entries.
    pub(super) fn all_dead(&self, queue: &QueueName) -> Vec<Spot> {
        let mut spots = Vec::new();
        for at in self.lanes_of(queue) {
            if self.lane(at).state != LaneState::Dead {
                continue;
            }
            let mut from = self.lane(at).first;
            while let Some(ordinal) = self.files[&at.file].next_live(at.lane as usize, from) {
                spots.push(Spot { file: at.file, ordinal });
                from = ordinal + 1;
            }
        }
        spots
    }

    /// How many are in which state.
    pub(super) fn count(&mut self, queue: &QueueName, ripe: Timestamp) -> sealed::Result<ColdCounts> {
        let mut cold = ColdCounts::default();
        for at in self.lanes_of(queue) {
            let live = u64::from(self.files[&at.file].lanes[at.lane as usize].live);
            let is_urgent = self.lane(at).priority < DEFAULT_PRIORITY;
            let ready = match self.lane(at).state {
                LaneState::Dead => {
                    cold.counts.dead += live;
                    continue;
                }
                LaneState::Ready => live,
                LaneState::Scheduled => {
                    let until = self.unripe_from(at, ripe)?;
                    let range = self.lane(at).first..until;
                    let due = u64::from(self.files[&at.file].out.live(range));
                    if due < live {
                        let next = self.first_unripe(at, ripe)?;
                        cold.next_due = cold.next_due.into_iter().chain(next).min();
                    }
                    cold.counts.scheduled += live - due;
                    due
                }
            };
            cold.counts.ready += ready;
            cold.counts.ready_urgent += if is_urgent { ready } else { 0 };
        }
        Ok(cold)
    }
}
