//! An open index run: lookups, and sequential reading.

use std::marker::PhantomData;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dwell_model::Number;

use super::block;
use super::filter::{self, Filter};
use super::index::RunIndex;
use super::number_set::NumberSet;
use super::value::{IndexValue, TableRef};
use crate::disk::Disk;
use crate::journal::encoding::ByteCursor;
use crate::sealed::{FileId, OpenedFile, ReadError, Result};

/// An open index run. It never changes, and may be read by several threads at once.
///
/// In memory are 12 bytes for each 4 KiB of pairs (some 700 numbers, or some 250 keys), and the filter, if it has one:
/// [`FILTER_BITS`](IndexValue::FILTER_BITS) for each pair that its writer has sized it for. The filter is read by the
/// first lookup, so that the time to open a run does not depend on its size.
#[derive(Debug)]
pub(crate) struct IndexRun<V> {
    opened: OpenedFile,
    pub(super) index: RunIndex,
    /// The number of words of the filter; 0 for no filter.
    words: u64,
    /// `None` if it cannot be read: then blocks are read without it.
    filter: OnceLock<Option<Filter>>,
    /// The first read error of a damaged place.
    damage: OnceLock<Box<str>>,
    /// Held while the filter is read, so that it is in memory once.
    reading: Mutex<()>,
    values: PhantomData<V>,
}

impl<V: IndexValue> IndexRun<V> {
    /// An index run that was just written.
    pub(super) fn new(opened: OpenedFile, index: RunIndex, filter: Option<Filter>) -> IndexRun<V> {
        let words = filter.as_ref().map_or(0, Filter::len) as u64;
        let run = IndexRun::unread(opened, index, words);
        match filter {
            None => run,
            Some(filter) => IndexRun { filter: Some(filter).into(), ..run },
        }
    }

    fn unread(opened: OpenedFile, index: RunIndex, words: u64) -> IndexRun<V> {
        assert_eq!(opened.name.kind, V::KIND);
        let (filter, damage, reading) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        IndexRun { opened, index, words, filter, damage, reading, values: PhantomData }
    }

