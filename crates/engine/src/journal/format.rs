//! The fixed parts of the journal: file names, segment header, batch header. Little-endian.
//!
//! `docs/format.md` describes every byte, and what its checks can and cannot detect.

use crc32fast::Hasher;
use dwell_model::Timestamp;

/// The version of a data directory, which its manifest states.
///
/// Nothing was released yet: until then a format may be replaced, with its fixtures and its page, in one commit. To
/// change what is written from then on:
/// 1. A new optional attribute of a record is a new field number in `record.rs`, *critical* if a reader that skips it
///    would do wrong. It needs no new version. Nor does a new kind of record or a new setting: a version that does
///    not know it refuses the directory as newer.
/// 2. Anything else raises this number. Keep the old reader beside the new one, under its version.
/// 3. Magic, version and checksum of manifest and segment header never move, so that every version can distinguish
///    damage from a newer format.
/// 4. Describe it in `docs/format.md`, and write a data directory with the released version into `tests/fixtures/`
///    first: the test that opens them is the proof that old data is still read.
pub const FORMAT_VERSION: u16 = 1;

/// The version of segments and their records.
pub(crate) const SEGMENT_VERSION: u16 = 1;

/// The identity of a segment. Every checksum in it is salted with this, so that bytes of another directory, shard or
/// segment never pass; batches also name the incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentName {
    /// The random number of the directory, drawn when it was created.
    pub(crate) directory: u64,
    pub(crate) shard: u16,
    pub(crate) segment: u64,
}

impl SegmentName {
    /// `journal-SSS-NNNNNNNNNNNN`: shard and number in decimal, padded so that names sort as numbers do.
    pub(crate) fn file_name(&self) -> String {
        format!("journal-{:03}-{:012}", self.shard, self.segment)
    }

    /// Parses shard and number from the name of a segment's file.
    pub(crate) fn parse(file_name: &str) -> Option<(u16, u64)> {
        let (shard, segment) = file_name.strip_prefix("journal-")?.split_once('-')?;
        let parsed = (shard.parse().ok()?, segment.parse().ok()?);
        let name = SegmentName { directory: 0, shard: parsed.0, segment: parsed.1 };
        (name.file_name() == file_name).then_some(parsed)
    }

    /// The initial value of every checksum in this segment: the CRC-32 (IEEE) of directory (8 bytes), shard (2) and
    /// number (8), little-endian.
    pub(crate) fn salt(&self) -> Salt {
        let mut hasher = Hasher::new();
        hasher.update(&self.directory.to_le_bytes());
        hasher.update(&self.shard.to_le_bytes());
        hasher.update(&self.segment.to_le_bytes());
        Salt(hasher.finalize())
    }
}

/// The initial value of the checksums of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Salt(u32);

impl Salt {
    /// The CRC-32 (IEEE) of `name`: for files other than segments.
    pub(crate) fn of(name: &[u8]) -> Salt {
        Salt(crc32fast::hash(name))
    }

    /// The CRC-32 (IEEE) of `bytes`, continued from the salt.
    #[inline]
    pub(crate) fn checksum(self, bytes: &[u8]) -> u32 {
        let mut hasher = Hasher::new_with_initial(self.0);
        hasher.update(bytes);
        hasher.finalize()
    }

    /// The checksum that is stored with a body: salted with the message's number too, so that a body read from a
    /// wrong place is detected.
    #[inline]
    pub(crate) fn body_checksum(self, number: u64, body: &[u8]) -> u32 {
        self.of_body(number).checksum(body)
    }

    /// The initial value of a body's checksum.
    #[inline]
    pub(crate) fn of_body(self, number: u64) -> Salt {
        Salt(self.0 ^ (number as u32) ^ (number >> 32) as u32)
    }

    /// The initial value of a checksum.
    pub(crate) fn start(self) -> u32 {
        self.0
    }
}

/// The header of a segment.
///
/// | bytes | field |
/// |---|---|
/// | 0–7 | magic, `DWELLJNL` |
/// | 8–9 | format version |
/// | 10–11 | shard |
/// | 12–15 | incarnation that created it |
/// | 16–23 | segment number |
/// | 24–31 | directory |
/// | 32–39 | first: the sequence that its first batch has |
/// | 40–47 | oldest: the number of the oldest segment that was still needed when it was created |
/// | 48–55 | next number: lower ones were given to messages, or will not be given any more |
/// | 56–63 | when it was created, wall clock, milliseconds |
/// | 64 | 1 if batches are synced before they are answered, else 0 |
/// | 65–67 | zero |
/// | 68–71 | CRC-32 of bytes 0–67, salted |
///
/// When it was created, all segments before it were synced, up to the sequence before `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) name: SegmentName,
    pub(crate) incarnation: u32,
    pub(crate) first: u64,
    pub(crate) oldest: u64,
    pub(crate) next_number: u64,
    pub(crate) made: Timestamp,
    pub(crate) synced_answers: bool,
}

