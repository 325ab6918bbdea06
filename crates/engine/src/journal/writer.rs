//! Appending to the journal: batches, syncs, zeros ahead of them, the next segment, and removing the oldest.
//!
//! Ground rules:
//! 1. A segment is created only when all before it are synced. So damage in any but the last is never a torn tail,
//!    and the header can say so.
//! 2. A new segment is durable, name and all, before the first batch is written to it.
//! 3. A segment is removed when no message in it is left, no idempotency key in it is in force, and none before it
//!    stays; and only after a newer segment's header says, durably, that it is not needed. The records that ended its
//!    messages are synced by then.
//!
//! Crash story, for rule 3: 1. segment 5 is created, its header says that 3 is the oldest. 2. The files of 1 and 2
//! are removed, the power fails, and 1 is back. 3. Recovery reads the header of 5 and starts at 3; it does not read
//! 1, which would bring settled messages back, and removes it.
//!
//! Crash story, for a segment that found no room: 1. segment 6 is begun while batch 40 is next; its header is
//! written, and then the disk is full. Its file is removed, and batches 40 to 50 are written to segment 5. 2. The
//! power fails, and the file of segment 6 is back, whose header says that it begins with batch 40. 3. Recovery goes
//! on with it where it finds batch 40 in segment 5, and batches 40 to 50 are lost. So the removal is durable before
//! anything else is written; where it finds no room either, batches wait for it.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use dwell_model::Timestamp;

use super::batch::{Batch, SegmentPreamble};
use super::format::{SegmentHeader, SegmentName};
use super::record::BatchContext;
use super::segment::Segment;
use crate::disk::{Disk, failure};
use crate::file_deleter::FileDeleter;

/// Why a write failed.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// There is no room. Nothing has changed, and the same call may succeed later.
    Full(io::Error),
    /// The disk failed: its content is unknown until it is read again.
    Failed(io::Error),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> WriteError {
        // Too many open files count as no room: nothing was begun.
        if failure::is_full(&error) || failure::has_no_file_left(&error) {
            WriteError::Full(error)
        } else {
            WriteError::Failed(error)
        }
    }
}

/// The parameters that do not change while the store is open.
#[derive(Clone, Debug)]
pub(crate) struct JournalSettings {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) deleter: FileDeleter,
    pub(crate) dir: PathBuf,
    pub(crate) directory: u64,
    pub(crate) shard: u16,
    pub(crate) incarnation: u32,
    pub(crate) segment_bytes: u64,
    /// Whether batches are synced before they are answered.
    pub(crate) synced_answers: bool,
    /// See [`Options::body_reach`](crate::Options::body_reach).
    pub(crate) body_reach: u32,
}

impl JournalSettings {
    /// The size of a segment that begins with `begun` bytes of settings.
    fn length(&self, begun: u64) -> u64 {
        self.segment_bytes.max(2 * begun)
    }
}

/// A segment that is no longer written.
#[derive(Debug)]
pub(crate) struct ClosedSegment {
    pub(crate) segment: Arc<Segment>,
    /// The number of records, without the settings that it begins with.
    pub(crate) records: u64,
    /// Their size in bytes.
    pub(crate) bytes: u64,
    /// See [`SegmentPreamble::idempotency_until`].
    pub(crate) idempotency_until: Timestamp,
    /// See [`SegmentPreamble::revived`].
    pub(crate) revived: bool,
}

/// The part of the journal that an opening would replay for its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unflushed {
    pub(crate) segments: usize,
    pub(crate) records: u64,
    /// The most that a flush of it writes, without what it moves. The settings that segments begin with do not count.
    pub(crate) bytes: u64,
}

/// The end of the journal.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    home: JournalSettings,
    /// Older segments, oldest first.
    kept: VecDeque<ClosedSegment>,
    active: ActiveSegment,
    /// The sequence of the last batch written.
    sequence: u64,
    /// The sequence up to which everything is synced.
    synced: u64,
    checkpoint: JournalStart,
    /// A segment whose creation found no room. Nothing is written until it is durably removed.
    half_made: Option<PathBuf>,
}

