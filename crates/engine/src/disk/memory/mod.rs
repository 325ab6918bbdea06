//! A disk in memory that fails as real ones do: it loses or tears unsynced data, runs full, breaks.
//!
//! Each file and each directory exists twice: as the program sees it, and as it would be after a power failure. A
//! sync copies the first to the second; [`MemoryDisk::power_on`] goes back to the second, with the part of the
//! difference that its [`Crash`] keeps.

mod calls;
mod change;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::change::{Content, DiskRng, FileChange, FileOp, NameOp, SECTOR};

/// Which unsynced writes and names survive a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// None of them.
    Drop,
    /// All of them, still unsynced: the process died, the machine did not.
    Keep,
    /// Those up to a random moment, the last one in part.
    Prefix(u64),
    /// A random choice of sectors and names, in any order.
    Holes(u64),
}

/// The calls that a [`Fault`] affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Writes to files.
    Writes,
    /// Syncs of files and directories.
    Syncs,
    /// Syncs of files alone.
    FileSyncs,
    /// Reads from files, and other calls without changes: opening, listing, locking.
    Reads,
    /// All changes: writes, syncs, creating, moving, removing, resizing.
    Changes,
    /// Opening and creating files, and opening directories to sync them: calls that need a descriptor.
    Opens,
    /// Creating files: calls that need an inode.
    Creates,
    /// Removing files.
    Removes,
    /// Syncs of directories alone.
    DirSyncs,
}

/// The kind of a call, as far as faults distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallKind {
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
    fn concern(self, kind: CallKind) -> bool {
        match self {
            Calls::Writes => kind == CallKind::Write,
            Calls::Syncs => matches!(kind, CallKind::Sync | CallKind::SyncDir),
            Calls::FileSyncs => kind == CallKind::Sync,
            Calls::Reads => kind.looks(),
            Calls::Changes => kind.changes(),
            Calls::Opens => matches!(kind, CallKind::Open | CallKind::OpenDir | CallKind::Create),
            Calls::Creates => kind == CallKind::Create,
            Calls::Removes => kind == CallKind::Remove,
            Calls::DirSyncs => kind == CallKind::SyncDir,
        }
    }
}

impl CallKind {
    fn looks(self) -> bool {
        matches!(self, CallKind::Look | CallKind::Open)
    }

    fn changes(self) -> bool {
        !self.looks() && self != CallKind::OpenDir
    }
}

/// A failure to inject.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The calls that are counted and fail.
    pub calls: Calls,
    /// The number of calls that succeed first.
    pub after: u64,
    /// The number of calls that fail then; [`u64::MAX`] for all.
    pub times: u64,
    /// The error, such as EIO (`ErrorKind::Other`) or `StorageFull`.
    pub error: io::ErrorKind,
}

/// How a call that a [`Fault`] affects fails.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// With the error kind of the fault.
    Plain,
    /// With an error of the operating system.
    Os(i32),
    /// A sync that fails and leaves its pages readable and clean: the next sync succeeds, and writes none of them. A
    /// random choice of the sectors reached the medium, or none.
    Loses(Option<u64>),
}

/// Why a call fails.
struct MetFault {
    error: io::Error,
    failure: Failure,
}

impl From<MetFault> for io::Error {
    fn from(met: MetFault) -> io::Error {
        met.error
    }
}

/// What is wrong with some bytes of a file, until they are rewritten.
#[derive(Clone, Copy, Debug)]
enum ByteFlaw {
    /// This bit of the byte is inverted when read.
    Flipped(u8),
    /// Any read of this range of bytes fails.
    Unreadable(u64),
}

/// A disk in memory. Clones share the same disk.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<DiskState>>,
}

#[derive(Debug, Default)]
struct DiskState {
    dirs: BTreeSet<PathBuf>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    name_ops: Vec<NameOp>,
    files: BTreeMap<u64, Content>,
    next_file: u64,
    locks: BTreeSet<PathBuf>,
    /// The number of restarts: handles from an earlier life are invalid.
    life: u64,
    /// The number of changes requested in this life.
    changes: u64,
    /// The number of changes requested in all lives: their order.
    order: u64,
    /// The change at which the power fails.
    power_off_at: Option<u64>,
    is_off: bool,
    capacity: Option<u64>,
    faults: Vec<(Fault, Failure)>,
    /// Damaged bytes: file, offset, and what is wrong there.
    rot: Vec<(u64, u64, ByteFlaw)>,
    syncs_lie: bool,
    /// Whether preallocation is unsupported.
    sets_nothing_aside: bool,
}

/// Input/output error: the error of a medium that cannot be read.
const EIO: i32 = 5;
/// Too many open files.
const EMFILE: i32 = 24;

fn broken(message: &str) -> io::Error {
    io::Error::other(message)
}

