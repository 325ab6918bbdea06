//! A disk in memory that fails as real ones do: it forgets what was not synced, tears it, runs full, breaks.
//!
//! Each file and each directory exists twice: as the program sees it, and as it would be found after a
//! power failure. A sync copies the first to the second; [`MemoryDisk::power_on`] goes back to the second,
//! with as much of the difference as its [`Crash`] lets through.

mod calls;
mod change;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::change::{Chance, Content, FileChange, FileOp, NameOp, SECTOR};

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
    /// Syncs of files alone.
    FileSyncs,
    /// Reads from files, and whatever else only looks: opening, listing, locking.
    Reads,
    /// Everything that changes something: writes, syncs, making, moving, removing, resizing.
    Changes,
    /// Opening and making files, and opening directories to sync them: what takes a descriptor.
    Opens,
    /// Making files: what takes an inode.
    Creates,
    /// Removing files.
    Removes,
    /// Syncs of directories alone.
    DirSyncs,
}

/// What a call does, as far as faults tell calls apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Look,
    Open,
    OpenDir,
    Create,
    Write,
    Sync,
    SyncDir,
    Remove,
    Other,
}

impl Calls {
    fn concern(self, kind: Kind) -> bool {
        match self {
            Calls::Writes => kind == Kind::Write,
            Calls::Syncs => matches!(kind, Kind::Sync | Kind::SyncDir),
            Calls::FileSyncs => kind == Kind::Sync,
            Calls::Reads => kind.looks(),
            Calls::Changes => kind.changes(),
            Calls::Opens => matches!(kind, Kind::Open | Kind::OpenDir | Kind::Create),
            Calls::Creates => kind == Kind::Create,
            Calls::Removes => kind == Kind::Remove,
            Calls::DirSyncs => kind == Kind::SyncDir,
        }
    }
}

impl Kind {
    fn looks(self) -> bool {
        matches!(self, Kind::Look | Kind::Open)
    }

    fn changes(self) -> bool {
        !self.looks() && self != Kind::OpenDir
    }
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

/// How a call fails that a [`Fault`] concerns.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// With the kind of error that the fault names.
    Plain,
    /// With an error of the operating system.
    Os(i32),
    /// A sync that fails and leaves its pages readable and clean: the next sync succeeds, and writes none of them. Of
    /// the sectors a random choice reached the medium, or none.
    Loses(Option<u64>),
}

/// Why a call fails.
struct Met {
    error: io::Error,
    failure: Failure,
}

impl From<Met> for io::Error {
    fn from(met: Met) -> io::Error {
        met.error
    }
}

/// What is wrong with some bytes of a file, until they are written anew.
#[derive(Clone, Copy, Debug)]
enum Flaw {
    /// This bit of the byte reads as what it is not.
    Flipped(u8),
    /// Whatever reads so many bytes from there on, or one of them, fails.
    Unreadable(u64),
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
    faults: Vec<(Fault, Failure)>,
    /// Places that cannot be read as they were written: file, byte, and what is wrong there.
    rot: Vec<(u64, u64, Flaw)>,
    syncs_lie: bool,
    /// Whether it sets no room aside.
    sets_nothing_aside: bool,
}

/// Input/output error: what a medium answers that cannot be read.
const EIO: i32 = 5;
/// Too many open files.
const EMFILE: i32 = 24;

fn broken(message: &str) -> io::Error {
    io::Error::other(message)
}

impl State {
    /// Every call passes here; a change is counted, and may be the one that the power fails at.
    ///
    /// `Ok(true)` means: it fails, but leaves its trace among what was not synced.
    fn enter(&mut self, life: u64, kind: Kind) -> io::Result<bool> {
        Ok(self.meet(life, kind)?)
    }

