//! The encoding of records: varints, texts, tagged fields.
//!
//! - *varint*: LEB128, seven bits a byte, low ones first, at most ten bytes, and never longer than needed.
//! - *zigzag*: a signed difference as a varint, `(n << 1) ^ (n >> 63)`.
//! - *text*: a varint length, then the bytes.
//! - *field*: a varint key `number << 2 | critical << 1 | kind`, then a varint (kind 0) or a text (kind 1). Fields
//!   come in rising order of their numbers; a zero byte ends them. A reader that does not know a field skips it, or
//!   refuses it as newer if it is critical.

/// Why bytes cannot be decoded as records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// No version writes these bytes.
    Malformed(&'static str),
    /// A later version wrote something that must not be ignored.
    Newer(&'static str),
}

pub(crate) type Read<T> = std::result::Result<T, Unreadable>;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValue<'a> {
    Int(u64),
    Bytes(&'a [u8]),
}

impl<'a> FieldValue<'a> {
    pub(crate) fn int(self) -> Read<u64> {
        match self {
            FieldValue::Int(value) => Ok(value),
            FieldValue::Bytes(_) => Err(Unreadable::Malformed("a field has bytes where a number belongs")),
        }
    }

    pub(crate) fn u32(self) -> Read<u32> {
        u32::try_from(self.int()?).map_err(|_| Unreadable::Malformed("a number is out of range"))
    }

    pub(crate) fn bytes(self) -> Read<&'a [u8]> {
        match self {
            FieldValue::Bytes(bytes) => Ok(bytes),
            FieldValue::Int(_) => Err(Unreadable::Malformed("a field has a number where bytes belong")),
        }
    }

    pub(crate) fn text(self) -> Read<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Unreadable::Malformed("a text is not UTF-8"))
    }
}

const CRITICAL: u64 = 0b10;
const BYTES: u64 = 0b01;

