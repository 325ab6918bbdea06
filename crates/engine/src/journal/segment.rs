//! A segment of the journal as the process holds it, and the place of a body in it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dwell_model::Number;
use dwell_store::core::StoredBody;

use super::format::{Salt, SegmentName, u32_at};
use crate::disk::{DiskFile, failure};
use crate::due::File;

/// An open segment, or a due file that stands for one.
///
/// Every [`Place`] in it holds it: while anybody may still read a body here, the count of its owners says so,
/// and its file is open though it may have lost its name.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) name: SegmentName,
    pub(crate) salt: Salt,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
    /// Pieces of a due file that were read a moment ago, with where they begin: bodies that will be wanted next lie in
    /// the blocks in which their messages were found.
    recent: Mutex<BTreeMap<u64, Bytes>>,
    /// Bodies that could not be read when they were to be moved, by where they lie, and how often.
    refused: Mutex<BTreeMap<u32, u32>>,
}

impl Segment {
    /// So often a body cannot be read before it is taken along without its bytes: what does not answer for a moment
    /// is not lost for it.
    const TRIES: u32 = 3;

    pub(crate) fn new(name: SegmentName, dir: &Path, file: Arc<dyn DiskFile>) -> Segment {
        let path = dir.join(name.file_name());
        Segment { name, salt: name.salt(), path, file, recent: Mutex::default(), refused: Mutex::default() }
    }

    /// A due file, as far as bodies in it are concerned: they lie there as they do in segments. Its name has a number
    /// behind those of all segments.
    pub(crate) fn of_due_file(due: &File) -> Segment {
        let crate::sealed::Name { directory, shard, number, .. } = due.name();
        let name = SegmentName { directory, shard, segment: 1 << 63 | u64::from(number) };
        let (path, file) = (due.path().to_owned(), Arc::clone(due.handle()));
        let salt = due.salt();
        Segment { name, salt, path, file, recent: Mutex::default(), refused: Mutex::default() }
    }

    fn recent(&self) -> MutexGuard<'_, BTreeMap<u64, Bytes>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps bytes that stand at `at`, until they are [forgotten](Segment::forget).
    pub(crate) fn remember(&self, at: u64, bytes: Bytes) {
        self.recent().insert(at, bytes);
    }

    /// Lets go of the bytes that stand at `at`.
    pub(crate) fn forget(&self, at: u64) {
        self.recent().remove(&at);
    }

    /// The body at `at` could not be read once more. Whether that was the last try.
    fn gives_up(&self, at: u32) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let tries = refused.entry(at).or_default();
        *tries += 1;
        *tries >= Segment::TRIES
    }

    /// Copies the bytes from `start` on, if they are remembered: what is small should not keep a block in memory.
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
/// An `Arc` and not a segment's number, so that reading needs no table, and segments count what they hold.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) segment: Arc<Segment>,
    /// Where the checksum stands in the segment.
    pub(crate) at: u32,
    pub(crate) len: u32,
}

const _: () = assert!(size_of::<Place>() == 16, "every message in memory holds one");

impl StoredBody for Place {
    fn body_len(&self) -> usize {
        self.len as usize
    }
}

