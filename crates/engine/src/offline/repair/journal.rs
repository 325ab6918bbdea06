//! The journal, record by record, as far as each still has a meaning.
//!
//! A core applies what is copied, as an opening will later. A record that the core refuses is about a message that is
//! lost, and is left out; so what is copied can be replayed.

use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{Now, Number, State};
use dwell_store::core::{Cold, Durability, Log, PutRecord, Record};

use super::old_manifest::OldDirectory;
use super::{NewDirectory, RepairReport, SEGMENT_BYTES};
use crate::OpenError;
use crate::cold::ColdSet;
use crate::disk::LenientDisk;
use crate::executor::Executor;
use crate::file_deleter::FileDeleter;
use crate::journal::batch::{Batch, SegmentPreamble};
use crate::journal::encoding::Unreadable;
use crate::journal::format::BatchHeader;
use crate::journal::record::{Decoder, Fact};
use crate::journal::segment::{BodyRef, Segment};
use crate::journal::writer::{JournalSettings, JournalStart, JournalWriter, WriteError};
use crate::manifest::Manifest;
use crate::offline::loaded::core;
use crate::offline::segments::{SegmentPiece, SegmentWalk, UNREADABLE, body, context, missing, segments};
use crate::open::take_in;
use crate::report::Cut;
use crate::shard::step::Step;

/// Copies the part of the journal that follows the tables of `manifest`; completes `manifest`. From before the
/// checkpoint it copies the `lost` messages.
#[expect(clippy::too_many_arguments, reason = "from where, to where, and what is known of both")]
pub(super) fn save(
    disk: &LenientDisk,
    dir: &Path,
    origin: &OldDirectory,
    lost: HashSet<Number>,
    target: &NewDirectory,
    manifest: &mut Manifest,
    now: Now,
    report: &mut RepairReport,
) -> Result<(), OpenError> {
    let mut segments = segments(disk, dir, origin.directory)?;
    let oldest = segments.iter().rev().find_map(|found| found.header.ok()).map_or(0, |header| header.oldest);
    segments.retain(|found| found.segment.name.segment >= oldest);
    let newest = origin.manifest.as_ref().map_or(0, |manifest| manifest.newest);
    for path in missing(&segments, dir, origin.directory, newest) {
        report.lose(&path, None, None, "the segment is missing");
    }
    let mut step =
        Step::new(core(manifest.incarnation), ColdSet::new(manifest.directory, 512, (256, usize::MAX), 4096));
    take_in(&*target.disk, &target.dir, manifest, &mut step, false)?;
    let home = JournalSettings {
        disk: Arc::clone(&target.disk),
        deleter: FileDeleter::new(Arc::clone(&target.disk), Executor::without_threads()),
        dir: target.dir.clone(),
        directory: target.directory,
        shard: 0,
        incarnation: manifest.incarnation,
        // No more is preallocated than may be needed.
        segment_bytes: segments.iter().map(|found| found.size).sum::<u64>().clamp(4096, SEGMENT_BYTES),
        synced_answers: true,
        body_reach: u32::MAX,
    };
    // With tables every segment is kept.
    let start = JournalStart { segment: 1, has_files: true };
    let begun =
        JournalWriter::begin(home, VecDeque::new(), 1, 0, SegmentPreamble::starting_at(1), start, now.wall);
    let (writer, batch) = begun.map_err(|error| failed(target, error))?;
    let has_manifest = origin.manifest.is_some();
    let mut copy =
        JournalCopy { target, step, writer, batch, now, has_manifest, lost, found: HashSet::new(), report };

    let first = origin.manifest.as_ref().map_or(0, |manifest| manifest.checkpoint.start);
    let mut walk = SegmentWalk::over(&segments);
    for at in 0..segments.len() {
        let segment = &segments[at].segment;
        let is_old = segment.name.segment < first;
        walk.read(&segments, at, &mut |piece| match piece {
            SegmentPiece::Batch { at, header, records } => copy.batch(segment, at, &header, records, is_old),
            SegmentPiece::Lost { from, to, reason } => {
                let messages = is_old.then_some(0);
                let is_bad = disk.is_bad(&segment.path, from..to);
                let reason = if is_bad { UNREADABLE } else { reason };
                copy.report.lose(&segment.path, Some((from, to)), messages, reason);
                Ok(())
            }
            // It may have been written, and answered, long before the disk lost it.
            SegmentPiece::Torn { from, to, .. } if disk.is_bad(&segment.path, from..to) => {
                copy.report.lose(&segment.path, Some((from, to)), is_old.then_some(0), UNREADABLE);
                Ok(())
            }
            SegmentPiece::Torn { from, to, reason } => {
                copy.report.cuts.push(Cut {
                    file: segment.path.clone(),
                    offset: from,
                    bytes: to - from,
                    reason,
                });
                Ok(())
            }
        })?;
    }
    copy.report.batches = walk.batches;
    let JournalCopy { mut writer, batch, .. } = copy;
    writer.sync().map_err(|error| OpenError::io(&target.dir, error))?;
    writer.trim();
    manifest.newest = writer.segments() as u64;
    manifest.next_number = manifest.next_number.max(batch.preamble.next_number);
    Ok(())
}