/// What the manifest says about the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct JournalStart {
    /// Of segments before this one only the idempotency keys of puts are needed.
    pub(crate) segment: u64,
    /// Whether messages lie in tables: the records that end them are in segments from here on.
    pub(crate) has_files: bool,
}

#[derive(Debug)]
struct ActiveSegment {
    segment: Arc<Segment>,
    /// The size of its header and of the settings that it begins with.
    begun: u64,
    /// The offset of the next batch.
    end: u64,
    /// The number of bytes that are preallocated.
    reserved: u64,
    /// The end of what was written, including zeros.
    written: u64,
    /// The sequence of the last batch in it, or before it when it was begun.
    sequence: u64,
    /// The number of records written to it since, without the settings that it begins with.
    records: u64,
}

/// The zeros that are written ahead of batches.
static ZEROS: [u8; 512 * 1024] = [0; 512 * 1024];

impl JournalWriter {
    /// The number of removable segments that make a new one worthwhile.
    const WORTH_A_SEGMENT: usize = 4;
    /// The maximum size of batches that have zeros written ahead of them: a commit of the file system's journal costs
    /// more than their bytes. Above it, it costs as much as writing them twice (docs/engine-speed.md).
    const SMALL: u64 = 128 * 1024;
    /// The number of zeros that are written ahead.
    const AHEAD: u64 = 512 * 1024;

    /// Begins segment `number` after the recovered ones, all synced up to `sequence`.
    pub(crate) fn begin(
        home: JournalSettings,
        kept: VecDeque<ClosedSegment>,
        number: u64,
        sequence: u64,
        preamble: SegmentPreamble,
        checkpoint: JournalStart,
        now: Timestamp,
    ) -> Result<(JournalWriter, Batch), WriteError> {
        let gone = removable(&kept, checkpoint, false, now);
        let oldest = kept.get(gone).map_or(number, |kept| kept.segment.name.segment);
        let segment = create(&home, number)?;
        let context =
            BatchContext { shard: home.shard, incarnation: home.incarnation, now, salt: segment.salt };
        let mut batch = Batch::new(Arc::clone(&segment), context, preamble, home.body_reach);
        let path = segment.path.clone();
        let active = fill(&home, segment, sequence, oldest, &mut batch, now, true).inspect_err(|_| {
            // Nothing is written after it, so it is safe to leave it.
            let _ = home.disk.remove(&path);
        })?;
        batch.preamble.begin_segment();
        let sequence = active.sequence;
        let synced = sequence;
        let mut writer = JournalWriter { home, kept, active, sequence, synced, checkpoint, half_made: None };
        writer.let_go(gone);
        Ok((writer, batch))
    }

    /// Prepares `batch` for the records of commands at `now`; rolls over to the next segment first, if it is time. If
    /// there is no room for one, the segment grows beyond its size instead. Where room is `short`, a new segment is
    /// worthwhile for each one that can be removed.
    pub(crate) fn begin_batch(
        &mut self,
        batch: &mut Batch,
        now: Timestamp,
        short: bool,
    ) -> Result<(), WriteError> {
        if short && self.removable(batch, now) > 0 {
            // The preallocated rest of this one may be all the room there is for the next.
            self.trim();
        }
        if self.is_to_roll_over(batch, now, short) {
            match self.roll_over(batch, now, true) {
                Ok(()) | Err(WriteError::Full(_)) => {}
                Err(failed) => return Err(failed),
            }
        }
        let ActiveSegment { segment, end, .. } = &self.active;
        batch.begin(segment, *end, self.sequence + 1, self.synced, now);
        Ok(())
    }

    /// Whether it is time for the next segment: not before this one has as many other bytes as bytes of settings.
    pub(crate) fn is_to_roll_over(&self, batch: &Batch, now: Timestamp, short: bool) -> bool {
        let worth = if short { 1 } else { JournalWriter::WORTH_A_SEGMENT };
        self.active.end >= self.home.length(self.active.begun) || self.removable(batch, now) >= worth
    }

