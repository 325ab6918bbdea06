//! Scheduled messages: in lanes, one for each of a few priorities, and beside them.
//!
//! Within a lane messages leave in (due, id) order, and so the earliest of a lane is the next one to hand out
//! of its priority. Lanes are therefore not emptied when their messages become due: a message that is due
//! counts as ready in its place. An instant at which a million messages become due costs nothing until they
//! are taken.
//!
//! 1. A lane accepts messages at their put only. Ids of one instant rise from put to put, so a lane that
//!    keeps equal instants in the order of arrival keeps them in the order of their ids.
//! 2. Messages that come back (retried, rescheduled, revived) or have a priority without a lane are kept
//!    beside the lanes, and are moved to the ready ones once they are due.

use dwell_model::{MessageId, Timestamp};
use dwell_time::{Handle, TimingQueue};

use super::entry::Entry;
use super::queue::{ReadyKey, is_urgent};
use super::slab::Slab;

/// The maximum number of lanes of a queue.
const MAX_ROWS: usize = 8;

/// The place of a scheduled message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SchedulePosition {
    handle: Handle,
    /// `MAX_ROWS` if it is beside the lanes.
    lane: u8,
}

impl SchedulePosition {
    /// Whether a message in this place is ready once it is due, without being moved.
    pub(super) fn is_in_lane(self) -> bool {
        usize::from(self.lane) < MAX_ROWS
    }
}

#[derive(Debug)]
struct PriorityRow {
    priority: u32,
    messages: TimingQueue<u32>,
}

/// The scheduled messages of a queue, as slots.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    lanes: Vec<PriorityRow>,
    beside: Timers,
}

/// A timing queue that costs a pointer until it is used.
#[derive(Debug, Default)]
pub(super) struct Timers(Option<Box<TimingQueue<u32>>>);

impl Timers {
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |timers| timers.len())
    }

    pub(super) fn insert(&mut self, due: i64, slot: u32) -> Handle {
        self.0.get_or_insert_default().insert(due, slot)
    }

    pub(super) fn cancel(&mut self, handle: Handle) -> Option<u32> {
        self.0.as_mut()?.cancel(handle)
    }

    pub(super) fn reschedule(&mut self, handle: Handle, due: i64) -> bool {
        self.0.as_mut().is_some_and(|timers| timers.reschedule(handle, due))
    }

    pub(super) fn get(&self, handle: Handle) -> Option<u32> {
        self.0.as_ref()?.get(handle).copied()
    }

    pub(super) fn count_due(&self, now: i64) -> usize {
        self.0.as_ref().map_or(0, |timers| timers.count_due(now))
    }

    pub(super) fn next_due(&self) -> Option<i64> {
        self.0.as_ref()?.next_due()
    }

    pub(super) fn pop_due(&mut self, now: i64) -> Option<(i64, u32)> {
        self.0.as_mut()?.pop_due(now)
    }

    pub(super) fn iter_from(&self, from: i64) -> impl Iterator<Item = (i64, u32)> {
        self.0.iter().flat_map(move |timers| timers.iter_from(from)).map(|(due, slot)| (due, *slot))
    }
}

