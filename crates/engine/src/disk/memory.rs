//! A disk in memory that fails as real ones do: it forgets what was not synced, tears it, runs full, breaks.
//!
//! Each file and each directory exists twice: as the program sees it, and as it would be found after a
//! power failure. A sync copies the first to the second; [`MemoryDisk::power_on`] goes back to the second,
//! with as much of the difference as its [`Crash`] lets through.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile, DiskLock};

/// The unit in which writes are torn, in bytes.
const SECTOR: u64 = 512;

/// What a power failure leaves of the writes and names that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// None of them: the longest a disk may wait.
    Drop,
    /// All of them, and still not synced: the process died, the machine did not.
    Keep,
    /// Those up to a random moment, the last one in part.
    Prefix(u64),
    /// A random choice of sectors and names, in no order.
    Holes(u64),
}

/// Which calls a [`Fault`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Writes to files.
    Writes,
    /// Syncs of files and directories.
    Syncs,
    /// Reads from files.
    Reads,
    /// Everything that changes something: writes, syncs, making, moving, removing, resizing.
    Changes,
}

/// A failure to come.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Which calls are counted and fail.
    pub calls: Calls,
    /// How many of them succeed first.
    pub after: u64,
    /// How many fail then; [`u64::MAX`] for all.
    pub times: u64,
    /// What they fail with, such as EIO (`ErrorKind::Other`) or `StorageFull`.
    pub error: io::ErrorKind,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    dirs: BTreeSet<PathBuf>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    name_ops: Vec<NameOp>,
    files: BTreeMap<u64, Content>,
    next_file: u64,
    locks: BTreeSet<PathBuf>,
    /// Counts the lives of the machine: what was opened in an earlier one is of no use any more.
    life: u64,
    /// Changes asked for in this life.
    changes: u64,
    /// Changes asked for in all lives: the order in which they came.
    order: u64,
    /// The change that the power fails at.
    power_off_at: Option<u64>,
    is_off: bool,
    capacity: Option<u64>,
    faults: Vec<Fault>,
    syncs_lie: bool,
}

/// A file as the program sees it, and as the medium has it.
#[derive(Debug, Default)]
struct Content {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// What leads from `durable` to `seen`.
    ops: Vec<FileOp>,
}

#[derive(Debug)]
struct FileOp {
    /// The change it was, for an order over all files.
    at: u64,
    what: FileChange,
}

#[derive(Debug)]
enum FileChange {
    Write { offset: u64, bytes: Vec<u8> },
    Size(u64),
}

#[derive(Debug)]
struct NameOp {
    at: u64,
    removed: Option<PathBuf>,
    added: Option<(PathBuf, u64)>,
}

/// splitmix64 (Steele, Lea, Flood 2014): small, and the same on every machine.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

fn write_into(bytes: &mut Vec<u8>, at: u64, part: &[u8]) {
    let at = at as usize;
    if bytes.len() < at + part.len() {
        bytes.resize(at + part.len(), 0);
    }
    bytes[at..at + part.len()].copy_from_slice(part);
}

impl FileChange {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            FileChange::Write { offset, bytes: part } => write_into(bytes, *offset, part),
            FileChange::Size(len) => bytes.resize(*len as usize, 0),
        }
    }

    /// A random choice of the sectors that it touches.
    fn apply_some(&self, bytes: &mut Vec<u8>, chance: &mut Chance) {
        let FileChange::Write { offset, bytes: part } = self else {
            if chance.coin() {
                self.apply(bytes);
            }
            return;
        };
        let end = offset + part.len() as u64;
        let mut at = *offset;
        while at < end {
            let next = ((at / SECTOR + 1) * SECTOR).min(end);
            if chance.coin() {
                write_into(bytes, at, &part[(at - offset) as usize..(next - offset) as usize]);
            }
            at = next;
        }
    }

    /// The first so many bytes of it.
    fn apply_start(&self, bytes: &mut Vec<u8>, chance: &mut Chance) {
        if let FileChange::Write { offset, bytes: part } = self {
            let kept = chance.below(part.len() as u64 + 1) as usize;
            write_into(bytes, *offset, &part[..kept]);
        }
    }
}

