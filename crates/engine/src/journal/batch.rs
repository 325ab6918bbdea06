//! A batch while it is built: the records of the commands that are synced together.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{OwnSettings, QueueName, SettingChange, Timestamp};
use dwell_store::core::{Durability, Log, PutRecord, Record};

use super::format::BatchHeader;
use super::record::{Context, Encoder};
use super::segment::{Place, Segment};
use super::writer::WriteError;

/// The state that every new segment begins with, so that segments before it may go: kept up to date by
/// looking at the records that pass.
#[derive(Debug, Default)]
pub(crate) struct Carry {
    /// The settings of their own that queues have.
    settings: BTreeMap<QueueName, OwnSettings>,
    pub(crate) next_number: u64,
    /// The latest end of a put's token that the segment holds: until then the segment stays.
    pub(crate) tokens_until: Timestamp,
    /// Whether the segment holds a revival of all. Which messages it met depends on who had their keys then, so
    /// those before it stay until it goes itself.
    pub(crate) revived: bool,
}

impl Carry {
    /// No settings, and numbers from `next_number` on.
    pub(crate) fn starting_at(next_number: u64) -> Carry {
        Carry { next_number: next_number.max(1), ..Carry::default() }
    }

    pub(crate) fn see_put(&mut self, record: &PutRecord) {
        self.next_number = self.next_number.max(record.number.get() + 1);
        if let Some(token) = &record.token {
            self.tokens_until = self.tokens_until.max(token.until);
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
            Record::Answered { token, .. } => self.tokens_until = self.tokens_until.max(token.until),
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

    /// Nothing is known of the settings; a segment that follows begins with all of them.
    pub(crate) fn forget_settings(&mut self) {
        self.settings.clear();
    }

    /// A new segment has begun.
    pub(crate) fn begin_segment(&mut self) {
        self.tokens_until = Timestamp::MIN;
        self.revived = false;
    }
}

/// The records of one batch, written straight into the bytes that go to the file.
#[derive(Debug)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    encoder: Encoder,
    context: Context,
    segment: Arc<Segment>,
    /// Where the batch will stand in the segment.
    offset: u64,
    sequence: u64,
    synced: u64,
    records: u32,
    /// Whether it is written for its time, whatever is in it.
    keeps_time: bool,
    needs_sync: bool,
    /// Bodies begin below this place of a segment, and records take no more bytes.
    reach: u32,
    /// A body lies where no place leads.
    is_out_of_reach: bool,
    pub(crate) carry: Carry,
}

impl Batch {
    /// The most bytes that a batch should have when another command is taken in.
    pub(crate) const FULL: usize = 1024 * 1024;
    /// So much memory is kept for the next batch.
    const KEPT: usize = 4 * Batch::FULL;

    pub(crate) fn new(segment: Arc<Segment>, context: Context, carry: Carry, reach: u32) -> Batch {
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
            carry,
        }
    }

    /// Begins the next batch, which will stand at `offset` of `segment`.
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

    /// Takes in the settings of all queues: what a segment begins with.
    pub(crate) fn take_in_settings(&mut self) {
        for record in self.carry.settings() {
            self.encoder.record(&mut self.bytes, self.context, &record);
            self.records += 1;
        }
    }

    /// Says that nothing follows in this incarnation.
    pub(crate) fn close(&mut self) {
        self.encoder.closed(&mut self.bytes);
        self.records += 1;
        self.needs_sync = true;
    }

    /// Whether it need not be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0 && !self.keeps_time
    }

    /// How many records it has.
    pub(crate) fn records(&self) -> u32 {
        self.records
    }

    /// Whether a record in it must be durable before anything is answered.
    pub(crate) fn needs_sync(&self) -> bool {
        self.needs_sync
    }

    /// Its bytes so far, header and all.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether bodies can be found that begin among the next so many bytes.
    pub(crate) fn reaches(&self, bytes: usize) -> bool {
        self.offset + self.bytes.len() as u64 + bytes as u64 <= u64::from(self.reach)
    }

    /// Completes the header; these are the bytes to be written.
    ///
    /// # Errors
    /// If there are more of them than a batch can have, or a body lies further back than a place can say. Puts are
    /// refused before that, and [other calls](crate::Options::MAX_CALL_ITEMS) have too few items for it.
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

impl Log<Place> for Batch {
    fn put(&mut self, record: &PutRecord, body: &Bytes) -> Place {
        let at = self.encoder.put(&mut self.bytes, self.context, record, body);
        let place = u32::try_from(self.offset + at as u64).ok().filter(|place| *place <= self.reach);
        self.is_out_of_reach |= place.is_none();
        self.records += 1;
        self.needs_sync = true;
        self.carry.see_put(record);
        Place {
            segment: Arc::clone(&self.segment),
            at: place.unwrap_or(u32::MAX),
            len: u32::try_from(body.len()).expect("bodies have at most 64 MiB"),
        }
    }

    fn record(&mut self, record: &Record, durability: Durability) {
        self.encoder.record(&mut self.bytes, self.context, record);
        self.records += 1;
        self.needs_sync |= durability == Durability::Synced;
        self.carry.see(record);
    }

    fn keep_time(&mut self) {
        self.keeps_time = true;
    }
}
