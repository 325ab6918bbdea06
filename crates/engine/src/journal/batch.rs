//! A batch while it is built: the records of the commands that are synced together.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{OwnSettings, QueueName, SettingChange, Timestamp};
use dwell_store::core::{Durability, Log, PutRecord, Record};

use super::format::BatchHeader;
use super::record::{BatchContext, Encoder};
use super::segment::{BodyRef, Segment};
use super::writer::WriteError;

/// The state that every new segment begins with, so that older segments can be removed. Updated from the records that
/// are written.
#[derive(Debug, Default)]
pub(crate) struct SegmentPreamble {
    /// The own settings of queues.
    settings: BTreeMap<QueueName, OwnSettings>,
    pub(crate) next_number: u64,
    /// The latest expiry of an idempotency key in the segment: until then the segment stays.
    pub(crate) idempotency_until: Timestamp,
    /// Whether the segment holds a bulk revive. Which messages it revived depends on the owners of their keys at the
    /// time, so the segments before it stay until it is removed itself.
    pub(crate) revived: bool,
}

impl SegmentPreamble {
    /// A carry without settings, with numbers from `next_number` on.
    pub(crate) fn starting_at(next_number: u64) -> SegmentPreamble {
        SegmentPreamble { next_number: next_number.max(1), ..SegmentPreamble::default() }
    }

    pub(crate) fn see_put(&mut self, record: &PutRecord) {
        self.next_number = self.next_number.max(record.number.get() + 1);
        if let Some(idempotency_key) = &record.idempotency_key {
            self.idempotency_until = self.idempotency_until.max(idempotency_key.until);
        }
    }

    pub(crate) fn see(&mut self, record: &Record) {
        match record {
            Record::Configured { queue, change } => {
                let own = self.settings.entry(queue.clone()).or_default();
                own.change(change.clone());
                if own.is_empty() {
                    self.settings.remove(queue);
                }
            }
            Record::Deleted { queue } => drop(self.settings.remove(queue)),
            Record::Answered { idempotency_key, .. } => {
                self.idempotency_until = self.idempotency_until.max(idempotency_key.until)
            }
            Record::Revived { .. } => self.revived = true,
            Record::Stands { .. }
            | Record::Gone { .. }
            | Record::Purged { .. }
            | Record::Discarded { .. }
            | Record::Ripe { .. } => {}
        }
    }

    /// The settings as records.
    fn settings(&self) -> impl Iterator<Item = Record> {
        self.settings.iter().flat_map(|(queue, own)| {
            own.iter().map(|setting| Record::Configured {
                queue: queue.clone(),
                change: SettingChange::Set(setting.clone()),
            })
        })
    }

    /// Forgets the settings; a segment that follows begins with all of them.
    pub(crate) fn forget_settings(&mut self) {
        self.settings.clear();
    }

    /// Resets what is tracked per segment.
    pub(crate) fn begin_segment(&mut self) {
        self.idempotency_until = Timestamp::MIN;
        self.revived = false;
    }
}

/// The records of one batch, encoded directly into the bytes of the file.
#[derive(Debug)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    encoder: Encoder,
    context: BatchContext,
    segment: Arc<Segment>,
    /// The offset of the batch in the segment.
    offset: u64,
    sequence: u64,
    synced: u64,
    records: u32,
    /// Whether it is written for its wall clock, even without records.
    keeps_time: bool,
    needs_sync: bool,
    /// The limit of offsets of bodies in a segment, and of the size of the records.
    reach: u32,
    /// Whether a body lies beyond the reach of a place.
    is_out_of_reach: bool,
    pub(crate) preamble: SegmentPreamble,
}

impl Batch {
    /// The size in bytes up to which another command is added to a batch.
    pub(crate) const FULL: usize = 1024 * 1024;
    /// The capacity that is kept for the next batch.
    const KEPT: usize = 4 * Batch::FULL;

    pub(crate) fn new(
        segment: Arc<Segment>,
        context: BatchContext,
        preamble: SegmentPreamble,
        reach: u32,
    ) -> Batch {
        Batch {
            bytes: Vec::new(),
            encoder: Encoder::default(),
            context,
            segment,
            offset: 0,
            sequence: 0,
            synced: 0,
            records: 0,
            keeps_time: false,
            needs_sync: false,
            reach,
            is_out_of_reach: false,
            preamble,
        }
    }

