//! An open segment of the journal, and the place of a body in it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dwell_model::Number;
use dwell_store::core::StoredBody;

use super::format::{Salt, SegmentName, u32_at};
use crate::disk::{DiskFile, failure};
use crate::table::Table;

/// An open segment, or a table in its place.
///
/// Every [`BodyRef`] in it owns a reference: while a body may still be read, the reference count shows it, and the file
/// stays open even if it was unlinked.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) name: SegmentName,
    pub(crate) salt: Salt,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
    /// Recently read pieces of a table, by offset: the bodies that are wanted next lie in the blocks in which
    /// their messages were found.
    recent: Mutex<BTreeMap<u64, Bytes>>,
    /// The number of failed reads of bodies that were to be moved, by offset.
    refused: Mutex<BTreeMap<u32, u32>>,
}

impl Segment {
    /// The number of failed reads after which a body is moved without its bytes: a temporary failure does not lose
    /// it.
    const TRIES: u32 = 3;

    pub(crate) fn new(name: SegmentName, dir: &Path, file: Arc<dyn DiskFile>) -> Segment {
        let path = dir.join(name.file_name());
        Segment { name, salt: name.salt(), path, file, recent: Mutex::default(), refused: Mutex::default() }
    }

    /// A table as the segment of its bodies: they have the layout of bodies in segments. Its name has a number
    /// above those of all segments.
    pub(crate) fn of_table(due: &Table) -> Segment {
        let crate::sealed::FileId { directory, shard, number, .. } = due.name();
        let name = SegmentName { directory, shard, segment: 1 << 63 | u64::from(number) };
        let (path, file) = (due.path().to_owned(), Arc::clone(due.handle()));
        let salt = due.salt();
        Segment { name, salt, path, file, recent: Mutex::default(), refused: Mutex::default() }
    }

    fn recent(&self) -> MutexGuard<'_, BTreeMap<u64, Bytes>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Caches the bytes at `at`, until they are [forgotten](Segment::forget).
    pub(crate) fn remember(&self, at: u64, bytes: Bytes) {
        self.recent().insert(at, bytes);
    }

    /// Drops the cached bytes at `at`.
    pub(crate) fn forget(&self, at: u64) {
        self.recent().remove(&at);
    }

    /// Counts another failed read of the body at `at`. Returns whether it was the last try.
    fn gives_up(&self, at: u32) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let tries = refused.entry(at).or_default();
        *tries += 1;
        *tries >= Segment::TRIES
    }

    /// Copies the bytes from `start` on, if they are cached: a small body should not keep a block in memory.
    fn recall(&self, start: u64, into: &mut [u8]) -> bool {
        let recent = self.recent();
        let end = start + into.len() as u64;
        let Some((at, bytes)) = recent.range(..=start).next_back() else { return false };
        if end > *at + bytes.len() as u64 {
            return false;
        }
        into.copy_from_slice(&bytes[(start - at) as usize..(end - at) as usize]);
        true
    }
}

/// Where a body lies: its checksum (4 bytes), then the body.
///
/// An `Arc` and not a segment's number, so that reading needs no lookup table, and segments count their bodies in
/// use.
#[derive(Clone, Debug)]
pub(crate) struct BodyRef {
    pub(crate) segment: Arc<Segment>,
    /// The offset of the checksum in the segment.
    pub(crate) at: u32,
    pub(crate) len: u32,
}

const _: () = assert!(size_of::<BodyRef>() == 16, "every message in memory holds one");

impl StoredBody for BodyRef {
    fn body_len(&self) -> usize {
        self.len as usize
    }
}

