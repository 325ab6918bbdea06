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

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dwell_model::{Number, Standing, Timestamp};
use dwell_store::core::{PutRecord, Record};

use crate::OpenError;
use crate::disk::{Disk, DiskFile, failure};
use crate::journal::batch::SegmentPreamble;
use crate::journal::encoding::Unreadable;
use crate::journal::format::SEGMENT_VERSION;
use crate::journal::format::{BadHeader, BatchHeader, SegmentHeader, SegmentName};
use crate::journal::reader::{ReadBatch, SegmentReader, SegmentTail};
use crate::journal::record::{BatchContext, Decoder, Fact};
use crate::journal::segment::{BodyRef, Segment};
use crate::journal::writer::ClosedSegment;
use crate::manifest::{self, Manifest};
use crate::report::{Cut, OpenReport};
use crate::sealed::ReadError;
use crate::unsynced_tail::UnsyncedTail;

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

/// The maximum number of missing segments before the checkpoint that are listed: a damaged number may promise any
/// length of a journal.
const MOST_MISSING: u64 = 100_000;

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

/// A segment's file and its header.
struct OpenedSegment {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    name: SegmentName,
    header: Result<SegmentHeader, &'static str>,
    len: u64,
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
        let SegmentPreamble { tokens_until, revived, .. } = scan.preamble;
        kept.push_back(ClosedSegment { segment, records, bytes: end - bytes, tokens_until, revived });
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

fn open_all(
    disk: &dyn Disk,
    dir: &Path,
    manifest: &Manifest,
) -> Result<BTreeMap<u64, OpenedSegment>, OpenError> {
    let names = disk.list(dir).map_err(|error| OpenError::io(dir, error))?;
    let mut segments = BTreeMap::new();
    for file_name in names {
        let Some((shard, segment)) = SegmentName::parse(&file_name) else { continue };
        let path = dir.join(&file_name);
        if shard != 0 {
            return Err(OpenError::damaged(&path, 0, "the manifest knows of no such shard"));
        }
        let io = |error| OpenError::io(&path, error);
        let file = disk.open(&path).map_err(io)?;
        let name = SegmentName { directory: manifest.directory, shard, segment };
        let mut bytes = [0; SegmentHeader::LEN];
        let len = file.size().map_err(io)?;
        let header = if len >= bytes.len() as u64 {
            file.read_at(&mut bytes, 0).map_err(io)?;
            match SegmentHeader::decode(&bytes, name) {
                Err(BadHeader::Newer(found)) => {
                    return Err(OpenError::NewerFormat { file: path, found, known: SEGMENT_VERSION });
                }
                Err(BadHeader::Damaged(reason)) => Err(reason),
                Ok(header) => Ok(header),
            }
        } else {
            Err("the segment is shorter than its header")
        };
        segments.insert(segment, OpenedSegment { file, path, name, header, len });
    }
    Ok(segments)
}

/// Removes from `segments` those that the newest one says are not needed: they were to be deleted.
fn drop_stale(segments: &mut BTreeMap<u64, OpenedSegment>) -> Vec<PathBuf> {
    let newest = segments.values().rev().find_map(|opened| opened.header.as_ref().ok());
    let oldest = newest.map_or(0, |header| header.oldest);
    let needed = segments.split_off(&oldest);
    std::mem::replace(segments, needed).into_values().map(|opened| opened.path).collect()
}

/// Removes segments without a header that are needed for the idempotency keys of their puts alone, and reports them.
fn drop_forgotten(manifest: &Manifest, segments: &mut BTreeMap<u64, OpenedSegment>) -> Vec<Cut> {
    let start = manifest.checkpoint.start;
    // After the last whole one it may be the one that was being created.
    let newest = segments.iter().rev().find_map(|(number, opened)| opened.header.ok().map(|_| *number));
    let is_old = |number: u64| number < start && newest.is_some_and(|newest| number < newest);
    let damaged = segments.iter().filter(|(number, opened)| opened.header.is_err() && is_old(**number));
    let damaged: Vec<u64> = damaged.map(|(number, _)| *number).collect();
    let taken_out = damaged.into_iter().filter_map(|number| segments.remove(&number));
    let told = taken_out.map(|OpenedSegment { path, len, header, .. }| Cut {
        file: path,
        offset: 0,
        bytes: len,
        reason: header.err().unwrap_or_default(),
    });
    told.collect()
}

/// Checks that every required segment is there, with a header, except for those that are `forgotten`; a missing one
/// of which only idempotency keys are needed is added to these. Removes the one that was being created.
fn check_presence(
    dir: &Path,
    manifest: &Manifest,
    segments: &mut BTreeMap<u64, OpenedSegment>,
    forgotten: &mut Vec<Cut>,
) -> Result<Option<OpenedSegment>, OpenError> {
    let Manifest { directory, newest: promised, checkpoint, .. } = manifest;
    let start = checkpoint.start;
    if start > *promised {
        let reason = "the checkpoint begins with a segment that the manifest does not know of";
        return Err(OpenError::damaged(&dir.join(manifest::FILE), 0, reason));
    }
    let newest = segments.values().rev().find_map(|opened| opened.header.as_ref().ok()).copied();
    let (oldest, newest) = newest.map_or((1, 0), |header| (header.oldest, header.name.segment));
    let torn = match segments.last_entry() {
        Some(last) if last.get().header.is_err() && *last.key() == newest + 1 => Some(last.remove()),
        _ => None,
    };
    let at_least = newest.max(*promised);
    let path = |segment| dir.join(SegmentName { directory: *directory, shard: 0, segment }.file_name());
    let header = |segments: &BTreeMap<u64, OpenedSegment>, segment: u64| {
        let found = segments.get(&segment).or(torn.as_ref().filter(|torn| torn.name.segment == segment));
        found.map(|opened| opened.header)
    };
    // These first: where the journal is missing it is refused for the first of them, however many there were.
    for segment in oldest.max(start)..=at_least {
        match header(segments, segment) {
            Some(Ok(_)) => {}
            Some(Err(reason)) => return Err(OpenError::damaged(&path(segment), 0, reason)),
            None => return Err(OpenError::damaged(&path(segment), 0, "the segment is missing")),
        }
    }
    let told: BTreeSet<PathBuf> = forgotten.iter().map(|cut| cut.file.clone()).collect();
    let mut missing = 0;
    for segment in oldest..start {
        match header(segments, segment) {
            Some(Ok(_)) => {}
            Some(Err(reason)) => return Err(OpenError::damaged(&path(segment), 0, reason)),
            None if told.contains(&path(segment)) => {}
            // A backup of a directory that does without this segment does not have it.
            None => {
                missing += 1;
                let reason = "the segment is missing";
                forgotten.push(Cut { file: path(segment), offset: 0, bytes: 0, reason });
            }
        }
        if missing == MOST_MISSING {
            break;
        }
    }
    match segments.values().find_map(|opened| Some((opened, opened.header.err()?))) {
        Some((opened, reason)) => Err(OpenError::damaged(&opened.path, 0, reason)),
        None => Ok(torn),
    }
}

fn highest_mark(torn: &OpenedSegment) -> Result<u64, OpenError> {
    let io = |error| OpenError::io(&torn.path, error);
    let mut reader = SegmentReader::new(Arc::clone(&torn.file), torn.name.salt(), None).map_err(io)?;
    Ok(reader.rest(0).map_err(io)?.mark)
}

/// What a segment begins with: its header, and the settings of all queues.
#[derive(Clone, Copy, Debug, Default)]
struct SegmentStart {
    bytes: u64,
    records: u64,
}

/// A scan over the segments in order.
struct JournalScan<'a, R> {
    replay: &'a mut R,
    preamble: SegmentPreamble,
    report: OpenReport,
    /// The sequence of the last batch read.
    sequence: u64,
    /// The number of the previous segment.
    before: u64,
    /// What the current segment begins with.
    begun: SegmentStart,
    mark: u64,
    /// The first segment that is not in the checkpoint.
    start: u64,
    /// Messages of lower numbers were put before the first replayed segment: they are in the checkpoint, or were
    /// deleted, and then records about them are void.
    floor: u64,
    /// The highest message number read.
    given: u64,
    /// Batches of the current segment that no mark proves to be synced so far: sequence and offset.
    unproven: VecDeque<(u64, u64)>,
}

