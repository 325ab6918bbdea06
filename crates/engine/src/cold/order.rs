//! The lanes of each queue by when their next entries may be ready, so that a take looks at none whose time has not come.
//!
//! A queue has a lane in most files: with messages for a year ahead, thousands. Nearly all of them begin later than now.
//!
//! # Ground rules
//! 1. A lane that is not dead stands here under a lower bound of the due of its first cold entry, or of the beginning of
//!    time if all of it is ready. It may be missing if it has no cold entry.
//! 2. Bounds are raised by those who look, and lowered when an entry is cold again that is due before.

use std::collections::{BTreeMap, BTreeSet};

use dwell_model::{QueueName, Timestamp};

use super::{ColdSet, LaneAt, Queued};
use crate::due::LaneState;

/// The lanes of a queue, by their priorities and bounds.
#[derive(Debug, Default)]
pub(super) struct Order {
    ranks: BTreeMap<u32, BTreeSet<(Timestamp, LaneAt)>>,
}

/// What a lane takes here in memory, in bytes: 16 of its own, in a tree whose nodes are about two thirds full.
pub(super) const LANE_BYTES: usize = 24;

impl Order {
    fn insert(&mut self, rank: u32, bound: Timestamp, at: LaneAt) {
        self.ranks.entry(rank).or_default().insert((bound, at));
    }

    fn remove(&mut self, rank: u32, bound: Timestamp, at: LaneAt) {
        let Some(lanes) = self.ranks.get_mut(&rank) else { return };
        lanes.remove(&(bound, at));
        if lanes.is_empty() {
            self.ranks.remove(&rank);
        }
    }

    /// The lanes whose bound lies at or before `until`.
    fn by(&self, until: Timestamp) -> impl Iterator<Item = LaneAt> {
        let by = move |lanes: &BTreeSet<(Timestamp, LaneAt)>| {
            lanes.iter().take_while(move |(bound, _)| *bound <= until).map(|(_, at)| *at).collect::<Vec<_>>()
        };
        self.ranks.values().flat_map(by)
    }
}

impl ColdSet {
    /// All that is ready was due by then, but for what became ready otherwise.
    fn horizon(&self, ripe: Timestamp) -> Timestamp {
        ripe.max(self.most_ripe)
    }

    /// The lanes of a queue that may have something ready, and perhaps some more.
    pub(super) fn lanes_by(&self, queue: &QueueName, ripe: Timestamp) -> Vec<LaneAt> {
        let horizon = self.horizon(ripe);
        self.by_queue.get(queue).map_or_else(Vec::new, |queued| queued.order.by(horizon).collect())
    }

    /// The priorities that a queue's lanes have, but for the dead.
    pub(super) fn ranks_of(&self, queue: &QueueName) -> Vec<u32> {
        self.by_queue.get(queue).map_or_else(Vec::new, |queued| queued.order.ranks.keys().copied().collect())
    }

    /// The first lane of a queue and a priority that certainly has nothing ready, and its bound.
    pub(super) fn first_behind(
        &self,
        queue: &QueueName,
        rank: u32,
        ripe: Timestamp,
    ) -> Option<(Timestamp, LaneAt)> {
        let lanes = self.by_queue.get(queue)?.order.ranks.get(&rank)?;
        let behind = (self.horizon(ripe).saturating_after(1), LaneAt { file: 0, lane: 0 });
        lanes.range(behind..).next().copied()
    }

    /// Whether all messages of a queue that are not dead have the same priority.
    pub(super) fn has_one_rank(&self, queue: &QueueName) -> bool {
        let Some(queued) = self.by_queue.get(queue) else { return true };
        let is_live = |(_, at): &(Timestamp, LaneAt)| self.files[&at.file].lanes[at.lane as usize].live > 0;
        queued.order.ranks.values().filter(|lanes| lanes.iter().any(is_live)).nth(1).is_none()
    }

    /// Takes a lane in, of whose entries nothing is known yet.
    pub(super) fn enlist(&mut self, at: LaneAt) {
        let lane = self.lane(at);
        match lane.state {
            LaneState::Dead => {}
            LaneState::Ready => self.list(at, Some(Timestamp::MIN)),
            LaneState::Scheduled => self.list(at, Some(lane.min_due)),
        }
    }

    /// Has a lane stand under another bound, or no longer.
    pub(super) fn list(&mut self, at: LaneAt, bound: Option<Timestamp>) {
        let file = self.files.get_mut(&at.file).expect("lanes are those of files");
        let lane = &file.file.lanes()[at.lane as usize];
        let before = std::mem::replace(&mut file.lanes[at.lane as usize].bound, bound);
        if before == bound {
            return;
        }
        let Some(Queued { order, .. }) = self.by_queue.get_mut(&lane.queue) else { return };
        if let Some(before) = before {
            order.remove(lane.priority, before, at);
        }
        if let Some(bound) = bound {
            order.insert(lane.priority, bound, at);
        }
    }

    /// The first cold entry of a lane is not due before `due`.
    pub(super) fn raise(&mut self, at: LaneAt, due: Timestamp) {
        let bound = self.files[&at.file].lanes[at.lane as usize].bound;
        if self.lane(at).state == LaneState::Scheduled && bound.is_some_and(|bound| bound < due) {
            self.list(at, Some(due));
        }
    }

    /// An entry of a lane is cold again.
    pub(super) fn lower(&mut self, at: LaneAt, ordinal: u32) {
        let (file, lane) = (&self.files[&at.file], self.lane(at));
        match file.lanes[at.lane as usize].bound {
            // It stands before all of the lane.
            Some(bound) if bound <= lane.min_due => {}
            None => self.enlist(at),
            Some(bound) => {
                let ((due, _), _) = file.file.bound(lane, ordinal);
                if due < bound {
                    self.list(at, Some(due));
                }
            }
        }
    }
}