impl Place {
    fn spot(&self) -> Spot<'_> {
        Spot { segment: &self.segment, at: self.at, len: self.len }
    }

    /// Reads the bodies of several messages, those that lie side by side in one call; in the order given. Small ones
    /// share memory, a few dozen at a time.
    pub(crate) fn read_all(places: &[(Number, &Place)]) -> Vec<io::Result<Bytes>> {
        let order = in_order(places);
        let mut bodies: Vec<io::Result<Bytes>> = places.iter().map(|_| Ok(Bytes::new())).collect();
        let (mut rest, mut pieces) = (order.as_slice(), Vec::new());
        while let Some((_, _, first)) = rest.first() {
            let spots = rest.iter().map(|(_, _, index)| places[*index].1.spot());
            let run = Run::starting_with(places[*first].1.spot(), spots, Run::GAP);
            let (lying, others) = rest.split_at(run.count);
            let from = pieces.last().map_or(0, Piece::end);
            if from > 0 && from + run.len() > Run::SHARED {
                read_pieces(places, &pieces, &mut bodies);
                pieces.clear();
                continue;
            }
            rest = others;
            pieces.push(Piece { run, lying, from });
        }
        read_pieces(places, &pieces, &mut bodies);
        bodies
    }

    /// This body, to be [gathered](Place::gather).
    pub(crate) fn wanted(&self, number: Number) -> Wanted<'_> {
        Wanted { number, spot: self.spot() }
    }

    /// Reads the bodies of many messages, in few calls, each behind the one before into `bodies`, which is made as long as
    /// all of them; in the order given. Says which of them are damaged: those that fail their checksums are as they lie on
    /// the disk, those that cannot be read there are zeros.
    ///
    /// # Errors
    /// The disk's, where it may be another the next time. What the medium cannot read is damage when it was tried
    /// [often enough](Segment::TRIES).
    pub(crate) fn gather(wanted: &[Wanted<'_>], bodies: &mut Vec<u8>) -> io::Result<BTreeSet<usize>> {
        let mut len = 0;
        // As they lie, and where each begins in `bodies`.
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
            let run = Run::starting_with(wanted[*first as usize].spot, spots, Run::FAR);
            let (ours, others) = rest.split_at(run.count);
            rest = others;
            bytes.resize(run.len(), 0);
            let is_read = match run.read(&mut bytes) {
                Ok(()) => true,
                // Others in it may lie where the disk can be read.
                Err(error) if failure::is_of_medium(&error) => false,
                Err(error) => return Err(error),
            };
            for (_, at, index, start) in ours {
                let Wanted { number, spot } = wanted[*index as usize];
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

/// A [`Place`] while somebody else holds the segment.
#[derive(Clone, Copy, Debug)]
struct Spot<'a> {
    segment: &'a Segment,
    at: u32,
    len: u32,
}

/// A body that is wanted with others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    number: Number,
    spot: Spot<'a>,
}

impl Spot<'_> {
    /// Where it ends in the segment.
    fn end(&self) -> u64 {
        u64::from(self.at) + 4 + u64::from(self.len)
    }

    /// Checksum and body, as they are on the disk: what was wrong on its way into memory may be right there.
    fn bytes(&self) -> io::Result<Bytes> {
        let mut bytes = vec![0; 4 + self.len as usize];
        self.segment.file.read_at(&mut bytes, u64::from(self.at))?;
        Ok(bytes.into())
    }

    /// The body out of bytes in which its checksum stands at `from`, or else as it is on the disk.
    fn cut_from(&self, bytes: &Bytes, from: usize, number: Number) -> io::Result<Bytes> {
        if self.check(bytes, from, number).is_ok() {
            return Ok(bytes.slice(from + 4..from + 4 + self.len as usize));
        }
        self.alone(number)
    }

    /// The body, read by itself.
    fn alone(&self, number: Number) -> io::Result<Bytes> {
        let bytes = self.bytes()?;
        self.check(&bytes, 0, number)?;
        Ok(bytes.slice(4..))
    }

    /// The body out of bytes in which its checksum stands at `from`, not held.
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

/// A body by the segment it lies in and where in it, and which of those that are wanted it is.
type Lying = (u64, u32, usize);

/// Bodies in the order in which they lie.
fn in_order(places: &[(Number, &Place)]) -> Vec<Lying> {
    let mut order: Vec<Lying> = places
        .iter()
        .zip(0..)
        .map(|((_, place), index)| (place.segment.name.segment, place.at, index))
        .collect();
    order.sort_unstable();
    order
}

/// A run that shares memory with others.
struct Piece<'a> {
    run: Run<'a>,
    /// Its bodies.
    lying: &'a [Lying],
    /// Where it begins in that memory.
    from: usize,
}

impl Piece<'_> {
    /// Where it ends in that memory.
    fn end(&self) -> usize {
        self.from + self.run.len()
    }
}

/// Reads pieces into one allocation, and cuts the bodies out of it.
fn read_pieces(places: &[(Number, &Place)], pieces: &[Piece<'_>], bodies: &mut [io::Result<Bytes>]) {
    let mut bytes = vec![0; pieces.last().map_or(0, Piece::end)];
    let read = pieces.iter().map(|piece| piece.run.read(&mut bytes[piece.from..piece.end()]));
    let read: Vec<io::Result<()>> = read.collect();
    let bytes = Bytes::from(bytes);
    for (Piece { run, lying, from }, read) in pieces.iter().zip(read) {
        for (_, at, index) in *lying {
            let (number, place) = places[*index];
            bodies[*index] = match &read {
                Ok(()) => place.spot().cut_from(&bytes, from + (u64::from(*at) - run.start) as usize, number),
                // What is wrong with one of them need not be wrong with the others.
                Err(error) if lying.len() > 1 && !failure::is_passing(error) => place.spot().alone(number),
                Err(error) => Err(failure::copied(error)),
            };
        }
    }
}

/// Bodies that are read in one call.
struct Run<'a> {
    segment: &'a Segment,
    start: u64,
    end: u64,
    count: usize,
}

impl<'a> Run<'a> {
    /// What lies between two bodies is read with them up to so many bytes: less than a call costs.
    const GAP: u64 = 1024;
    /// The same where nobody keeps what is read, and nobody waits for it.
    const FAR: u64 = 4 * 1024;
    /// One call reads so many bytes, or one body.
    const MOST: u64 = 1024 * 1024;
    /// Runs share memory up to so many bytes: whoever keeps one body keeps no more than this.
    const SHARED: usize = 16 * 1024;

    /// As many of `spots`, which begin with `first`, as lie no further apart than `gap`.
    fn starting_with(first: Spot<'a>, spots: impl Iterator<Item = Spot<'a>>, gap: u64) -> Run<'a> {
        let mut run = Run { segment: first.segment, start: u64::from(first.at), end: first.end(), count: 0 };
        for spot in spots {
            let joins = std::ptr::eq(spot.segment, first.segment)
                && u64::from(spot.at) <= run.end + gap
                && spot.end() - run.start <= Run::MOST.max(first.end() - run.start);
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