impl BodyRef {
    fn spot(&self) -> BodySpan<'_> {
        BodySpan { segment: &self.segment, at: self.at, len: self.len }
    }

    /// Reads the bodies of several messages, in the order given. Adjacent bodies are read in one call, and small ones
    /// share memory, a few dozen at a time.
    pub(crate) fn read_all(places: &[(Number, &BodyRef)]) -> Vec<io::Result<Bytes>> {
        let order = in_order(places);
        let mut bodies: Vec<io::Result<Bytes>> = places.iter().map(|_| Ok(Bytes::new())).collect();
        let (mut rest, mut pieces) = (order.as_slice(), Vec::new());
        while let Some((_, _, first)) = rest.first() {
            let spots = rest.iter().map(|(_, _, index)| places[*index].1.spot());
            let run = BodyRun::starting_with(places[*first].1.spot(), spots, BodyRun::GAP);
            let (lying, others) = rest.split_at(run.count);
            let from = pieces.last().map_or(0, ReadPiece::end);
            if from > 0 && from + run.len() > BodyRun::SHARED {
                read_pieces(places, &pieces, &mut bodies);
                pieces.clear();
                continue;
            }
            rest = others;
            pieces.push(ReadPiece { run, lying, from });
        }
        read_pieces(places, &pieces, &mut bodies);
        bodies
    }

    /// The body as an argument of [`BodyRef::gather`].
    pub(crate) fn wanted(&self, number: Number) -> WantedBody<'_> {
        WantedBody { number, spot: self.spot() }
    }

    /// Reads the bodies of many messages, in few calls, one after another into `bodies`, which grows to hold all of
    /// them; in the order given. Returns which of them are damaged: a body that fails its checksum is kept as it is
    /// on the disk, one that cannot be read there is zeros.
    ///
    /// # Errors
    /// Errors of the disk that may be temporary. What the medium cannot read is damage after [`Segment::TRIES`]
    /// tries.
    pub(crate) fn gather(wanted: &[WantedBody<'_>], bodies: &mut Vec<u8>) -> io::Result<BTreeSet<usize>> {
        let mut len = 0;
        // The bodies in the order of their offsets, and where each begins in `bodies`.
        let order = wanted.iter().zip(0u32..).map(|(one, index)| {
            let start = len;
            len += one.spot.len as usize;
            (one.spot.segment.name.segment, one.spot.at, index, start)
        });
        let mut order: Vec<(u64, u32, u32, usize)> = order.collect();
        order.sort_unstable();
        bodies.resize(len, 0);
        let (mut rest, mut bytes, mut damaged) = (order.as_slice(), Vec::new(), BTreeSet::new());
        let mut refusal = None;
        while let Some((_, _, first, _)) = rest.first() {
            let spots = rest.iter().map(|(_, _, index, _)| wanted[*index as usize].spot);
            let run = BodyRun::starting_with(wanted[*first as usize].spot, spots, BodyRun::FAR);
            let (ours, others) = rest.split_at(run.count);
            rest = others;
            bytes.resize(run.len(), 0);
            let is_read = match run.read(&mut bytes) {
                Ok(()) => true,
                // Other bodies in it may be readable.
                Err(error) if failure::is_of_medium(&error) => false,
                Err(error) => return Err(error),
            };
            for (_, at, index, start) in ours {
                let WantedBody { number, spot } = wanted[*index as usize];
                let into = &mut bodies[*start..][..spot.len as usize];
                let from = (u64::from(*at) - run.start) as usize;
                if is_read && let Ok(body) = spot.check(&bytes, from, number) {
                    into.copy_from_slice(body);
                    continue;
                }
                let is_whole = match spot.bytes() {
                    Ok(again) => {
                        into.copy_from_slice(&again[4..]);
                        spot.check(&again, 0, number).is_ok()
                    }
                    Err(error) if failure::is_of_medium(&error) => {
                        into.fill(0);
                        if !spot.segment.gives_up(*at) {
                            refusal.get_or_insert(error);
                        }
                        false
                    }
                    Err(error) => return Err(error),
                };
                if !is_whole {
                    damaged.insert(*index as usize);
                }
            }
        }
        refusal.map_or(Ok(damaged), Err)
    }
}

/// A [`BodyRef`] without ownership of the segment.
#[derive(Clone, Copy, Debug)]
struct BodySpan<'a> {
    segment: &'a Segment,
    at: u32,
    len: u32,
}

/// A body that is read together with others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedBody<'a> {
    number: Number,
    spot: BodySpan<'a>,
}