const SEGMENT_MAGIC: [u8; 8] = *b"DWELLJNL";

/// The highest segment number and sequence. They rise by one, so that neither is reached, and arithmetic above it
/// cannot overflow.
const HIGHEST_COUNT: u64 = u64::MAX >> 1;

/// Why a segment header is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    Damaged(&'static str),
    Newer(u16),
}

impl SegmentHeader {
    pub(crate) const LEN: usize = 72;

    pub(crate) fn encode(&self) -> [u8; SegmentHeader::LEN] {
        let mut bytes = [0; SegmentHeader::LEN];
        bytes[0..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..10].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.name.shard.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.name.segment.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.name.directory.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.oldest.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.next_number.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.made.as_ms().to_le_bytes());
        bytes[64] = u8::from(self.synced_answers);
        let checksum = self.name.salt().checksum(&bytes[..68]);
        bytes[68..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes the header of the segment with this name.
    pub(crate) fn decode(
        bytes: &[u8; SegmentHeader::LEN],
        name: SegmentName,
    ) -> Result<SegmentHeader, BadHeader> {
        if name.salt().checksum(&bytes[..68]) != u32_at(bytes, 68) {
            return Err(BadHeader::Damaged("the segment's header fails its checksum"));
        }
        let version = u16_at(bytes, 8);
        if bytes[..8] != SEGMENT_MAGIC {
            return Err(BadHeader::Damaged("the segment does not start with its magic"));
        }
        if version > SEGMENT_VERSION {
            return Err(BadHeader::Newer(version));
        }
        let header = SegmentHeader {
            name,
            incarnation: u32_at(bytes, 12),
            first: u64_at(bytes, 32),
            oldest: u64_at(bytes, 40),
            next_number: u64_at(bytes, 48),
            made: instant(u64_at(bytes, 56))
                .ok_or(BadHeader::Damaged("the segment was made at no instant"))?,
            synced_answers: bytes[64] == 1,
        };
        // The salt of the checksum covers directory, shard and number already.
        if header.encode() != *bytes {
            return Err(BadHeader::Damaged("the segment's header holds values that nobody writes"));
        }
        if header.first == 0 || header.oldest > name.segment {
            return Err(BadHeader::Damaged("the segment's header contradicts itself"));
        }
        if header.first.max(name.segment) > HIGHEST_COUNT {
            let reason = "the segment's header counts further than anybody can have written";
            return Err(BadHeader::Damaged(reason));
        }
        Ok(header)
    }
}

/// The header of a batch, before its records.
///
/// | bytes | field |
/// |---|---|
/// | 0–3 | marker, `DWLB` |
/// | 4–7 | length of the records in bytes |
/// | 8–15 | sequence: rises by one from batch to batch, across segments |
/// | 16–23 | synced: the highest sequence known to be synced when this was written |
/// | 24–31 | wall clock of the commands in it, milliseconds |
/// | 32–35 | incarnation, that of the segment |
/// | 36–39 | number of records |
/// | 40–43 | CRC-32 of the records, salted |
/// | 44–47 | CRC-32 of bytes 0–43, salted |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) len: u32,
    pub(crate) sequence: u64,
    pub(crate) synced: u64,
    pub(crate) now: Timestamp,
    pub(crate) incarnation: u32,
    pub(crate) records: u32,
    pub(crate) checksum: u32,
}

pub(crate) const BATCH_MARKER: [u8; 4] = *b"DWLB";

impl BatchHeader {
    pub(crate) const LEN: usize = 48;

    pub(crate) fn encode(&self, salt: Salt) -> [u8; BatchHeader::LEN] {
        let mut bytes = [0; BatchHeader::LEN];
        bytes[0..4].copy_from_slice(&BATCH_MARKER);
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.synced.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.now.as_ms().to_le_bytes());
        bytes[32..36].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.records.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.checksum.to_le_bytes());
        let checksum = salt.checksum(&bytes[..44]);
        bytes[44..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes an undamaged batch header of this segment; `None` for anything else.
    pub(crate) fn decode(bytes: &[u8], salt: Salt) -> Option<BatchHeader> {
        let bytes: &[u8; BatchHeader::LEN] = bytes.first_chunk()?;
        if bytes[..4] != BATCH_MARKER || salt.checksum(&bytes[..44]) != u32_at(bytes, 44) {
            return None;
        }
        Some(BatchHeader {
            len: u32_at(bytes, 4),
            sequence: u64_at(bytes, 8),
            synced: u64_at(bytes, 16),
            now: instant(u64_at(bytes, 24))?,
            incarnation: u32_at(bytes, 32),
            records: u32_at(bytes, 36),
            checksum: u32_at(bytes, 40),
        })
    }
}