impl<R: Replay> JournalScan<'_, R> {
    /// Reads a segment to its end, and returns the offset of that.
    fn segment(
        &mut self,
        segment: &Arc<Segment>,
        header: &SegmentHeader,
        next_first: Option<u64>,
    ) -> Result<u64, OpenError> {
        let io = |error| OpenError::io(&segment.path, error);
        if segment.name.segment != self.before + 1 {
            // The first one, or a removed segment lies between.
            self.sequence = header.first - 1;
        }
        self.before = segment.name.segment;
        // A new segment means that the store serves again: an earlier record of a close is void.
        self.report.was_closed = false;
        if header.first != self.sequence + 1 {
            let reason = "the segment does not go on where the one before it ends";
            return Err(OpenError::damaged(&segment.path, 0, reason));
        }
        if header.next_number <= self.given {
            let reason = "the segment's next number was given before it was made";
            return Err(OpenError::damaged(&segment.path, 0, reason));
        }
        if segment.name.segment >= self.start && self.floor == 0 {
            self.floor = header.next_number;
            if !self.report.forgotten.is_empty() {
                // It begins with all settings. Some may have been reset, or removed with their queues, where damage
                // was skipped.
                self.preamble.forget_settings();
            }
        }
        let file = Arc::clone(&segment.file);
        let mut reader = SegmentReader::new(file, segment.salt, Some(header.incarnation)).map_err(io)?;
        let mut at = SegmentHeader::LEN as u64;
        self.unproven.clear();
        self.begun = SegmentStart { bytes: at, records: 0 };
        loop {
            let sequence = self.sequence + 1;
            let is_needed = segment.name.segment >= self.start || next_first.is_none();
            let found = match reader.find(at, sequence) {
                Err(error) if !is_needed && failure::is_of_medium(&error) => {
                    return self.forget_rest(segment, at, next_first);
                }
                found => found.map_err(io)?,
            };
            let (what, end, reason) = match found {
                ReadBatch::Batch(batch, records) => {
                    if judge(sequence, BatchEvidence::WholeBatch, next_first, self.mark)
                        == Verdict::NextSegment
                    {
                        return Ok(at);
                    }
                    at += self.batch(segment, at, &batch, records)?;
                    continue;
                }
                // No need to look for evidence.
                ReadBatch::Other(_) if next_first == Some(sequence) => return Ok(at),
                ReadBatch::Other(reason) => match reader.rest(at) {
                    Err(error) if !is_needed && failure::is_of_medium(&error) => {
                        return self.forget_rest(segment, at, next_first);
                    }
                    rest => {
                        let SegmentTail { end, mark } = rest.map_err(io)?;
                        self.mark = self.mark.max(mark);
                        (if end == at { BatchEvidence::Zeros } else { BatchEvidence::Other }, end, reason)
                    }
                },
            };
            match judge(sequence, what, next_first, self.mark) {
                Verdict::Refuse if !is_needed => {
                    let next = next_first.unwrap_or(u64::MAX);
                    let found = whole_batch(&mut reader, at + 1, |found| found >= sequence && found < next);
                    let found = found.map_err(io)?;
                    let (to, last) = found.map_or((end, next - 1), |(place, found)| (place, found - 1));
                    self.forget(segment, at, to.saturating_sub(at), reason);
                    (at, self.sequence) = (to, last);
                    if found.is_none() {
                        return Ok(at);
                    }
                    continue;
                }
                Verdict::Refuse => return Err(OpenError::damaged(&segment.path, at, reason)),
                Verdict::TornEnd => {
                    let bytes = end - at;
                    self.report.cuts.push(Cut { file: segment.path.clone(), offset: at, bytes, reason });
                }
                Verdict::NextSegment | Verdict::End => {}
                Verdict::Replay => unreachable!("what is no batch is not replayed"),
            }
            return Ok(at);
        }
    }

    /// Replays a batch, and returns its length.
    fn batch(
        &mut self,
        segment: &Arc<Segment>,
        at: u64,
        header: &BatchHeader,
        records: &[u8],
    ) -> Result<u64, OpenError> {
        let context = BatchContext {
            shard: segment.name.shard,
            incarnation: header.incarnation,
            now: header.now,
            salt: segment.salt,
        };
        let refuse = |refusal| match refusal {
            ReplayRefusal::Contradiction(reason) => OpenError::damaged(&segment.path, at, reason),
            ReplayRefusal::Unreadable(error) => error.into(),
        };
        if segment.name.segment >= self.start {
            self.replay.begins(header.now).map_err(refuse)?;
        }
        let mut decoder = Decoder::new(records, context);
        let (mut count, mut is_of_settings) = (0, true);
        self.report.was_closed = false;
        loop {
            let fact = decoder.next().map_err(|unreadable| match unreadable {
                Unreadable::Malformed(reason) => OpenError::damaged(&segment.path, at, reason),
                Unreadable::Newer(reason) => {
                    OpenError::NewerRecord { file: segment.path.clone(), offset: at, reason }
                }
            })?;
            let Some(fact) = fact else { break };
            count += 1;
            is_of_settings &= matches!(fact, Fact::Record(Record::Configured { .. }));
            self.fact(fact, segment, at).map_err(refuse)?;
        }
        if count != header.records {
            let reason = "a batch has another number of records than its header says";
            return Err(OpenError::damaged(&segment.path, at, reason));
        }
        if segment.name.segment >= self.start {
            self.replay.time(header.now);
        }
        self.report.batches += 1;
        self.report.records += u64::from(count);
        self.mark = self.mark.max(header.synced);
        self.sequence = header.sequence;
        self.unproven.push_back((header.sequence, at));
        self.drop_proven();
        let len = (BatchHeader::LEN + records.len()) as u64;
        if at == SegmentHeader::LEN as u64 && is_of_settings {
            self.begun = SegmentStart { bytes: at + len, records: u64::from(count) };
        }
        Ok(len)
    }

    /// Skips the rest of a segment that cannot be read, and of which only idempotency keys are needed. Returns where
    /// that begins.
    fn forget_rest(&mut self, segment: &Segment, at: u64, next_first: Option<u64>) -> Result<u64, OpenError> {
        let size = segment.file.size().map_err(|error| OpenError::io(&segment.path, error))?;
        self.forget(segment, at, size.saturating_sub(at), "it cannot be read");
        self.sequence = next_first.unwrap_or(u64::MAX) - 1;
        Ok(at)
    }

    /// Records damage where only idempotency keys are needed.
    fn forget(&mut self, segment: &Segment, offset: u64, bytes: u64, reason: &'static str) {
        self.report.forgotten.push(Cut { file: segment.path.clone(), offset, bytes, reason });
    }

    fn drop_proven(&mut self) {
        while self.unproven.pop_front_if(|(sequence, _)| *sequence <= self.mark).is_some() {}
    }

    /// The part of the newest segment, which has this header and was just read, that no mark proves to be synced.
    fn unproven(&mut self, header: &SegmentHeader) -> Option<UnsyncedTail> {
        self.drop_proven();
        let incarnation = header.incarnation;
        if self.mark < header.first {
            // No batch in it is proven, so its header is not either.
            return Some(UnsyncedTail { from: 0, sequence: header.first, incarnation });
        }
        self.unproven.front().map(|(sequence, from)| UnsyncedTail {
            from: *from,
            sequence: *sequence,
            incarnation,
        })
    }

    fn fact(&mut self, fact: Fact, segment: &Arc<Segment>, at: u64) -> Result<(), ReplayRefusal> {
        if segment.name.segment < self.start {
            return self.old_fact(fact);
        }
        match fact {
            Fact::Put { record, body_at, body_len } => {
                // Later records about it would be taken for those of an old message that was deleted.
                if record.number.get() < self.floor {
                    let reason = format!("message {} has a number that was given before", record.number);
                    return Err(ReplayRefusal::Contradiction(reason));
                }
                self.given = self.given.max(record.number.get());
                self.preamble.see_put(&record);
                let at = at + BatchHeader::LEN as u64 + u64::from(body_at);
                let at = u32::try_from(at)
                    .map_err(|_| ReplayRefusal::Contradiction("a body lies past 4 GiB".to_owned()))?;
                self.replay.put(record, BodyRef { segment: Arc::clone(segment), at, len: body_len })
            }
            Fact::Record(record) => {
                self.preamble.see(&record);
                match record {
                    Record::Stands { number, standing } if number.get() < self.floor => {
                        self.replay.old(number, Some(standing))
                    }
                    Record::Gone { number } if number.get() < self.floor => self.replay.old(number, None),
                    record => self.replay.record(record),
                }
            }
            Fact::Closed => {
                self.report.was_closed = true;
                Ok(())
            }
        }
    }

    /// Applies a fact from a segment before the checkpoint.
    fn old_fact(&mut self, fact: Fact) -> Result<(), ReplayRefusal> {
        match fact {
            Fact::Put { record, .. } => {
                self.given = self.given.max(record.number.get());
                self.preamble.see_put(&record);
                let Some(token) = record.token.clone() else { return Ok(()) };
                let (answer, queue) = (record.answer(), record.queue);
                self.replay.record(Record::Answered { queue, token, answer })
            }
            Fact::Record(record) => {
                self.preamble.see(&record);
                if let Record::Answered { .. } = record { self.replay.record(record) } else { Ok(()) }
            }
            Fact::Closed => {
                self.report.was_closed = true;
                Ok(())
            }
        }
    }

    /// Judges a segment whose header cannot be read, after all others.
    fn judge_torn(&mut self, torn: &OpenedSegment) -> Result<(), OpenError> {
        let io = |error| OpenError::io(&torn.path, error);
        let file = Arc::clone(&torn.file);
        let mut reader = SegmentReader::new(file, torn.name.salt(), None).map_err(io)?;
        let end = reader.rest(0).map_err(io)?.end;
        let what = if end == 0 { BatchEvidence::Zeros } else { BatchEvidence::Other };
        let reason = torn.header.err().unwrap_or_default();
        match judge(self.sequence + 1, what, None, self.mark) {
            Verdict::Refuse => return Err(OpenError::damaged(&torn.path, 0, reason)),
            Verdict::TornEnd => {
                self.report.cuts.push(Cut { file: torn.path.clone(), offset: 0, bytes: end, reason });
            }
            Verdict::End => {}
            Verdict::NextSegment | Verdict::Replay => unreachable!("a header is no batch"),
        }
        Ok(())
    }
}

