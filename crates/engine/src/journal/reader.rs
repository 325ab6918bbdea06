//! Reading a segment: batch by batch, and searching behind damage for the marks of later batches.

use std::io;
use std::sync::Arc;

use super::format::{BATCH_MARKER, BatchHeader, Salt};
use crate::disk::DiskFile;

/// Reads one segment from front to back through a window.
#[derive(Debug)]
pub(crate) struct SegmentReader {
    file: Arc<dyn DiskFile>,
    salt: Salt,
    /// `None` if the segment's header cannot be read: then any incarnation is accepted.
    incarnation: Option<u32>,
    len: u64,
    window: Vec<u8>,
    /// The offset of the window in the segment.
    start: u64,
    /// The size of a read.
    step: usize,
}

/// What is found at some offset of a segment.
#[derive(Debug)]
pub(crate) enum ReadBatch<'a> {
    /// A whole batch with valid checksums.
    Batch(BatchHeader, &'a [u8]),
    /// Anything else, and why it is not a batch: with the damaged part of a batch, if it is known.
    Other(&'static str),
}

/// What follows the last batch of a segment that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentTail {
    /// The offset after the last byte that is not zero.
    pub(crate) end: u64,
    /// The highest synced mark in any batch header, at any offset; 0 if there is none.
    pub(crate) mark: u64,
}

impl SegmentReader {
    /// The size of a read in bytes.
    const STEP: usize = 1024 * 1024;

    pub(crate) fn new(
        file: Arc<dyn DiskFile>,
        salt: Salt,
        incarnation: Option<u32>,
    ) -> io::Result<SegmentReader> {
        let len = file.size()?;
        Ok(SegmentReader {
            file,
            salt,
            incarnation,
            len,
            window: Vec::new(),
            start: 0,
            step: SegmentReader::STEP,
        })
    }