fn instant(ms: u64) -> Option<Timestamp> {
    Timestamp::from_ms(i64::try_from(ms).ok()?).ok()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: SegmentName = SegmentName { directory: 77, shard: 3, segment: 12 };

    #[test]
    fn file_names_sort_as_numbers_and_only_ours_are_read() {
        assert_eq!(NAME.file_name(), "journal-003-000000000012");
        assert_eq!(SegmentName::parse(&NAME.file_name()), Some((3, 12)));
        for foreign in ["journal-3-12", "journal-003-12", "journal-003-+00000000012", "MANIFEST", "journal-"]
        {
            assert_eq!(SegmentName::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_segment_header_survives_and_every_flipped_bit_is_noticed() {
        let header = SegmentHeader {
            name: NAME,
            incarnation: 5,
            first: 1 << 40,
            oldest: 11,
            next_number: 1 << 50,
            made: Timestamp::from_ms(1_795_000_000_000).unwrap(),
            synced_answers: true,
        };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes, NAME), Ok(header));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(SegmentHeader::decode(&damaged, NAME), Err(BadHeader::Damaged(_))), "{bit}");
        }
        let elsewhere = SegmentName { segment: 13, ..NAME };
        assert!(SegmentHeader::decode(&bytes, elsewhere).is_err(), "a renamed segment");
    }

    #[test]
    fn a_segment_header_with_a_right_checksum_that_nobody_writes_is_damage() {
        let (first, oldest, made) = (5, 12, Timestamp::MIN);
        let (incarnation, next_number, synced_answers) = (5, 1, true);
        let sound =
            SegmentHeader { name: NAME, incarnation, first, oldest, next_number, made, synced_answers };
        assert_eq!(SegmentHeader::decode(&sound.encode(), NAME), Ok(sound));
        // The highest valid segment number and sequence.
        let last = SegmentName { segment: HIGHEST_COUNT, ..NAME };
        for highest in [
            SegmentHeader { first: HIGHEST_COUNT, ..sound },
            SegmentHeader { name: last, ..sound },
            SegmentHeader { name: last, first: HIGHEST_COUNT, oldest: HIGHEST_COUNT, ..sound },
        ] {
            assert_eq!(SegmentHeader::decode(&highest.encode(), highest.name), Ok(highest));
        }
        let far = SegmentName { segment: HIGHEST_COUNT + 1, ..NAME };
        for forged in [
            SegmentHeader { first: 0, ..sound },
            SegmentHeader { oldest: 13, ..sound },
            SegmentHeader { first: HIGHEST_COUNT + 1, ..sound },
            SegmentHeader { name: far, ..sound },
        ] {
            let decoded = SegmentHeader::decode(&forged.encode(), forged.name);
            assert!(matches!(decoded, Err(BadHeader::Damaged(_))), "{forged:?}");
        }
    }

    #[test]
    fn a_later_version_is_told_from_damage() {
        let header = SegmentHeader {
            name: NAME,
            incarnation: 5,
            first: 1,
            oldest: 1,
            next_number: 1,
            made: Timestamp::MIN,
            synced_answers: false,
        };
        let mut bytes = header.encode();
        bytes[8..10].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
        let checksum = NAME.salt().checksum(&bytes[..68]);
        bytes[68..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes, NAME), Err(BadHeader::Newer(FORMAT_VERSION + 1)));
    }

    #[test]
    fn a_batch_header_survives_and_every_flipped_bit_is_noticed() {
        let header = BatchHeader {
            len: 1000,
            sequence: 9,
            synced: 8,
            now: Timestamp::from_ms(42).unwrap(),
            incarnation: 5,
            records: 7,
            checksum: 0xdead_beef,
        };
        let bytes = header.encode(NAME.salt());
        assert_eq!(BatchHeader::decode(&bytes, NAME.salt()), Some(header));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BatchHeader::decode(&damaged, NAME.salt()), None, "{bit}");
        }
        assert_eq!(BatchHeader::decode(&bytes, SegmentName { directory: 78, ..NAME }.salt()), None);
    }
}
