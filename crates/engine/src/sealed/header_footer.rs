//! Header and footer of a sealed file. Little-endian.

use super::FileId;
use crate::journal::format::{u16_at, u32_at, u64_at};

/// The version of sealed files: of their headers, blocks, indexes and footers.
///
/// To change what is written:
/// 1. A new optional attribute of a message is a new field number in `table/entry_head.rs`, *critical* if a reader that
///    skips it would do wrong; a new fact about a whole file is a new field at the end of its index. Neither needs a
///    new version.
/// 2. Anything else raises this number. Keep the old reader beside the new one, under its version: sealed files
///    live as long as the messages in them.
/// 3. Magic, version and checksum of the header never move, so that every version can distinguish damage from a newer
///    format.
/// 4. Describe it in `docs/format.md`, and put files of the released version into `tests/fixtures/sealed/` first.
pub(crate) const FORMAT_VERSION: u16 = 1;

/// The length of a header in bytes.
pub(crate) const HEADER_LEN: usize = 32;
/// The length of a footer in bytes.
pub(super) const FOOTER_LEN: usize = 32;

const FOOTER_MAGIC: [u8; 8] = *b"DWELLEND";

/// Why a header or footer is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadFrame {
    Damaged(&'static str),
    Newer(u16),
}

/// The header of a sealed file.
///
/// | bytes | field |
/// |---|---|
/// | 0–7 | magic: `DWELLTAB`, `DWELLNUM`, `DWELLKEY` |
/// | 8–9 | format version |
/// | 10–11 | shard |
/// | 12–15 | number of the file |
/// | 16–23 | directory |
/// | 24–27 | zero |
/// | 28–31 | CRC-32 of bytes 0–27, salted |
pub(super) fn header(name: FileId) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[0..8].copy_from_slice(&name.kind.magic());
    bytes[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[10..12].copy_from_slice(&name.shard.to_le_bytes());
    bytes[12..16].copy_from_slice(&name.number.to_le_bytes());
    bytes[16..24].copy_from_slice(&name.directory.to_le_bytes());
    let checksum = name.salt().checksum(&bytes[..28]);
    bytes[28..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Checks the header of the file with this name.
pub(super) fn check_header(bytes: &[u8; HEADER_LEN], name: FileId) -> Result<(), BadFrame> {
    if name.salt().checksum(&bytes[..28]) != u32_at(bytes, 28) {
        return Err(BadFrame::Damaged("the file's header fails its checksum"));
    }
    if bytes[..8] != name.kind.magic() {
        return Err(BadFrame::Damaged("the file does not start with its magic"));
    }
    let version = u16_at(bytes, 8);
    if version > FORMAT_VERSION {
        return Err(BadFrame::Newer(version));
    }
    if *bytes != header(name) {
        return Err(BadFrame::Damaged("the file's header holds values that nobody writes"));
    }
    Ok(())
}

/// Whether these bytes are the header of the file with this name.
pub(crate) fn is_header_of(bytes: &[u8], name: FileId) -> bool {
    bytes.first_chunk().is_some_and(|bytes| check_header(bytes, name).is_ok())
}

/// The footer of a sealed file.
///
/// | bytes | field |
/// |---|---|
/// | 0–7 | magic, `DWELLEND` |
/// | 8–15 | where the index begins; it ends where the footer begins |
/// | 16–23 | length of the file |
/// | 24–27 | CRC-32 of the index, salted |
/// | 28–31 | CRC-32 of bytes 0–27, salted |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) index_at: u64,
    pub(super) file_len: u64,
    pub(super) index_checksum: u32,
}

impl Footer {
    pub(super) fn encode(&self, name: FileId) -> [u8; FOOTER_LEN] {
        let mut bytes = [0; FOOTER_LEN];
        bytes[0..8].copy_from_slice(&FOOTER_MAGIC);
        bytes[8..16].copy_from_slice(&self.index_at.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.file_len.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.index_checksum.to_le_bytes());
        let checksum = name.salt().checksum(&bytes[..28]);
        bytes[28..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes the footer of the file with this name and length.
    pub(super) fn decode(
        bytes: &[u8; FOOTER_LEN],
        name: FileId,
        file_len: u64,
    ) -> Result<Footer, &'static str> {
        if name.salt().checksum(&bytes[..28]) != u32_at(bytes, 28) || bytes[..8] != FOOTER_MAGIC {
            return Err("the file does not end with its footer");
        }
        let footer = Footer {
            index_at: u64_at(bytes, 8),
            file_len: u64_at(bytes, 16),
            index_checksum: u32_at(bytes, 24),
        };
        let index_end = file_len - FOOTER_LEN as u64;
        if footer.file_len != file_len || !(HEADER_LEN as u64..=index_end).contains(&footer.index_at) {
            return Err("the file's footer does not fit its length");
        }
        Ok(footer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::FileKind;
    use super::*;

    const NAME: FileId = FileId { directory: 77, shard: 3, kind: FileKind::Table, number: 12 };

    #[test]
    fn every_flipped_bit_of_header_and_footer_is_noticed() {
        let bytes = header(NAME);
        assert_eq!(check_header(&bytes, NAME), Ok(()));
        assert!(check_header(&bytes, FileId { number: 13, ..NAME }).is_err(), "a renamed file");
        let footer = Footer { index_at: 100, file_len: 200, index_checksum: 5 };
        let end = footer.encode(NAME);
        assert_eq!(Footer::decode(&end, NAME, 200), Ok(footer));
        assert!(Footer::decode(&end, NAME, 201).is_err(), "of another length");
        for bit in 0..HEADER_LEN * 8 {
            let (mut bytes, mut end) = (bytes, end);
            bytes[bit / 8] ^= 1 << (bit % 8);
            end[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(check_header(&bytes, NAME), Err(BadFrame::Damaged(_))), "{bit}");
            assert!(Footer::decode(&end, NAME, 200).is_err(), "{bit}");
        }
    }

    #[test]
    fn a_later_version_is_told_from_damage() {
        let mut bytes = header(NAME);
        bytes[8..10].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
        let checksum = NAME.salt().checksum(&bytes[..28]);
        bytes[28..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(check_header(&bytes, NAME), Err(BadFrame::Newer(FORMAT_VERSION + 1)));
    }
}