impl Schedule {
    pub(super) fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.messages.len()).sum::<usize>() + self.beside.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Inserts a message that was just put: the youngest of all.
    pub(super) fn insert_put(&mut self, priority: u32, due: Timestamp, slot: u32) -> SchedulePosition {
        let Some(lane) = self.lane_for(priority) else { return self.insert(due, slot) };
        let handle = self.lanes[lane].messages.insert(due.as_ms(), slot);
        SchedulePosition { handle, lane: lane as u8 }
    }

    /// Inserts any other message.
    pub(super) fn insert(&mut self, due: Timestamp, slot: u32) -> SchedulePosition {
        SchedulePosition { handle: self.beside.insert(due.as_ms(), slot), lane: MAX_ROWS as u8 }
    }

    fn lane_for(&mut self, priority: u32) -> Option<usize> {
        if let Some(lane) = self.lanes.iter().position(|lane| lane.priority == priority) {
            return Some(lane);
        }
        if let Some(lane) = self.lanes.iter().position(|lane| lane.messages.is_empty()) {
            self.lanes[lane].priority = priority;
            return Some(lane);
        }
        if self.lanes.len() == MAX_ROWS {
            return None;
        }
        // Most queues need one: the default growth of a vector would reserve four.
        self.lanes.reserve_exact(1);
        self.lanes.push(PriorityRow { priority, messages: TimingQueue::new() });
        Some(self.lanes.len() - 1)
    }

    /// Removes a message; does nothing if it left when it became due.
    pub(super) fn remove(&mut self, spot: SchedulePosition) {
        match self.lanes.get_mut(usize::from(spot.lane)) {
            Some(lane) => lane.messages.cancel(spot.handle),
            None => self.beside.cancel(spot.handle),
        };
    }

    pub(super) fn get(&self, spot: SchedulePosition) -> Option<u32> {
        match self.lanes.get(usize::from(spot.lane)) {
            Some(lane) => lane.messages.get(spot.handle).copied(),
            None => self.beside.get(spot.handle),
        }
    }

    /// Removes and returns a message beside the lanes that is due at `wall`.
    pub(super) fn pop_beside(&mut self, wall: Timestamp) -> Option<u32> {
        self.beside.pop_due(wall.as_ms()).map(|(_, slot)| slot)
    }

    /// Whether any message beside the lanes is due at `wall`.
    pub(super) fn is_due_beside(&self, wall: Timestamp) -> bool {
        self.beside.next_due().is_some_and(|due| due <= wall.as_ms())
    }

    /// Removes and returns a message that is due at `wall`.
    pub(super) fn pop(&mut self, wall: Timestamp) -> Option<u32> {
        let lanes = self.lanes.iter_mut().find_map(|lane| lane.messages.pop_due(wall.as_ms()));
        lanes.map(|(_, slot)| slot).or_else(|| self.pop_beside(wall))
    }

    /// The message that is handed out first of those in lanes that are due at `wall`.
    pub(super) fn first_due<B>(&self, wall: Timestamp, entries: &Slab<Entry<B>>) -> Option<(ReadyKey, u32)> {
        let heads = self.lanes.iter().filter_map(|PriorityRow { messages, .. }| {
            let (_, slot) = messages.peek().filter(|(due, _)| *due <= wall.as_ms())?;
            Some((ReadyKey::of(entries.get(*slot)), *slot))
        });
        heads.min()
    }

    /// The first messages of each lane that are due at `wall`, as far as their order is known already; lane
    /// by lane, in the order of their priorities.
    pub(super) fn upcoming(&self, wall: Timestamp) -> impl Iterator<Item = u32> {
        let mut lanes: Vec<&PriorityRow> = self.lanes.iter().collect();
        lanes.sort_unstable_by_key(|lane| lane.priority);
        lanes.into_iter().flat_map(move |lane| {
            let due = lane.messages.upcoming().take_while(move |(due, _)| *due <= wall.as_ms());
            due.map(|(_, slot)| *slot)
        })
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let lanes = self.lanes.iter().filter_map(|lane| lane.messages.next_due());
        lanes.chain(self.beside.next_due()).min().map(instant)
    }

    /// The earliest instant after `wall`.
    pub(super) fn next_due_after(&self, wall: Timestamp) -> Option<Timestamp> {
        let from = wall.as_ms() + 1;
        let lanes = self.lanes.iter().filter_map(|lane| lane.messages.iter_from(from).next());
        let beside = self.beside.iter_from(from).next().map(|(due, _)| due);
        lanes.map(|(due, _)| due).chain(beside).min().map(instant)
    }

    /// The number of messages that are due at `wall`, and the number of urgent ones among them. Messages
    /// beside the lanes are not counted: they are moved away when they are due.
    pub(super) fn count_due(&self, wall: Timestamp) -> (u64, u64) {
        let (mut due, mut urgent) = (0, 0);
        for lane in &self.lanes {
            let count = lane.messages.count_due(wall.as_ms()) as u64;
            due += count;
            urgent += if is_urgent(lane.priority) { count } else { 0 };
        }
        (due, urgent)
    }

    /// The number of messages that are due at `at` or before, including those beside the lanes.
    pub(super) fn count_by(&self, at: Timestamp) -> u64 {
        let lanes: usize = self.lanes.iter().map(|lane| lane.messages.count_due(at.as_ms())).sum();
        (lanes + self.beside.count_due(at.as_ms())) as u64
    }

    /// For each lane and for those beside them: the messages that are due at `from` or later, by due.
    pub(super) fn parts_from(
        &self,
        from: Timestamp,
    ) -> impl Iterator<Item = impl Iterator<Item = (i64, u32)>> {
        let beside = self.beside.0.as_deref();
        let parts = self.lanes.iter().map(|lane| &lane.messages).chain(beside);
        parts.map(move |part| part.iter_from(from.as_ms()).map(|(due, slot)| (due, *slot)))
    }

    /// Verifies the order of the lanes.
    ///
    /// # Panics
    /// If it is wrong.
    pub(super) fn check<B>(&self, entries: &Slab<Entry<B>>) {
        for lane in &self.lanes {
            let mut last: Option<(i64, MessageId)> = None;
            for (due, slot) in lane.messages.iter() {
                let entry = entries.get(*slot);
                assert_eq!((entry.due.as_ms(), entry.priority), (due, lane.priority), "{:?}", entry.id);
                assert!(last < Some((due, entry.id)), "{:?} is out of order", entry.id);
                last = Some((due, entry.id));
            }
        }
    }
}

fn instant(due: i64) -> Timestamp {
    Timestamp::from_ms(due).expect("messages are scheduled at timestamps")
}