/// The first whole batch from `at` on whose sequence `fits`: its offset and sequence.
fn whole_batch(
    reader: &mut SegmentReader,
    at: u64,
    fits: impl Fn(u64) -> bool,
) -> std::io::Result<Option<(u64, u64)>> {
    let mut next = reader.next_header(at, &fits)?;
    while let Some(place) = next {
        if let ReadBatch::Batch(header, _) = reader.find_one_of(place, &fits)? {
            return Ok(Some((place, header.sequence)));
        }
        next = reader.next_header(place + 1, &fits)?;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context as Polled, Poll, Waker};

    use dwell_model::{Setting, SettingChange};
    use dwell_store::{Put, Store as _, Target, When};
    use dwell_time::Clock as _;

    use super::*;
    use crate::checkpoint::Checkpoint;
    use crate::disk::MemoryDisk;
    use crate::{Driver, Durability, Engine, Options};

    /// Ignores everything.
    struct NoReplay;

    impl Replay for NoReplay {
        fn put(&mut self, _: PutRecord, _: BodyRef) -> Result<(), ReplayRefusal> {
            Ok(())
        }

        fn record(&mut self, _: Record) -> Result<(), ReplayRefusal> {
            Ok(())
        }

        fn old(&mut self, _: Number, _: Option<Standing>) -> Result<(), ReplayRefusal> {
            Ok(())
        }

        fn begins(&mut self, _: Timestamp) -> Result<(), ReplayRefusal> {
            Ok(())
        }

        fn time(&mut self, _: Timestamp) {}

        fn look_up(&mut self) -> Result<(), ReplayRefusal> {
            Ok(())
        }
    }

    fn run<T>(driver: &mut Driver, call: impl Future<Output = T>) -> T {
        let (mut call, mut polled) = (std::pin::pin!(call), Polled::from_waker(Waker::noop()));
        for _ in 0..64 {
            if let Poll::Ready(answer) = call.as_mut().poll(&mut polled) {
                return answer;
            }
            driver.turn();
        }
        panic!("the call waits");
    }

    fn small(disk: &MemoryDisk) -> Options {
        Options {
            disk: Arc::new(disk.clone()),
            segment_bytes: Options::MIN_SEGMENT_BYTES,
            seed: Some(7),
            ..Options::default()
        }
    }

    /// The number of records and the length of each batch in a segment.
    fn batches_of(segment: &[u8]) -> Vec<(u64, u64)> {
        let (mut batches, mut at) = (Vec::new(), SegmentHeader::LEN);
        while segment[at..].starts_with(b"DWLB") {
            let int = |from: usize| u32::from_le_bytes(segment[at + from..][..4].try_into().unwrap());
            let len = BatchHeader::LEN + int(4) as usize;
            batches.push((u64::from(int(36)), len as u64));
            at += len;
        }
        batches
    }

    /// The start of a flush depends on the size of segments; the settings that a segment begins with do not count.
    #[test]
    fn a_segment_counts_for_what_it_holds_behind_the_settings_that_it_begins_with() {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
        let (engine, mut driver) = Engine::open_driven(dir, small(&disk)).unwrap();
        let queue = || "q".parse().unwrap();
        let put = |driver: &mut Driver| {
            let put = vec![Put::new(queue(), vec![7; 1_000])];
            run(driver, engine.put(put)).pop().unwrap().unwrap()
        };
        put(&mut driver);
        for lease_ms in [70_000, 80_000] {
            let change = SettingChange::Set(Setting::LeaseMs(lease_ms));
            run(&mut driver, engine.configure(queue(), vec![change])).unwrap();
            for _ in 0..10 {
                put(&mut driver);
            }
        }
        let manifest = Manifest::read(&disk, dir).unwrap();
        let recovered = recover(&disk, dir, &manifest, &mut NoReplay).unwrap();
        let found: Vec<(u64, u64)> = recovered.kept.iter().map(|kept| (kept.records, kept.bytes)).collect();
        let (mut batches, mut held) = (Vec::new(), Vec::new());
        for kept in &recovered.kept {
            let of_segment = batches_of(&disk.read_file(&kept.segment.path).unwrap());
            // The first one did not begin with settings.
            let behind = &of_segment[usize::from(!held.is_empty())..];
            held.push(behind.iter().fold((0, 0), |sum, batch| (sum.0 + batch.0, sum.1 + batch.1)));
            batches.extend(of_segment);
        }
        assert!(held.len() > 3, "{held:?}");
        assert_eq!(found, held);
        let OpenReport { segments, batches: count, records, .. } = recovered.report;
        let all = batches.iter().map(|(records, _)| records).sum();
        assert_eq!((segments, count, records), (held.len() as u64, batches.len() as u64, all));
    }

    /// Counts records about messages that this journal has put, and about older ones; and idempotency keys of puts.
    #[derive(Default)]
    struct RecordCounts {
        of_ours: usize,
        of_older: usize,
        tokens: usize,
    }

    impl Replay for RecordCounts {
        fn put(&mut self, _: PutRecord, _: BodyRef) -> Result<(), ReplayRefusal> {
            Ok(())
        }

        fn record(&mut self, record: Record) -> Result<(), ReplayRefusal> {
            self.of_ours += usize::from(matches!(record, Record::Stands { .. } | Record::Gone { .. }));
            self.tokens += usize::from(matches!(record, Record::Answered { .. }));
            Ok(())
        }

        fn old(&mut self, _: Number, _: Option<Standing>) -> Result<(), ReplayRefusal> {
            self.of_older += 1;
            Ok(())
        }

        fn begins(&mut self, _: Timestamp) -> Result<(), ReplayRefusal> {
            Ok(())
        }

        fn time(&mut self, _: Timestamp) {}

        fn look_up(&mut self) -> Result<(), ReplayRefusal> {
            Ok(())
        }
    }

    /// A record about a message that no replayed segment has put contradicts the journal, and is refused. So a
    /// message that an earlier segment has put must not be taken for an older one.
    #[test]
    fn what_the_first_of_several_segments_has_put_is_not_older_than_the_journal() {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
        let (engine, mut driver) = Engine::open_driven(dir, small(&disk)).unwrap();
        let queue = || -> dwell_model::QueueName { "q".parse().unwrap() };
        let put = |driver: &mut Driver| {
            let put = Put::new(queue(), vec![7; 1_000]).after_ms(86_400_000);
            run(driver, engine.put(vec![put])).pop().unwrap().unwrap()
        };
        let first: Vec<_> = (0..2).map(|_| put(&mut driver).id).collect();
        for _ in 0..20 {
            put(&mut driver);
        }
        run(&mut driver, engine.cancel(queue(), vec![Target::Id(first[0])])).pop().unwrap().unwrap();
        run(&mut driver, engine.cancel(queue(), vec![Target::Id(first[1])])).pop().unwrap().unwrap();
        let manifest = Manifest::read(&disk, dir).unwrap();
        let mut counts = RecordCounts::default();
        let recovered = recover(&disk, dir, &manifest, &mut counts).unwrap();
        assert!(recovered.kept.len() > 1, "{:?}", recovered.report);
        assert_eq!((counts.of_ours, counts.of_older), (2, 0));
    }

    /// A record about a message in a table and one about a message of the replayed journal are counted apart: the
    /// first is ignored if the message was deleted, and the second would contradict the journal.
    #[test]
    fn what_stands_and_what_is_gone_count_for_older_messages_apart_from_the_journal_s_own() {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
        let options = Options { memory_limit: 16 * 1024, ..small(&disk) };
        let (engine, mut driver) = Engine::open_driven(dir, options).unwrap();
        let queue = || -> dwell_model::QueueName { "q".parse().unwrap() };
        let put = |driver: &mut Driver| {
            let put = Put::new(queue(), "body").after_ms(86_400_000);
            run(driver, engine.put(vec![put])).pop().unwrap().unwrap().id
        };
        // Flushed messages are placed a few per turn.
        let rest = |driver: &mut Driver| (0..1_000).for_each(|_| assert!(driver.turn()));
        let old: Vec<_> = (0..400).map(|_| put(&mut driver)).collect();
        rest(&mut driver);
        let before = engine.counters().flushes;
        assert!(before > 3);
        // Just after a checkpoint the next one is far away.
        for puts in 0.. {
            if engine.counters().flushes > before {
                break;
            }
            assert!(puts < 400, "no flush is begun");
            put(&mut driver);
            rest(&mut driver);
        }
        let flushes = engine.counters().flushes;
        let new: Vec<_> = (0..2).map(|_| put(&mut driver)).collect();
        for of in [&old, &new] {
            run(&mut driver, engine.cancel(queue(), vec![Target::Id(of[0])])).pop().unwrap().unwrap();
            let later = vec![(Target::Id(of[1]), When::AfterMs(1_000))];
            run(&mut driver, engine.reschedule(queue(), later)).pop().unwrap().unwrap();
        }
        assert_eq!(engine.counters().flushes, flushes);
        let manifest = Manifest::read(&disk, dir).unwrap();
        let mut counts = RecordCounts::default();
        recover(&disk, dir, &manifest, &mut counts).unwrap();
        assert_eq!((counts.of_ours, counts.of_older), (2, 2));
    }

    /// Damage in a segment that is needed for idempotency keys alone costs the keys of one batch. After the last
    /// batch of a segment nothing is whole, and the report names all remaining bytes.
    #[test]
    fn damage_before_the_checkpoint_costs_the_batch_that_it_lies_in() {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
        let options = Options { memory_limit: 16 * 1024, ..small(&disk) };
        let (engine, mut driver) = Engine::open_driven(dir, options).unwrap();
        for at in 0..420 {
            let put = Put::new("q".parse().unwrap(), vec![7; 200]).after_ms(86_400_000);
            let put = if at < 20 { put.token(format!("t{at}").parse().unwrap()) } else { put };
            run(&mut driver, engine.put(vec![put])).pop().unwrap().unwrap();
        }
        let manifest = Manifest::read(&disk, dir).unwrap();
        assert!(manifest.checkpoint.start > 2);
        let tokens_of = |disk: &MemoryDisk| {
            let mut counts = RecordCounts::default();
            let report = recover(disk, dir, &manifest, &mut counts).unwrap().report;
            (counts.tokens, report.forgotten, report.batches, report.cuts)
        };
        let (tokens, none, batches, cuts) = tokens_of(&disk);
        assert_eq!((tokens, none, cuts), (20, Vec::new(), Vec::new()));
        let file = dir.join(SegmentName { directory: manifest.directory, shard: 0, segment: 1 }.file_name());
        let bytes = disk.read_file(&file).unwrap();
        let (all, mut offset) = (batches_of(&bytes), SegmentHeader::LEN as u64);
        assert!(all.len() > 5 && all.len() < 20, "{all:?}");
        for (records, len) in &all {
            // In the header of the batch, so that its end is not known, and in its records.
            for (at, reason) in
                [(9, "a batch's header fails its checksum"), (60, "a batch's records fail their checksum")]
            {
                let copy = disk.copied();
                let mut damaged = bytes.clone();
                damaged[offset as usize + at] ^= 1;
                copy.put_file(&file, damaged);
                let told = Cut { file: file.clone(), offset, bytes: *len, reason };
                let expected = (20 - *records as usize, vec![told], batches - 1, Vec::new());
                assert_eq!(tokens_of(&copy), expected, "byte {at} of the batch at {offset}");
            }
            offset += len;
        }
        // Sectors that cannot be read: the rest of the segment is unknown there.
        let copy = disk.copied();
        let second = SegmentHeader::LEN as u64 + all[0].1;
        copy.unreadable_at(&file, second, 1);
        let (tokens, forgotten, ..) = tokens_of(&copy);
        assert_eq!((forgotten.len(), &forgotten[0].file), (1, &file));
        assert!(
            forgotten[0].offset <= second && (20 - all.len()..20).contains(&tokens),
            "{tokens} {forgotten:?}"
        );
    }

    /// Crash story: 1. a bit of a segment that is needed for idempotency keys alone is damaged. 2. The search for
    /// whole batches behind it meets a sector that cannot be read. 3. The directory is not opened, though nothing is
    /// needed of that segment.
    #[test]
    fn damage_before_the_checkpoint_refuses_nothing_though_a_sector_behind_it_cannot_be_read() {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
        let options = Options { memory_limit: 16 * 1024, segment_bytes: 4 << 20, ..small(&disk) };
        let (engine, mut driver) = Engine::open_driven(dir, options).unwrap();
        for at in 0..240 {
            let put = |body: Vec<u8>| Put::new("q".parse().unwrap(), body).after_ms(86_400_000);
            let put = match at {
                0..12 => put(vec![7; 300_000]).token(format!("t{at}").parse().unwrap()),
                _ => put(vec![7; 30_000]),
            };
            run(&mut driver, engine.put(vec![put])).pop().unwrap().unwrap();
        }
        let manifest = Manifest::read(&disk, dir).unwrap();
        assert!(manifest.checkpoint.start > 1);
        let file = dir.join(SegmentName { directory: manifest.directory, shard: 0, segment: 1 }.file_name());
        let mut bytes = disk.read_file(&file).unwrap();
        let second = SegmentHeader::LEN as u64 + batches_of(&bytes)[0].1;
        bytes[second as usize + 60] ^= 1;
        disk.put_file(&file, bytes);
        disk.unreadable_at(&file, second + (2 << 20), 1);
        let mut counts = RecordCounts::default();
        let forgotten = recover(&disk, dir, &manifest, &mut counts).unwrap().report.forgotten;
        let forgotten: Vec<_> = forgotten.into_iter().map(|cut| (cut.file, cut.offset)).collect();
        assert_eq!((counts.tokens, forgotten), (1, vec![(file, second)]));
    }

    /// Whatever ends a journal and is not a batch is a torn tail, in its newest segment or in one that was being
    /// created; zeros are preallocated room.
    #[test]
    fn what_follows_the_last_batch_is_cut_unless_it_is_zeros() {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
        let (engine, mut driver) = Engine::open_driven(dir, small(&disk)).unwrap();
        for _ in 0..3 {
            run(&mut driver, engine.put(vec![Put::new("q".parse().unwrap(), "body")]))
                .pop()
                .unwrap()
                .unwrap();
        }
        let manifest = Manifest::read(&disk, dir).unwrap();
        let path =
            |segment| dir.join(SegmentName { directory: manifest.directory, shard: 0, segment }.file_name());
        let mut newest = disk.read_file(&path(1)).unwrap();
        let end = batches_of(&newest).iter().fold(SegmentHeader::LEN as u64, |end, (_, len)| end + len);
        newest.truncate(end as usize);
        for tail in [vec![], vec![0; 500], vec![5; 70], [vec![0; 90], vec![5; 3], vec![0; 7]].concat()] {
            let len = tail.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
            for is_in_next in [false, true] {
                let copy = disk.copied();
                let whole = if is_in_next { newest.clone() } else { [newest.clone(), tail.clone()].concat() };
                copy.put_file(&path(1), whole);
                if is_in_next {
                    copy.put_file(&path(2), tail.clone());
                }
                let recovered = recover(&copy, dir, &manifest, &mut NoReplay).unwrap();
                let OpenReport { cuts, batches, .. } = recovered.report;
                assert_eq!((batches, recovered.end, recovered.newest), (3, end, 1));
                let cuts: Vec<_> = cuts.into_iter().map(|cut| (cut.file, cut.offset, cut.bytes)).collect();
                let cut = if is_in_next { (path(2), 0, len) } else { (path(1), end, len) };
                assert_eq!(cuts, if len > 0 { vec![cut] } else { Vec::new() }, "{tail:?} {is_in_next}");
            }
        }
    }

    /// Each batch has the mark that was synced when it was written: nothing after that is proven.
    #[test]
    fn what_no_later_batch_says_was_synced_is_unproven() {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
        let (engine, mut driver) = Engine::open_driven(dir, small(&disk)).unwrap();
        let manifest = Manifest::read(&disk, dir).unwrap();
        for count in 0..4 {
            let recovered = recover(&disk, dir, &manifest, &mut NoReplay).unwrap();
            let path = &recovered.kept[0].segment.path;
            let batches = batches_of(&disk.read_file(path).unwrap());
            assert_eq!((batches.len(), recovered.sequence), (count, count as u64));
            let (from, sequence) = match count {
                // Not even that the segment was begun.
                0 | 1 => (0, 1),
                _ => (recovered.end - batches[count - 1].1, count as u64),
            };
            let incarnation = manifest.incarnation;
            assert_eq!(
                recovered.unproven,
                Some(UnsyncedTail { from, sequence, incarnation }),
                "{count} batches"
            );
            run(&mut driver, engine.put(vec![Put::new("q".parse().unwrap(), "body")]))
                .pop()
                .unwrap()
                .unwrap();
        }
    }

    /// Where a power failure may lose answered calls, callers may have seen numbers that were not recorded: they are
    /// not reused. A store that was closed has recorded all.
    #[test]
    fn numbers_are_skipped_where_some_may_have_been_given_that_were_lost() {
        for (durability, skips) in [(Durability::Always, false), (Durability::Os, true)] {
            let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
            let options = Options { durability, ..small(&disk) };
            let (engine, mut driver) = Engine::open_driven(dir, options).unwrap();
            run(&mut driver, engine.put(vec![Put::new("q".parse().unwrap(), "body")]))
                .pop()
                .unwrap()
                .unwrap();
            let manifest = Manifest::read(&disk, dir).unwrap();
            let next_number = |disk: &MemoryDisk| {
                recover(disk, dir, &manifest, &mut NoReplay).unwrap().preamble.next_number
            };
            assert_eq!(next_number(&disk), 2 + if skips { 1 << 32 } else { 0 }, "{durability:?}");
            engine.close().unwrap();
            while driver.turn() {}
            assert_eq!(next_number(&disk), 2, "{durability:?}, closed");
        }
    }

    /// A segment that is needed for its idempotency keys alone may be missing. Each of them is reported once.
    #[test]
    fn segments_before_the_checkpoint_that_are_missing_are_told_once_each() {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
        disk.create_dir(dir).unwrap();
        let named = |segment| SegmentName { directory: 7, shard: 0, segment };
        let opened = |segment| {
            let (name, path) = (named(segment), dir.join(named(segment).file_name()));
            let header = SegmentHeader {
                name,
                incarnation: 1,
                first: segment,
                oldest: 1,
                next_number: 1,
                made: Timestamp::MIN,
                synced_answers: true,
            };
            (
                segment,
                OpenedSegment { file: disk.create(&path).unwrap(), path, name, header: Ok(header), len: 0 },
            )
        };
        let checkpoint = Checkpoint { start: 6, ..Checkpoint::default() };
        let made = Timestamp::MIN;
        let manifest = Manifest { incarnation: 1, directory: 7, made, newest: 6, next_number: 1, checkpoint };
        let cut =
            |segment, reason| Cut { file: dir.join(named(segment).file_name()), offset: 0, bytes: 0, reason };
        let mut forgotten = vec![cut(3, "it cannot be opened")];
        let mut segments = BTreeMap::from([opened(2), opened(6)]);
        assert!(check_presence(dir, &manifest, &mut segments, &mut forgotten).unwrap().is_none());
        let missing = "the segment is missing";
        let told = [(3, "it cannot be opened"), (1, missing), (4, missing), (5, missing)];
        assert_eq!(forgotten, told.map(|(segment, reason)| cut(segment, reason)));
        // Of very many missing segments the first are listed.
        let manifest = Manifest {
            newest: 2_000_000,
            checkpoint: Checkpoint { start: 2_000_000, ..Checkpoint::default() },
            ..manifest
        };
        let (mut segments, mut forgotten) = (BTreeMap::from([opened(2_000_000)]), Vec::new());
        check_presence(dir, &manifest, &mut segments, &mut forgotten).unwrap();
        assert_eq!(forgotten.len() as u64, MOST_MISSING);
    }

    /// The position of a segment with an unreadable header decides its meaning: before the checkpoint's start it is
    /// forgotten, from there on it is damage, and after the newest segment it is one that was being created.
    #[test]
    fn a_segment_without_a_header_is_forgotten_or_damage_or_was_being_made() {
        let (disk, dir, bad) = (MemoryDisk::new(), Path::new("/data"), "its header is bad");
        disk.create_dir(dir).unwrap();
        let named = |segment| SegmentName { directory: 7, shard: 0, segment };
        let path = |segment| dir.join(named(segment).file_name());
        let judged = |start: u64, newest: u64, is_bad: &[u64]| {
            let segments = (1..=newest).map(|segment| {
                let header = SegmentHeader {
                    name: named(segment),
                    incarnation: 1,
                    first: segment,
                    oldest: 1,
                    next_number: 1,
                    made: Timestamp::MIN,
                    synced_answers: true,
                };
                let header = if is_bad.contains(&segment) { Err(bad) } else { Ok(header) };
                let (name, path) = (named(segment), path(segment));
                (segment, OpenedSegment { file: disk.create(&path).unwrap(), path, name, header, len: 9 })
            });
            let mut segments: BTreeMap<u64, OpenedSegment> = segments.collect();
            let checkpoint = Checkpoint { start, ..Checkpoint::default() };
            let made = Timestamp::MIN;
            let manifest =
                Manifest { incarnation: 1, directory: 7, made, newest: start, next_number: 1, checkpoint };
            let mut forgotten = drop_forgotten(&manifest, &mut segments);
            let torn = check_presence(dir, &manifest, &mut segments, &mut forgotten);
            let forgotten: Vec<PathBuf> = forgotten.into_iter().map(|cut| cut.file).collect();
            torn.map(|torn| (forgotten, torn.map(|torn| torn.name.segment)))
        };
        assert_eq!(judged(4, 6, &[]).unwrap(), (Vec::new(), None));
        assert_eq!(judged(4, 6, &[1, 3]).unwrap(), (vec![path(1), path(3)], None));
        assert_eq!(judged(4, 6, &[6]).unwrap(), (Vec::new(), Some(6)), "it was being made");
        assert_eq!(judged(4, 6, &[2, 6]).unwrap(), (vec![path(2)], Some(6)));
        for damaged in [4, 5] {
            let error = judged(4, 6, &[damaged]).unwrap_err();
            let OpenError::Damaged { file, offset, reason } = error else { panic!("{error}") };
            assert_eq!((file, offset, reason), (path(damaged), 0, bad.to_owned()), "the manifest needs it");
        }
        // Two are never created at once.
        assert!(matches!(judged(4, 6, &[5, 6]), Err(OpenError::Damaged { file, .. }) if file == path(5)));
    }

    /// Where the journal is missing, the manifest alone decides which numbers a repair may give.
    #[test]
    fn the_manifest_says_which_numbers_were_given_before_its_segment() {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
        let options = Options { memory_limit: 16 * 1024, ..small(&disk) };
        let (engine, mut driver) = Engine::open_driven(dir, options).unwrap();
        for _ in 0..400 {
            let put = vec![Put::new("q".parse().unwrap(), "body").after_ms(86_400_000)];
            run(&mut driver, engine.put(put)).pop().unwrap().unwrap();
        }
        assert!(engine.counters().flushes > 3);
        let manifest = Manifest::read(&disk, dir).unwrap();
        let start = manifest.checkpoint.start;
        let name = SegmentName { directory: manifest.directory, shard: 0, segment: start };
        let bytes = disk.read_file(&dir.join(name.file_name())).unwrap();
        let header = SegmentHeader::decode(bytes.first_chunk().unwrap(), name).unwrap();
        assert!(header.next_number > 100, "{header:?}");
        assert_eq!((manifest.next_number, manifest.newest), (header.next_number, start));
    }

    /// A missing journal is refused at its first missing segment, however long it was according to the manifest.
    #[test]
    fn a_long_journal_that_is_gone_is_missed_at_once() {
        const LONG: u64 = 1 << 40;
        for (start, newest, file) in [
            (LONG, LONG, "journal"),
            (LONG - 2, LONG, "journal"),
            (0, LONG, "journal"),
            (LONG, 9, "MANIFEST"),
        ] {
            let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
            disk.create_dir(dir).unwrap();
            let checkpoint = Checkpoint { start, ..Checkpoint::default() };
            let (directory, made) = (7, Timestamp::MIN);
            let manifest = Manifest { incarnation: 3, directory, made, newest, next_number: 1, checkpoint };
            manifest.write(&disk, dir).unwrap();
            let (done, answer) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let now = dwell_time::ManualClock::new(Timestamp::MIN).now();
                let measured = crate::offline::stats(&disk, dir, now).map(drop);
                let options = Options { disk: Arc::new(disk.clone()), ..Options::default() };
                let opened = Engine::open_driven(dir, options).map(drop);
                let checked = crate::offline::check(&disk, dir).unwrap();
                assert!(!checked.is_sound() && checked.messages.is_none(), "{checked:?}");
                let _ = done.send([measured.unwrap_err(), opened.unwrap_err()]);
            });
            let answer = answer.recv_timeout(std::time::Duration::from_secs(60));
            for error in answer.expect("it ends, and there is a fault") {
                let OpenError::Damaged { file: found, .. } = &error else { panic!("{error}") };
                assert!(found.starts_with(dir) && found.to_str().unwrap().contains(file), "{error}");
            }
        }
    }

    #[test]
    fn the_table_holds_for_every_combination() {
        const K: u64 = 10;
        for what in [BatchEvidence::WholeBatch, BatchEvidence::Zeros, BatchEvidence::Other] {
            for next_first in [None, Some(K), Some(K + 1), Some(K + 5)] {
                for mark in [0, K - 1, K, K + 5] {
                    let row = match (what, next_first, mark >= K) {
                        (_, Some(K), _) => Verdict::NextSegment,
                        (BatchEvidence::WholeBatch, _, _) => Verdict::Replay,
                        (_, _, true) | (_, Some(_), _) => Verdict::Refuse,
                        (BatchEvidence::Zeros, None, false) => Verdict::End,
                        (BatchEvidence::Other, None, false) => Verdict::TornEnd,
                    };
                    assert_eq!(judge(K, what, next_first, mark), row, "{what:?} {next_first:?} {mark}");
                }
            }
        }
    }
}