    /// Ensures that the newest segment holds nothing but settings, and returns its number. One that was just begun is
    /// reused: so a flush that is due at the opening does not wait for another. Where room is scarce it is not
    /// preallocated (`sets_aside`): the flush needs the room.
    pub(crate) fn rotate(
        &mut self,
        batch: &mut Batch,
        now: Timestamp,
        sets_aside: bool,
    ) -> Result<u64, WriteError> {
        if self.sequence > self.active.sequence {
            self.roll_over(batch, now, sets_aside)?;
        } else if !sets_aside {
            self.trim();
        }
        Ok(self.active.segment.name.segment)
    }

    /// The durable manifest has a new checkpoint.
    pub(crate) fn set_checkpoint(&mut self, checkpoint: JournalStart) {
        self.checkpoint = checkpoint;
    }

    /// Writes a batch. After [`WriteError::Full`] the call may be repeated.
    pub(crate) fn append(&mut self, batch: &mut Batch) -> Result<(), WriteError> {
        self.remove_half_made()?;
        self.write_zeros_behind(batch.len() as u64)?;
        self.active.segment.file.write_at(batch.finish()?, self.active.end)?;
        self.active.end += batch.len() as u64;
        self.active.written = self.active.written.max(self.active.end);
        self.active.records += u64::from(batch.records());
        self.sequence += 1;
        Ok(())
    }

    /// Writes zeros for many batches to come, if a small batch of `len` bytes would be the first write to its blocks.
    ///
    /// A file system with preallocation (ext4, XFS) tracks which blocks were written. The first sync of each block
    /// changes that, and also costs a commit of the file system's own journal; a sync of blocks written before costs
    /// the data alone. The content does not change: these bytes read as zeros before.
    fn write_zeros_behind(&mut self, len: u64) -> Result<(), WriteError> {
        let ActiveSegment { segment, end, reserved, written, .. } = &mut self.active;
        let behind = *end + len;
        if !self.home.synced_answers
            || len > JournalWriter::SMALL
            || behind <= *written
            || behind >= *reserved
        {
            return Ok(());
        }
        let end = (*reserved).min(behind + JournalWriter::AHEAD);
        let mut at = behind;
        while at < end {
            let zeros = &ZEROS[..ZEROS.len().min((end - at) as usize)];
            match segment.file.write_at(zeros, at).map_err(WriteError::from) {
                Ok(()) => at += zeros.len() as u64,
                // The batch may still fit.
                Err(WriteError::Full(_)) => break,
                Err(failed) => return Err(failed),
            }
            *written = at;
        }
        Ok(())
    }

