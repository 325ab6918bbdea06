//! A segment of the journal as the process holds it, and the place of a body in it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dwell_model::Number;
use dwell_store::core::StoredBody;

use super::format::{Salt, SegmentName, u32_at};
use crate::disk::DiskFile;
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
}

impl Segment {
    pub(crate) fn new(name: SegmentName, dir: &Path, file: Arc<dyn DiskFile>) -> Segment {
        let path = dir.join(name.file_name());
        Segment { name, salt: name.salt(), path, file, recent: Mutex::default() }
    }

    /// A due file, as far as bodies in it are concerned: they lie there as they do in segments. Its name has a number
    /// behind those of all segments.
    pub(crate) fn of_due_file(due: &File) -> Segment {
        let crate::sealed::Name { directory, shard, number, .. } = due.name();
        let name = SegmentName { directory, shard, segment: 1 << 63 | u64::from(number) };
        let (path, file) = (due.path().to_owned(), Arc::clone(due.handle()));
        Segment { name, salt: due.salt(), path, file, recent: Mutex::default() }
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

    /// Bytes from `start` to `end`, if they are remembered. A copy: what is small should not keep a block in memory.
    fn recall(&self, start: u64, end: u64) -> Option<Bytes> {
        let recent = self.recent();
        let (at, bytes) = recent.range(..=start).next_back()?;
        if end > *at + bytes.len() as u64 {
            return None;
        }
        Some(Bytes::copy_from_slice(&bytes[(start - at) as usize..(end - at) as usize]))
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
    /// Where it ends in the segment.
    fn end(&self) -> u64 {
        u64::from(self.at) + 4 + u64::from(self.len)
    }

    /// Reads the bodies of several messages, those that lie side by side in one call; in the order given.
    pub(crate) fn read_all(places: &[(Number, Place)]) -> Vec<io::Result<Bytes>> {
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|i| {
            let place = &places[*i].1;
            (place.segment.name.segment, place.at)
        });
        let mut bodies: Vec<io::Result<Bytes>> = places.iter().map(|_| Ok(Bytes::new())).collect();
        let mut rest = order.as_slice();
        while let Some(first) = rest.first() {
            let run = Run::starting_with(&places[*first].1, rest.iter().map(|i| &places[*i].1));
            let (ours, others) = rest.split_at(run.count);
            rest = others;
            match run.read() {
                Ok(bytes) => {
                    for i in ours {
                        let (number, place) = &places[*i];
                        bodies[*i] = place.cut_from(&bytes, run.start, *number);
                    }
                }
                Err(error) => {
                    for i in ours {
                        bodies[*i] = Err(io::Error::new(error.kind(), error.to_string()));
                    }
                }
            }
        }
        bodies
    }

    /// The body, checked, out of bytes read from `start` on.
    fn cut_from(&self, bytes: &Bytes, start: u64, number: Number) -> io::Result<Bytes> {
        let from = (u64::from(self.at) - start) as usize;
        let body = bytes.slice(from + 4..from + 4 + self.len as usize);
        if self.segment.salt.body_checksum(number.get(), &body) != u32_at(bytes, from) {
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
    /// One call reads so many bytes, or one body.
    const MOST: u64 = 1024 * 1024;

    fn starting_with(first: &'a Place, places: impl Iterator<Item = &'a Place>) -> Run<'a> {
        let mut run = Run { segment: &first.segment, start: u64::from(first.at), end: first.end(), count: 0 };
        for place in places {
            let joins = Arc::ptr_eq(&place.segment, &first.segment)
                && u64::from(place.at) <= run.end + Run::GAP
                && place.end() - run.start <= Run::MOST.max(first.end() - run.start);
            if !joins {
                break;
            }
            run.end = run.end.max(place.end());
            run.count += 1;
        }
        run
    }

    fn read(&self) -> io::Result<Bytes> {
        if let Some(bytes) = self.segment.recall(self.start, self.end) {
            return Ok(bytes);
        }
        let mut bytes = vec![0; (self.end - self.start) as usize];
        self.segment.file.read_at(&mut bytes, self.start)?;
        Ok(bytes.into())
    }
}
