//! MessagePack, as far as the scripts use it: encoding of arguments, decoding of replies.
//!
//! The format: <https://github.com/msgpack/msgpack/blob/master/spec.md>. Lua has one kind of text and one kind of
//! table: an empty array comes back as either, and a field that is nil is absent.

use std::sync::Arc;

use bytes::Bytes;

/// A value to be sent to a script.
#[derive(Clone, Debug)]
pub(super) enum Pack {
    Bool(bool),
    Int(i64),
    Bytes(Bytes),
    /// An array of strings of this length, concatenated.
    Column(Bytes, usize),
    Array(Vec<Pack>),
    Map(Vec<(&'static str, Pack)>),
    /// A value that was read, to be written again.
    Again(PackReply),
    /// A table, some of whose fields were read before.
    Pairs(Vec<(Bytes, Pack)>),
}

impl From<i64> for Pack {
    fn from(value: i64) -> Pack {
        Pack::Int(value)
    }
}

impl From<u32> for Pack {
    fn from(value: u32) -> Pack {
        Pack::Int(value.into())
    }
}

impl From<u64> for Pack {
    /// Lua counts in doubles; past 2^53 nothing that the scripts count has a meaning.
    fn from(value: u64) -> Pack {
        Pack::Int(value.min(1 << 53) as i64)
    }
}

impl From<usize> for Pack {
    fn from(value: usize) -> Pack {
        Pack::from(value as u64)
    }
}

impl From<&str> for Pack {
    fn from(value: &str) -> Pack {
        Pack::Bytes(Bytes::copy_from_slice(value.as_bytes()))
    }
}

impl From<&[u8]> for Pack {
    fn from(value: &[u8]) -> Pack {
        Pack::Bytes(Bytes::copy_from_slice(value))
    }
}

impl From<Bytes> for Pack {
    fn from(value: Bytes) -> Pack {
        Pack::Bytes(value)
    }
}

/// The fields of a table, and the arguments that are sent after it without being packed.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(&'static str, Pack)>, Beside);

/// The arguments after the table: concatenated, so that many of them take one copy and no clones.
#[derive(Clone, Debug, Default)]
pub(super) struct Beside {
    bytes: Bytes,
    ends: Arc<[usize]>,
}

impl Beside {
    /// `ends` has the end of each of them in `bytes`.
    pub(super) fn new(bytes: Vec<u8>, ends: Vec<usize>) -> Beside {
        Beside { bytes: bytes.into(), ends: ends.into() }
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut from = 0;
        self.ends.iter().map(move |end| &self.bytes[std::mem::replace(&mut from, *end)..*end])
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl Fields {
    pub(super) fn new() -> Fields {
        Fields::default()
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<Pack>) -> Fields {
        self.0.push((name, value.into()));
        self
    }

    pub(super) fn maybe(self, name: &'static str, value: Option<impl Into<Pack>>) -> Fields {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The number in a field, if it was set.
    pub(super) fn uint(&self, name: &str) -> Option<u64> {
        match self.0.iter().find(|(known, _)| *known == name)?.1 {
            Pack::Int(value) => value.try_into().ok(),
            _ => None,
        }
    }

    /// Whether a field was set.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| *known == name)
    }

    /// Adds the arguments after the table.
    pub(super) fn beside(mut self, arguments: Beside) -> Fields {
        self.1 = arguments;
        self
    }

    /// The fields of the table by their names.
    pub(super) fn named(self) -> impl Iterator<Item = (&'static str, Pack)> {
        self.0.into_iter()
    }

    /// The packed table, and the arguments after it.
    pub(super) fn encoded(self) -> (Vec<u8>, Beside) {
        let Fields(fields, beside) = self;
        (Pack::Map(fields).encoded(), beside)
    }

    pub(super) fn flag(self, name: &'static str, value: bool) -> Fields {
        if value { self.with(name, Pack::Bool(true)) } else { self }
    }
}

impl From<Fields> for Pack {
    fn from(fields: Fields) -> Pack {
        Pack::Map(fields.0)
    }
}

impl<T: Into<Pack>> From<Vec<T>> for Pack {
    fn from(items: Vec<T>) -> Pack {
        Pack::Array(items.into_iter().map(Into::into).collect())
    }
}

impl Pack {
    pub(super) fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Pack::Bool(value) => out.push(if *value { 0xc3 } else { 0xc2 }),
            Pack::Int(value) => match u8::try_from(*value) {
                Ok(small) if small < 0x80 => out.push(small),
                _ => {
                    out.push(0xd3);
                    out.extend_from_slice(&value.to_be_bytes());
                }
            },
            Pack::Bytes(bytes) => {
                head(out, bytes.len(), (0xa0, 32), Some(0xd9), 0xda);
                out.extend_from_slice(bytes);
            }
            Pack::Column(bytes, each) => {
                head(out, bytes.len() / each, (0x90, 16), None, 0xdc);
                for item in bytes.chunks_exact(*each) {
                    head(out, item.len(), (0xa0, 32), Some(0xd9), 0xda);
                    out.extend_from_slice(item);
                }
            }
            Pack::Array(items) => {
                head(out, items.len(), (0x90, 16), None, 0xdc);
                items.iter().for_each(|item| item.encode(out));
            }
            Pack::Map(fields) => {
                head(out, fields.len(), (0x80, 16), None, 0xde);
                for (name, value) in fields {
                    Pack::from(*name).encode(out);
                    value.encode(out);
                }
            }
            Pack::Again(reply) => reply.encode(out),
            Pack::Pairs(pairs) => {
                head(out, pairs.len(), (0x80, 16), None, 0xde);
                for (name, value) in pairs {
                    Pack::Bytes(name.clone()).encode(out);
                    value.encode(out);
                }
            }
        }
    }
}

/// Writes a length: in its first byte below `short.1`, otherwise in 1, 2 or 4 bytes after it.
fn head(out: &mut Vec<u8>, len: usize, short: (u8, usize), one: Option<u8>, two: u8) {
    if len < short.1 {
        out.push(short.0 | len as u8);
    } else if let (Some(one), Ok(len)) = (one, u8::try_from(len)) {
        out.extend_from_slice(&[one, len]);
    } else if let Ok(len) = u16::try_from(len) {
        out.push(two);
        out.extend_from_slice(&len.to_be_bytes());
    } else {
        let len = u32::try_from(len).expect("limits keep calls far below 4 GiB");
        out.push(two + 1);
        out.extend_from_slice(&len.to_be_bytes());
    }
}

/// A value that a script answered with.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PackReply {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Bytes(Bytes),
    Array(Vec<PackReply>),
    Map(Vec<(Bytes, PackReply)>),
}

static NIL: PackReply = PackReply::Nil;

impl PackReply {
    /// Reads one value that fills `bytes`; `None` if they are anything else.
    pub(super) fn decode(bytes: &Bytes) -> Option<PackReply> {
        let mut cursor = PackCursor { bytes, at: 0 };
        let reply = cursor.value(0)?;
        (cursor.at == bytes.len()).then_some(reply)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            PackReply::Nil => out.push(0xc0),
            PackReply::Bool(value) => Pack::Bool(*value).encode(out),
            PackReply::Int(value) => Pack::Int(*value).encode(out),
            PackReply::Float(value) => {
                out.push(0xcb);
                out.extend_from_slice(&value.to_be_bytes());
            }
            PackReply::Bytes(bytes) => Pack::Bytes(bytes.clone()).encode(out),
            PackReply::Array(items) => {
                head(out, items.len(), (0x90, 16), None, 0xdc);
                items.iter().for_each(|item| item.encode(out));
            }
            PackReply::Map(fields) => {
                head(out, fields.len(), (0x80, 16), None, 0xde);
                for (name, value) in fields {
                    Pack::Bytes(name.clone()).encode(out);
                    value.encode(out);
                }
            }
        }
    }