    /// Syncs everything that was written.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if self.synced < self.sequence {
            self.active.segment.file.sync()?;
            self.synced = self.sequence;
        }
        Ok(())
    }

    /// Whether something was written and not synced.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.synced < self.sequence
    }

    /// The number of bytes that can still be written: preallocated, or free on the disk.
    pub(crate) fn room(&self) -> io::Result<u64> {
        let free = self.home.disk.free_space(&self.home.dir)?;
        Ok(free.saturating_add(self.active.reserved.saturating_sub(self.active.end)))
    }

    /// All segments, with the number of bytes written to each.
    pub(crate) fn written(&self) -> io::Result<Vec<(Arc<Segment>, u64)>> {
        let kept = self.kept.iter().map(|kept| Ok((Arc::clone(&kept.segment), kept.segment.file.size()?)));
        let active = Ok((Arc::clone(&self.active.segment), self.active.end));
        kept.chain([active]).collect()
    }

    /// The number of segments.
    pub(crate) fn segments(&self) -> usize {
        self.kept.len() + 1
    }

    /// The segments that are needed for their messages.
    pub(crate) fn unflushed(&self) -> Unflushed {
        let is_needed = |kept: &&ClosedSegment| kept.segment.name.segment >= self.checkpoint.segment;
        let ActiveSegment { records, begun, end, .. } = self.active;
        let active = Unflushed { segments: 1, records, bytes: end - begun };
        self.kept.iter().filter(is_needed).fold(active, |sum, kept| Unflushed {
            segments: sum.segments + 1,
            records: sum.records + kept.records,
            bytes: sum.bytes + kept.bytes,
        })
    }

    /// The number of bytes that a segment begins with, from the newest one.
    pub(crate) fn begun(&self) -> u64 {
        self.active.begun
    }

    /// Gives back the preallocated rest. Nothing depends on it.
    pub(crate) fn trim(&mut self) {
        let _ = self.active.segment.file.set_size(self.active.end);
        self.active.reserved = self.active.end;
        self.active.written = self.active.end;
    }

    fn removable(&self, batch: &Batch, now: Timestamp) -> usize {
        removable(&self.kept, self.checkpoint, batch.preamble.revived, now)
    }

    fn roll_over(&mut self, batch: &mut Batch, now: Timestamp, sets_aside: bool) -> Result<(), WriteError> {
        self.remove_half_made()?;
        self.sync().map_err(WriteError::Failed)?;
        let gone = self.removable(batch, now);
        let number = self.active.segment.name.segment + 1;
        let oldest = self.kept.get(gone).map_or(number - 1, |kept| kept.segment.name.segment);
        let segment = create(&self.home, number)?;
        let path = segment.path.clone();
        let active = match fill(&self.home, segment, self.sequence, oldest, batch, now, sets_aside) {
            Ok(active) => active,
            Err(WriteError::Full(error)) => {
                self.half_made = Some(path);
                self.remove_half_made()?;
                return Err(WriteError::Full(error));
            }
            Err(failed) => return Err(failed),
        };
        self.trim();
        self.sequence = active.sequence;
        self.synced = active.sequence;
        let sealed = std::mem::replace(&mut self.active, active);
        sealed.segment.file.keep_open(false);
        self.kept.push_back(ClosedSegment {
            segment: sealed.segment,
            records: sealed.records,
            bytes: sealed.end - sealed.begun,
            idempotency_until: batch.preamble.idempotency_until,
            revived: batch.preamble.revived,
        });
        batch.preamble.begin_segment();
        self.let_go(gone);
        Ok(())
    }

    /// Removes the segment that found no room, if there is one. Where the removal needs room too, it is to be
    /// repeated.
    fn remove_half_made(&mut self) -> Result<(), WriteError> {
        let Some(path) = &self.half_made else { return Ok(()) };
        match self.home.disk.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
        self.home.disk.sync_dir(&self.home.dir)?;
        self.half_made = None;
        Ok(())
    }

    /// Removes the oldest segments.
    fn let_go(&mut self, count: usize) {
        for kept in self.kept.drain(..count) {
            self.home.deleter.remove_held(kept.segment.path.clone(), kept.segment);
        }
    }
}

/// The number of the oldest segments that are not needed.
///
/// Those before the checkpoint's start are not needed for their messages, whatever their records. From there on
/// segments stay while there are tables: a record that ends a message of one may be in any of them.
fn removable(
    kept: &VecDeque<ClosedSegment>,
    checkpoint: JournalStart,
    active_revived: bool,
    now: Timestamp,
) -> usize {
    let is_empty =
        |kept: &&ClosedSegment| Arc::strong_count(&kept.segment) == 1 && kept.idempotency_until < now;
    let is_before = |kept: &&ClosedSegment| kept.segment.name.segment < checkpoint.segment;
    let before = kept.iter().take_while(is_before).take_while(is_empty).count();
    if checkpoint.has_files || kept.get(before).as_ref().is_some_and(is_before) {
        return before;
    }
    let count = kept.iter().take_while(is_empty).count();
    let revived = active_revived || kept.iter().skip(count).any(|kept| kept.revived);
    if revived { before } else { count }
}

/// Creates an empty segment file.
fn create(home: &JournalSettings, number: u64) -> Result<Arc<Segment>, WriteError> {
    let name = SegmentName { directory: home.directory, shard: home.shard, segment: number };
    let file = home.disk.create(&home.dir.join(name.file_name()))?;
    file.keep_open(true);
    Ok(Arc::new(Segment::new(name, &home.dir, file)))
}

