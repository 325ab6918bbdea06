//! The journal's batches, one by one, including whole ones behind damage.
//!
//! Recovery stops at the first damage. This goes on: where a batch is expected and not found, the next one is
//! searched for at every byte. A batch counts if its checksums are valid, its sequence is higher than all before it,
//! and lower than the one that the next segment begins with: what lies beyond was cut by a recovery, and never
//! answered.
//!
//! If the records of a batch fail their checksum, everything but damaged bodies can still be proven. The CRC of a
//! concatenation is computed from the CRCs of its parts, and each body has its own stored beside it: with those in
//! place of the bodies the checksum of the records is valid only if everything else is as it was written.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crc32fast::Hasher;

use crate::OpenError;
use crate::disk::Disk;
use crate::journal::format::SEGMENT_VERSION;
use crate::journal::format::{BadHeader, BatchHeader, Salt, SegmentHeader, SegmentName, u32_at};
use crate::journal::reader::{ReadBatch, SegmentReader, SegmentTail};
use crate::journal::record::{BatchContext, Decoder, Fact};
use crate::journal::segment::Segment;

/// A segment's file.
pub(super) struct SegmentFile {
    pub(super) segment: Arc<Segment>,
    pub(super) header: Result<SegmentHeader, &'static str>,
    pub(super) size: u64,
}

