//! Out of which files a retirement moves messages into new ones, besides writing what it has captured.
//!
//! 1. **Sparse** files: less than half is left. Each is given up, so that no more is copied than the space that comes
//!    back, and files have at most twice the bytes that are in use.
//! 2. **Small** files, if there are many: those with fewer messages than share a file. They are given up, and so become
//!    one; at most [`SMALL`] stay.
//! 3. **Coarse** files whose time comes near: those whose messages are due over more than three days. What is due within
//!    [`AHEAD_MS`] is moved out of all of them together, and lies in few files when it is wanted. A message is moved so
//!    once, into a file that is not coarse.
//!
//! How many messages one retirement moves is bounded; the rest is moved by the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use dwell_model::{State, Timestamp};
use dwell_store::core::{Captured, CopyAt};

use crate::checkpoint::FileState;
use crate::cold::ColdSet;
use crate::due::{File, Found, LaneState, Settled};
use crate::journal::segment::{Place, Segment};
use crate::sealed;

/// So many small files may stay.
pub(crate) const SMALL: usize = 32;
/// What is due within this is moved out of coarse files; when half of it is over, the next is.
pub(crate) const AHEAD_MS: u64 = 2 * 24 * 3_600 * 1_000;

/// A file out of which messages are moved, as it was at the moment of the capture.
pub(super) struct Source {
    pub(super) file: Arc<File>,
    segment: Arc<Segment>,
    pub(super) settled: Settled,
    ripe: Timestamp,
    /// Only what is scheduled and due by then; else everything, and the file is given up.
    pub(super) until: Option<Timestamp>,
}

impl Source {
    /// The ordinals of what is moved, unless it is settled.
    pub(super) fn ranges(&self) -> sealed::Result<Vec<Range<u32>>> {
        let Some(until) = self.until else { return Ok(std::iter::once(0..self.file.len()).collect()) };
        let scheduled = self.file.lanes().iter().filter(|lane| lane.state == LaneState::Scheduled);
        let near = scheduled.map(|lane| {
            let end = self.file.lower_bound(lane, (until.saturating_after(1), 0))?;
            Ok(lane.first..end)
        });
        near.collect()
    }

    /// The file as it stays if nothing is moved.
    pub(super) fn state(&self) -> FileState {
        FileState { number: self.file.name().number, ripe: self.ripe, settled: self.settled.clone() }
    }

    /// An entry as a message that is to be copied.
    pub(super) fn captured(&self, found: Found, file: NonZeroU32) -> Captured<Place> {
        let copy = CopyAt { file, ordinal: found.ordinal };
        let ready_since = found.entry.ready_since;
        let mut message = crate::cold::message(found, &self.segment);
        if message.standing.state == State::Scheduled && message.standing.due <= self.ripe {
            message.standing.state = State::Ready;
        }
        Captured { message, ready_since, copy: Some(copy) }
    }
}

/// Chooses the files, with about `most` messages to be moved out of all of them together. A file that a held message
/// needs stays.
pub(super) fn choose(
    cold: &ColdSet,
    settled: &BTreeMap<u32, Settled>,
    needed: &BTreeSet<u32>,
    now: Timestamp,
    least: usize,
    most: usize,
) -> Vec<Source> {
    let source = |number: u32, until: Option<Timestamp>| {
        let file = &cold.files()[&number];
        Source {
            file: Arc::clone(&file.file),
            segment: Arc::clone(&file.segment),
            settled: settled[&number].clone(),
            ripe: file.ripe,
            until,
        }
    };
    // Those with the fewest messages first.
    let mut files: Vec<(u32, u32, u32)> = settled
        .iter()
        .map(|(number, settled)| (settled.live(0..settled.len()), *number, settled.len()))
        .filter(|(live, number, _)| *live > 0 && !needed.contains(number))
        .collect();
    files.sort_unstable();
    let small = files.iter().filter(|(live, _, _)| (*live as usize) < least).count();
    let (mut left, mut sources) = (most as u64, Vec::new());
    let mut given_up = BTreeSet::new();
    for (live, number, len) in files {
        let is_sparse = u64::from(live) * 2 < u64::from(len);
        let is_one_of_many = small > SMALL && (live as usize) < least;
        if !is_sparse && !is_one_of_many {
            continue;
        }
        // A file that alone is more than may be moved would never be.
        let fits = u64::from(live) <= left || (sources.is_empty() && is_sparse);
        if !fits {
            break;
        }
        left = left.saturating_sub(u64::from(live));
        given_up.insert(number);
        sources.push(source(number, None));
    }
    if let Some(until) = near_end(cold, now, least, left) {
        let near = cold.files().iter().filter(|(number, file)| {
            !given_up.contains(number)
                && settled.get(number).is_some_and(|settled| !settled.is_full())
                && file.split_from().is_some_and(|from| from <= until)
        });
        sources.extend(near.map(|(number, _)| source(*number, Some(until))));
    }
    sources
}

/// Until when messages are moved out of coarse files now, about `most` of them; nothing if few are due near enough, by
/// what is known without reading: fewer than `least` would only come into another coarse file.
pub(super) fn near_end(cold: &ColdSet, now: Timestamp, least: usize, most: u64) -> Option<Timestamp> {
    let from = cold.split_from()?;
    if most == 0 || from > now.saturating_after(AHEAD_MS / 2) {
        return None;
    }
    let in_all = |until: Timestamp| cold.files().values().map(|file| file.due_about(until)).sum::<u64>();
    if in_all(from.max(now).saturating_after(AHEAD_MS)) < least as u64 {
        return None;
    }
    // Half as far each time, until few enough are due by then, if they are spread evenly.
    let mut ahead_ms = AHEAD_MS;
    loop {
        let until = from.max(now).saturating_after(ahead_ms);
        if in_all(until) <= most || ahead_ms <= 60_000 {
            return Some(until);
        }
        ahead_ms /= 2;
    }
}