#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
pub(crate) fn put_zigzag(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

pub(crate) fn put_text(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a critical integer field, which no reader may skip.
pub(crate) fn put_int_field(out: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(out, number << 2 | CRITICAL);
    put_varint(out, value);
}

/// Appends an integer field that a reader may skip if it does not know it.
pub(crate) fn put_optional_int_field(out: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(out, number << 2);
    put_varint(out, value);
}

/// Appends a critical bytes field, which no reader may skip.
pub(crate) fn put_bytes_field(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    put_varint(out, number << 2 | CRITICAL | BYTES);
    put_text(out, bytes);
}

pub(crate) fn end_fields(out: &mut Vec<u8>) {
    out.push(0);
}

pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reads from front to back.
#[derive(Clone, Debug)]
pub(crate) struct ByteCursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ByteCursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> ByteCursor<'a> {
        ByteCursor { bytes, at: 0 }
    }

    /// The number of bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The number of bytes left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(crate) fn take(&mut self, len: usize) -> Read<&'a [u8]> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or(Unreadable::Malformed("a record is longer than its batch"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Read<u8> {
        Ok(self.take(1)?[0])
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Read<u64> {
        match self.bytes.get(self.at) {
            Some(byte) if *byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    /// Decodes a varint of several bytes, eight of them at once if they are there. Runs and heads of entries consist
    /// of these.
    fn long_varint(&mut self) -> Read<u64> {
        let Some(word) = self.bytes[self.at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else {
            return self.varint_by_bytes();
        };
        let ends = !word & 0x8080_8080_8080_8080;
        if ends == 0 {
            return self.varint_by_bytes();
        }
        let len = ends.trailing_zeros() / 8 + 1;
        let bits = word & (u64::MAX >> (64 - 8 * len));
        if len > 1 && bits >> (8 * (len - 1)) == 0 {
            return Err(Unreadable::Malformed("a number is not in its shortest form"));
        }
        // Groups of seven bits are merged to 14, to 28, and to all.
        let sevens = bits & 0x7f7f_7f7f_7f7f_7f7f;
        let pairs = sevens & 0x007f_007f_007f_007f | (sevens & 0x7f00_7f00_7f00_7f00) >> 1;
        let halves = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
        self.at += len as usize;
        Ok(halves & 0x0fff_ffff | (halves & 0x0fff_ffff_0000_0000) >> 4)
    }

    /// The same, byte by byte.
    fn varint_by_bytes(&mut self) -> Read<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 || byte == 0 && shift > 0 {
                return Err(Unreadable::Malformed("a number is not in its shortest form"));
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Unreadable::Malformed("a number has more than 64 bits"))
    }

    pub(crate) fn zigzag(&mut self) -> Read<i64> {
        Ok(unzigzag(self.varint()?))
    }

    pub(crate) fn text(&mut self) -> Read<&'a [u8]> {
        let len = usize::try_from(self.varint()?)
            .map_err(|_| Unreadable::Malformed("a text is longer than its batch"))?;
        self.take(len)
    }

    /// The next field, or `None` after the last one. `known` is the highest field number that the caller knows.
    pub(crate) fn field(&mut self, known: u64) -> Read<Option<(u64, FieldValue<'a>)>> {
        loop {
            let key = self.varint()?;
            if key == 0 {
                return Ok(None);
            }
            let value = if key & BYTES == 0 {
                FieldValue::Int(self.varint()?)
            } else {
                FieldValue::Bytes(self.text()?)
            };
            let number = key >> 2;
            if number <= known {
                return Ok(Some((number, value)));
            }
            if key & CRITICAL != 0 {
                return Err(Unreadable::Newer("a record has an attribute that this version does not know"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_and_have_one_form() {
        for value in [0, 1, 127, 128, 300, 1 << 35, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut cursor = ByteCursor::new(&out);
            assert_eq!(cursor.varint(), Ok(value));
            assert!(cursor.is_at_end());
            assert!(ByteCursor::new(&out[..out.len() - 1]).varint().is_err());
        }
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            put_zigzag(&mut out, value);
            assert_eq!(ByteCursor::new(&out).zigzag(), Ok(value));
        }
        assert!(ByteCursor::new(&[0x80, 0]).varint().is_err(), "longer than needed");
        assert!(ByteCursor::new(&[0xff; 10]).varint().is_err(), "over 64 bits");
    }

    #[test]
    fn eight_bytes_at_once_say_what_each_says() {
        let read = |bytes: &[u8]| {
            let (mut cursor, mut by_bytes) = (ByteCursor::new(bytes), ByteCursor::new(bytes));
            let found = (cursor.varint(), cursor.position());
            let expected = (by_bytes.varint_by_bytes(), by_bytes.position());
            match found {
                (Ok(_), _) => assert_eq!(found, expected, "{bytes:x?}"),
                (Err(error), _) => assert_eq!(Err(error), expected.0, "{bytes:x?}"),
            }
        };
        for shift in 0..64 {
            for value in [1 << shift, (1_u64 << shift) - 1, u64::MAX >> shift, 0x0123_4567_89ab_cdef >> shift]
            {
                let mut alone = Vec::new();
                put_varint(&mut alone, value);
                for follow in [0, 0x7f, 0x80, 0xff] {
                    let mut bytes = alone.clone();
                    bytes.resize(bytes.len() + 9, follow);
                    (0..bytes.len()).for_each(|len| read(&bytes[..len]));
                    assert_eq!(ByteCursor::new(&bytes).varint(), Ok(value));
                    // A longer encoding than necessary.
                    bytes[alone.len() - 1] |= 0x80;
                    (0..bytes.len()).for_each(|len| read(&bytes[..len]));
                }
            }
        }
    }

    #[test]
    fn unknown_fields_are_skipped_unless_critical() {
        let mut out = Vec::new();
        put_int_field(&mut out, 1, 7);
        put_varint(&mut out, 9 << 2 | BYTES);
        put_text(&mut out, b"from the future");
        end_fields(&mut out);
        let mut cursor = ByteCursor::new(&out);
        assert_eq!(cursor.field(3), Ok(Some((1, FieldValue::Int(7)))));
        assert_eq!(cursor.field(3), Ok(None));
        assert!(cursor.is_at_end());

        let mut out = Vec::new();
        put_bytes_field(&mut out, 9, b"matters");
        assert!(matches!(ByteCursor::new(&out).field(3), Err(Unreadable::Newer(_))));
    }
}