impl DiskState {
    /// Every call passes through here; a change is counted, and may be the one at which the power fails.
    ///
    /// `Ok(true)` means that the call fails, but leaves its change among the unsynced ones.
    fn enter(&mut self, life: u64, kind: CallKind) -> io::Result<bool> {
        Ok(self.meet(life, kind)?)
    }

    /// The same, with the way in which it fails.
    fn meet(&mut self, life: u64, kind: CallKind) -> Result<bool, MetFault> {
        if self.is_off || life != self.life {
            return Err(MetFault { error: broken("the power is off"), failure: Failure::Plain });
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
                return Err(MetFault { error, failure: *failure });
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
            let len = if let ByteFlaw::Unreadable(len) = flaw { *len } else { 1 };
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

    /// Applies damage to the bytes that were read at `offset` of a file.
    fn spoil(&self, file: u64, read: &mut [u8], offset: u64) -> io::Result<()> {
        for (_, at, flaw) in self.rot.iter().filter(|(other, ..)| *other == file) {
            match flaw {
                ByteFlaw::Unreadable(len) if *at < offset + read.len() as u64 && offset < *at + len => {
                    return Err(io::Error::from_raw_os_error(EIO));
                }
                ByteFlaw::Unreadable(_) => {}
                ByteFlaw::Flipped(bit) => {
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

    /// The size up to which a file of `old` bytes may grow towards `new`.
    fn grant(&self, old: u64, new: u64) -> u64 {
        match self.capacity {
            Some(capacity) if new > old => new.min(old + capacity.saturating_sub(self.used())),
            _ => new,
        }
    }

    /// A random byte that is not zero, of the files whose names `concerns`: its path, its file, and its offset.
    fn find_byte(
        &self,
        chance: &mut DiskRng,
        concerns: impl Fn(&str) -> bool,
    ) -> Option<(PathBuf, u64, u64)> {
        let is_one = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(&concerns);
        let files: Vec<(&PathBuf, u64)> =
            self.names.iter().filter(|(path, _)| is_one(path)).map(|(path, file)| (path, *file)).collect();
        let (path, file) = files.get(chance.below(files.len() as u64) as usize).copied()?;
        let bytes = &self.files[&file].seen;
        let from = chance.below(bytes.len() as u64) as usize;
        // Most preallocated room that was not written yet is never read.
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
    /// An empty disk of unlimited size.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        // A test that failed while it held the lock should fail with its own message.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a failure to inject.
    pub fn fail(&self, fault: Fault) {
        self.state().faults.push((fault, Failure::Plain));
    }

    /// After `after` syncs of files, lets `times` syncs fail as they do on Linux: what they should have written stays
    /// readable and counts as written, so that the next sync succeeds without it. A random choice of its sectors has
    /// reached the medium, or none has.
    pub fn lose_syncs(&self, after: u64, times: u64, kept: Option<u64>) {
        let fault = Fault { calls: Calls::FileSyncs, after, times, error: io::ErrorKind::Other };
        self.state().faults.push((fault, Failure::Loses(kept)));
    }

    /// After `after` files that were opened or created, lets `times` others fail: the process has reached its limit
    /// of open files.
    pub fn run_out_of_files(&self, after: u64, times: u64) {
        let fault = Fault { calls: Calls::Opens, after, times, error: io::ErrorKind::Other };
        self.state().faults.push((fault, Failure::Os(EMFILE)));
    }

    /// Drops clean pages from the page cache: files are read as they are on the medium.
    pub fn evict(&self) {
        for content in self.state().files.values_mut() {
            content.seen.clone_from(&content.durable);
            for op in &content.ops {
                op.what.apply(&mut content.seen);
            }
        }
    }

    /// Cancels all pending failures.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// Cancels all pending failures of creating files.
    pub fn heal_creates(&self) {
        self.state().faults.retain(|(fault, _)| fault.calls != Calls::Creates);
    }

    /// Cancels all pending failures of reads, and of opening files.
    pub fn heal_reads(&self) {
        self.state().faults.retain(|(fault, _)| !matches!(fault.calls, Calls::Reads | Calls::Opens));
    }

    /// Whether failures of these calls are pending.
    pub fn has_faults(&self, calls: Calls) -> bool {
        self.state().faults.iter().any(|(fault, _)| fault.calls == calls && fault.times > 0)
    }

    /// Inverts the lowest bit of a byte when it is read, until it is rewritten or [healed](MemoryDisk::heal_rot);
    /// does nothing if there is no such file.
    pub fn rot_at(&self, path: &Path, at: u64) {
        let mut state = self.state();
        if let Some(file) = state.names.get(path).copied() {
            state.rot.push((file, at, ByteFlaw::Flipped(1)));
        }
    }

    /// Lets every read of any of these bytes fail, until they are rewritten or [healed](MemoryDisk::heal_rot); does
    /// nothing if there is no such file.
    pub fn unreadable_at(&self, path: &Path, at: u64, len: u64) {
        let mut state = self.state();
        if let Some(file) = state.names.get(path).copied() {
            state.rot.push((file, at, ByteFlaw::Unreadable(len)));
        }
    }

    /// The same for the sector of a byte that is chosen as [`rot`](MemoryDisk::rot) chooses one.
    pub fn unreadable(&self, seed: u64, concerns: impl Fn(&str) -> bool) -> Option<(PathBuf, u64)> {
        let mut state = self.state();
        let (path, file, at) = state.find_byte(&mut DiskRng(seed), concerns)?;
        let at = at / SECTOR * SECTOR;
        state.rot.push((file, at, ByteFlaw::Unreadable(SECTOR)));
        Some((path, at))
    }

    /// Inverts one bit of a file when it is read, until it is rewritten or [healed](MemoryDisk::heal_rot): a random
    /// file, byte and bit, of the files whose names `concerns`. Returns its place; `None` if there is no such byte.
    pub fn rot(&self, seed: u64, concerns: impl Fn(&str) -> bool) -> Option<(PathBuf, u64)> {
        let (mut state, mut chance) = (self.state(), DiskRng(seed));
        let (path, file, at) = state.find_byte(&mut chance, concerns)?;
        state.rot.push((file, at, ByteFlaw::Flipped(1 << chance.below(8))));
        Some((path, at))
    }

    /// Removes all damage in files whose names `concerns`.
    pub fn heal_rot(&self, concerns: impl Fn(&str) -> bool) {
        let mut state = self.state();
        let name = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(&concerns);
        let healed: BTreeSet<u64> =
            state.names.iter().filter(|(path, _)| name(path)).map(|(_, file)| *file).collect();
        // A file without a name is read only through open handles.
        let named: BTreeSet<u64> = state.names.values().copied().collect();
        state.rot.retain(|(file, ..)| named.contains(file) && !healed.contains(file));
    }

    /// Whether any byte is damaged.
    pub fn is_rotten(&self) -> bool {
        !self.state().rot.is_empty()
    }

    /// The number of undamaged copies of `bytes` in its files, and of copies with damage in them or in the `before`
    /// bytes in front of them. A match behind a digit is not counted: it is the end of a longer number.
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
                    let len = if let ByteFlaw::Unreadable(len) = flaw { *len } else { 1 };
                    flawed == file && *from < end && start < from + len
                });
                if is_flawed { flawed += 1 } else { intact += 1 }
            }
        }
        (intact, flawed)
    }

    /// Sets the capacity in bytes from now on; `None` for no limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// The total size of its files in bytes.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// From now on syncs do nothing and report success: a disk on which no store can be safe.
    pub fn lie_about_syncs(&self) {
        self.state().syncs_lie = true;
    }

    /// From now on preallocation is unsupported.
    pub fn set_nothing_aside(&self) {
        self.state().sets_nothing_aside = true;
    }

    /// The number of changes requested since power was last on: see [`Calls::Changes`].
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Lets the power fail at change number `change` (from 1) of this life. That change, too, reports an error.
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

    /// Starts the machine again, with the unsynced changes that `crash` keeps. Files and locks of the life before are
    /// invalid.
    pub fn power_on(&self, crash: Crash) {
        let mut guard = self.state();
        let state = &mut *guard;
        match crash {
            Crash::Keep => {}
            Crash::Drop => state.lose(|_| false, &mut |_, _| {}),
            Crash::Holes(seed) => {
                let (mut for_names, mut for_files) = (DiskRng(!seed), DiskRng(seed));
                state.lose(|_| for_names.coin(), &mut |op, bytes| op.what.apply_some(bytes, &mut for_files));
            }
            Crash::Prefix(seed) => {
                let mut chance = DiskRng(seed);
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

    /// Adds a durable file without a call.
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

    /// Another disk with the files that are visible on this one, all of them durable.
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

impl DiskState {
    /// A random unsynced change.
    fn unsynced_moment(&self, chance: &mut DiskRng) -> u64 {
        let in_files = self.files.values().flat_map(|content| content.ops.iter().map(|op| op.at));
        let mut moments: Vec<u64> = in_files.chain(self.name_ops.iter().map(|op| op.at)).collect();
        moments.sort_unstable();
        moments.get(chance.below(moments.len() as u64) as usize).copied().unwrap_or(0)
    }

    /// Goes back to the content of the medium, with the changes that are kept.
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

    /// Begins the next life.
    fn restart(&mut self) {
        self.locks.clear();
        self.life += 1;
        self.changes = 0;
        self.power_off_at = None;
        self.is_off = false;
    }
}
