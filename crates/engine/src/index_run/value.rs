//! The values of index runs.

use std::fmt::Debug;

use dwell_model::Number;

use crate::journal::encoding::{ByteCursor, Read, Unreadable, put_varint};
use crate::sealed::FileKind;

/// The values of a kind of index runs.
pub(crate) trait IndexValue: Copy + Ord + Debug + Send + Sync + 'static {
    /// The kind of its files.
    const KIND: FileKind;
    /// Whether a key has one value.
    const IS_UNIQUE: bool;
    /// The number of bits of a filter per pair that it is sized for; it may be sized for more or fewer pairs than there
    /// are. Six of them are tested, so that with 10 one in a hundred keys that are not there passes, with 16 one in
    /// seven hundred.
    const FILTER_BITS: u64;

    /// Writes it as varints.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads what [`IndexValue::put`] wrote.
    fn read(cursor: &mut ByteCursor<'_>) -> Read<Self>;
}

/// The place of a message: the number of a table of its shard, and an ordinal in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableRef {
    pub(crate) file: u32,
    pub(crate) ordinal: u32,
}

impl IndexValue for TableRef {
    const KIND: FileKind = FileKind::Numbers;
    const IS_UNIQUE: bool = true;
    // The writer of a run of moved messages requests a filter for more pairs.
    const FILTER_BITS: u64 = 10;

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.file));
        put_varint(out, u64::from(self.ordinal));
    }

    fn read(cursor: &mut ByteCursor<'_>) -> Read<TableRef> {
        let mut int = || {
            let int = u32::try_from(cursor.varint()?);
            int.map_err(|_| Unreadable::Malformed("a message's home is out of range"))
        };
        Ok(TableRef { file: int()?, ordinal: int()? })
    }
}

impl IndexValue for Number {
    const KIND: FileKind = FileKind::Keys;
    const IS_UNIQUE: bool = false;
    // A hash may be in any run: each run whose filter it passes costs a read.
    const FILTER_BITS: u64 = 16;

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.get());
    }

    fn read(cursor: &mut ByteCursor<'_>) -> Read<Number> {
        let number = Number::new(cursor.varint()?);
        number.map_err(|_| Unreadable::Malformed("a message's number is out of range"))
    }
}
