//! The identity of a sealed file.

use crate::journal::format::Salt;

/// The kinds of sealed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FileKind {
    /// Tables: messages.
    Table,
    /// Runs of the number index: from numbers to the places of messages.
    Numbers,
    /// Runs of the key index: from hashes of queue and key to numbers.
    Keys,
}

impl FileKind {
    const ALL: [FileKind; 3] = [FileKind::Table, FileKind::Numbers, FileKind::Keys];

    const fn word(self) -> &'static str {
        match self {
            FileKind::Table => "table",
            FileKind::Numbers => "numbers",
            FileKind::Keys => "keys",
        }
    }

    /// The first bytes of its files.
    pub(super) const fn magic(self) -> [u8; 8] {
        match self {
            FileKind::Table => *b"DWELLTAB",
            FileKind::Numbers => *b"DWELLNUM",
            FileKind::Keys => *b"DWELLKEY",
        }
    }
}

/// The identity of a sealed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileId {
    /// The random number of the directory, drawn when it was created.
    pub(crate) directory: u64,
    pub(crate) shard: u16,
    pub(crate) kind: FileKind,
    /// The number of the file, never reused in the shard for a file of this kind.
    pub(crate) number: u32,
}

impl FileId {
    /// `table-SSS-NNNNNNNNNN`: kind, shard and number in decimal, padded so that names sort as numbers do.
    pub(crate) fn file_name(&self) -> String {
        format!("{}-{:03}-{:010}", self.kind.word(), self.shard, self.number)
    }

    /// Parses kind, shard and number from the name of a sealed file.
    pub(crate) fn parse(file_name: &str) -> Option<(FileKind, u16, u32)> {
        let mut parts = file_name.split('-');
        let word = parts.next()?;
        let kind = FileKind::ALL.into_iter().find(|kind| kind.word() == word)?;
        let (shard, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let name = FileId { directory: 0, shard, kind, number };
        (name.file_name() == file_name).then_some((kind, shard, number))
    }

    /// The initial value of every checksum in the file: the CRC-32 (IEEE) of directory (8 bytes), shard (2), number
    /// (4) and magic (8), little-endian.
    pub(crate) fn salt(&self) -> Salt {
        let mut bytes = Vec::with_capacity(22);
        bytes.extend_from_slice(&self.directory.to_le_bytes());
        bytes.extend_from_slice(&self.shard.to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.kind.magic());
        Salt::of(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_read_back_and_foreign_ones_are_not() {
        for (kind, text) in [
            (FileKind::Table, "table-003-0000000012"),
            (FileKind::Numbers, "numbers-003-0000000012"),
            (FileKind::Keys, "keys-003-0000000012"),
        ] {
            let name = FileId { directory: 7, shard: 3, kind, number: 12 };
            assert_eq!(name.file_name(), text);
            assert_eq!(FileId::parse(text), Some((kind, 3, 12)));
        }
        for foreign in [
            "table-3-12",
            "table-003-12",
            "table-003-+000000012",
            "table-003-0000000012-",
            "table",
            "MANIFEST",
        ] {
            assert_eq!(FileId::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn each_part_of_a_name_salts() {
        let name = FileId { directory: 7, shard: 3, kind: FileKind::Table, number: 12 };
        let others = [
            FileId { directory: 8, ..name },
            FileId { shard: 4, ..name },
            FileId { kind: FileKind::Keys, ..name },
            FileId { number: 13, ..name },
        ];
        assert!(others.iter().all(|other| other.salt() != name.salt()));
    }
}