    /// Opens the index run of that name in `dir`: two reads, or three if the index is long. Header, index and footer
    /// are verified; blocks and the filter are verified when they are read.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, name: FileId) -> Result<IndexRun<V>> {
        IndexRun::of(OpenedFile::open(disk, dir, name)?)
    }

    /// Decodes the index of a run.
    pub(crate) fn of(mut opened: OpenedFile) -> Result<IndexRun<V>> {
        let bytes = std::mem::take(&mut opened.index);
        let mut cursor = ByteCursor::new(&bytes);
        let (mut index, words) = RunIndex::decode(&mut cursor, opened.index_at).map_err(|why| {
            ReadError::unreadable(&opened.path, opened.index_at + cursor.position() as u64, why)
        })?;
        index.shrink();
        Ok(IndexRun::unread(opened, index, words))
    }

    /// The filter, if the index run has one that is readable. The first call reads it: a read for each 256 KiB.
    fn filter(&self) -> Result<Option<&Filter>> {
        if self.words > 0 && self.filter.get().is_none() {
            let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
            if self.filter.get().is_none() {
                let filter = match self.read_filter() {
                    Ok(filter) => Some(filter),
                    // The filter has nothing that blocks do not have.
                    Err(error) if error.is_of_the_place() => None,
                    Err(error) => return Err(error),
                };
                self.filter.get_or_init(|| filter);
            }
        }
        Ok(self.filter.get().and_then(Option::as_ref))
    }

    fn read_filter(&self) -> Result<Filter> {
        let mut filter = Filter::unread(self.words);
        let mut at = u64::from(self.index.end);
        while at < self.opened.index_at {
            let len = (self.opened.index_at - at).min(filter::PIECE as u64 * 8 + 4);
            let bytes = self.read_bytes(at, len as usize)?;
            if !filter.read_piece(self.opened.salt, &bytes) {
                return self.note(Err(ReadError::damaged(self.path(), at, "a filter fails its checksum")));
            }
            at += len;
        }
        Ok(filter)
    }

    pub(crate) fn name(&self) -> FileId {
        self.opened.name
    }

    pub(crate) fn path(&self) -> &Path {
        &self.opened.path
    }

    /// Its size on disk in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.opened.size
    }

    /// The length of its blocks in bytes.
    pub(crate) fn block_bytes(&self) -> u64 {
        u64::from(self.index.end)
    }

    /// The first damage found: file, place and reason.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.get().map(|damage| &**damage)
    }

    /// Remembers a read error if the place is damaged.
    fn note<T>(&self, read: Result<T>) -> Result<T> {
        if let Err(error) = &read
            && error.is_of_the_place()
        {
            self.damage.get_or_init(|| error.to_string().into());
        }
        read
    }

    /// Its memory in bytes, with the filter, whether it was read yet or not.
    pub(crate) fn memory(&self) -> usize {
        size_of::<IndexRun<V>>() + self.index.memory() + self.words as usize * 8
    }

    /// The number of its pairs.
    pub(crate) fn len(&self) -> u64 {
        self.index.len
    }

    /// Whether it has a filter, whether that was read yet or not.
    pub(crate) fn has_filter(&self) -> bool {
        self.words > 0
    }

    /// Its lowest and its highest key.
    pub(crate) fn key_range(&self) -> Option<(u64, u64)> {
        self.index.range()
    }

    /// False if `key` is certainly not there. No I/O, once the filter was read.
    pub(crate) fn may_hold(&self, key: u64) -> Result<bool> {
        let in_range = self.key_range().is_some_and(|(low, high)| (low..=high).contains(&key));
        Ok(in_range && self.filter()?.is_none_or(|filter| filter.may_hold(key)))
    }

    /// All values of `key`, in order. If [`IndexRun::may_hold`], one read, and more only for a key with thousands of
    /// values; otherwise none.
    pub(crate) fn find(&self, key: u64) -> Result<Vec<V>> {
        let mut values = Vec::new();
        if self.may_hold(key)? {
            for block in self.index.holding(key) {
                self.read_one(block, |found, value| {
                    if found == key {
                        values.push(value);
                    }
                    if found > key { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
            }
        }
        Ok(values)
    }

    /// The first `most` values of `key` behind `after`, in order. For a key with thousands of values a few blocks are
    /// read to find where they begin.
    pub(crate) fn find_after(&self, key: u64, after: Option<V>, most: usize) -> Result<Vec<V>> {
        let mut values = Vec::new();
        if !self.may_hold(key)? {
            return Ok(values);
        }
        let blocks = self.index.holding(key);
        let (mut first, mut end) = (blocks.start, blocks.end);
        while let Some(after) = after
            && end - first > 1
        {
            let middle = first + (end - first) / 2;
            let mut begins = None;
            self.read_one(middle, |key, value| {
                begins = Some((key, value));
                ControlFlow::Break(())
            })?;
            if begins <= Some((key, after)) { first = middle } else { end = middle }
        }
        for block in first..blocks.end {
            self.read_one(block, |found, value| {
                if found == key && Some(value) > after && values.len() < most {
                    values.push(value);
                }
                if found > key || values.len() >= most {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })?;
            if values.len() >= most {
                break;
            }
        }
        Ok(values)
    }

    fn read_one(&self, block: usize, each: impl FnMut(u64, V) -> ControlFlow<()>) -> Result<()> {
        let place = self.index.place(block);
        let bytes = self.read_bytes(u64::from(place.start), place.len())?;
        self.read_block(block, &bytes, each)
    }

    /// All pairs in order.
    pub(crate) fn iter(self: &Arc<Self>) -> RunIter<V> {
        RunIter { run: Arc::clone(self), next: 0, read: Vec::new().into_iter(), lost: None }
    }

    /// The same, without the pairs of unreadable blocks: [`RunIter::lost`] has the ranges of their keys.
    pub(crate) fn iter_readable(self: &Arc<Self>) -> RunIter<V> {
        RunIter { lost: Some(Vec::new()), ..self.iter() }
    }

    /// Reads the whole run, and checks that index, filter and pairs agree. `progress` receives the number of bytes read
    /// since its last call.
    ///
    /// # Errors
    /// The first error found.
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let filter = if self.words > 0 { Some(self.read_filter()?) } else { None };
        let (mut count, mut last, mut next) = (0, None, 0);
        while next < self.index.blocks() {
            let at = u64::from(self.index.place(next).start);
            let (pairs, end) = self.read_through(next)?;
            for (key, value) in &pairs {
                let is_next = match last {
                    Some((last, _)) if V::IS_UNIQUE => last < *key,
                    last => last < Some((*key, *value)),
                };
                if !is_next || filter.as_ref().is_some_and(|filter| !filter.may_hold(*key)) {
                    let reason = format!("{key} is out of order, or not in the filter");
                    return Err(ReadError::damaged(self.path(), at, reason));
                }
                last = Some((*key, *value));
            }
            count += pairs.len() as u64;
            next = end;
            progress(u64::from(self.index.place(end - 1).end) - at);
        }
        if count != self.len() || last.map_or(0, |(key, _)| key) != self.index.last {
            let reason = "the index says other of how many pairs there are, or of the last";
            return Err(ReadError::damaged(self.path(), self.opened.index_at, reason));
        }
        progress(self.size() - u64::from(self.index.end));
        Ok(())
    }

    /// The values of all `wanted` keys. Blocks that have none of them are not read; others are read up to 32 KiB at a
    /// time if they are adjacent.
    pub(crate) fn find_all(&self, wanted: &NumberSet, mut each: impl FnMut(V)) -> Result<()> {
        let is_wanted = |block: usize| {
            let end = if block + 1 < self.index.blocks() { self.index.first(block + 1) } else { u64::MAX };
            wanted.may_have(self.index.first(block)..end)
        };
        let (mut next, mut is_key_wanted) = (0, wanted.look_up());
        while next < self.index.blocks() {
            if !is_wanted(next) {
                next += 1;
                continue;
            }
            let (pairs, end) = self.read_while(next, is_wanted)?;
            let found = pairs.into_iter().filter(|(key, _)| is_key_wanted(*key));
            found.for_each(|(_, value)| each(value));
            next = end;
        }
        Ok(())
    }

    /// The pairs of the blocks from `block` on that are read at a time; and where they end.
    fn read_through(&self, block: usize) -> Result<(Vec<(u64, V)>, usize)> {
        self.read_while(block, |_| true)
    }

    /// The same up to a block that is not `wanted`; the first one is.
    fn read_while(&self, block: usize, wanted: impl Fn(usize) -> bool) -> Result<(Vec<(u64, V)>, usize)> {
        let start = self.index.place(block).start;
        let fits = |next: &usize| {
            let end = self.index.place(*next).end;
            (end - start) as usize <= READ_AHEAD && wanted(*next)
        };
        let count = (block..self.index.blocks()).take_while(fits).count().max(1);
        let end = block + count;
        let bytes = self.read_bytes(u64::from(start), (self.index.place(end - 1).end - start) as usize)?;
        let mut pairs = Vec::new();
        for block in block..end {
            let place = self.index.place(block);
            let bytes = &bytes[(place.start - start) as usize..(place.end - start) as usize];
            self.read_block(block, bytes, |key, value| {
                pairs.push((key, value));
                ControlFlow::Continue(())
            })?;
        }
        Ok((pairs, end))
    }

    fn read_block(
        &self,
        block: usize,
        bytes: &[u8],
        each: impl FnMut(u64, V) -> ControlFlow<()>,
    ) -> Result<()> {
        let at = u64::from(self.index.place(block).start);
        let read = block::read(bytes, self.opened.salt, self.index.first(block), each);
        self.note(read.map_err(|why| ReadError::unreadable(self.path(), at, why)))
    }

    fn read_bytes(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let read = self.opened.file.read_at(&mut bytes, at);
        self.note(read.map_err(|error| ReadError::io(self.path(), at, error)))?;
        Ok(bytes)
    }
}

impl IndexRun<TableRef> {
    /// The place of the message with that number, if it is in this run. At most one read.
    pub(crate) fn home(&self, number: Number) -> Result<Option<TableRef>> {
        Ok(self.find(number.get())?.pop())
    }
}

/// The number of bytes per read when an index run is read sequentially.
const READ_AHEAD: usize = 32 * 1024;

/// The pairs of a run, in order, read ahead by 32 KiB. After an error it ends.
#[derive(Debug)]
pub(crate) struct RunIter<V> {
    run: Arc<IndexRun<V>>,
    /// The next block to read.
    next: usize,
    read: std::vec::IntoIter<(u64, V)>,
    /// The ranges of keys of unreadable blocks that were left out; `None` if such a block is an error.
    lost: Option<Vec<RangeInclusive<u64>>>,
}

impl<V: IndexValue> RunIter<V> {
    /// The ranges of keys of the blocks that were left out so far.
    pub(super) fn lost(&self) -> &[RangeInclusive<u64>] {
        self.lost.as_deref().unwrap_or_default()
    }

    /// Reads the next blocks; notes those that are left out.
    fn read_on(&mut self) -> Result<()> {
        let all = self.run.read_through(self.next);
        let (pairs, end) = match (all, &mut self.lost) {
            (Err(error), Some(_)) if error.is_of_the_place() => {
                // Of several blocks that are read together one may be damaged.
                match self.run.read_while(self.next, |_| false) {
                    Err(error) if error.is_of_the_place() => (Vec::new(), self.next + 1),
                    one => one?,
                }
            }
            (all, _) => all?,
        };
        if let (Some(lost), true) = (&mut self.lost, pairs.is_empty()) {
            lost.push(self.run.index.keys(self.next));
        }
        (self.read, self.next) = (pairs.into_iter(), end);
        Ok(())
    }
}

impl<V: IndexValue> Iterator for RunIter<V> {
    type Item = Result<(u64, V)>;

    fn next(&mut self) -> Option<Result<(u64, V)>> {
        loop {
            if let Some(pair) = self.read.next() {
                return Some(Ok(pair));
            }
            if self.next >= self.run.index.blocks() {
                return None;
            }
            if let Err(error) = self.read_on() {
                self.next = usize::MAX;
                return Some(Err(error));
            }
        }
    }
}
