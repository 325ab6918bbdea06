//! Bytes as numbers. Past their end zeros follow, so that every input is valid.

use dwell_model::Timestamp;

/// The rest of a fuzzer's bytes.
pub(super) struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next `len` bytes, or as many as there are.
    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    pub(super) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A valid instant.
    pub(super) fn instant(&mut self) -> Timestamp {
        let ms = self.u64() % (Timestamp::MAX.as_ms() as u64 + 1);
        Timestamp::from_ms(ms as i64).expect("a remainder lies in range")
    }

    /// A number near `base` (one byte), or any (nine bytes).
    pub(super) fn near(&mut self, base: u64) -> u64 {
        match self.u8() as i8 {
            i8::MIN => self.u64(),
            difference => base.wrapping_add_signed(i64::from(difference)),
        }
    }
}

/// Writes bytes that [`Input::near`] reads as `value`.
pub(super) fn put_near(out: &mut Vec<u8>, value: u64, base: u64) {
    match i8::try_from(value.wrapping_sub(base) as i64) {
        Ok(difference) if difference != i8::MIN => out.push(difference as u8),
        _ => {
            out.push(i8::MIN as u8);
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
}
