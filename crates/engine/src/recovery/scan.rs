//! Reads the segments in their order, and replays the batches that are whole.

use std::collections::VecDeque;
use std::sync::Arc;

use dwell_store::core::Record;

use super::segments::OpenedSegment;
use super::{BatchEvidence, Replay, ReplayRefusal, Verdict, judge};
use crate::OpenError;
use crate::disk::failure;
use crate::journal::batch::SegmentPreamble;
use crate::journal::encoding::Unreadable;
use crate::journal::format::{BatchHeader, SegmentHeader};
use crate::journal::reader::{ReadBatch, SegmentReader, SegmentTail};
use crate::journal::record::{BatchContext, Decoder, Fact};
use crate::journal::segment::{BodyRef, Segment};
use crate::report::{Cut, OpenReport};
use crate::unsynced_tail::UnsyncedTail;

/// What a segment begins with: its header, and the settings of all queues.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SegmentStart {
    pub(super) bytes: u64,
    pub(super) records: u64,
}

/// A scan over the segments in order.
pub(super) struct JournalScan<'a, R> {
    pub(super) replay: &'a mut R,
    pub(super) preamble: SegmentPreamble,
    pub(super) report: OpenReport,
    /// The sequence of the last batch read.
    pub(super) sequence: u64,
    /// The number of the previous segment.
    pub(super) before: u64,
    /// What the current segment begins with.
    pub(super) begun: SegmentStart,
    pub(super) mark: u64,
    /// The first segment that is not in the checkpoint.
    pub(super) start: u64,
    /// Messages of lower numbers were put before the first replayed segment: they are in the checkpoint, or were
    /// deleted, and then records about them are void.
    pub(super) floor: u64,
    /// The highest message number read.
    pub(super) given: u64,
    /// Batches of the current segment that no mark proves to be synced so far: sequence and offset.
    pub(super) unproven: VecDeque<(u64, u64)>,
}

impl<R: Replay> JournalScan<'_, R> {
    /// Reads a segment to its end, and returns the offset of that.
    pub(super) fn segment(
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
    pub(super) fn unproven(&mut self, header: &SegmentHeader) -> Option<UnsyncedTail> {
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
                let Some(idempotency_key) = record.idempotency_key.clone() else { return Ok(()) };
                let (answer, queue) = (record.answer(), record.queue);
                self.replay.record(Record::Answered { queue, idempotency_key, answer })
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
    pub(super) fn judge_torn(&mut self, torn: &OpenedSegment) -> Result<(), OpenError> {
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
