//! The manifest: which files are the state of a data directory. It is read before anything else.
//!
//! It is never changed in place: a new one is written under another name, synced, renamed over the old one, and the
//! directory is synced. So it is whole at every moment, and damage in it is never a torn write.

use std::io;
use std::path::Path;

use dwell_model::Timestamp;

use crate::OpenError;
use crate::checkpoint::{Checkpoint, file_name};
use crate::disk::Disk;
use crate::journal::FORMAT_VERSION;
use crate::journal::encoding::Unreadable;
use crate::journal::format::{u16_at, u32_at, u64_at};
use crate::sealed::{FileId, FileKind};

/// The manifest's file name.
pub(crate) const FILE: &str = "MANIFEST";
/// The name under which a new manifest is written.
pub(crate) const NEW_FILE: &str = "MANIFEST.new";

const MAGIC: [u8; 8] = *b"DWELLMAN";
/// The size of its first part in bytes.
const LEN: usize = 64;

/// A data directory's manifest, little-endian.
///
/// | bytes | field |
/// |---|---|
/// | 0–7 | magic, `DWELLMAN` |
/// | 8–9 | format version, 1 |
/// | 10–11 | number of shards, 1 |
/// | 12–15 | incarnation: how often the directory was opened |
/// | 16–23 | directory: a random number, drawn when it was created |
/// | 24–31 | when it was created, wall clock, milliseconds |
/// | 32–39 | newest: a segment of this number or a higher one exists; 0 if none need exist |
/// | 40–47 | next number: lower ones are no longer given to messages |
/// | 48–55 | length of the second part |
/// | 56–59 | CRC-32 (IEEE) of the second part |
/// | 60–63 | CRC-32 (IEEE) of bytes 0–59 |
/// | 64– | the second part: the [`Checkpoint`] |
///
/// To change it, see [`FORMAT_VERSION`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) incarnation: u32,
    pub(crate) directory: u64,
    pub(crate) made: Timestamp,
    pub(crate) newest: u64,
    pub(crate) next_number: u64,
    pub(crate) checkpoint: Checkpoint,
}

impl Manifest {
    /// The names of the index runs of numbers and of keys.
    pub(crate) fn run_names(&self) -> impl Iterator<Item = FileId> {
        let Checkpoint { numbers, keys, .. } = &self.checkpoint;
        let numbers = numbers.iter().map(|number| (FileKind::Numbers, number));
        let runs = numbers.chain(keys.iter().map(|number| (FileKind::Keys, number)));
        runs.map(|(kind, number)| file_name(self.directory, kind, *number))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let checkpoint = self.checkpoint.encode(self.directory);
        let mut bytes = self.encode_first(FORMAT_VERSION, &checkpoint).to_vec();
        bytes.extend_from_slice(&checkpoint);
        bytes
    }

