//! Recovery: reading the journal back, and distinguishing a torn tail from damage. Changes nothing on the disk.
//!
//! Batches have sequences without gaps. Batch headers and segment headers prove how far the journal was synced: the
//! highest such sequence is the *mark*. Marks behind damage count too. Where batch *k* is expected:
//!
//! | found | next segment begins with | mark | verdict |
//! |---|---|---|---|
//! | anything | *k* | any | go on with the next segment: an earlier recovery cut here |
//! | batch *k*, whole | – or later | any | replay it |
//! | anything else | – or later | ≥ *k* | refuse: it was durable and is damaged |
//! | nothing but zeros | – | < *k* | the end |
//! | anything else | – | < *k* | the end: a torn tail, cut and reported |
//!
//! A segment whose header cannot be read is judged the same, as a place where the next batch is expected: it was
//! being created when the machine stopped, or it is damaged. A missing segment is damage.
//!
//! Segments before the manifest's checkpoint are read for the idempotency keys of puts alone; everything else in them
//! is in the checkpoint. So damage there refuses nothing: it is reported, and whole batches behind it are read.
//!
//! Whole batches may follow the end: a disk writes unsynced data in any order. They were not answered either, or
//! there would be a mark.

mod scan;
mod segments;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dwell_model::{Number, Standing, Timestamp};
use dwell_store::core::{PutRecord, Record};

use crate::OpenError;
use crate::disk::Disk;
use crate::journal::batch::SegmentPreamble;
use crate::journal::segment::{BodyRef, Segment};
use crate::journal::writer::ClosedSegment;
use crate::manifest::Manifest;
use crate::report::OpenReport;
use crate::sealed::ReadError;
use crate::unsynced_tail::UnsyncedTail;
use scan::{JournalScan, SegmentStart};
use segments::{check_presence, drop_forgotten, drop_stale, highest_mark, open_all};

/// Why a record cannot be replayed.
#[derive(Debug)]
pub(crate) enum ReplayRefusal {
    /// The journal contradicts itself.
    Contradiction(String),
    /// A table cannot be read.
    Unreadable(ReadError),
}

/// Receives the records of the journal, and rebuilds the state.
pub(crate) trait Replay {
    fn put(&mut self, record: PutRecord, body: BodyRef) -> Result<(), ReplayRefusal>;
    /// A fact other than those that [`old`](Replay::old) receives.
    fn record(&mut self, record: Record) -> Result<(), ReplayRefusal>;
    /// The standing of a message that was put before the first record, or `None` if it was deleted: it is in the
    /// checkpoint, or does not exist any more.
    fn old(&mut self, number: Number, standing: Option<Standing>) -> Result<(), ReplayRefusal>;
    /// The wall clock of the batch whose records are replayed next.
    fn begins(&mut self, wall: Timestamp) -> Result<(), ReplayRefusal>;
    /// The wall clock of the batch whose records were replayed last.
    fn time(&mut self, wall: Timestamp);
    /// Applies everything that was collected about old messages.
    fn look_up(&mut self) -> Result<(), ReplayRefusal>;
}

/// The content of the journal.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) kept: VecDeque<ClosedSegment>,
    pub(crate) preamble: SegmentPreamble,
    /// The sequence of the last batch.
    pub(crate) sequence: u64,
    /// The number of the newest segment that was read; 0 if there is none.
    pub(crate) newest: u64,
    /// Where the newest segment ends.
    pub(crate) end: u64,
    /// The part of the newest segment that no mark proves to be synced; `None` if there is no segment, or no such
    /// part.
    pub(crate) unproven: Option<UnsyncedTail>,
    /// Files that are not needed.
    pub(crate) stale: Vec<PathBuf>,
    pub(crate) report: OpenReport,
}

/// The number of message numbers that are skipped if callers may have seen some that the disk did not keep: more than
/// the records that fit in one segment, and all segments but the last are synced.
const SKIPPED_NUMBERS: u64 = 1 << 32;

