//! The timing queue: items ordered by the instant at which they become due.
//!
//! A plain data structure: no clock (`now` is an argument), no lock, no I/O. The memory store, the engine and
//! `DelayQueue` keep their instants in it.

mod meter;
mod page;
mod pages;
mod run;
#[cfg(test)]
mod search;
mod slots;
mod sort;
#[cfg(test)]
mod tests;

use pages::Pages;
use run::{RunEntry, SortedRun};
use slots::{EntryPosition, Slots};
use sort::Sorter;

pub use slots::Handle;

/// Items in exact (due, sequence) order: items of one instant leave in the order in which they were inserted.
///
/// `due` is a plain number whose unit and origin the caller chooses. Any `i64` is allowed, and the distance between two
/// instants costs nothing. Like a `Vec`, the queue keeps the memory of its largest number of items until it is dropped.
///
/// # Example
/// ```
/// use dwell_time::TimingQueue;
///
/// let mut queue = TimingQueue::new();
/// let tea = queue.insert(300, "tea");
/// queue.insert(100, "egg");
/// assert_eq!(queue.pop_due(99), None);
/// assert_eq!(queue.pop_due(100), Some((100, "egg")));
/// assert!(queue.reschedule(tea, 200));
/// assert_eq!(queue.next_due(), Some(200));
/// assert_eq!(queue.cancel(tea), Some("tea"));
/// assert_eq!(queue.cancel(tea), None);
/// ```
#[derive(Debug)]
pub struct TimingQueue<T> {
    slots: Slots<T>,
    /// The earliest entries, sorted. Empty only if the queue is empty.
    run: SortedRun,
    /// All other entries. No entry of the run is after an entry of a page.
    pages: Pages,
    sorter: Sorter,
}

impl<T> Default for TimingQueue<T> {
    fn default() -> TimingQueue<T> {
        TimingQueue::new()
    }
}

impl<T> TimingQueue<T> {
    /// Creates an empty queue. Does not allocate.
    pub fn new() -> TimingQueue<T> {
        TimingQueue {
            slots: Slots::new(),
            run: SortedRun::default(),
            pages: Pages::default(),
            sorter: Sorter::default(),
        }
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the queue has no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Inserts `item` behind all items of the same instant. The handle is valid until the item leaves.
    ///
    /// # Panics
    /// If the queue holds 2^32 − 2 items.
    pub fn insert(&mut self, due: i64, item: T) -> Handle {
        let place = self.place_for(due);
        let handle = self.slots.insert(place, item);
        self.put(place, RunEntry { due, slot: handle.slot });
        handle
    }

    /// Reserves a handle for a later item. It names no item until then.
    ///
    /// # Panics
    /// The same as [`insert`](TimingQueue::insert).
    pub(crate) fn reserve(&mut self) -> Handle {
        self.slots.reserve()
    }

    /// Inserts an item under the handle that was reserved for it.
    pub(crate) fn insert_reserved(&mut self, handle: Handle, due: i64, item: T) {
        let place = self.place_for(due);
        self.slots.fill(handle, place, item);
        self.put(place, RunEntry { due, slot: handle.slot });
    }

    /// Takes the item out, whatever its position. `None` if it has already left.
    pub fn cancel(&mut self, handle: Handle) -> Option<T> {
        let (slot, place) = self.slots.find(handle)?;
        let item = self.slots.take(slot);
        self.remove(place, slot);
        Some(item)
    }

    /// Moves the item to `due`, as if it were cancelled and inserted again.
    ///
    /// It goes behind all items of that instant, even if that is the instant it had. The handle stays valid. Returns
    /// false, and changes nothing, if the item has already left.
    pub fn reschedule(&mut self, handle: Handle, due: i64) -> bool {
        let Some((slot, place)) = self.slots.find(handle) else { return false };
        // A place where it is not, so that the entry that it leaves behind counts as dead.
        self.slots.move_to(slot, EntryPosition::RUN);
        self.remove(place, slot);
        let place = self.place_for(due);
        self.slots.move_to(slot, place);
        self.put(place, RunEntry { due, slot });
        true
    }

    /// The item of the earliest instant, with its instant.
    pub fn peek(&self) -> Option<(i64, &T)> {
        self.run.first().map(|head| (head.due, self.slots.get(head.slot)))
    }

    /// The earliest instant.
    pub fn next_due(&self) -> Option<i64> {
        self.run.first().map(|head| head.due)
    }

    /// The earliest items, in order, as far as they are already sorted.
    ///
    /// These are some hundreds or thousands, or what is left of them, and at least one unless the queue is empty. It
    /// serves callers that prefetch what the items point to before they take them out.
    pub fn upcoming(&self) -> impl Iterator<Item = (i64, &T)> {
        let pages = self.pages.iter().map(|(_, page)| page);
        let sorted = pages.take_while(|page| page.is_ascending() && page.is_clean());
        let entries = self.run.iter().chain(sorted.flat_map(page::Page::entries));
        entries.map(|entry| (entry.due, self.slots.get(entry.slot)))
    }

    /// Takes out the earliest item if it is due at `now`.
    pub fn pop_due(&mut self, now: i64) -> Option<(i64, T)> {
        let head = self.run.first().filter(|head| head.due <= now)?;
        self.run.pop();
        self.refill();
        Some((head.due, self.slots.take(head.slot)))
    }

    /// Takes out the earliest item, due or not.
    pub fn pop(&mut self) -> Option<(i64, T)> {
        self.pop_due(i64::MAX)
    }

    /// Moves up to `max` items that are due at `now` to the end of `into`, earliest first. Returns their number.
    pub fn drain_due_into(&mut self, now: i64, max: usize, into: &mut Vec<(i64, T)>) -> usize {
        let before = into.len();
        into.extend(std::iter::from_fn(|| self.pop_due(now)).take(max));
        into.len() - before
    }

    /// The item of `handle`. `None` if it has left.
    pub fn get(&self, handle: Handle) -> Option<&T> {
        self.slots.find(handle).map(|(slot, _)| self.slots.get(slot))
    }

    /// The item of `handle`, mutable. `None` if it has left.
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let (slot, _) = self.slots.find(handle)?;
        Some(self.slots.get_mut(slot))
    }