    /// The same, for who has to know how it fails.
    fn meet(&mut self, life: u64, kind: Kind) -> Result<bool, Met> {
        if self.is_off || life != self.life {
            return Err(Met { error: broken("the power is off"), failure: Failure::Plain });
        }
        for (fault, failure) in &mut self.faults {
            if !fault.calls.concern(kind) {
                continue;
            }
            if fault.after > 0 {
                fault.after -= 1;
            } else if fault.times > 0 {
                fault.times -= 1;
                let error = match failure {
                    Failure::Os(code) => io::Error::from_raw_os_error(*code),
                    _ => io::Error::new(fault.error, "a fault that the test asked for"),
                };
                return Err(Met { error, failure: *failure });
            }
        }
        if !kind.changes() {
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
        let is_over = |from: u64, len: u64| match &what {
            FileChange::Write { offset, bytes } => {
                *offset <= from && from + len <= *offset + bytes.len() as u64
            }
            FileChange::Size(len) => from >= *len,
        };
        self.rot.retain(|(other, at, flaw)| {
            let len = if let Flaw::Unreadable(len) = flaw { *len } else { 1 };
            *other != file || !is_over(*at, len)
        });
        let content = self.content(file);
        what.apply(&mut content.seen);
        content.ops.push(FileOp { at, what });
    }

    fn change_names(&mut self, removed: Option<PathBuf>, added: Option<(PathBuf, u64)>) {
        let op = NameOp { at: self.order, removed, added };
        op.apply(&mut self.names);
        self.name_ops.push(op);
    }

    /// What was read at `offset` of a file, with its rot.
    fn spoil(&self, file: u64, read: &mut [u8], offset: u64) -> io::Result<()> {
        for (_, at, flaw) in self.rot.iter().filter(|(other, ..)| *other == file) {
            match flaw {
                Flaw::Unreadable(len) if *at < offset + read.len() as u64 && offset < *at + len => {
                    return Err(io::Error::from_raw_os_error(EIO));
                }
                Flaw::Unreadable(_) => {}
                Flaw::Flipped(bit) => {
                    let place = at.checked_sub(offset).and_then(|place| usize::try_from(place).ok());
                    if let Some(byte) = place.and_then(|place| read.get_mut(place)) {
                        *byte ^= bit;
                    }
                }
            }
        }
        Ok(())
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

    /// A byte that is not zero, by chance, of the files whose names `concerns`: its path, its file, and where it is.
    fn find_byte(&self, chance: &mut Chance, concerns: impl Fn(&str) -> bool) -> Option<(PathBuf, u64, u64)> {
        let is_one = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(&concerns);
        let files: Vec<(&PathBuf, u64)> =
            self.names.iter().filter(|(path, _)| is_one(path)).map(|(path, file)| (path, *file)).collect();
        let (path, file) = files.get(chance.below(files.len() as u64) as usize).copied()?;
        let bytes = &self.files[&file].seen;
        let from = chance.below(bytes.len() as u64) as usize;
        // Most of what was set aside and not written yet is read by nobody.
        let at = (from..bytes.len()).chain(0..from).find(|at| bytes[*at] != 0)? as u64;
        Some((path.clone(), file, at))
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
        self.state().faults.push((fault, Failure::Plain));
    }

    /// After so many syncs of files, lets so many fail as they do on Linux: what they should have written stays readable
    /// and counts as written, so that the next sync succeeds without it. A random choice of its sectors has reached the
    /// medium, or none has.
    pub fn lose_syncs(&self, after: u64, times: u64, kept: Option<u64>) {
        let fault = Fault { calls: Calls::FileSyncs, after, times, error: io::ErrorKind::Other };
        self.state().faults.push((fault, Failure::Loses(kept)));
    }

    /// After so many files that were opened or made, lets so many others fail: the process has as many open as it may.
    pub fn run_out_of_files(&self, after: u64, times: u64) {
        let fault = Fault { calls: Calls::Opens, after, times, error: io::ErrorKind::Other };
        self.state().faults.push((fault, Failure::Os(EMFILE)));
    }

    /// Forgets what of files is in memory and counts as written: they are read as they are on the medium.
    pub fn evict(&self) {
        for content in self.state().files.values_mut() {
            content.seen.clone_from(&content.durable);
            for op in &content.ops {
                op.what.apply(&mut content.seen);
            }
        }
    }

    /// Takes back all failures that have not come.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// Takes back all failures of making files.
    pub fn heal_creates(&self) {
        self.state().faults.retain(|(fault, _)| fault.calls != Calls::Creates);
    }

    /// Takes back all failures of reads, and of opening files.
    pub fn heal_reads(&self) {
        self.state().faults.retain(|(fault, _)| !matches!(fault.calls, Calls::Reads | Calls::Opens));
    }

    /// Whether failures of these calls are still to come.
    pub fn has_faults(&self, calls: Calls) -> bool {
        self.state().faults.iter().any(|(fault, _)| fault.calls == calls && fault.times > 0)
    }

    /// Lets the lowest bit of a byte read as what it is not, until it is written anew or [healed](MemoryDisk::heal_rot);
    /// nothing happens if there is no such file.
    pub fn rot_at(&self, path: &Path, at: u64) {
        let mut state = self.state();
        if let Some(file) = state.names.get(path).copied() {
            state.rot.push((file, at, Flaw::Flipped(1)));
        }
    }

    /// Lets every read fail that asks for any of these bytes, until they are written anew or
    /// [healed](MemoryDisk::heal_rot); nothing happens if there is no such file.
    pub fn unreadable_at(&self, path: &Path, at: u64, len: u64) {
        let mut state = self.state();
        if let Some(file) = state.names.get(path).copied() {
            state.rot.push((file, at, Flaw::Unreadable(len)));
        }
    }

    /// The same of the sector of a byte that is found as [`rot`](MemoryDisk::rot) finds one.
    pub fn unreadable(&self, seed: u64, concerns: impl Fn(&str) -> bool) -> Option<(PathBuf, u64)> {
        let mut state = self.state();
        let (path, file, at) = state.find_byte(&mut Chance(seed), concerns)?;
        let at = at / SECTOR * SECTOR;
        state.rot.push((file, at, Flaw::Unreadable(SECTOR)));
        Some((path, at))
    }

    /// Lets one bit of a file read as what it is not, until it is written anew or [healed](MemoryDisk::heal_rot): a file,
    /// a byte and a bit by chance, of those whose names `concerns`. Says where that is; nothing if there is no such byte.
    pub fn rot(&self, seed: u64, concerns: impl Fn(&str) -> bool) -> Option<(PathBuf, u64)> {
        let (mut state, mut chance) = (self.state(), Chance(seed));
        let (path, file, at) = state.find_byte(&mut chance, concerns)?;
        state.rot.push((file, at, Flaw::Flipped(1 << chance.below(8))));
        Some((path, at))
    }

    /// Takes back all rot in files whose names `concerns`, and what cannot be read there.
    pub fn heal_rot(&self, concerns: impl Fn(&str) -> bool) {
        let mut state = self.state();
        let name = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(&concerns);
        let healed: BTreeSet<u64> =
            state.names.iter().filter(|(path, _)| name(path)).map(|(_, file)| *file).collect();
        // What has no name any more is read only by who had it open.
        let named: BTreeSet<u64> = state.names.values().copied().collect();
        state.rot.retain(|(file, ..)| named.contains(file) && !healed.contains(file));
    }

    /// Whether any bit reads as what it is not, or cannot be read.
    pub fn is_rotten(&self) -> bool {
        !self.state().rot.is_empty()
    }

    /// How many copies of `bytes` its files have that read as they were written, and how many that have a flaw among them or
    /// among the `before` bytes in front of them. A match behind a digit is not counted: it is the end of a longer number.
    pub fn copies(&self, bytes: &[u8], before: u64) -> (usize, usize) {
        let state = self.state();
        let (mut intact, mut flawed) = (0, 0);
        for file in state.names.values() {
            let seen = &state.files[file].seen;
            let found = seen.windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes);
            let found = found.map(|(at, _)| at).filter(|at| *at == 0 || !seen[at - 1].is_ascii_digit());
            for at in found {
                let (start, end) = ((at as u64).saturating_sub(before), (at + bytes.len()) as u64);
                let is_flawed = state.rot.iter().any(|(flawed, from, flaw)| {
                    let len = if let Flaw::Unreadable(len) = flaw { *len } else { 1 };
                    flawed == file && *from < end && start < from + len
                });
                if is_flawed { flawed += 1 } else { intact += 1 }
            }
        }
        (intact, flawed)
    }

    /// From now on holds at most so many bytes; `None` for no bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Bytes that its files have together.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// From now on syncs do nothing and report success: the disk that a store cannot be safe on.
    pub fn lie_about_syncs(&self) {
        self.state().syncs_lie = true;
    }

    /// From now on sets no room aside for files, as file systems do that cannot.
    pub fn set_nothing_aside(&self) {
        self.state().sets_nothing_aside = true;
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