impl BodySpan<'_> {
    /// The offset of its end in the segment.
    fn end(&self) -> u64 {
        u64::from(self.at) + 4 + u64::from(self.len)
    }

    /// Checksum and body, read again from the disk: they may have been corrupted on their way into memory.
    fn bytes(&self) -> io::Result<Bytes> {
        let mut bytes = vec![0; 4 + self.len as usize];
        self.segment.file.read_at(&mut bytes, u64::from(self.at))?;
        Ok(bytes.into())
    }

    /// The body from bytes that have its checksum at `from`, or else from the disk.
    fn cut_from(&self, bytes: &Bytes, from: usize, number: Number) -> io::Result<Bytes> {
        if self.check(bytes, from, number).is_ok() {
            return Ok(bytes.slice(from + 4..from + 4 + self.len as usize));
        }
        self.alone(number)
    }

    /// Reads the body by itself.
    fn alone(&self, number: Number) -> io::Result<Bytes> {
        let bytes = self.bytes()?;
        self.check(&bytes, 0, number)?;
        Ok(bytes.slice(4..))
    }

    /// Verifies and borrows the body from bytes that have its checksum at `from`.
    fn check<'a>(&self, bytes: &'a [u8], from: usize, number: Number) -> io::Result<&'a [u8]> {
        let body = &bytes[from + 4..from + 4 + self.len as usize];
        if self.segment.salt.body_checksum(number.get(), body) != u32_at(bytes, from) {
            let path = self.segment.path.display();
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "{path} is damaged at byte {}: the body of message {number} fails its checksum",
                    self.at
                ),
            ));
        }
        Ok(body)
    }
}

/// A body: the number and offset of its segment, and its index among the bodies wanted.
type BodyOrder = (u64, u32, usize);

/// Bodies in the order of their places.
fn in_order(places: &[(Number, &BodyRef)]) -> Vec<BodyOrder> {
    let mut order: Vec<BodyOrder> = places
        .iter()
        .zip(0..)
        .map(|((_, place), index)| (place.segment.name.segment, place.at, index))
        .collect();
    order.sort_unstable();
    order
}

/// A run that shares an allocation with others.
struct ReadPiece<'a> {
    run: BodyRun<'a>,
    /// Its bodies.
    lying: &'a [BodyOrder],
    /// Its offset in that allocation.
    from: usize,
}

impl ReadPiece<'_> {
    /// The end in that allocation.
    fn end(&self) -> usize {
        self.from + self.run.len()
    }
}

/// Reads pieces into one allocation, and slices the bodies out of it.
fn read_pieces(places: &[(Number, &BodyRef)], pieces: &[ReadPiece<'_>], bodies: &mut [io::Result<Bytes>]) {
    let mut bytes = vec![0; pieces.last().map_or(0, ReadPiece::end)];
    let read = pieces.iter().map(|piece| piece.run.read(&mut bytes[piece.from..piece.end()]));
    let read: Vec<io::Result<()>> = read.collect();
    let bytes = Bytes::from(bytes);
    for (ReadPiece { run, lying, from }, read) in pieces.iter().zip(read) {
        for (_, at, index) in *lying {
            let (number, place) = places[*index];
            bodies[*index] = match &read {
                Ok(()) => place.spot().cut_from(&bytes, from + (u64::from(*at) - run.start) as usize, number),
                // An error of one body need not affect the others.
                Err(error) if lying.len() > 1 && !failure::is_passing(error) => place.spot().alone(number),
                Err(error) => Err(failure::copied(error)),
            };
        }
    }
}

/// Bodies that are read in one call.
struct BodyRun<'a> {
    segment: &'a Segment,
    start: u64,
    end: u64,
    count: usize,
}

impl<'a> BodyRun<'a> {
    /// The maximum gap in bytes between two bodies that is read with them: cheaper than a call.
    const GAP: u64 = 1024;
    /// The maximum gap where what is read is not kept, and no caller waits for it.
    const FAR: u64 = 4 * 1024;
    /// The maximum size of a read in bytes, unless it is a single body.
    const MOST: u64 = 1024 * 1024;
    /// The maximum size of an allocation that runs share: the most that a single kept body holds in memory.
    const SHARED: usize = 16 * 1024;

    /// The prefix of `spots`, beginning with `first`, whose gaps are at most `gap`.
    fn starting_with(
        first: BodySpan<'a>,
        spots: impl Iterator<Item = BodySpan<'a>>,
        gap: u64,
    ) -> BodyRun<'a> {
        let mut run =
            BodyRun { segment: first.segment, start: u64::from(first.at), end: first.end(), count: 0 };
        for spot in spots {
            let joins = std::ptr::eq(spot.segment, first.segment)
                && u64::from(spot.at) <= run.end + gap
                && spot.end() - run.start <= BodyRun::MOST.max(first.end() - run.start);
            if !joins {
                break;
            }
            run.end = run.end.max(spot.end());
            run.count += 1;
        }
        run
    }

    fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    fn read(&self, into: &mut [u8]) -> io::Result<()> {
        if self.segment.recall(self.start, into) {
            Ok(())
        } else {
            self.segment.file.read_at(into, self.start)
        }
    }
}