impl NameOp {
    fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        if let Some(removed) = &self.removed {
            names.remove(removed);
        }
        if let Some((path, file)) = &self.added {
            names.insert(path.clone(), *file);
        }
    }
}

fn broken(message: &str) -> io::Error {
    io::Error::other(message)
}

impl State {
    /// Every call passes here; a change is counted, and may be the one that the power fails at.
    ///
    /// `Ok(true)` means: it fails, but leaves its trace among what was not synced.
    fn enter(&mut self, life: u64, calls: Calls) -> io::Result<bool> {
        if self.is_off || life != self.life {
            return Err(broken("the power is off"));
        }
        for fault in &mut self.faults {
            let concerned = fault.calls == calls || (fault.calls == Calls::Changes && calls != Calls::Reads);
            if !concerned {
                continue;
            }
            if fault.after > 0 {
                fault.after -= 1;
            } else if fault.times > 0 {
                fault.times -= 1;
                return Err(io::Error::new(fault.error, "a fault that the test asked for"));
            }
        }
        if calls == Calls::Reads {
            return Ok(false);
        }
        self.changes += 1;
        self.order += 1;
        if self.power_off_at == Some(self.changes) {
            self.is_off = true;
            return Ok(true);
        }
        Ok(false)
    }

    fn content(&mut self, file: u64) -> &mut Content {
        self.files.get_mut(&file).expect("a file's content lives as long as the machine")
    }

    fn change_file(&mut self, file: u64, what: FileChange) {
        let at = self.order;
        let content = self.content(file);
        what.apply(&mut content.seen);
        content.ops.push(FileOp { at, what });
    }

    fn change_names(&mut self, removed: Option<PathBuf>, added: Option<(PathBuf, u64)>) {
        let op = NameOp { at: self.order, removed, added };
        op.apply(&mut self.names);
        self.name_ops.push(op);
    }

    fn used(&self) -> u64 {
        self.names.values().map(|file| self.files[file].seen.len() as u64).sum()
    }

    /// How far a file of `old` bytes may grow towards `new`.
    fn grant(&self, old: u64, new: u64) -> u64 {
        match self.capacity {
            Some(capacity) if new > old => new.min(old + capacity.saturating_sub(self.used())),
            _ => new,
        }
    }