/// A part of a segment.
pub(super) enum SegmentPiece<'a> {
    /// A batch, whole, or whole except for some bodies.
    Batch { at: u64, header: BatchHeader, records: &'a [u8] },
    /// Data that was written and cannot be read.
    Lost { from: u64, to: u64, reason: &'static str },
    /// A batch that was being written when the machine stopped.
    Torn { from: u64, to: u64, reason: &'static str },
}

/// The reason for data that the disk cannot read.
pub(super) const UNREADABLE: &str = "it cannot be read";

/// The segments in `dir`, oldest first, including those that are not needed according to the newest one.
pub(super) fn segments(disk: &dyn Disk, dir: &Path, directory: u64) -> Result<Vec<SegmentFile>, OpenError> {
    let names = disk.list(dir).map_err(|error| OpenError::io(dir, error))?;
    let mut segments = Vec::new();
    for (shard, number) in names.iter().filter_map(|name| SegmentName::parse(name)) {
        let name = SegmentName { directory, shard, segment: number };
        let path = dir.join(name.file_name());
        let opened = disk.open(&path).and_then(|file| Ok((file.size()?, file)));
        let (size, file) = opened.map_err(|error| OpenError::io(&path, error))?;
        let mut bytes = [0; SegmentHeader::LEN];
        let header = if shard != 0 {
            Err("the manifest knows of no such shard")
        } else if file.read_at(&mut bytes, 0).is_err() {
            Err("the segment's header cannot be read")
        } else {
            match SegmentHeader::decode(&bytes, name) {
                Ok(header) => Ok(header),
                Err(BadHeader::Damaged(reason)) => Err(reason),
                Err(BadHeader::Newer(found)) => {
                    return Err(OpenError::NewerFormat { file: path, found, known: SEGMENT_VERSION });
                }
            }
        };
        segments.push(SegmentFile { segment: Arc::new(Segment::new(name, dir, file)), header, size });
    }
    segments.sort_by_key(|found| found.segment.name.segment);
    Ok(segments)
}

/// A walk over segments, one after the other.
pub(super) struct SegmentWalk {
    /// The sequence of the last batch found.
    sequence: u64,
    /// The highest sequence that is known to have been synced.
    mark: u64,
    /// Whether something was lost since the last batch.
    has_gap: bool,
    pub(super) batches: u64,
}

/// The next step of the search for batches.
enum SegmentStep {
    Batch(BatchHeader),
    /// Lost up to the offset where the next batch begins.
    Lost(u64, &'static str),
    /// Lost up to the end of what was written.
    LostRest(u64, &'static str),
    Torn(u64, &'static str),
    End,
}

/// The current segment.
struct CurrentSegment<'a> {
    found: &'a SegmentFile,
    /// Batches from this sequence on do not count.
    below: u64,
    is_last: bool,
}

impl SegmentWalk {
    /// A walk that begins with the oldest of `segments`.
    pub(super) fn over(segments: &[SegmentFile]) -> SegmentWalk {
        let mark = segments.iter().filter_map(|found| found.header.ok()).map(|header| header.first - 1).max();
        SegmentWalk { sequence: 0, mark: mark.unwrap_or(0), has_gap: false, batches: 0 }
    }

    /// Reads the segment of index `at`, and passes its parts to `each`.
    ///
    /// # Errors
    /// Those of `each`. What cannot be read is [`SegmentPiece::Lost`].
    pub(super) fn read(
        &mut self,
        segments: &[SegmentFile],
        at: usize,
        each: &mut dyn FnMut(SegmentPiece<'_>) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let found = &segments[at];
        let next = segments[at + 1..].iter().find_map(|next| Some(next.header.ok()?.first));
        let here =
            CurrentSegment { found, below: next.unwrap_or(u64::MAX), is_last: at + 1 == segments.len() };
        let unreadable = |from| SegmentPiece::Lost { from, to: found.size, reason: UNREADABLE };
        let incarnation = found.header.ok().map(|header| header.incarnation);
        let file = Arc::clone(&found.segment.file);
        let Ok(mut reader) = SegmentReader::new(file, found.segment.salt, incarnation) else {
            self.has_gap = true;
            return each(unreadable(0));
        };
        let mut from = SegmentHeader::LEN as u64;
        match found.header {
            Ok(header) if self.sequence == 0 => self.sequence = header.first - 1,
            Ok(_) => {}
            Err(reason) => {
                let Ok(SegmentTail { end, mark }) = reader.rest(0) else { return each(unreadable(0)) };
                self.mark = self.mark.max(mark);
                if here.is_last && self.mark <= self.sequence && self.sequence > 0 {
                    // It was being created when the machine stopped.
                    return if end == 0 {
                        Ok(())
                    } else {
                        each(SegmentPiece::Torn { from: 0, to: end, reason })
                    };
                }
                each(SegmentPiece::Lost { from: 0, to: from.min(found.size), reason })?;
            }
        }
        while from < found.size {
            let step = match self.step(&mut reader, &here, from) {
                Ok(step) => step,
                Err(_) => {
                    self.has_gap = true;
                    return each(unreadable(from));
                }
            };
            match step {
                SegmentStep::Batch(header) => {
                    if self.sequence > 0 && header.sequence != self.sequence + 1 && !self.has_gap {
                        each(SegmentPiece::Lost {
                            from,
                            to: from,
                            reason: "batches before this one are missing",
                        })?;
                    }
                    let start = from + BatchHeader::LEN as u64;
                    let records = reader.bytes(start, header.len as usize).ok().flatten();
                    let Some(records) = records else { return each(unreadable(from)) };
                    (self.sequence, self.has_gap) = (header.sequence, false);
                    self.batches += 1;
                    self.mark = self.mark.max(header.synced);
                    each(SegmentPiece::Batch { at: from, header, records })?;
                    from = start + u64::from(header.len);
                }
                SegmentStep::Lost(to, reason) => {
                    self.has_gap = true;
                    each(SegmentPiece::Lost { from, to, reason })?;
                    from = to;
                }
                SegmentStep::LostRest(to, reason) => {
                    self.has_gap = true;
                    return each(SegmentPiece::Lost { from, to, reason });
                }
                SegmentStep::Torn(to, reason) => return each(SegmentPiece::Torn { from, to, reason }),
                SegmentStep::End => break,
            }
        }
        if here.is_last && self.mark > self.sequence && !self.has_gap {
            self.has_gap = true;
            each(SegmentPiece::Lost { from, to: from, reason: "batches behind this place are missing" })?;
        }
        Ok(())
    }

    /// What is at `at`.
    fn step(
        &mut self,
        reader: &mut SegmentReader,
        here: &CurrentSegment<'_>,
        at: u64,
    ) -> io::Result<SegmentStep> {
        let (after, below, salt) = (self.sequence, here.below, here.found.segment.salt);
        let fits = |sequence: u64| sequence > after && sequence < below;
        let reason = match batch(reader, at, salt, fits)? {
            Ok(header) => return Ok(SegmentStep::Batch(header)),
            Err(reason) => reason,
        };
        let SegmentTail { end: written, mark } = reader.rest(at)?;
        if written == at || below == after + 1 {
            return Ok(SegmentStep::End);
        }
        let mut next = reader.next_header(at + 1, fits)?;
        while let Some(place) = next
            && batch(reader, place, salt, fits)?.is_err()
        {
            next = reader.next_header(place + 1, fits)?;
        }
        self.mark = self.mark.max(mark);
        Ok(match next {
            // No mark says that it was synced, so it was not answered.
            _ if self.mark <= after && here.is_last => SegmentStep::Torn(written, reason),
            Some(next) => SegmentStep::Lost(next, reason),
            None => SegmentStep::LostRest(written, reason),
        })
    }
}

/// The batch at `at`, whole or whole except for bodies; or why there is none.
fn batch(
    reader: &mut SegmentReader,
    at: u64,
    salt: Salt,
    fits: impl Fn(u64) -> bool,
) -> io::Result<Result<BatchHeader, &'static str>> {
    let reason = match reader.find_one_of(at, &fits)? {
        ReadBatch::Batch(header, _) => return Ok(Ok(header)),
        ReadBatch::Other(reason) => reason,
    };
    if let Ok(header) = reader.header(at)?
        && fits(header.sequence)
        && let Some(records) = reader.bytes(at + BatchHeader::LEN as u64, header.len as usize)?
        && holds_but_for_bodies(records, &header, salt)
    {
        return Ok(Ok(header));
    }
    Ok(Err(reason))
}

/// The context for decoding records of this segment.
pub(super) fn context(segment: &Segment, header: &BatchHeader) -> BatchContext {
    BatchContext {
        shard: segment.name.shard,
        incarnation: header.incarnation,
        now: header.now,
        salt: segment.salt,
    }
}

/// The body of a put among its batch's records, if it passes its checksum.
pub(super) fn body(records: &[u8], at: u32, len: u32, number: u64, salt: Salt) -> Option<&[u8]> {
    let (at, len) = (at as usize, len as usize);
    let body = &records[at + 4..at + 4 + len];
    (salt.body_checksum(number, body) == u32_at(records, at)).then_some(body)
}

/// Whether nothing in these records is damaged except bodies; see the [module](self).
fn holds_but_for_bodies(records: &[u8], header: &BatchHeader, salt: Salt) -> bool {
    // The context only shifts instants.
    let context = BatchContext { shard: 0, incarnation: header.incarnation, now: header.now, salt };
    let mut decoder = Decoder::new(records, context);
    let (mut whole, mut from, mut count) = (Hasher::new_with_initial(salt.start()), 0, 0);
    loop {
        match decoder.next() {
            Ok(None) => break,
            Ok(Some(Fact::Put { record, body_at, body_len })) => {
                let at = body_at as usize;
                whole.update(&records[from..at + 4]);
                let stored = u32_at(records, at);
                // The stored checksum of a body continues from a salt; without that, it is that of the body alone.
                let mut moved = Hasher::new_with_initial(salt.of_body(record.number.get()).start());
                moved.combine(&Hasher::new_with_initial_len(0, u64::from(body_len)));
                let alone = stored ^ moved.finalize();
                whole.combine(&Hasher::new_with_initial_len(alone, u64::from(body_len)));
                from = at + 4 + body_len as usize;
                count += 1;
            }
            Ok(Some(_)) => count += 1,
            Err(_) => return false,
        }
    }
    whole.update(&records[from..]);
    count == header.records && whole.finalize() == header.checksum
}

/// The paths of required segments that are missing.
pub(super) fn missing(segments: &[SegmentFile], dir: &Path, directory: u64, newest: u64) -> Vec<PathBuf> {
    let numbers: Vec<u64> = segments.iter().map(|found| found.segment.name.segment).collect();
    let last = segments.iter().rev().find_map(|found| found.header.ok());
    let from = last.map_or(numbers.first().copied().unwrap_or(newest.max(1)), |header| header.oldest);
    let to = numbers.last().copied().unwrap_or(0).max(newest);
    let path = |segment| dir.join(SegmentName { directory, shard: 0, segment }.file_name());
    // A damaged number may promise any length of a journal.
    let most = 100_000;
    (from..=to).take(most).filter(|number| numbers.binary_search(number).is_err()).map(path).collect()
}