    /// A reader with small windows, so that their edges are tested.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn with_step(self, step: usize) -> SegmentReader {
        assert!(step > BatchHeader::LEN, "a header fits into a window");
        SegmentReader { step, ..self }
    }

    /// `len` bytes from `at` on; `None` if the segment ends before.
    pub(crate) fn bytes(&mut self, at: u64, len: usize) -> io::Result<Option<&[u8]>> {
        if at > self.len || self.len - at < len as u64 {
            return Ok(None);
        }
        let end = self.start + self.window.len() as u64;
        if at < self.start || at + len as u64 > end {
            let wanted = len.max(self.step).min((self.len - at) as usize);
            self.window.resize(wanted, 0);
            self.start = at;
            self.file.read_at(&mut self.window, at)?;
        }
        let from = (at - self.start) as usize;
        Ok(Some(&self.window[from..from + len]))
    }

    /// What is at `at`, where batch `sequence` is expected.
    pub(crate) fn find(&mut self, at: u64, sequence: u64) -> io::Result<ReadBatch<'_>> {
        self.find_one_of(at, |found| found == sequence)
    }

    /// What is at `at`, where a batch is expected whose sequence `fits`.
    pub(crate) fn find_one_of(&mut self, at: u64, fits: impl Fn(u64) -> bool) -> io::Result<ReadBatch<'_>> {
        let salt = self.salt;
        let header = match self.header(at)? {
            Ok(header) => header,
            Err(reason) => return Ok(ReadBatch::Other(reason)),
        };
        if !fits(header.sequence) {
            return Ok(ReadBatch::Other("a batch is not the next in sequence"));
        }
        let Some(records) = self.bytes(at + BatchHeader::LEN as u64, header.len as usize)? else {
            return Ok(ReadBatch::Other("the segment ends within a batch"));
        };
        if salt.checksum(records) != header.checksum {
            return Ok(ReadBatch::Other("a batch's records fail their checksum"));
        }
        Ok(ReadBatch::Batch(header, records))
    }

    /// The batch header at `at`, or why it is not one.
    pub(crate) fn header(&mut self, at: u64) -> io::Result<Result<BatchHeader, &'static str>> {
        let (salt, incarnation) = (self.salt, self.incarnation);
        let Some(header) = self.bytes(at, BatchHeader::LEN)? else {
            return Ok(Err("the segment ends within a batch's header"));
        };
        let Some(header) = BatchHeader::decode(header, salt) else {
            return Ok(Err("a batch's header fails its checksum"));
        };
        if incarnation.is_some_and(|incarnation| incarnation != header.incarnation) {
            return Ok(Err("a batch is of another incarnation than its segment"));
        }
        Ok(Ok(header))
    }

    /// The offset of the next batch header from `at` on, at any offset, whose sequence `fits`.
    pub(crate) fn next_header(&mut self, at: u64, fits: impl Fn(u64) -> bool) -> io::Result<Option<u64>> {
        let (salt, incarnation) = (self.salt, self.incarnation);
        let mut next = at;
        while next < self.len {
            let len = self.step.min((self.len - next) as usize);
            let bytes = self.bytes(next, len)?.expect("not beyond the end");
            for from in marker_places(bytes) {
                let Some(header) = BatchHeader::decode(&bytes[from..], salt) else { continue };
                if incarnation.is_none_or(|incarnation| incarnation == header.incarnation)
                    && fits(header.sequence)
                {
                    return Ok(Some(next + from as u64));
                }
            }
            // A header may cross two windows.
            let step = if next + (len as u64) < self.len { len - BatchHeader::LEN + 1 } else { len };
            next += step as u64;
        }
        Ok(None)
    }

    /// The next offset from `at` on that may hold anything but zeros.
    fn data_from(&self, at: u64) -> io::Result<u64> {
        if at < self.len { self.file.data_from(at) } else { Ok(at) }
    }

    /// Examines everything from `at` on, where no batch is. Reads all of it, once.
    ///
    /// Damage may have hidden where batches begin, so every offset is tried. A body may hold a copy of a real header
    /// of this segment; but it was copied before it was put, so its mark is lower than the sequence of its batch, and
    /// proves nothing that is not true.
    pub(crate) fn rest(&mut self, at: u64) -> io::Result<SegmentTail> {
        let (salt, incarnation) = (self.salt, self.incarnation);
        let mut rest = SegmentTail { end: at, mark: 0 };
        let mut next = self.data_from(at)?;
        while next < self.len {
            let len = self.step.min((self.len - next) as usize);
            let bytes = self.bytes(next, len)?.expect("not beyond the end");
            if is_zeros(bytes) {
                // No header begins with a zero.
                next = self.data_from(next + len as u64)?;
                continue;
            }
            if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
                rest.end = next + last as u64 + 1;
            }
            for from in marker_places(bytes) {
                let Some(header) = BatchHeader::decode(&bytes[from..], salt) else { continue };
                if incarnation.is_none_or(|incarnation| incarnation == header.incarnation) {
                    rest.mark = rest.mark.max(header.synced);
                }
            }
            // A header may cross two windows.
            let step = if next + (len as u64) < self.len { len - BatchHeader::LEN + 1 } else { len };
            next = self.data_from(next + step as u64)?;
        }
        Ok(rest)
    }
}

/// Compares in pieces, which is as fast as memory.
fn is_zeros(bytes: &[u8]) -> bool {
    static ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|piece| piece == &ZEROS[..piece.len()])
}