    /// A field of a table; nil if it has no such field.
    pub(super) fn get(&self, name: &str) -> &PackReply {
        match self {
            PackReply::Map(fields) => {
                fields.iter().find(|(field, _)| field == name.as_bytes()).map_or(&NIL, |(_, value)| value)
            }
            _ => &NIL,
        }
    }

    /// An item of an array, counted from 0; nil if there is none.
    pub(super) fn at(&self, index: usize) -> &PackReply {
        self.items().get(index).unwrap_or(&NIL)
    }

    pub(super) fn items(&self) -> &[PackReply] {
        match self {
            PackReply::Array(items) => items,
            _ => &[],
        }
    }

    pub(super) fn int(&self) -> Option<i64> {
        match self {
            PackReply::Int(value) => Some(*value),
            // Doubles without a fraction come as integers, except for some large ones.
            PackReply::Float(value) if value.fract() == 0.0 => Some(*value as i64),
            _ => None,
        }
    }

    pub(super) fn uint(&self) -> Option<u64> {
        self.int().and_then(|value| u64::try_from(value).ok())
    }

    pub(super) fn bytes(&self) -> Option<&Bytes> {
        match self {
            PackReply::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// Whether the value is present, and not false.
    pub(super) fn is_set(&self) -> bool {
        !matches!(self, PackReply::Nil | PackReply::Bool(false))
    }
}

/// Deeper than any reply.
const MAX_DEPTH: usize = 16;

struct PackCursor<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl PackCursor<'_> {
    fn value(&mut self, depth: usize) -> Option<PackReply> {
        if depth > MAX_DEPTH {
            return None;
        }
        let tag = self.array::<1>()?[0];
        Some(match tag {
            0x00..=0x7f => PackReply::Int(tag.into()),
            0xe0..=0xff => PackReply::Int((tag as i8).into()),
            0x80..=0x8f => self.map((tag & 0xf).into(), depth)?,
            0x90..=0x9f => self.list((tag & 0xf).into(), depth)?,
            0xa0..=0xbf => self.raw((tag & 0x1f).into())?,
            0xc0 => PackReply::Nil,
            0xc2 => PackReply::Bool(false),
            0xc3 => PackReply::Bool(true),
            0xca => PackReply::Float(f32::from_be_bytes(self.array()?).into()),
            0xcb => PackReply::Float(f64::from_be_bytes(self.array()?)),
            0xcc => PackReply::Int(self.array::<1>()?[0].into()),
            0xcd => PackReply::Int(u16::from_be_bytes(self.array()?).into()),
            0xce => PackReply::Int(u32::from_be_bytes(self.array()?).into()),
            0xcf => PackReply::Int(i64::try_from(u64::from_be_bytes(self.array()?)).ok()?),
            0xd0 => PackReply::Int((self.array::<1>()?[0] as i8).into()),
            0xd1 => PackReply::Int(i16::from_be_bytes(self.array()?).into()),
            0xd2 => PackReply::Int(i32::from_be_bytes(self.array()?).into()),
            0xd3 => PackReply::Int(i64::from_be_bytes(self.array()?)),
            0xc4 | 0xd9 => {
                let len = self.array::<1>()?[0].into();
                self.raw(len)?
            }
            0xc5 | 0xda => {
                let len = u16::from_be_bytes(self.array()?).into();
                self.raw(len)?
            }
            0xc6 | 0xdb => {
                let len = u32::from_be_bytes(self.array()?) as usize;
                self.raw(len)?
            }
            0xdc => {
                let len = u16::from_be_bytes(self.array()?).into();
                self.list(len, depth)?
            }
            0xdd => {
                let len = u32::from_be_bytes(self.array()?) as usize;
                self.list(len, depth)?
            }
            0xde => {
                let len = u16::from_be_bytes(self.array()?).into();
                self.map(len, depth)?
            }
            0xdf => {
                let len = u32::from_be_bytes(self.array()?) as usize;
                self.map(len, depth)?
            }
            0xc1 | 0xc7..=0xc9 | 0xd4..=0xd8 => return None,
        })
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.bytes.get(self.at..self.at + N)?.try_into().ok()?;
        self.at += N;
        Some(bytes)
    }

    fn raw(&mut self, len: usize) -> Option<PackReply> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len())?;
        let bytes = self.bytes.slice(self.at..end);
        self.at = end;
        Some(PackReply::Bytes(bytes))
    }

    fn list(&mut self, len: usize, depth: usize) -> Option<PackReply> {
        // Each item has at least one byte.
        let mut items = Vec::with_capacity(len.min(self.bytes.len() - self.at));
        for _ in 0..len {
            items.push(self.value(depth + 1)?);
        }
        Some(PackReply::Array(items))
    }

    fn map(&mut self, len: usize, depth: usize) -> Option<PackReply> {
        let mut fields = Vec::with_capacity(len.min(self.bytes.len() - self.at));
        for _ in 0..len {
            let PackReply::Bytes(name) = self.value(depth + 1)? else { return None };
            fields.push((name, self.value(depth + 1)?));
        }
        Some(PackReply::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_read_again() {
        for len in [0, 1, 31, 32, 255, 256, 65_535, 65_536] {
            let bytes = Bytes::from(vec![7; len]);
            let packed = Pack::from(bytes.clone()).encoded();
            assert_eq!(PackReply::decode(&packed.into()), Some(PackReply::Bytes(bytes)), "{len} bytes");
            let items: Vec<i64> = (0..len as i64).collect();
            let packed = Pack::from(items.clone()).encoded();
            let expected = PackReply::Array(items.into_iter().map(PackReply::Int).collect());
            assert_eq!(PackReply::decode(&packed.into()), Some(expected), "{len} items");
        }
        for value in [0, 127, 128, 255, 256, -1, i64::MAX, i64::MIN] {
            assert_eq!(PackReply::decode(&Pack::Int(value).encoded().into()), Some(PackReply::Int(value)));
        }
        let column = Pack::Column(Bytes::from_static(b"abcdef"), 3).encoded();
        assert_eq!(column, Pack::from(vec!["abc", "def"]).encoded());
        let beside = Beside::new(b"abcd".to_vec(), vec![1, 1, 4]);
        assert_eq!(beside.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"bcd"]);
        let fields = Fields::new().with("a", 1u32).flag("b", true).flag("c", false).maybe("d", None::<u64>);
        let reply = PackReply::decode(&Pack::from(fields).encoded().into()).unwrap();
        assert_eq!(
            (reply.get("a").int(), reply.get("b").is_set(), reply.get("c").is_set()),
            (Some(1), true, false)
        );
    }

    #[test]
    fn what_is_cut_or_too_deep_is_refused() {
        let whole =
            Pack::from(vec![Pack::from("abc"), Pack::Int(-5), Pack::from(Fields::new().with("k", 300u32))]);
        let whole = whole.encoded();
        for end in 0..whole.len() {
            assert_eq!(PackReply::decode(&Bytes::copy_from_slice(&whole[..end])), None, "cut at {end}");
        }
        assert_eq!(PackReply::decode(&Bytes::from(vec![0x91; 100])), None);
        assert_eq!(PackReply::decode(&Bytes::from_static(&[0xdd, 0xff, 0xff, 0xff, 0xff])), None);
    }
}