    /// Begins the next batch, which will be written at `offset` of `segment`.
    pub(crate) fn begin(
        &mut self,
        segment: &Arc<Segment>,
        offset: u64,
        sequence: u64,
        synced: u64,
        now: Timestamp,
    ) {
        if !Arc::ptr_eq(&self.segment, segment) {
            self.segment = Arc::clone(segment);
        }
        self.context.salt = segment.salt;
        self.context.now = now;
        (self.offset, self.sequence, self.synced) = (offset, sequence, synced);
        (self.records, self.keeps_time, self.needs_sync, self.is_out_of_reach) = (0, false, false, false);
        self.bytes.clear();
        self.bytes.shrink_to(Batch::KEPT);
        self.bytes.resize(BatchHeader::LEN, 0);
        self.encoder.begin_batch();
    }

    /// Adds the settings of all queues: what a segment begins with.
    pub(crate) fn take_in_settings(&mut self) {
        for record in self.preamble.settings() {
            self.encoder.record(&mut self.bytes, self.context, &record);
            self.records += 1;
        }
    }

    /// Records that nothing follows in this incarnation.
    pub(crate) fn close(&mut self) {
        self.encoder.closed(&mut self.bytes);
        self.records += 1;
        self.needs_sync = true;
    }

    /// Whether it need not be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0 && !self.keeps_time
    }

    /// The number of records in it.
    pub(crate) fn records(&self) -> u32 {
        self.records
    }

    /// Whether it has a record that must be durable before it is answered.
    pub(crate) fn needs_sync(&self) -> bool {
        self.needs_sync
    }

    /// The current size in bytes, including the header.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether places can address bodies that begin within the next `bytes` bytes.
    pub(crate) fn reaches(&self, bytes: usize) -> bool {
        self.offset + self.bytes.len() as u64 + bytes as u64 <= u64::from(self.reach)
    }

    /// Completes the header and returns the bytes to write.
    ///
    /// # Errors
    /// If the batch is too large, or a body lies beyond the reach of a place. Puts are refused before that, and
    /// [other calls](crate::Options::MAX_CALL_ITEMS) have too few items for it.
    pub(crate) fn finish(&mut self) -> Result<&[u8], WriteError> {
        let records = &self.bytes[BatchHeader::LEN..];
        let len = u32::try_from(records.len()).ok().filter(|len| *len <= self.reach && !self.is_out_of_reach);
        let Some(len) = len else {
            let reason = format!("a batch of {} bytes is longer than one can be", records.len());
            return Err(WriteError::Failed(io::Error::other(reason)));
        };
        let header = BatchHeader {
            len,
            sequence: self.sequence,
            synced: self.synced,
            now: self.context.now,
            incarnation: self.context.incarnation,
            records: self.records,
            checksum: self.context.salt.checksum(records),
        };
        let header = header.encode(self.context.salt);
        self.bytes[..BatchHeader::LEN].copy_from_slice(&header);
        Ok(&self.bytes)
    }
}

impl Log<BodyRef> for Batch {
    fn put(&mut self, record: &PutRecord, body: &Bytes) -> BodyRef {
        let at = self.encoder.put(&mut self.bytes, self.context, record, body);
        let place = u32::try_from(self.offset + at as u64).ok().filter(|place| *place <= self.reach);
        self.is_out_of_reach |= place.is_none();
        self.records += 1;
        self.needs_sync = true;
        self.preamble.see_put(record);
        BodyRef {
            segment: Arc::clone(&self.segment),
            at: place.unwrap_or(u32::MAX),
            len: u32::try_from(body.len()).expect("bodies have at most 64 MiB"),
        }
    }

    fn record(&mut self, record: &Record, durability: Durability) {
        self.encoder.record(&mut self.bytes, self.context, record);
        self.records += 1;
        self.needs_sync |= durability == Durability::Synced;
        self.preamble.see(record);
    }

    fn keep_time(&mut self) {
        self.keeps_time = true;
    }
}
