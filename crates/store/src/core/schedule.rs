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
    row: u8,
}

impl SchedulePosition {
    /// Whether a message in this place is ready once it is due, without being moved.
    pub(super) fn is_in_row(self) -> bool {
        usize::from(self.row) < MAX_ROWS
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
    rows: Vec<PriorityRow>,
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
        self.rows.iter().map(|row| row.messages.len()).sum::<usize>() + self.beside.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Inserts a message that was just put: the youngest of all.
    pub(super) fn insert_put(&mut self, priority: u32, due: Timestamp, slot: u32) -> SchedulePosition {
        let Some(row) = self.row_for(priority) else { return self.insert(due, slot) };
        let handle = self.rows[row].messages.insert(due.as_ms(), slot);
        SchedulePosition { handle, row: row as u8 }
    }

    /// Inserts any other message.
    pub(super) fn insert(&mut self, due: Timestamp, slot: u32) -> SchedulePosition {
        SchedulePosition { handle: self.beside.insert(due.as_ms(), slot), row: MAX_ROWS as u8 }
    }

    fn row_for(&mut self, priority: u32) -> Option<usize> {
        if let Some(row) = self.rows.iter().position(|row| row.priority == priority) {
            return Some(row);
        }
        if let Some(row) = self.rows.iter().position(|row| row.messages.is_empty()) {
            self.rows[row].priority = priority;
            return Some(row);
        }
        if self.rows.len() == MAX_ROWS {
            return None;
        }
        // Most queues need one: the default growth of a vector would reserve four.
        self.rows.reserve_exact(1);
        self.rows.push(PriorityRow { priority, messages: TimingQueue::new() });
        Some(self.rows.len() - 1)
    }

    /// Removes a message; does nothing if it left when it became due.
    pub(super) fn remove(&mut self, spot: SchedulePosition) {
        match self.rows.get_mut(usize::from(spot.row)) {
            Some(row) => row.messages.cancel(spot.handle),
            None => self.beside.cancel(spot.handle),
        };
    }

    pub(super) fn get(&self, spot: SchedulePosition) -> Option<u32> {
        match self.rows.get(usize::from(spot.row)) {
            Some(row) => row.messages.get(spot.handle).copied(),
            None => self.beside.get(spot.handle),
        }
    }

    /// Removes and returns a message beside the lanes that is due at `wall`.
    pub(super) fn pop_timed(&mut self, wall: Timestamp) -> Option<u32> {
        self.beside.pop_due(wall.as_ms()).map(|(_, slot)| slot)
    }

    /// Whether any message beside the lanes is due at `wall`.
    pub(super) fn is_due_timed(&self, wall: Timestamp) -> bool {
        self.beside.next_due().is_some_and(|due| due <= wall.as_ms())
    }

    /// Removes and returns a message that is due at `wall`.
    pub(super) fn pop(&mut self, wall: Timestamp) -> Option<u32> {
        let rows = self.rows.iter_mut().find_map(|row| row.messages.pop_due(wall.as_ms()));
        rows.map(|(_, slot)| slot).or_else(|| self.pop_timed(wall))
    }

    /// The message that is handed out first of those in lanes that are due at `wall`.
    pub(super) fn first_due<B>(&self, wall: Timestamp, entries: &Slab<Entry<B>>) -> Option<(ReadyKey, u32)> {
        let heads = self.rows.iter().filter_map(|PriorityRow { messages, .. }| {
            let (_, slot) = messages.peek().filter(|(due, _)| *due <= wall.as_ms())?;
            Some((ReadyKey::of(entries.get(*slot)), *slot))
        });
        heads.min()
    }

    /// The first messages of each lane that are due at `wall`, as far as their order is known already; lane
    /// by lane, in the order of their priorities.
    pub(super) fn upcoming(&self, wall: Timestamp) -> impl Iterator<Item = u32> {
        let mut rows: Vec<&PriorityRow> = self.rows.iter().collect();
        rows.sort_unstable_by_key(|row| row.priority);
        rows.into_iter().flat_map(move |row| {
            let due = row.messages.upcoming().take_while(move |(due, _)| *due <= wall.as_ms());
            due.map(|(_, slot)| *slot)
        })
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let rows = self.rows.iter().filter_map(|row| row.messages.next_due());
        rows.chain(self.beside.next_due()).min().map(instant)
    }

    /// The earliest instant after `wall`.
    pub(super) fn next_due_after(&self, wall: Timestamp) -> Option<Timestamp> {
        let from = wall.as_ms() + 1;
        let rows = self.rows.iter().filter_map(|row| row.messages.iter_from(from).next());
        let beside = self.beside.iter_from(from).next().map(|(due, _)| due);
        rows.map(|(due, _)| due).chain(beside).min().map(instant)
    }

    /// The number of messages that are due at `wall`, and the number of urgent ones among them. Messages
    /// beside the lanes are not counted: they are moved away when they are due.
    pub(super) fn count_due(&self, wall: Timestamp) -> (u64, u64) {
        let (mut due, mut urgent) = (0, 0);
        for row in &self.rows {
            let count = row.messages.count_due(wall.as_ms()) as u64;
            due += count;
            urgent += if is_urgent(row.priority) { count } else { 0 };
        }
        (due, urgent)
    }

    /// The number of messages that are due at `at` or before, including those beside the lanes.
    pub(super) fn count_by(&self, at: Timestamp) -> u64 {
        let rows: usize = self.rows.iter().map(|row| row.messages.count_due(at.as_ms())).sum();
        (rows + self.beside.count_due(at.as_ms())) as u64
    }

    /// For each lane and for those beside them: the messages that are due at `from` or later, by due.
    pub(super) fn parts_from(
        &self,
        from: Timestamp,
    ) -> impl Iterator<Item = impl Iterator<Item = (i64, u32)>> {
        let beside = self.beside.0.as_deref();
        let parts = self.rows.iter().map(|row| &row.messages).chain(beside);
        parts.map(move |part| part.iter_from(from.as_ms()).map(|(due, slot)| (due, *slot)))
    }

    /// Verifies the order of the lanes.
    ///
    /// # Panics
    /// If it is wrong.
    pub(super) fn check<B>(&self, entries: &Slab<Entry<B>>) {
        for row in &self.rows {
            let mut last: Option<(i64, MessageId)> = None;
            for (due, slot) in row.messages.iter() {
                let entry = entries.get(*slot);
                assert_eq!((entry.due.as_ms(), entry.priority), (due, row.priority), "{:?}", entry.id);
                assert!(last < Some((due, entry.id)), "{:?} is out of order", entry.id);
                last = Some((due, entry.id));
            }
        }
    }
}

fn instant(due: i64) -> Timestamp {
    Timestamp::from_ms(due).expect("messages are scheduled at timestamps")
}