fn marker_places(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let first = BATCH_MARKER[0];
    bytes
        .iter()
        .enumerate()
        .filter(move |(_, byte)| **byte == first)
        .map(|(at, _)| at)
        .filter(move |at| bytes[*at..].starts_with(&BATCH_MARKER))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dwell_model::Timestamp;

    use super::*;
    use crate::disk::{Disk, MemoryDisk};
    use crate::journal::format::SegmentName;

    const SALT_OF: SegmentName = SegmentName { directory: 7, shard: 0, segment: 3 };

    fn header(sequence: u64, synced: u64, incarnation: u32, records: &[u8]) -> Vec<u8> {
        let salt = SALT_OF.salt();
        let (len, checksum) = (records.len() as u32, salt.checksum(records));
        let now = Timestamp::MIN;
        BatchHeader { len, sequence, synced, now, incarnation, records: 1, checksum }.encode(salt).to_vec()
    }

    /// A reader of these bytes that reads `step` bytes at a time.
    fn reader(bytes: &[u8], incarnation: Option<u32>, step: usize) -> SegmentReader {
        let (disk, path) = (MemoryDisk::new(), Path::new("/d/segment"));
        disk.create_dir(Path::new("/d")).unwrap();
        disk.put_file(path, bytes.to_vec());
        let reader = SegmentReader::new(disk.open(path).unwrap(), SALT_OF.salt(), incarnation).unwrap();
        SegmentReader { step, ..reader }
    }

    /// Headers are found at any offset: across the ends of windows, at the very end, and within other headers.
    #[test]
    fn a_header_behind_damage_is_found_wherever_it_stands() {
        for at in [0, 1, 15, 16, 17, 63, 64, 65, 100, 127, 128, 200] {
            for behind in [0, 1, 70] {
                let mut bytes = vec![0xa5; at];
                bytes.extend(header(9, 8, 5, b""));
                bytes.extend(vec![0; behind]);
                let end = (at + BatchHeader::LEN) as u64;
                for step in [BatchHeader::LEN + 1, 64, 100, 1_000] {
                    let mut ours = reader(&bytes, Some(5), step);
                    let rest = ours.rest(0).unwrap();
                    assert_eq!(rest, SegmentTail { end, mark: 8 }, "at {at}, {step} at a time");
                    assert_eq!(ours.next_header(0, |found| found == 9).unwrap(), Some(at as u64));
                    assert_eq!(ours.next_header(at as u64 + 1, |found| found == 9).unwrap(), None);
                    assert_eq!(ours.next_header(0, |found| found != 9).unwrap(), None);
                    assert_eq!(reader(&bytes, None, step).rest(0).unwrap().mark, 8);
                    let mut other = reader(&bytes, Some(6), step);
                    assert_eq!(
                        other.rest(0).unwrap(),
                        SegmentTail { end, mark: 0 },
                        "of another incarnation"
                    );
                    assert_eq!(other.next_header(0, |_| true).unwrap(), None);
                }
            }
        }
    }

    /// Zeros are preallocated room, and no evidence; the rest ends after the last byte that is not zero.
    #[test]
    fn the_rest_ends_behind_its_last_byte_and_knows_the_highest_mark() {
        let zeros = vec![0; 300];
        for step in [49, 100, 1_000] {
            assert_eq!(reader(&zeros, Some(5), step).rest(7).unwrap(), SegmentTail { end: 7, mark: 0 });
            assert_eq!(reader(&zeros, Some(5), step).rest(300).unwrap(), SegmentTail { end: 300, mark: 0 });
            let mut bytes = zeros.clone();
            bytes[120] = 1;
            let mut ours = reader(&bytes, Some(5), step);
            assert_eq!(ours.rest(7).unwrap(), SegmentTail { end: 121, mark: 0 });
            assert_eq!(ours.rest(121).unwrap(), SegmentTail { end: 121, mark: 0 });
            let both = [header(4, 3, 5, b""), header(2, 1, 5, b"")].concat();
            assert_eq!(reader(&both, Some(5), step).rest(1).unwrap(), SegmentTail { end: 96, mark: 1 });
            assert_eq!(reader(&both, Some(5), step).rest(0).unwrap(), SegmentTail { end: 96, mark: 3 });
        }
    }

    #[test]
    fn a_batch_is_one_where_header_records_and_sequence_are_right() {
        let whole = [header(9, 8, 5, b"records"), b"records".to_vec()].concat();
        let reason = |bytes: &[u8], sequence| match reader(bytes, Some(5), 49).find(0, sequence).unwrap() {
            ReadBatch::Batch(header, records) => {
                assert_eq!((header.sequence, records), (9, b"records".as_slice()));
                None
            }
            ReadBatch::Other(reason) => Some(reason),
        };
        assert_eq!(reason(&whole, 9), None);
        assert_eq!(reason(&whole, 8), Some("a batch is not the next in sequence"));
        let last = whole.len() - 1;
        assert_eq!(reason(&whole[..last], 9), Some("the segment ends within a batch"));
        assert_eq!(reason(&whole[..47], 9), Some("the segment ends within a batch's header"));
        let mut damaged = whole.clone();
        damaged[last] ^= 1;
        assert_eq!(reason(&damaged, 9), Some("a batch's records fail their checksum"));
        damaged[20] ^= 1;
        assert_eq!(reason(&damaged, 9), Some("a batch's header fails its checksum"));
        let other = [header(9, 8, 6, b"records"), b"records".to_vec()].concat();
        assert_eq!(reason(&other, 9), Some("a batch is of another incarnation than its segment"));
    }
}