    fn has_dir(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(dir) if self.dirs.contains(dir) => Ok(()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl MemoryDisk {
    /// An empty disk without bound.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that failed while it held the lock should fail by its own message.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a failure to come.
    pub fn fail(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Takes back all failures that have not come.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// From now on holds at most so many bytes; `None` for no bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Bytes that its files have together.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// From now on syncs do nothing and report success: the disk that a store can not be safe on.
    pub fn lie_about_syncs(&self) {
        self.state().syncs_lie = true;
    }

    /// How many changes were asked for since power was last on: see [`Calls::Changes`].
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Lets the power fail at the `change`-th change (from 1) of this life. That one, too, reports an error.
    pub fn power_off_at(&self, change: u64) {
        self.state().power_off_at = Some(change);
    }

    /// Lets the power fail now.
    pub fn power_off(&self) {
        self.state().is_off = true;
    }

    /// Whether the power has failed.
    pub fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Starts the machine again, with what `crash` lets through of what was not synced. Files and locks of
    /// the life before are of no use any more.
    pub fn power_on(&self, crash: Crash) {
        let mut guard = self.state();
        let state = &mut *guard;
        match crash {
            Crash::Keep => {}
            Crash::Drop => state.lose(|_| false, &mut |_, _| {}),
            Crash::Holes(seed) => {
                let (mut for_names, mut for_files) = (Chance(!seed), Chance(seed));
                state.lose(|_| for_names.coin(), &mut |op, bytes| op.what.apply_some(bytes, &mut for_files));
            }
            Crash::Prefix(seed) => {
                let mut chance = Chance(seed);
                let last = state.unsynced_moment(&mut chance);
                state.lose(|op| op.at < last, &mut |op, bytes| match op.at.cmp(&last) {
                    Ordering::Less => op.what.apply(bytes),
                    Ordering::Equal => op.what.apply_start(bytes, &mut chance),
                    Ordering::Greater => {}
                });
            }
        }
        state.restart();
    }

    /// A file's bytes as the program sees them.
    pub fn read_file(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        Some(state.files[state.names.get(path)?].seen.clone())
    }

    /// Puts a file there, durably, as if it had always been so.
    pub fn put_file(&self, path: &Path, bytes: Vec<u8>) {
        let mut state = self.state();
        if let Some(dir) = path.parent() {
            state.dirs.extend(dir.ancestors().map(Path::to_owned));
        }
        let file = state.next_file;
        state.next_file += 1;
        state.files.insert(file, Content { seen: bytes.clone(), durable: bytes, ops: Vec::new() });
        state.names.insert(path.to_owned(), file);
        state.durable_names.insert(path.to_owned(), file);
    }

    /// Another disk with the files that this one shows now, all of them durable.
    pub fn copied(&self) -> MemoryDisk {
        let copy = MemoryDisk::new();
        let state = self.state();
        copy.state().dirs = state.dirs.clone();
        for (path, file) in &state.names {
            copy.put_file(path, state.files[file].seen.clone());
        }
        drop(state);
        copy
    }
}

impl State {
    /// One of the changes that were not synced.
    fn unsynced_moment(&self, chance: &mut Chance) -> u64 {
        let in_files = self.files.values().flat_map(|content| content.ops.iter().map(|op| op.at));
        let mut moments: Vec<u64> = in_files.chain(self.name_ops.iter().map(|op| op.at)).collect();
        moments.sort_unstable();
        moments.get(chance.below(moments.len() as u64) as usize).copied().unwrap_or(0)
    }

    /// Goes back to what the medium has, with as much of the rest as is let through.
    fn lose(
        &mut self,
        mut keeps_name: impl FnMut(&NameOp) -> bool,
        keep: &mut dyn FnMut(&FileOp, &mut Vec<u8>),
    ) {
        for content in self.files.values_mut() {
            for op in std::mem::take(&mut content.ops) {
                keep(&op, &mut content.durable);
            }
            content.seen = content.durable.clone();
        }
        for op in std::mem::take(&mut self.name_ops) {
            if keeps_name(&op) {
                op.apply(&mut self.durable_names);
            }
        }
        self.names = self.durable_names.clone();
        let named: BTreeSet<u64> = self.names.values().copied().collect();
        self.files.retain(|file, _| named.contains(file));
    }

    /// The next life begins.
    fn restart(&mut self) {
        self.locks.clear();
        self.life += 1;
        self.changes = 0;
        self.power_off_at = None;
        self.is_off = false;
    }
}

impl Disk for MemoryDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        state.enter(life, Calls::Reads)?;
        if state.names.contains_key(dir) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        state.dirs.extend(dir.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        let life = state.life;
        state.enter(life, Calls::Reads)?;
        if state.names.contains_key(dir) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        if !state.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let files = state.names.keys().filter(|path| path.parent() == Some(dir));
        let dirs = state.dirs.iter().filter(|path| path.parent() == Some(dir));
        let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let mut names: Vec<String> = files.chain(dirs).filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        let life = state.life;
        let dies = state.enter(life, Calls::Changes)?;
        state.has_dir(path)?;
        let file = match state.names.get(path).copied() {
            Some(file) => {
                state.change_file(file, FileChange::Size(0));
                file
            }
            None => {
                let file = state.next_file;
                state.next_file += 1;
                state.files.insert(file, Content::default());
                state.change_names(None, Some((path.to_owned(), file)));
                file
            }
        };
        if dies {
            return Err(broken("the power failed"));
        }
        Ok(Arc::new(MemoryFile { disk: self.clone(), file, life }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        let life = state.life;
        state.enter(life, Calls::Reads)?;
        let file = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(MemoryFile { disk: self.clone(), file, life }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        let dies = state.enter(life, Calls::Changes)?;
        let file = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.change_names(Some(from.to_owned()), Some((to.to_owned(), file)));
        if dies { Err(broken("the power failed")) } else { Ok(()) }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        let dies = state.enter(life, Calls::Changes)?;
        if !state.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change_names(Some(path.to_owned()), None);
        if dies { Err(broken("the power failed")) } else { Ok(()) }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        if state.enter(life, Calls::Syncs)? {
            return Err(broken("the power failed"));
        }
        if state.syncs_lie {
            return Ok(());
        }
        let inside = |op: &NameOp| {
            let path = op.removed.as_ref().or(op.added.as_ref().map(|(path, _)| path));
            path.and_then(|path| path.parent()) == Some(dir)
        };
        let (synced, left) = std::mem::take(&mut state.name_ops).into_iter().partition(inside);
        state.name_ops = left;
        let synced: Vec<NameOp> = synced;
        for op in synced {
            op.apply(&mut state.durable_names);
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        let mut state = self.state();
        let life = state.life;
        state.enter(life, Calls::Reads)?;
        state.has_dir(path)?;
        if !state.locks.insert(path.to_owned()) {
            return Ok(None);
        }
        Ok(Some(Box::new(MemoryLock { disk: self.clone(), path: path.to_owned(), life })))
    }

    fn free_space(&self, _: &Path) -> io::Result<u64> {
        let mut state = self.state();
        let life = state.life;
        state.enter(life, Calls::Reads)?;
        Ok(state.capacity.map_or(u64::MAX / 2, |capacity| capacity.saturating_sub(state.used())))
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: MemoryDisk,
    file: u64,
    life: u64,
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.enter(self.life, Calls::Reads)?;
        let seen = &state.content(self.file).seen;
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let part = seen.get(start..start + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(part);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let dies = state.enter(self.life, Calls::Writes)?;
        let end = offset + bytes.len() as u64;
        let old = state.content(self.file).seen.len() as u64;
        let granted = state.grant(old, end.max(old));
        let written = end.min(granted).saturating_sub(offset) as usize;
        if written > 0 {
            state.change_file(self.file, FileChange::Write { offset, bytes: bytes[..written].to_vec() });
        }
        if dies {
            return Err(broken("the power failed"));
        }
        if written < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        if state.enter(self.life, Calls::Syncs)? {
            return Err(broken("the power failed"));
        }
        if state.syncs_lie {
            return Ok(());
        }
        let content = state.content(self.file);
        for op in std::mem::take(&mut content.ops) {
            op.what.apply(&mut content.durable);
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        let mut state = self.disk.state();
        state.enter(self.life, Calls::Reads)?;
        Ok(state.content(self.file).seen.len() as u64)
    }

    fn set_size(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let dies = state.enter(self.life, Calls::Changes)?;
        state.change_file(self.file, FileChange::Size(len));
        if dies { Err(broken("the power failed")) } else { Ok(()) }
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        let old = self.size()?;
        let mut state = self.disk.state();
        let dies = state.enter(self.life, Calls::Changes)?;
        if len > old {
            if state.grant(old, len) < len {
                return Err(io::ErrorKind::StorageFull.into());
            }
            state.change_file(self.file, FileChange::Size(len));
        }
        if dies { Err(broken("the power failed")) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct MemoryLock {
    disk: MemoryDisk,
    path: PathBuf,
    life: u64,
}

impl DiskLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life == self.life {
            state.locks.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk_with(bytes: &[u8]) -> (MemoryDisk, PathBuf) {
        let disk = MemoryDisk::new();
        let path = PathBuf::from("/d/f");
        disk.create_dir(Path::new("/d")).unwrap();
        let file = disk.create(&path).unwrap();
        file.write_at(bytes, 0).unwrap();
        file.sync().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        (disk, path)
    }

    #[test]
    fn what_was_synced_stays_and_the_rest_goes() {
        let (disk, path) = disk_with(b"synced");
        let file = disk.open(&path).unwrap();
        file.write_at(b"later", 6).unwrap();
        assert_eq!(disk.read_file(&path).unwrap(), b"syncedlater");
        disk.create(Path::new("/d/new")).unwrap();
        disk.power_on(Crash::Drop);
        assert_eq!(disk.read_file(&path).unwrap(), b"synced");
        assert_eq!(disk.list(Path::new("/d")).unwrap(), ["f"]);
        assert!(file.write_at(b"x", 0).is_err(), "opened in an earlier life");
    }

    #[test]
    fn what_a_process_left_unsynced_is_there_until_the_power_fails() {
        let (disk, path) = disk_with(b"synced");
        disk.open(&path).unwrap().write_at(b"later", 6).unwrap();
        disk.power_on(Crash::Keep);
        assert_eq!(disk.read_file(&path).unwrap(), b"syncedlater");
        disk.power_on(Crash::Drop);
        assert_eq!(disk.read_file(&path).unwrap(), b"synced");
        disk.open(&path).unwrap().write_at(b"later", 6).unwrap();
        disk.power_on(Crash::Keep);
        disk.open(&path).unwrap().sync().unwrap();
        disk.power_on(Crash::Drop);
        assert_eq!(disk.read_file(&path).unwrap(), b"syncedlater");
    }

    #[test]
    fn a_file_whose_directory_was_not_synced_has_no_name() {
        let disk = MemoryDisk::new();
        disk.create_dir(Path::new("/d")).unwrap();
        disk.create(Path::new("/d/f")).unwrap().sync().unwrap();
        disk.power_on(Crash::Drop);
        assert!(disk.list(Path::new("/d")).unwrap().is_empty());
    }

    #[test]
    fn a_rename_is_whole_or_not_at_all() {
        for seed in 0..64 {
            let (disk, path) = disk_with(b"old");
            let new = Path::new("/d/new");
            let file = disk.create(new).unwrap();
            file.write_at(b"new", 0).unwrap();
            file.sync().unwrap();
            disk.rename(new, &path).unwrap();
            disk.power_on(Crash::Holes(seed));
            let bytes = disk.read_file(&path).unwrap();
            assert!(bytes == b"old" || bytes == b"new");
        }
    }

    #[test]
    fn torn_writes_keep_sectors_and_prefixes() {
        let (mut saw_hole, mut saw_prefix) = (false, false);
        for seed in 0..64 {
            for crash in [Crash::Holes(seed), Crash::Prefix(seed)] {
                let (disk, path) = disk_with(&[1; 2048]);
                let file = disk.open(&path).unwrap();
                file.write_at(&[2; 2048], 0).unwrap();
                disk.power_on(crash);
                let bytes = disk.read_file(&path).unwrap();
                let changes = bytes.windows(2).filter(|pair| pair[0] != pair[1]).count();
                match crash {
                    Crash::Holes(_) => {
                        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|b| *b == sector[0])));
                        saw_hole |= changes > 1;
                    }
                    _ => {
                        assert!(changes <= 1 && (changes == 0 || bytes[0] == 2));
                        saw_prefix |= changes == 1;
                    }
                }
            }
        }
        assert!(saw_hole && saw_prefix);
    }

    #[test]
    fn fails_at_the_call_that_was_named_and_runs_full() {
        let (disk, path) = disk_with(b"0123");
        let file = disk.open(&path).unwrap();
        disk.fail(Fault { calls: Calls::Syncs, after: 1, times: 1, error: io::ErrorKind::Other });
        assert!(file.sync().is_ok() && file.sync().is_err() && file.sync().is_ok());
        disk.set_capacity(Some(6));
        assert_eq!(file.write_at(b"4567", 4).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.read_file(&path).unwrap(), b"012345", "as much as there was room for");
        assert!(file.write_at(b"9876", 0).is_ok(), "no growth");
        disk.power_off_at(disk.changes() + 2);
        file.write_at(b"a", 0).unwrap();
        assert!(file.write_at(b"b", 1).is_err() && file.sync().is_err() && disk.is_off());
        disk.power_on(Crash::Keep);
        assert_eq!(disk.read_file(&path).unwrap(), b"ab7645");
    }

    #[test]
    fn a_lock_keeps_the_second_out_until_it_ends() {
        let (disk, _) = disk_with(b"");
        let lock = disk.lock(Path::new("/d/LOCK")).unwrap();
        assert!(lock.is_some());
        assert!(disk.lock(Path::new("/d/LOCK")).unwrap().is_none());
        drop(lock);
        assert!(disk.lock(Path::new("/d/LOCK")).unwrap().is_some());
        disk.power_on(Crash::Drop);
        assert!(disk.lock(Path::new("/d/LOCK")).unwrap().is_some());
    }
}
