//! Snapshots: everything that had changed at one moment, captured in slices while calls go on.
//!
//! A message that changes before its slice is captured first, and then changed.

use dwell_model::Number;

use super::cold::CopyAt;
use super::entry::{ChangeMark, Entry, Position};
use super::snapshot_entry::{QueueNames, SnapshotEntry};
use super::{Core, StoredBody};

/// The result of a capture.
#[derive(Clone, Debug)]
pub struct Snapshot<B> {
    /// The messages that had changed.
    pub changed: Vec<SnapshotEntry<B>>,
    /// The queues of those messages.
    pub names: QueueNames,
    /// The copies of resident messages that had not changed. It may also contain some that were cold, and
    /// some twice.
    pub clean: Vec<CopyAt>,
}

/// A capture in progress.
#[derive(Debug)]
pub(super) struct SnapshotInProgress<B> {
    /// The mark of the messages that had changed.
    span: ChangeMark,
    /// The next slot to look at, and the end of the slots that existed at the beginning.
    next: u32,
    end: u32,
    snapshot: Snapshot<B>,
}

/// What has happened to a message since it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// It has not changed: it is clean.
    Clean,
    /// It has changed.
    Changed,
    /// It was removed.
    Gone,
}

impl<B: StoredBody> Core<B> {
    /// The number of resident messages that have changed since their last capture, or were never captured.
    pub fn changed_len(&self) -> usize {
        self.changed
    }

    /// Begins to capture every message that has changed, in its present state. The captured messages count as
    /// unchanged, except those that are leased.
    ///
    /// # Panics
    /// If a capture is in progress.
    pub fn begin_snapshot(&mut self) {
        assert!(self.snapshotting.is_none(), "one capture at a time");
        let snapshot = Snapshot {
            changed: Vec::with_capacity(self.changed),
            names: QueueNames::default(),
            clean: Vec::new(),
        };
        let end = u32::try_from(self.entries.places()).expect("slots are 32-bit numbers");
        self.snapshotting = Some(Box::new(SnapshotInProgress { span: self.span, next: 0, end, snapshot }));
        self.span = self.span.next();
        self.snapshots += 1;
    }

    /// Continues the capture, looking at `most` slots. Returns everything captured, if this was the last
    /// slice.
    ///
    /// # Panics
    /// If no capture is in progress.
    pub fn snapshot_some(&mut self, most: usize) -> Option<Snapshot<B>> {
        let snapshotting = self.snapshotting.as_mut().expect("a capture was begun");
        let from = snapshotting.next;
        let to = snapshotting.end.min(from.saturating_add(u32::try_from(most).unwrap_or(u32::MAX)));
        snapshotting.next = to;
        for slot in from..to {
            if self.entries.find_mut(slot).is_some() {
                self.snapshot_before_change(slot);
            }
        }
        let is_done =
            self.snapshotting.as_ref().is_some_and(|snapshotting| snapshotting.next == snapshotting.end);
        let done = self.snapshotting.take_if(|_| is_done)?;
        Some(done.snapshot)
    }

    /// The number of messages that the capture in progress has captured so far.
    pub fn snapshot_len(&self) -> usize {
        self.snapshotting.as_ref().map_or(0, |snapshotting| snapshotting.snapshot.changed.len())
    }

    /// Captures a message that is about to change or to be removed, if it belongs to a capture in progress.
    pub(super) fn snapshot_before_change(&mut self, slot: u32) {
        if self.snapshotting.is_none() || !self.was_there_at_snapshot(slot) {
            return;
        }
        let Some(mut snapshotting) = self.snapshotting.take() else { return };
        let entry = self.entries.get(slot);
        if entry.mark == snapshotting.span {
            let snapshot = self.snapshot(slot, &mut snapshotting.snapshot.names);
            snapshotting.snapshot.changed.push(snapshot);
            let now = self.span;
            let entry = self.entries.get_mut(slot);
            if entry.place.is_leased() {
                entry.mark = now;
            } else {
                // The older copy is out of date, and the new one does not exist yet.
                (entry.mark, entry.copy) = (ChangeMark::Captured, None);
                self.changed -= 1;
            }
        } else if let (ChangeMark::Captured, Some(copy)) = (entry.mark, entry.copy) {
            snapshotting.snapshot.clean.push(copy);
        }
        self.snapshotting = Some(snapshotting);
    }

    /// A message in its present state.
    fn snapshot(&self, slot: u32, names: &mut QueueNames) -> SnapshotEntry<B> {
        let entry = self.entries.get(slot);
        let queue = self.queues.get(entry.queue);
        let is_untouched = entry.rare.is_none() && entry.attempts == 0 && entry.takes == 0;
        if !is_untouched || !entry.place.is_pending() {
            return SnapshotEntry::of(self.message(slot), entry.made_ready(), entry.copy, names);
        }
        SnapshotEntry {
            id: entry.id,
            number: entry.number,
            due: entry.due,
            created: entry.created,
            body: entry.body.clone(),
            copy: entry.copy,
            queue: names.place(&queue.name),
            priority: entry.priority,
            unusual: None,
            is_ready: entry.place == Position::Ready || entry.due <= queue.ready_until,
        }
    }

    /// Marks the captured messages as changed again, since they could not be copied.
    ///
    /// # Panics
    /// If a capture is in progress.
    pub fn undo_snapshot(&mut self) {
        assert!(self.snapshotting.is_none(), "what is being captured cannot be given up");
        let slots: Vec<u32> = self
            .entries
            .iter()
            .filter(|(_, entry)| !entry.mark.is_changed() && entry.copy.is_none())
            .map(|(slot, _)| slot)
            .collect();
        slots.into_iter().for_each(|slot| self.mark_changed(slot));
    }

    /// Sets the location of the copy of a captured message, and of its body. A copy that it had before is
    /// dropped.
    pub fn placed(&mut self, number: Number, body: B, copy: CopyAt) -> CopyOutcome {
        let Some(slot) = self.resident_number(number) else { return CopyOutcome::Gone };
        let entry = self.entries.get_mut(slot);
        entry.body = body;
        entry.copy = Some(copy);
        if entry.mark.is_changed() { CopyOutcome::Changed } else { CopyOutcome::Clean }
    }

    pub(super) fn mark_changed(&mut self, slot: u32) {
        self.snapshot_before_change(slot);
        let span = self.span;
        let entry = self.entries.get_mut(slot);
        if !std::mem::replace(&mut entry.mark, span).is_changed() {
            self.changed += 1;
        }
    }

    /// Removes a message from the indexes by number, and from the count of changed messages.
    pub(super) fn strike_off(&mut self, entry: &Entry<B>, slot: u32) {
        self.changed -= usize::from(entry.mark.is_changed());
        self.weight -= entry.weight();
        let entries = &self.entries;
        self.by_number.remove(entry.number, slot, |slot| entries.get(slot).number);
    }
}