    /// Drops all items.
    ///
    /// Their handles become stale. If a drop panics, the other items are dropped all the same, and the queue is empty.
    pub fn clear(&mut self) {
        // The order is cleared first: it must not refer to dropped items if a drop panics.
        self.run.clear();
        self.pages.clear();
        self.slots.clear();
    }

    /// All items in the order in which they would leave. Sorts lazily, up to some thousand items at a time.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &T)> {
        self.iter_from(i64::MIN)
    }

    /// The items that are due at `from` or later, in the order in which they would leave.
    ///
    /// Finds the first one without walking the earlier ones.
    pub fn iter_from(&self, from: i64) -> impl Iterator<Item = (i64, &T)> {
        let pages = self.pages.iter_from(from);
        let later =
            pages.flat_map(move |(number, page)| sort::in_order(page.living(number, &self.slots), from));
        let entries = self.run.iter().chain(later).skip_while(move |entry| entry.due < from);
        entries.map(|entry| (entry.due, self.slots.get(entry.slot)))
    }

    /// The number of items that are due at `now`. Scans one page, and uses the lengths of the others.
    pub fn count_due(&self, now: i64) -> usize {
        let in_run = self.run.count_due(now);
        if in_run < self.run.len() { in_run } else { in_run + self.pages.count_due(now, &self.slots) }
    }

    fn place_for(&mut self, due: i64) -> EntryPosition {
        if self.pages.first_bound().is_some_and(|bound| bound <= due) {
            return EntryPosition::page(self.pages.with_room_for(due, &mut self.slots));
        }
        if self.run.is_full() {
            self.pages.push_first(&self.run.split(), &mut self.slots);
            return self.place_for(due);
        }
        EntryPosition::RUN
    }

    fn put(&mut self, place: EntryPosition, entry: RunEntry) {
        match place.in_page() {
            Some(number) => self.pages.push(number, entry.due, entry.slot),
            None => self.run.insert(entry),
        }
    }

    /// Removes the entry of `slot` from `place`, where it no longer stands.
    fn remove(&mut self, place: EntryPosition, slot: u32) {
        match place.in_page() {
            Some(number) => self.pages.one_has_left(number, &mut self.slots),
            None => {
                self.run.remove(slot);
                self.refill();
            }
        }
    }

    /// Fills the run from the first page, if the run is empty.
    #[inline]
    fn refill(&mut self) {
        if self.run.is_empty() {
            self.turn_page();
        }
    }

    #[cold]
    fn turn_page(&mut self) {
        let Some(piece) = self.pages.take_piece(&mut self.sorter, &mut self.slots) else { return };
        // This also fetches the items into the processor's cache together; otherwise each pop would wait for its own.
        for entry in piece.entries() {
            self.slots.move_to(entry.slot, EntryPosition::RUN);
        }
        self.run.fill(piece.entries());
        meter::touched(self.run.len());
    }
}