/// The action where a batch is expected: a row of the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    NextSegment,
    Replay,
    Refuse,
    End,
    TornEnd,
}

/// What is found where a batch is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchEvidence {
    WholeBatch,
    Zeros,
    Other,
}

fn judge(sequence: u64, what: BatchEvidence, next_first: Option<u64>, mark: u64) -> Verdict {
    match what {
        _ if next_first == Some(sequence) => Verdict::NextSegment,
        BatchEvidence::WholeBatch => Verdict::Replay,
        // A later segment is itself a mark: everything before it was synced.
        _ if mark >= sequence || next_first.is_some() => Verdict::Refuse,
        BatchEvidence::Zeros => Verdict::End,
        BatchEvidence::Other => Verdict::TornEnd,
    }
}

/// Reads the journal of a directory and replays it.
pub(crate) fn recover(
    disk: &dyn Disk,
    dir: &Path,
    manifest: &Manifest,
    replay: &mut impl Replay,
) -> Result<Recovered, OpenError> {
    let mut segments = open_all(disk, dir, manifest)?;
    let stale = drop_stale(&mut segments);
    let mut forgotten = drop_forgotten(manifest, &mut segments);
    let torn = check_presence(dir, manifest, &mut segments, &mut forgotten)?;

    let mut scan = JournalScan {
        replay,
        preamble: SegmentPreamble::starting_at(manifest.next_number),
        report: OpenReport { segments: segments.len() as u64, forgotten, ..OpenReport::default() },
        sequence: 0,
        before: 0,
        begun: SegmentStart::default(),
        mark: 0,
        start: manifest.checkpoint.start,
        floor: 0,
        given: 0,
        unproven: VecDeque::new(),
    };
    let headers = || segments.values().filter_map(|opened| opened.header.as_ref().ok());
    if let Some(oldest) = headers().next() {
        scan.sequence = oldest.first - 1;
    }
    scan.mark = headers().map(|header| header.first - 1).max().unwrap_or(0);
    for header in headers() {
        scan.preamble.next_number = scan.preamble.next_number.max(header.next_number);
    }
    if let Some(torn) = &torn {
        scan.mark = scan.mark.max(highest_mark(torn)?);
    }

    let firsts: Vec<u64> = headers().map(|header| header.first).skip(1).collect();
    let synced_answers = headers().next_back().is_none_or(|header| header.synced_answers);
    let newest = segments.keys().last().copied().unwrap_or(0);
    let mut kept = VecDeque::new();
    let (mut end, mut last) = (0, None);
    for (i, opened) in segments.into_values().enumerate() {
        scan.preamble.begin_segment();
        let segment = Arc::new(Segment::new(opened.name, dir, opened.file));
        let header = opened.header.expect("segments without a header were set aside");
        let before = scan.report.records;
        end = scan.segment(&segment, &header, firsts.get(i).copied())?;
        last = Some(header);
        let SegmentStart { bytes, records } = scan.begun;
        let records = scan.report.records - before - records;
        let SegmentPreamble { idempotency_until, revived, .. } = scan.preamble;
        kept.push_back(ClosedSegment { segment, records, bytes: end - bytes, idempotency_until, revived });
    }
    scan.replay.look_up().map_err(|refusal| match refusal {
        ReplayRefusal::Unreadable(error) => error.into(),
        ReplayRefusal::Contradiction(reason) => {
            let newest = kept.back().map(|newest: &ClosedSegment| newest.segment.path.as_path());
            OpenError::damaged(newest.unwrap_or(dir), end, reason)
        }
    })?;
    if let Some(torn) = torn {
        scan.judge_torn(&torn)?;
    }
    if !scan.report.was_closed && !synced_answers {
        scan.preamble.next_number = scan.preamble.next_number.saturating_add(SKIPPED_NUMBERS);
    }
    let unproven = last.and_then(|header| scan.unproven(&header));
    let JournalScan { preamble, report, sequence, .. } = scan;
    Ok(Recovered { kept, preamble, sequence, newest, end, unproven, stale, report })
}
