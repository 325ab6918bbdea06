//! The timing queue: items ordered by the instant at which they fall due.
//!
//! A plain structure: no clock (`now` is an argument), no lock, no I/O. The memory store, the engine and
//! `DelayQueue` keep their instants in it.

mod slots;
#[cfg(test)]
mod tests;

use slots::{Place, Slots};

pub use slots::Handle;

/// Items in exact (due, sequence) order: what falls due together leaves in the order in which it was put.
///
/// `due` is a plain number whose unit and origin are the caller's; any `i64` will do, and what lies between two
/// instants costs nothing. Memory is kept for the largest number of items that was in at a time, as a `Vec` does.
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
    /// A heap of four children a node, smallest first.
    heap: Vec<Entry>,
    sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    due: i64,
    sequence: u64,
    slot: u32,
}

const CHILDREN: usize = 4;

impl<T> Default for TimingQueue<T> {
    fn default() -> TimingQueue<T> {
        TimingQueue::new()
    }
}

impl<T> TimingQueue<T> {
    /// An empty queue, which allocates nothing.
    pub fn new() -> TimingQueue<T> {
        TimingQueue { slots: Slots::new(), heap: Vec::new(), sequence: 0 }
    }

    /// How many items are in.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no item is in.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts `item` in, behind all items of the same instant. The handle is good until it leaves.
    ///
    /// # Panics
    /// If 2^32 − 2 items are in.
    pub fn insert(&mut self, due: i64, item: T) -> Handle {
        let at = self.heap.len();
        let (slot, handle) = self.slots.insert(place(at), item);
        self.heap.push(self.entry(due, slot));
        self.sequence += 1;
        self.rise(at);
        handle
    }

    /// Takes the item out, wherever it stands. `None` if it has left already.
    pub fn cancel(&mut self, handle: Handle) -> Option<T> {
        let (slot, place) = self.slots.find(handle)?;
        self.remove_entry(place.number() as usize);
        Some(self.slots.take(slot))
    }

    /// Moves the item to `due`, as if it had been cancelled and put again: it stands behind
    /// all items of that instant, also when that is the instant it had. The handle stays good.
    /// False, and nothing happens, if the item has left already.
    pub fn reschedule(&mut self, handle: Handle, due: i64) -> bool {
        let Some((slot, place)) = self.slots.find(handle) else { return false };
        let at = place.number() as usize;
        self.heap[at] = self.entry(due, slot);
        self.sequence += 1;
        self.rise(at);
        self.sink(at);
        true
    }

    /// The item of the earliest instant, with its instant.
    pub fn peek(&self) -> Option<(i64, &T)> {
        self.heap.first().map(|head| (head.due, self.slots.get(head.slot)))
    }

    /// The earliest instant.
    pub fn next_due(&self) -> Option<i64> {
        self.heap.first().map(|head| head.due)
    }

    /// Takes out the earliest item if it is due at `now`.
    pub fn pop_due(&mut self, now: i64) -> Option<(i64, T)> {
        let head = *self.heap.first().filter(|head| head.due <= now)?;
        self.remove_entry(0);
        Some((head.due, self.slots.take(head.slot)))
    }

    /// Takes out the earliest item, due or not.
    pub fn pop(&mut self) -> Option<(i64, T)> {
        self.pop_due(i64::MAX)
    }

    /// Moves up to `max` items that are due at `now` to the end of `into`, earliest first; says how many.
    pub fn drain_due_into(&mut self, now: i64, max: usize, into: &mut Vec<(i64, T)>) -> usize {
        let before = into.len();
        into.extend(std::iter::from_fn(|| self.pop_due(now)).take(max));
        into.len() - before
    }

    /// The item that `handle` names. `None` if it has left.
    pub fn get(&self, handle: Handle) -> Option<&T> {
        self.slots.find(handle).map(|(slot, _)| self.slots.get(slot))
    }

    /// The item that `handle` names, to be changed in place. `None` if it has left.
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let (slot, _) = self.slots.find(handle)?;
        Some(self.slots.get_mut(slot))
    }

    /// Drops all items. Their handles are stale then.
    pub fn clear(&mut self) {
        for entry in self.heap.drain(..) {
            self.slots.take(entry.slot);
        }
    }

    /// All items in the order in which they would leave.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &T)> {
        let mut entries = self.heap.clone();
        entries.sort_unstable();
        entries.into_iter().map(|entry| (entry.due, self.slots.get(entry.slot)))
    }

    fn entry(&self, due: i64, slot: u32) -> Entry {
        Entry { due, sequence: self.sequence, slot }
    }

    fn remove_entry(&mut self, at: usize) {
        let last = self.heap.pop().expect("the entry to remove is in");
        if at < self.heap.len() {
            self.set(at, last);
            self.rise(at);
            self.sink(at);
        }
    }

    fn set(&mut self, at: usize, entry: Entry) {
        self.heap[at] = entry;
        self.slots.move_to(entry.slot, place(at));
    }

    fn rise(&mut self, mut at: usize) {
        let entry = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.heap[parent] <= entry {
                break;
            }
            self.set(at, self.heap[parent]);
            at = parent;
        }
        self.set(at, entry);
    }

    fn sink(&mut self, mut at: usize) {
        let entry = self.heap[at];
        loop {
            let first = at * CHILDREN + 1;
            let children = first..(first + CHILDREN).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.heap[child]) else { break };
            if entry <= self.heap[least] {
                break;
            }
            self.set(at, self.heap[least]);
            at = least;
        }
        self.set(at, entry);
    }
}

fn place(at: usize) -> Place {
    Place::new(u32::try_from(at).expect("a timing queue holds fewer than 2^32 items"))
}