    fn encode_first(&self, version: u16, checkpoint: &[u8]) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&version.to_le_bytes());
        bytes[10..12].copy_from_slice(&1u16.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.directory.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.made.as_ms().to_le_bytes());
        bytes[32..40].copy_from_slice(&self.newest.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.next_number.to_le_bytes());
        bytes[48..56].copy_from_slice(&(checkpoint.len() as u64).to_le_bytes());
        bytes[56..60].copy_from_slice(&crc32fast::hash(checkpoint).to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the manifest of `dir`.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Manifest, OpenError> {
        let path = dir.join(FILE);
        let io = |error| OpenError::io(&path, error);
        let file = disk.open(&path).map_err(io)?;
        let len = file.size().map_err(io)?;
        let mut bytes = [0; LEN];
        let readable = usize::try_from(len).map_or(LEN, |len| len.min(LEN));
        file.read_at(&mut bytes[..readable], 0).map_err(io)?;
        if readable < LEN {
            return Err(OpenError::damaged(&path, len, "the manifest is shorter than 64 bytes"));
        }
        if crc32fast::hash(&bytes[..60]) != u32_at(&bytes, 60) {
            if bytes[..8] != MAGIC {
                return Err(OpenError::damaged(&path, 0, "the manifest does not start with its magic"));
            }
            return Err(OpenError::damaged(&path, 0, "the manifest fails its checksum"));
        }
        let version = u16_at(&bytes, 8);
        if bytes[..8] == MAGIC && version > FORMAT_VERSION {
            return Err(OpenError::NewerFormat { file: path, found: version, known: FORMAT_VERSION });
        }
        let made = i64::try_from(u64_at(&bytes, 24)).ok().and_then(|ms| Timestamp::from_ms(ms).ok());
        let mut manifest = Manifest {
            incarnation: u32_at(&bytes, 12),
            directory: u64_at(&bytes, 16),
            made: made.unwrap_or(Timestamp::MIN),
            newest: u64_at(&bytes, 32),
            next_number: u64_at(&bytes, 40),
            checkpoint: Checkpoint::default(),
        };
        let rest = len - LEN as u64;
        let damaged = |at, reason: &str| Err(OpenError::damaged(&path, at, reason));
        if u64_at(&bytes, 48) != rest {
            return damaged(48, "the manifest has another length than it says");
        }
        let mut checkpoint = vec![0; usize::try_from(rest).unwrap_or(usize::MAX)];
        file.read_at(&mut checkpoint, LEN as u64).map_err(io)?;
        if version == 0 || manifest.encode_first(version, &checkpoint) != bytes {
            return damaged(0, "the manifest holds values that nobody writes");
        }
        manifest.checkpoint =
            Checkpoint::decode(&checkpoint, manifest.directory).map_err(|why| match why {
                Unreadable::Malformed(reason) => OpenError::damaged(&path, LEN as u64, reason),
                Unreadable::Newer(reason) => {
                    OpenError::NewerRecord { file: path.clone(), offset: LEN as u64, reason }
                }
            })?;
        Ok(manifest)
    }

    /// Replaces the manifest of `dir`, if there is one, durably.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
        let new = dir.join(NEW_FILE);
        let written = self.write_new(disk, dir).and_then(|()| Manifest::replace(disk, dir));
        written.map_err(|error| OpenError::io(&new, error))
    }

    /// Writes it as [`NEW_FILE`], durable except for its name.
    pub(crate) fn write_new(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let file = disk.create(&dir.join(NEW_FILE))?;
        file.write_at(&self.encode(), 0)?;
        file.sync()
    }

    /// Renames the new manifest over the old one. After an error either of them may be in place.
    pub(crate) fn replace(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        disk.rename(&dir.join(NEW_FILE), &dir.join(FILE))?;
        disk.sync_dir(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Crash, MemoryDisk};

    fn manifest() -> Manifest {
        Manifest {
            incarnation: 7,
            directory: u64::MAX - 3,
            made: Timestamp::from_ms(1_795_000_000_000).unwrap(),
            newest: 12,
            next_number: 1 << 52,
            checkpoint: Checkpoint::default(),
        }
    }

    fn dir() -> (MemoryDisk, &'static Path) {
        let disk = MemoryDisk::new();
        disk.create_dir(Path::new("/d")).unwrap();
        (disk, Path::new("/d"))
    }

    #[test]
    fn is_read_as_it_was_written() {
        let (disk, dir) = dir();
        manifest().write(&disk, dir).unwrap();
        assert_eq!(Manifest::read(&disk, dir).unwrap(), manifest());
    }

    #[test]
    fn every_flipped_byte_and_every_cut_is_damage() {
        let (disk, dir) = dir();
        let path = dir.join(FILE);
        for at in 0..manifest().encode().len() {
            let mut bytes = manifest().encode();
            bytes[at] ^= 0x20;
            disk.put_file(&path, bytes);
            assert_eq!(Manifest::read(&disk, dir).unwrap_err().code(), "damaged", "byte {at}");
            disk.put_file(&path, manifest().encode()[..at].to_vec());
            assert_eq!(Manifest::read(&disk, dir).unwrap_err().code(), "damaged", "cut at {at}");
        }
    }

    #[test]
    fn a_version_that_there_never_was_is_damage() {
        let (disk, dir) = dir();
        let mut bytes = manifest().encode_first(0, &[]);
        let checksum = crc32fast::hash(&bytes[..60]);
        bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
        disk.put_file(&dir.join(FILE), bytes.to_vec());
        assert_eq!(Manifest::read(&disk, dir).unwrap_err().code(), "damaged");
    }

    #[test]
    fn a_later_version_is_told_from_damage() {
        let (disk, dir) = dir();
        let mut bytes = manifest().encode();
        bytes[8] = 99;
        let checksum = crc32fast::hash(&bytes[..60]);
        bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
        disk.put_file(&dir.join(FILE), bytes);
        assert_eq!(Manifest::read(&disk, dir).unwrap_err().code(), "newer_format");
    }

    #[test]
    fn is_the_old_or_the_new_one_after_a_crash_at_any_moment() {
        let newer = Manifest { incarnation: 8, ..manifest() };
        for crash_at in 1..=5 {
            for seed in 0..20 {
                let (disk, dir) = dir();
                manifest().write(&disk, dir).unwrap();
                disk.power_off_at(disk.changes() + crash_at);
                let written = newer.write(&disk, dir);
                disk.power_on(Crash::Holes(seed));
                let found = Manifest::read(&disk, dir).unwrap();
                assert!(found == manifest() || found == newer);
                assert!(written.is_err() || found == newer, "crash at {crash_at}, seed {seed}");
            }
        }
    }
}
