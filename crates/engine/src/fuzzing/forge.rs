//! Manifests that omit something, as mutants for simulations that have to notice.

use std::path::Path;

use crate::disk::MemoryDisk;
use crate::manifest::{self, Manifest};

/// What is omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// The settled bit of an entry of a table.
    SettledBit,
    /// The newest run of numbers: the places of the messages that were moved or flushed last.
    NewestRun,
    /// A held message: it is leased, and its copy lies in a table.
    Held,
}

fn read(bytes: &[u8]) -> Option<Manifest> {
    let (disk, dir) = (MemoryDisk::new(), Path::new("/d"));
    disk.put_file(&dir.join(manifest::FILE), bytes.to_vec());
    Manifest::read(&disk, dir).ok()
}

/// The manifest with valid checksums and one thing omitted; `None` if it has no such thing.
pub fn forge(bytes: &[u8], forgery: Forgery) -> Option<Vec<u8>> {
    let mut manifest = read(bytes)?;
    let checkpoint = &mut manifest.checkpoint;
    match forgery {
        Forgery::SettledBit => {
            let held: Vec<_> =
                checkpoint.held.iter().map(|held| (held.copy.file.get(), held.copy.ordinal)).collect();
            let mut settled = checkpoint.files.iter_mut().flat_map(|file| {
                let number = file.number;
                let ordinals: Vec<u32> =
                    (0..file.settled.len()).filter(|ordinal| file.settled.has(*ordinal)).collect();
                let free = ordinals.into_iter().find(|ordinal| !held.contains(&(number, *ordinal)));
                free.map(|ordinal| (file, ordinal))
            });
            let (file, ordinal) = settled.next()?;
            file.settled.clear(ordinal);
        }
        Forgery::NewestRun if checkpoint.numbers.is_empty() => return None,
        Forgery::NewestRun => drop(checkpoint.numbers.remove(0)),
        Forgery::Held => drop(checkpoint.held.pop()?),
    }
    Some(manifest.encode())
}

/// The segment that replay starts from.
pub fn start(bytes: &[u8]) -> Option<u64> {
    Some(read(bytes)?.checkpoint.start)
}
