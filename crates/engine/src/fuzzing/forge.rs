//! Manifests that leave something out, for simulations that have to notice.

use std::path::Path;

use crate::disk::MemoryDisk;
use crate::manifest::{self, Manifest};

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// That an entry of a due file is settled.
    SettledBit,
    /// The newest run of numbers: where messages lie that were moved or retired last.
    NewestRun,
    /// That a message is leased whose copy lies in a due file.
    Held,
}

fn read(bytes: &[u8]) -> Option<Manifest> {
    let (disk, dir) = (MemoryDisk::new(), Path::new("/d"));
    disk.put_file(&dir.join(manifest::FILE), bytes.to_vec());
    Manifest::read(&disk, dir).ok()
}

/// The manifest with its checksums right and one thing left out; nothing if it has none of that.
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

/// The segment that the journal is read back from.
pub fn start(bytes: &[u8]) -> Option<u64> {
    Some(read(bytes)?.checkpoint.start)
}
