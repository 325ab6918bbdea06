//! Sets of settlements: equal to a list of bits, in memory and as bytes.

use super::input::Input;
use crate::journal::format::Salt;
use crate::table::DeletionBitmap;

/// The first byte says what follows: a set as bytes, whose checksum is corrected; or a length (3 bytes) and ranges (3
/// bytes and 2 bytes each) that are settled one after the other.
pub fn deletion_bitmap(data: &[u8]) {
    let mut input = Input::new(data);
    if input.u8() & 1 == 0 { read(input.rest()) } else { check(&mut input) }
}

fn salt() -> Salt {
    Salt::of(b"a file")
}

fn read(bytes: &[u8]) {
    // The length first, the checksum last.
    let mut sealed = (bytes.len() as u32 + 4).to_le_bytes().to_vec();
    sealed.extend_from_slice(bytes);
    sealed.extend_from_slice(&salt().checksum(&sealed).to_le_bytes());
    let Ok((set, len)) = DeletionBitmap::decode(&sealed, salt()) else { return };
    assert_eq!(len, sealed.len());
    let mut again = Vec::new();
    set.encode(salt(), &mut again);
    assert_eq!(DeletionBitmap::decode(&again, salt()), Ok((set, again.len())), "what was written is read");
}

fn check(input: &mut Input<'_>) {
    let len = (u32::from(input.u8()) << 8 | u32::from(input.u8())) % 20_000;
    let mut set = DeletionBitmap::none(len);
    let mut model = vec![false; len as usize];
    while !input.is_empty() && len > 0 {
        let start = u32::from(input.u16()) % len;
        let end = (start + u32::from(input.u16() % 5_000) + 1).min(len);
        let ours = &mut model[start as usize..end as usize];
        let fresh = ours.iter().filter(|settled| !**settled).count() as u32;
        ours.fill(true);
        assert_eq!(set.set_range(start..end), fresh);
    }
    let live: Vec<u32> = (0..len).filter(|ordinal| !model[*ordinal as usize]).collect();
    assert_eq!((set.is_empty(), set.is_full()), (live.len() == len as usize, live.is_empty()));
    for ordinal in (0..len).step_by(97).chain(len.checked_sub(1)) {
        assert_eq!(set.has(ordinal), model[ordinal as usize]);
        let after = live.partition_point(|live| *live < ordinal);
        assert_eq!(set.live(ordinal..len) as usize, live.len() - after);
        assert_eq!(set.live(0..ordinal) as usize, after);
        assert_eq!(set.next_live(ordinal), live.get(after).copied());
    }
    let mut bytes = b"before".to_vec();
    set.encode(salt(), &mut bytes);
    let len = bytes.len() - 6;
    assert_eq!(DeletionBitmap::decode(&bytes[6..], salt()), Ok((set.clone(), len)));
    assert!(
        len <= 24 + model.len() / 8 + 16 * (model.len() / 4_096 + 1),
        "{len} bytes for {} bits",
        model.len()
    );
    let at = 6 + model.len() % len;
    bytes[at] ^= 1;
    assert!(DeletionBitmap::decode(&bytes[6..], salt()).is_err(), "a flipped bit");
    assert!(DeletionBitmap::decode(&bytes[6..at], salt()).is_err(), "a cut");
}