fn failed(target: &NewDirectory, error: WriteError) -> OpenError {
    match error {
        WriteError::Full(error) | WriteError::Failed(error) => OpenError::io(&target.dir, error),
    }
}

struct JournalCopy<'a> {
    target: &'a NewDirectory,
    step: Step,
    writer: JournalWriter,
    batch: Batch,
    now: Now,
    has_manifest: bool,
    /// Messages that tables have lost; `found` has those of them that were found here.
    lost: HashSet<Number>,
    found: HashSet<Number>,
    report: &'a mut RepairReport,
}

impl JournalCopy<'_> {
    /// Copies the records of a batch that is whole except for bodies. From a segment before the checkpoint only
    /// idempotency keys count, and what was lost in tables.
    fn batch(
        &mut self,
        segment: &Arc<Segment>,
        at: u64,
        header: &BatchHeader,
        records: &[u8],
        is_old: bool,
    ) -> Result<(), OpenError> {
        let begun = self.writer.begin_batch(&mut self.batch, header.now, false);
        begun.map_err(|error| failed(self.target, error))?;
        if !is_old {
            self.pass_time(header)?;
        }
        let mut decoder = Decoder::new(records, context(segment, header));
        loop {
            match decoder.next() {
                Ok(None) => break,
                Ok(Some(Fact::Put { record, .. })) if is_old && !self.lost.contains(&record.number) => {
                    self.idempotency_key(record);
                }
                Ok(Some(Fact::Record(record))) if is_old => {
                    let counts = match &record {
                        Record::Answered { .. } => true,
                        Record::Stands { number, .. } => self.found.contains(number),
                        _ => false,
                    };
                    if counts {
                        self.record(record)?;
                    }
                }
                Ok(Some(Fact::Put { record, body_at, body_len })) => {
                    let number = record.number;
                    match body(records, body_at, body_len, record.number.get(), segment.salt) {
                        Some(body) => {
                            let at = at + BatchHeader::LEN as u64 + u64::from(body_at);
                            let at = u32::try_from(at).unwrap_or(u32::MAX);
                            let place = BodyRef { segment: Arc::clone(segment), at, len: body_len };
                            let is_in = self.put(record, &Bytes::copy_from_slice(body), place, is_old)?;
                            if is_in && is_old && self.found.insert(number) {
                                self.report.found += 1;
                            }
                        }
                        // The loss was reported for its table.
                        None if is_old => self.idempotency_key(record),
                        None => {
                            let at = at + BatchHeader::LEN as u64 + u64::from(body_at) + 4;
                            let reason = format!("the body of message {number} is damaged");
                            let range = Some((at, at + u64::from(body_len)));
                            self.report.lose(&segment.path, range, Some(1), reason);
                        }
                    }
                }
                Ok(Some(Fact::Record(record))) => self.record(record)?,
                Ok(Some(Fact::Closed)) => {}
                Err(Unreadable::Malformed(reason)) => {
                    // Its checksum is valid: it was written so.
                    let range = Some((at, at + (BatchHeader::LEN + records.len()) as u64));
                    self.report.lose(&segment.path, range, None, reason);
                    break;
                }
                Err(Unreadable::Newer(reason)) => {
                    return Err(OpenError::NewerRecord { file: segment.path.clone(), offset: at, reason });
                }
            }
        }
        if !is_old {
            self.step.core_mut().replay_time(header.now);
        }
        if !self.batch.is_empty() {
            self.writer.append(&mut self.batch).map_err(|error| failed(self.target, error))?;
        }
        Ok(())
    }

    /// What had expired by the wall clock of a batch was dead to all its records. The copy has a batch with the same
    /// wall clock, even if no record of it is left.
    fn pass_time(&mut self, header: &BatchHeader) -> Result<(), OpenError> {
        self.batch.keep_time();
        let (core, cold) = self.step.both();
        core.replay_begins(header.now);
        let before = core.seen();
        let passed = if header.now < before {
            core.replay_with(Record::Ripe { wall: before }, Some(cold))
        } else {
            core.replay_expiry(Some(cold));
            Ok(())
        };
        passed.map_err(|error| self.contradiction(&error))
    }

    /// Keeps the answer to a put though the message lies elsewhere.
    fn idempotency_key(&mut self, record: PutRecord) {
        let Some(idempotency_key) =
            record.idempotency_key.clone().filter(|idempotency_key| idempotency_key.until > self.now.wall)
        else {
            return;
        };
        let (answer, queue) = (record.answer(), record.queue);
        self.write(&Record::Answered { queue, idempotency_key, answer });
    }

    /// Whether the message was put. A message from before the checkpoint does not get its key back if another has it
    /// by now.
    fn put(
        &mut self,
        mut record: PutRecord,
        body: &Bytes,
        place: BodyRef,
        is_old: bool,
    ) -> Result<bool, OpenError> {
        let number = record.number;
        let (core, cold) = self.step.both();
        if core.replay_has(number, Some(cold)).map_err(|error| self.contradiction(&error))? {
            // It is in a table as well, and that copy is newer.
            self.idempotency_key(record);
            return Ok(false);
        }
        if let Some(key) = &record.key {
            let (core, cold) = self.step.both();
            let owner = core.replay_owner(&record.queue, key, Some(cold));
            let owner = owner.map_err(|error| self.contradiction(&error))?;
            if owner.is_some() && is_old {
                self.report.keyless.push(number);
                record.key = None;
            } else if let Some(owner) = owner {
                let mut standing = owner.standing;
                standing.keyless = true;
                self.report.keyless.push(owner.number);
                self.record(Record::Stands { number: owner.number, standing })?;
            }
        }
        let core = self.step.core_mut();
        if core.replay_put(record.clone(), place).is_err() {
            self.report.idle_records += 1;
            return Ok(false);
        }
        let place = self.batch.put(&record, body);
        self.step.core_mut().move_body(number, place);
        self.report.records += 1;
        Ok(true)
    }

    fn record(&mut self, mut record: Record) -> Result<(), OpenError> {
        match &mut record {
            Record::Purged { .. }
            | Record::Discarded { .. }
            | Record::Revived { .. }
            | Record::Deleted { .. }
                if !self.has_manifest && !self.step.cold().files().is_empty() =>
            {
                self.report.idle_sweeps += 1;
                return Ok(());
            }
            Record::Stands { number, standing }
                if !standing.keyless && !matches!(standing.state, State::Dead(_)) =>
            {
                let number = *number;
                let (core, cold) = self.step.both();
                let there = core.replay_has(number, Some(cold));
                if there.map_err(|error| self.contradiction(&error))?
                    && let Some((queue, key)) = self.step.core().replay_key(number)
                {
                    let (core, cold) = self.step.both();
                    let owner = core.replay_owner(&queue, &key, Some(cold));
                    let owner = owner.map_err(|error| self.contradiction(&error))?;
                    if owner.is_some_and(|owner| owner.number != number) {
                        standing.keyless = true;
                        self.report.keyless.push(number);
                    }
                }
            }
            _ => {}
        }
        let (core, cold) = self.step.both();
        match core.replay_with(record.clone(), Some(cold as &mut dyn Cold<BodyRef>)) {
            Ok(()) => self.write(&record),
            Err(error) if self.step.has_failure() => return Err(self.contradiction(&error)),
            Err(_) => self.report.idle_records += 1,
        }
        Ok(())
    }

    fn write(&mut self, record: &Record) {
        self.batch.record(record, Durability::Synced);
        self.report.records += 1;
    }

    /// The error for a new file that cannot be read back.
    fn contradiction(&self, error: &dyn std::fmt::Display) -> OpenError {
        OpenError::damaged(&self.target.dir, 0, error.to_string())
    }
}