/// Writes header and settings into an empty segment, and makes it durable. After [`WriteError::Full`] it is unusable,
/// and has to be removed before anything else is written.
fn fill(
    home: &JournalSettings,
    segment: Arc<Segment>,
    sequence: u64,
    oldest: u64,
    batch: &mut Batch,
    now: Timestamp,
    sets_aside: bool,
) -> Result<ActiveSegment, WriteError> {
    let header = SegmentHeader {
        name: segment.name,
        incarnation: home.incarnation,
        first: sequence + 1,
        oldest,
        next_number: batch.preamble.next_number,
        made: now,
        synced_answers: home.synced_answers,
    };
    let mut bytes = header.encode().to_vec();
    batch.begin(&segment, SegmentHeader::LEN as u64, sequence + 1, sequence, now);
    batch.take_in_settings();
    let mut sequence = sequence;
    if !batch.is_empty() {
        bytes.extend_from_slice(batch.finish()?);
        sequence += 1;
    }
    let begun = bytes.len() as u64;
    let length = home.length(begun);
    let set_aside = if sets_aside { segment.file.preallocate(length) } else { Ok(()) };
    let reserved = match set_aside.map_err(WriteError::from) {
        // Without support for preallocation the file system leaves the file as it was.
        Ok(()) if segment.file.size().is_ok_and(|size| size >= length) => length,
        Ok(()) => 0,
        Err(WriteError::Full(_)) => {
            // It may have reserved all free space (ext4, XFS), which others need to write.
            let _ = segment.file.set_size(0);
            0
        }
        Err(failed) => return Err(failed),
    };
    segment.file.write_at(&bytes, 0)?;
    // With delayed allocation a full disk may be reported only here.
    segment.file.sync()?;
    home.disk.sync_dir(&home.dir)?;
    Ok(ActiveSegment { segment, begun, end: begun, reserved, written: begun, sequence, records: 0 })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dwell_model::{Setting, SettingChange};
    use dwell_store::core::{Durability, Log as _, Record};
    use rustix::io::Errno;

    use super::*;
    use crate::disk::MemoryDisk;
    use crate::executor::Executor;
    use crate::journal::format::BatchHeader;
    use crate::journal::reader::{ReadBatch, SegmentReader};

    #[test]
    fn what_may_succeed_later_is_told_from_a_disk_that_failed() {
        let of = |errno: Errno| WriteError::from(io::Error::from_raw_os_error(errno.raw_os_error()));
        for none_left in [Errno::NOSPC, Errno::DQUOT, Errno::MFILE, Errno::NFILE] {
            assert!(matches!(of(none_left), WriteError::Full(_)), "{none_left}");
        }
        assert!(matches!(of(Errno::IO), WriteError::Failed(_)));
    }

    /// Segments 1, 2 and so on; some hold bodies that are in use, or a bulk revive.
    fn segments(count: u64, in_use: &[u64], revived: &[u64]) -> (VecDeque<ClosedSegment>, Vec<Arc<Segment>>) {
        let (disk, dir) = (crate::disk::MemoryDisk::new(), std::path::Path::new("/d"));
        crate::disk::Disk::create_dir(&disk, dir).unwrap();
        let kept: VecDeque<ClosedSegment> = (1..=count)
            .map(|segment| {
                let name = SegmentName { directory: 7, shard: 0, segment };
                let file = crate::disk::Disk::create(&disk, &dir.join(name.file_name())).unwrap();
                let segment = Arc::new(Segment::new(name, dir, file));
                let revived = revived.contains(&name.segment);
                ClosedSegment { segment, records: 1, bytes: 1, idempotency_until: Timestamp::MIN, revived }
            })
            .collect();
        let held = kept.iter().map(|kept| &kept.segment);
        let held = held.filter(|segment| in_use.contains(&segment.name.segment)).cloned().collect();
        (kept, held)
    }

    #[test]
    fn the_oldest_segments_go_that_nobody_needs() {
        let now = Timestamp::MIN.saturating_after(1);
        let gone = |in_use: &[u64], revived: &[u64], active: bool, (segment, has_files): (u64, bool)| {
            let (kept, _held) = segments(6, in_use, revived);
            removable(&kept, JournalStart { segment, has_files }, active, now)
        };
        assert_eq!(gone(&[], &[], false, (4, true)), 3, "what came before the checkpoint");
        assert_eq!(gone(&[2], &[], false, (4, true)), 1, "a body of the second is in use");
        assert_eq!(
            gone(&[2], &[], false, (4, false)),
            1,
            "and those behind it come later, though there are no files"
        );
        assert_eq!(gone(&[], &[], false, (4, false)), 6, "nothing lies in files");
        assert_eq!(gone(&[5], &[], false, (4, false)), 4);
        // A bulk revive refers to dead messages that were put before it.
        assert_eq!(gone(&[5], &[5], false, (4, false)), 3);
        assert_eq!(gone(&[5], &[4], false, (4, false)), 4, "it goes with what it revives");
        assert_eq!(gone(&[5], &[], true, (4, false)), 3);
        let (mut kept, _held) = segments(3, &[], &[]);
        kept[1].idempotency_until = now;
        assert_eq!(
            removable(&kept, JournalStart { segment: 4, has_files: true }, false, now),
            1,
            "an idempotency key lives in it"
        );
    }
    fn home(disk: &MemoryDisk) -> JournalSettings {
        let dir = Path::new("/d");
        disk.create_dir(dir).unwrap();
        JournalSettings {
            disk: Arc::new(disk.clone()),
            deleter: FileDeleter::new(Arc::new(disk.clone()), Executor::without_threads()),
            dir: dir.into(),
            directory: 7,
            shard: 0,
            incarnation: 3,
            segment_bytes: 64 * 1024,
            synced_answers: true,
            body_reach: u32::MAX,
        }
    }

    fn begin(home: JournalSettings, start: JournalStart) -> (JournalWriter, Batch) {
        JournalWriter::begin(
            home,
            VecDeque::new(),
            1,
            0,
            SegmentPreamble::starting_at(1),
            start,
            Timestamp::MIN,
        )
        .unwrap()
    }

    /// The setting of a queue, as a record of a few dozen bytes.
    fn configured(queue: &str, lease_ms: u64) -> Record {
        let change = SettingChange::Set(Setting::LeaseMs(lease_ms));
        Record::Configured { queue: queue.parse().unwrap(), change }
    }

    /// Appends a batch of `records` records; returns its length.
    fn append(writer: &mut JournalWriter, batch: &mut Batch, records: u64) -> u64 {
        writer.begin_batch(batch, Timestamp::MIN, false).unwrap();
        (0..records).for_each(|at| batch.record(&configured("q", 1_000 + at), Durability::Synced));
        writer.append(batch).unwrap();
        batch.len() as u64
    }

    /// The sequences of the contiguous batches of the newest segment after its header, and where they end.
    fn batches(writer: &JournalWriter) -> (Vec<u64>, u64) {
        let segment = &writer.active.segment;
        let mut reader = SegmentReader::new(Arc::clone(&segment.file), segment.salt, Some(3)).unwrap();
        let (mut sequences, mut at) = (Vec::new(), SegmentHeader::LEN as u64);
        while let ReadBatch::Batch(header, records) = reader.find_one_of(at, |_| true).unwrap() {
            at += (BatchHeader::LEN + records.len()) as u64;
            sequences.push(header.sequence);
        }
        (sequences, at)
    }

    /// A segment begins with the settings of all queues: an ordinary batch, which alone does not cause a flush.
    #[test]
    fn what_a_segment_begins_with_is_a_batch_that_counts_for_nothing() {
        let (disk, now) = (MemoryDisk::new(), Timestamp::MIN);
        let (mut writer, mut batch) = begin(home(&disk), JournalStart { segment: 1, has_files: true });
        let unflushed = |segments, records, bytes| Unflushed { segments, records, bytes };
        let header = SegmentHeader::LEN as u64;
        assert_eq!((writer.begun(), writer.unflushed()), (header, unflushed(1, 0, 0)));
        assert_eq!(writer.rotate(&mut batch, now, true).unwrap(), 1, "nothing was written to it");
        let first = append(&mut writer, &mut batch, 2);
        let second = append(&mut writer, &mut batch, 3);
        assert_eq!(writer.unflushed(), unflushed(1, 5, first + second));
        assert_eq!(batches(&writer), (vec![1, 2], header + first + second));
        assert!(writer.is_unsynced());

        assert_eq!(writer.rotate(&mut batch, now, true).unwrap(), 2);
        assert!(!writer.is_unsynced(), "what came before it was synced");
        let (sequences, end) = batches(&writer);
        assert_eq!((sequences, writer.begun()), (vec![3], end));
        assert!(end > header);
        assert_eq!((writer.segments(), writer.unflushed()), (2, unflushed(2, 5, first + second)));
        assert_eq!(writer.rotate(&mut batch, now, true).unwrap(), 2, "it holds nothing yet but settings");
        let third = append(&mut writer, &mut batch, 1);
        assert_eq!(batches(&writer), (vec![3, 4], end + third));
        writer.set_checkpoint(JournalStart { segment: 2, has_files: true });
        assert_eq!(writer.unflushed(), unflushed(1, 1, third), "the first is needed no more");
    }

    /// The preallocated room of a segment counts in addition to the free space of the disk, and shrinks as batches
    /// are written.
    #[test]
    fn what_was_set_aside_is_room_until_it_is_written_or_given_back() {
        let disk = MemoryDisk::new();
        disk.set_capacity(Some(200 * 1024));
        let (mut writer, mut batch) = begin(home(&disk), JournalStart::default());
        assert_eq!(disk.used(), 64 * 1024);
        let (free, header) = (136 * 1024, SegmentHeader::LEN as u64);
        assert_eq!(writer.room().unwrap(), free + 64 * 1024 - header);
        let len = append(&mut writer, &mut batch, 10);
        let room = writer.room().unwrap();
        assert_eq!(room, free + 64 * 1024 - header - len);
        assert_eq!(disk.used(), 64 * 1024, "it was written where there was room");
        writer.trim();
        assert_eq!((disk.used(), writer.room().unwrap()), (header + len, room));
    }

    /// A segment is full at the configured size, or at twice the size of what it begins with, if that is more.
    #[test]
    fn the_next_segment_is_begun_when_one_is_full() {
        let (disk, now) = (MemoryDisk::new(), Timestamp::MIN);
        let small = JournalSettings { segment_bytes: 2_000, ..home(&disk) };
        let (mut writer, mut batch) = begin(small, JournalStart { segment: 1, has_files: true });
        let mut end = writer.begun();
        while end < 2_000 {
            assert!(!writer.is_to_roll_over(&batch, now, false), "{end}");
            end += append(&mut writer, &mut batch, 1);
        }
        assert!(writer.is_to_roll_over(&batch, now, false));
        assert_eq!(writer.segments(), 1);
        append(&mut writer, &mut batch, 1);
        assert_eq!((writer.segments(), writer.active.segment.name.segment), (2, 2));

        // The settings of many queues, larger than a segment.
        writer.begin_batch(&mut batch, now, false).unwrap();
        (0..200).for_each(|at| batch.record(&configured(&format!("queue-{at}"), 5), Durability::Synced));
        writer.append(&mut batch).unwrap();
        writer.rotate(&mut batch, now, true).unwrap();
        let begun = writer.begun();
        assert!(begun > 2_000, "{begun}");
        let mut end = begun;
        while end < 2 * begun {
            assert!(!writer.is_to_roll_over(&batch, now, false), "{end} of {begun}");
            end += append(&mut writer, &mut batch, 20);
        }
        assert!(writer.is_to_roll_over(&batch, now, false));
    }
}
