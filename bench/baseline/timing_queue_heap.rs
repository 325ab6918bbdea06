//! The timing queue as it was when the stores were first built on it: a binary heap's kin, of four children a node, in
//! which each slot knows its place, so that it can cancel and move what is in it.
//!
//! No part of dwell. `bench/order-before-and-after.sh` lays it over `crates/time/src/timing_queue/mod.rs` in a copy of
//! the tree, and measures the memory store and the engine with it and without.

mod slots;

use slots::{Place, Slots};

pub use slots::Handle;

/// Items in exact (due, sequence) order.
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
        let handle = self.slots.insert(place(at), item);
        self.push(due, handle.slot);
        handle
    }

    pub(crate) fn reserve(&mut self) -> Handle {
        self.slots.reserve()
    }

    pub(crate) fn insert_reserved(&mut self, handle: Handle, due: i64, item: T) {
        self.slots.fill(handle, place(self.heap.len()), item);
        self.push(due, handle.slot);
    }

    fn push(&mut self, due: i64, slot: u32) {
        let at = self.heap.len();
        self.heap.push(self.entry(due, slot));
        self.sequence += 1;
        self.rise(at);
    }

    /// Takes the item out, wherever it stands. `None` if it has left already.
    pub fn cancel(&mut self, handle: Handle) -> Option<T> {
        let (slot, place) = self.slots.find(handle)?;
        self.remove_entry(number(place));
        Some(self.slots.take(slot))
    }

    /// Moves the item to `due`, as if it had been cancelled and put again: it stands behind
    /// all items of that instant, also when that is the instant it had. The handle stays good.
    /// False, and nothing happens, if the item has left already.
    pub fn reschedule(&mut self, handle: Handle, due: i64) -> bool {
        let Some((slot, place)) = self.slots.find(handle) else { return false };
        let at = number(place);
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

    /// The earliest item: a heap knows the order of no others.
    pub fn upcoming(&self) -> impl Iterator<Item = (i64, &T)> {
        self.peek().into_iter()
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
        self.iter_from(i64::MIN)
    }

    /// Those that are due at `from` or later, in the order in which they would leave.
    pub fn iter_from(&self, from: i64) -> impl Iterator<Item = (i64, &T)> {
        let mut entries: Vec<Entry> = self.heap.iter().filter(|entry| entry.due >= from).copied().collect();
        entries.sort_unstable();
        entries.into_iter().map(|entry| (entry.due, self.slots.get(entry.slot)))
    }

    /// How many items are due at `now`.
    pub fn count_due(&self, now: i64) -> usize {
        self.heap.iter().filter(|entry| entry.due <= now).count()
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

/// A place has room for a page's number, which is the place in the heap here.
fn place(at: usize) -> Place {
    let at = u32::try_from(at).ok().filter(|at| *at < slots::PAGES);
    Place::page(at.expect("a timing queue holds fewer than 2^32 - 2 items"))
}

fn number(place: Place) -> usize {
    place.in_page().expect("every entry stands in the heap") as usize
}
