//! The work of a retirement that needs nothing but the disk: due files, runs, and the manifest that names them.
//!
//! Files less than half of which is left are given up on the way: what is left in them is written again, with what was
//! captured, into the files of its time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dwell_model::{Message, Number, State, Timestamp};
use dwell_store::core::{Captured, CopyAt};

use super::partition::{LEAST, partition};
use crate::checkpoint::{Checkpoint, FileState, Held, file_name};
use crate::cold::ColdSet;
use crate::disk::Disk;
use crate::due::{BodyPlace, Entry, File, Settled, SortKey, Writer};
use crate::journal::segment::{Place, Segment};
use crate::manifest::Manifest;
use crate::run::{self, Home, Run, key_hash};
use crate::sealed::{Kind, Name};

/// A due file takes no more entries when it has so many bytes.
const ENOUGH: u64 = 256 * 1024 * 1024;
/// The bodies of so many messages are read at a time.
const BODIES: usize = 512;
/// So many runs of about one size are made one.
const ALIKE: usize = 4;

/// Where retired messages go.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) directory: u64,
    /// Fewer messages than this share a file with others.
    pub(crate) least: usize,
    /// So many messages are moved out of sparse files at a time.
    pub(crate) moved: usize,
}

impl Desk {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: PathBuf, directory: u64, changed: usize) -> Desk {
        Desk { disk, dir, directory, least: LEAST.min(changed / 2), moved: changed }
    }

    fn name(&self, kind: Kind, number: u32) -> Name {
        file_name(self.directory, kind, number)
    }
}

/// Why a job ended without a new manifest.
#[derive(Debug)]
pub(crate) enum JobError {
    /// The old manifest holds. It may be tried again.
    Again {
        #[expect(dead_code, reason = "for whoever looks at it in a debugger")]
        error: io::Error,
        /// Files of lower numbers may be there.
        next_file: u32,
    },
    /// The disk holds one manifest or the other.
    Fatal(io::Error),
}

/// What was so at the moment of the capture.
#[derive(Debug)]
pub(crate) struct Moment {
    /// But for its checkpoint, which is older.
    pub(crate) manifest: Manifest,
    pub(crate) start: u64,
    pub(crate) seen: Timestamp,
    pub(crate) numbering: Vec<(u32, u64)>,
    /// For each file which of its entries are settled.
    pub(crate) settled: BTreeMap<u32, Settled>,
}

/// A file that was written.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub(crate) number: NonZeroU32,
    pub(crate) file: Arc<File>,
    pub(crate) segment: Arc<Segment>,
}

/// Where the copy of a message lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    pub(crate) number: Number,
    /// The how-manieth of the files.
    pub(crate) file: usize,
    pub(crate) ordinal: u32,
    pub(crate) body: BodyPlace,
    /// The copy that this one takes the place of, if the message was not captured, but moved out of a sparse file.
    pub(crate) moved: Option<CopyAt>,
}

/// What a job has made durable.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) manifest: Manifest,
    pub(crate) files: Vec<NewFile>,
    pub(crate) copies: Vec<Copied>,
    /// All runs from now on, newest first.
    pub(crate) numbers: Vec<Arc<Run<Home>>>,
    pub(crate) keys: Vec<Arc<Run<Number>>>,
    /// Files that the manifest does not name any more.
    pub(crate) gone_files: Vec<u32>,
}

/// What is to be done next.
#[derive(Debug)]
enum Stage {
    Sparse,
    Files,
    Runs,
    Manifest,
    Done,
}

/// See the module.
pub(crate) struct Job {
    desk: Desk,
    manifest: Manifest,
    next_file: u32,
    stage: Stage,
    /// Files that are given up, the messages that are left in them moved.
    sparse: Vec<Sparse>,
    to_copy: Vec<Captured<Place>>,
    /// Messages that go into files, the part that is next at the end.
    parts: Vec<Vec<Captured<Place>>>,
    /// Leased messages that have a copy, and those that get one now.
    held: Vec<Held>,
    to_be_held: BTreeMap<Number, dwell_model::Standing>,
    old_files: Vec<FileState>,
    gone_files: Vec<u32>,
    files: Vec<NewFile>,
    new_settled: Vec<Settled>,
    copies: Vec<Copied>,
    /// Key hashes of what is copied.
    key_hashes: Vec<(u64, Number)>,
    numbers: Vec<Arc<Run<Home>>>,
    keys: Vec<Arc<Run<Number>>>,
    /// How many messages are to be copied.
    total: usize,
    pub(crate) cancelled: Arc<AtomicBool>,
    /// How far it is, in thousandths.
    pub(crate) progress: Arc<AtomicU32>,
}

impl Job {
    pub(crate) fn new(
        desk: Desk,
        moment: Moment,
        next_file: u32,
        captured: Vec<Captured<Place>>,
        cold: &ColdSet,
    ) -> Job {
        let Moment { manifest, start, seen, numbering, settled } = moment;
        let (mut held, mut to_be_held, mut to_copy) = (Vec::new(), BTreeMap::new(), Vec::new());
        for mut one in captured {
            let standing = &one.message.standing;
            match (standing.state, one.copy) {
                (State::Leased(_), Some(copy)) => {
                    held.push(Held { copy, number: one.message.number, standing: standing.clone() });
                }
                (State::Leased(_), None) => {
                    to_be_held.insert(one.message.number, standing.clone());
                    // What the copy says of its standing is not looked at while it is held.
                    one.message.standing.state = State::Ready;
                    to_copy.push(one);
                }
                _ => {
                    one.copy = None;
                    to_copy.push(one);
                }
            }
        }
        let needed: BTreeSet<u32> = held.iter().map(|held| held.copy.file.get()).collect();
        let is_gone = |number: &u32, settled: &Settled| settled.is_full() && !needed.contains(number);
        let gone_files = settled.iter().filter(|(number, settled)| is_gone(number, settled));
        let mut gone_files: Vec<u32> = gone_files.map(|(number, _)| *number).collect();
        let sparse = sparse(cold, &settled, &needed, desk.moved.max(to_copy.len()));
        gone_files.extend(sparse.iter().map(|sparse| sparse.file.name().number));
        let old_files = settled
            .into_iter()
            .filter(|(number, _)| !gone_files.contains(number))
            .map(|(number, settled)| FileState { number, ripe: cold.files()[&number].ripe, settled });
        let mut manifest = manifest;
        manifest.checkpoint = Checkpoint { start, seen, next_file, numbering, ..Checkpoint::default() };
        Job {
            manifest,
            next_file,
            stage: Stage::Sparse,
            sparse,
            to_copy,
            parts: Vec::new(),
            held,
            to_be_held,
            old_files: old_files.collect(),
            gone_files,
            files: Vec::new(),
            new_settled: Vec::new(),
            copies: Vec::new(),
            key_hashes: Vec::new(),
            numbers: cold.numbers().to_vec(),
            keys: cold.keys().to_vec(),
            total: 0,
            cancelled: Arc::default(),
            progress: Arc::default(),
            desk,
        }
    }

    /// Does a part of what is left; true when nothing is.
    pub(crate) fn advance(&mut self) -> Result<bool, JobError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(self.again(io::Error::other("the store closes")));
        }
        match self.stage {
            Stage::Sparse => match self.sparse.pop() {
                Some(sparse) => self.empty(&sparse).map_err(|error| self.again(error))?,
                None => {
                    let to_copy = std::mem::take(&mut self.to_copy);
                    self.total = to_copy.len();
                    self.parts = partition(to_copy, self.manifest.checkpoint.seen, self.desk.least);
                    self.parts.reverse();
                    self.stage = Stage::Files;
                }
            },
            Stage::Files => match self.parts.pop() {
                Some(part) => self.write_part(part).map_err(|error| self.again(error))?,
                None => self.stage = Stage::Runs,
            },
            Stage::Runs => {
                self.write_runs().map_err(|error| self.again(error))?;
                self.stage = Stage::Manifest;
            }
            Stage::Manifest => {
                self.write_manifest()?;
                self.stage = Stage::Done;
            }
            Stage::Done => return Ok(true),
        }
        Ok(false)
    }

    /// Of `part` thousandths of the work it has done as much as `done` is of all messages.
    fn tell(&self, part: u64, done: usize) {
        let progress = part * done as u64 / self.total.max(1) as u64;
        self.progress.store(u32::try_from(progress).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// What is durable now.
    ///
    /// # Panics
    /// If something is left to do.
    pub(crate) fn finish(self) -> Written {
        assert!(matches!(self.stage, Stage::Done), "everything is written");
        Written {
            manifest: self.manifest,
            files: self.files,
            copies: self.copies,
            numbers: self.numbers,
            keys: self.keys,
            gone_files: self.gone_files,
        }
    }

    /// Removes what was written; nothing names it. What can not be removed now is when the store is next opened.
    fn again(&mut self, error: io::Error) -> JobError {
        for number in self.manifest.checkpoint.next_file..self.next_file {
            for kind in [Kind::Due, Kind::Numbers, Kind::Keys] {
                let _ = self.desk.disk.remove(&self.desk.dir.join(self.desk.name(kind, number).file_name()));
            }
        }
        JobError::Again { error, next_file: self.next_file }
    }

    fn new_name(&mut self, kind: Kind) -> io::Result<Name> {
        let number = self.next_file;
        self.next_file =
            number.checked_add(1).ok_or_else(|| io::Error::other("the numbers of files are used up"))?;
        Ok(self.desk.name(kind, number))
    }

    /// Reads what is left in a sparse file, to be copied with what was captured.
    fn empty(&mut self, sparse: &Sparse) -> io::Result<()> {
        let number = NonZeroU32::new(sparse.file.name().number).expect("files are counted from 1");
        let mut found = Vec::new();
        let mut next = sparse.settled.next_live(0);
        while let Some(ordinal) = next {
            found.clear();
            let end = sparse.file.block_end(ordinal);
            sparse.file.read(ordinal..end, &mut found)?;
            for one in found.drain(..).filter(|one| !sparse.settled.has(one.ordinal)) {
                let copy = CopyAt { file: number, ordinal: one.ordinal };
                let ready_since = one.entry.ready_since;
                let mut message = crate::cold::message(one, &sparse.segment);
                if message.standing.state == State::Scheduled && message.standing.due <= sparse.ripe {
                    message.standing.state = State::Ready;
                }
                self.to_copy.push(Captured { message, ready_since, copy: Some(copy) });
            }
            next = sparse.settled.next_live(end);
        }
        Ok(())
    }

    fn write_part(&mut self, part: Vec<Captured<Place>>) -> io::Result<()> {
        let mut order: Vec<(SortKey, usize)> =
            part.iter().enumerate().map(|(at, one)| (entry(one).sort_key(), at)).collect();
        order.sort_unstable();
        let mut rest = order.into_iter().map(|(_, at)| at).peekable();
        while rest.peek().is_some() {
            let name = self.new_name(Kind::Due)?;
            let mut writer = Writer::create(&*self.desk.disk, &self.desk.dir, name)?;
            let (first, mut held) = (self.copies.len(), Vec::new());
            while writer.bytes() < ENOUGH && rest.peek().is_some() {
                let some: Vec<usize> = rest.by_ref().take(BODIES).collect();
                let places: Vec<(Number, Place)> = some
                    .iter()
                    .map(|at| (part[*at].message.number, part[*at].message.body.clone()))
                    .collect();
                for (at, body) in some.into_iter().zip(Place::read_all(&places)) {
                    let body = body?;
                    let entry = entry(&part[at]);
                    let (ordinal, number) = (writer.push(&entry, &body)?, entry.number);
                    let moved = part[at].copy;
                    if let (Some(key), false, None) = (&entry.key, entry.standing.keyless, moved) {
                        self.key_hashes.push((key_hash(self.desk.directory, &entry.queue, key), number));
                    }
                    if self.to_be_held.contains_key(&number) {
                        held.push((ordinal, number));
                    }
                    let body = BodyPlace { at: 0, len: body.len() as u32 };
                    self.tell(800, self.copies.len());
                    self.copies.push(Copied { number, file: self.files.len(), ordinal, body, moved });
                }
            }
            let file = Arc::new(writer.finish()?);
            self.find_bodies(&file, first)?;
            self.take_in(name.number, file, held);
        }
        Ok(())
    }

    /// Looks up where the bodies of the copies from `first` on lie.
    fn find_bodies(&mut self, file: &Arc<File>, first: usize) -> io::Result<()> {
        let mut found = Vec::new();
        let mut next = 0;
        while next < file.len() {
            found.clear();
            let end = file.block_end(next);
            file.read(next..end, &mut found)?;
            for one in &found {
                let copy = &mut self.copies[first + one.ordinal as usize];
                assert_eq!(copy.number, one.entry.number, "a file gives back what was written");
                copy.body = one.body;
            }
            next = end;
        }
        Ok(())
    }

    fn take_in(&mut self, number: u32, file: Arc<File>, held: Vec<(u32, Number)>) {
        let number = NonZeroU32::new(number).expect("files are counted from 1");
        let mut settled = Settled::none(file.len());
        for (ordinal, message) in held {
            settled.set(ordinal);
            let standing = self.to_be_held.remove(&message).expect("it was looked up a moment ago");
            self.held.push(Held { copy: CopyAt { file: number, ordinal }, number: message, standing });
        }
        let segment = Arc::new(Segment::of_due_file(&file));
        self.files.push(NewFile { number, file, segment });
        self.new_settled.push(settled);
    }

    fn write_runs(&mut self) -> io::Result<()> {
        let mut homes: Vec<(u64, Home)> = self
            .copies
            .iter()
            .map(|copy| {
                let file = self.files[copy.file].number.get();
                (copy.number.get(), Home { file, ordinal: copy.ordinal })
            })
            .collect();
        homes.sort_unstable();
        if !homes.is_empty() {
            let name = self.new_name(Kind::Numbers)?;
            // The oldest run needs no filter: it is asked for what no other knows, and that is there.
            let filter_for = if self.numbers.is_empty() { 0 } else { homes.len() as u64 };
            let mut writer = run::Writer::create(&*self.desk.disk, &self.desk.dir, name, filter_for)?;
            for (number, home) in homes {
                writer.push(number, home)?;
            }
            self.numbers.insert(0, Arc::new(writer.finish()?));
        }
        let mut hashes = std::mem::take(&mut self.key_hashes);
        hashes.sort_unstable();
        if !hashes.is_empty() {
            let name = self.new_name(Kind::Keys)?;
            let mut writer =
                run::Writer::create(&*self.desk.disk, &self.desk.dir, name, hashes.len() as u64)?;
            for (hash, number) in hashes {
                writer.push(hash, number)?;
            }
            self.keys.insert(0, Arc::new(writer.finish()?));
        }
        self.merge_numbers()?;
        self.merge_keys()
    }

    /// Makes one of the newest runs of numbers, if there are several of about one size.
    fn merge_numbers(&mut self) -> io::Result<()> {
        let Some(count) = alike(self.numbers.iter().map(|run| run.len())) else { return Ok(()) };
        let old: BTreeMap<u32, &Settled> =
            self.old_files.iter().map(|file| (file.number, &file.settled)).collect();
        let new: BTreeSet<u32> = self.files.iter().map(|file| file.number.get()).collect();
        let is_of_use = |home: &Home| {
            new.contains(&home.file) || old.get(&home.file).is_some_and(|settled| !settled.has(home.ordinal))
        };
        let name = file_name(self.desk.directory, Kind::Numbers, self.next_file);
        self.next_file += 1;
        let total: u64 = self.numbers[..count].iter().map(|run| run.len()).sum();
        let filter_for = if count == self.numbers.len() { 0 } else { total };
        let mut writer = run::Writer::create(&*self.desk.disk, &self.desk.dir, name, filter_for)?;
        for merged in run::merge(self.numbers[..count].iter().map(|run| run.iter()).collect()) {
            let merged = merged?;
            if is_of_use(&merged.value) {
                writer.push(merged.key, merged.value)?;
            }
        }
        let merged = Arc::new(writer.finish()?);
        let old = self.numbers.splice(..count, [merged]);
        remove_new(&self.desk, &self.manifest, old.map(|run| run.name()));
        Ok(())
    }

    /// The same for runs of keys.
    fn merge_keys(&mut self) -> io::Result<()> {
        let Some(count) = alike(self.keys.iter().map(|run| run.len())) else { return Ok(()) };
        let name = self.new_name(Kind::Keys)?;
        let total = self.keys[..count].iter().map(|run| run.len()).sum();
        let mut writer = run::Writer::create(&*self.desk.disk, &self.desk.dir, name, total)?;
        for merged in run::merge(self.keys[..count].iter().map(|run| run.iter()).collect()) {
            let merged = merged?;
            writer.push(merged.key, merged.value)?;
        }
        let merged = Arc::new(writer.finish()?);
        let old = self.keys.splice(..count, [merged]);
        remove_new(&self.desk, &self.manifest, old.map(|run| run.name()));
        Ok(())
    }

    fn write_manifest(&mut self) -> Result<(), JobError> {
        let new = self.files.iter().zip(std::mem::take(&mut self.new_settled));
        let new =
            new.map(|(file, settled)| FileState { number: file.number.get(), ripe: Timestamp::MIN, settled });
        let checkpoint = &mut self.manifest.checkpoint;
        checkpoint.files = std::mem::take(&mut self.old_files).into_iter().chain(new).collect();
        checkpoint.numbers = self.numbers.iter().map(|run| run.name().number).collect();
        checkpoint.keys = self.keys.iter().map(|run| run.name().number).collect();
        checkpoint.held = std::mem::take(&mut self.held);
        let first_file = std::mem::replace(&mut checkpoint.next_file, self.next_file);
        let (disk, dir) = (Arc::clone(&self.desk.disk), self.desk.dir.clone());
        // Their names have to be durable before the manifest's is.
        disk.sync_dir(&dir).map_err(JobError::Fatal)?;
        if let Err(error) = self.manifest.write_new(&*disk, &dir) {
            self.manifest.checkpoint.next_file = first_file;
            return Err(self.again(error));
        }
        Manifest::replace(&*disk, &dir).map_err(JobError::Fatal)
    }
}

/// Removes runs that this job has made and merged: no manifest names them, before or after.
fn remove_new(desk: &Desk, manifest: &Manifest, runs: impl Iterator<Item = Name>) {
    for name in runs.filter(|name| name.number >= manifest.checkpoint.next_file) {
        // What can not be removed now is when the store is next opened.
        let _ = desk.disk.remove(&desk.dir.join(name.file_name()));
    }
}

/// A file less than half of which is left, as it was at the moment of the capture.
struct Sparse {
    file: Arc<File>,
    segment: Arc<Segment>,
    settled: Settled,
    ripe: Timestamp,
}

/// The sparsest files, with `most` messages left in all of them together at most: so that what a retirement copies is
/// bounded, and no more than the space that comes back. A file that a held message needs stays.
fn sparse(
    cold: &ColdSet,
    settled: &BTreeMap<u32, Settled>,
    needed: &BTreeSet<u32>,
    most: usize,
) -> Vec<Sparse> {
    let live = |settled: &Settled| settled.live(0..settled.len());
    let mut sparse: Vec<(u32, u32)> = settled
        .iter()
        .map(|(number, settled)| (live(settled), *number, settled.len()))
        .filter(|(live, number, len)| *live > 0 && live * 2 < *len && !needed.contains(number))
        .map(|(live, number, _)| (live, number))
        .collect();
    sparse.sort_unstable();
    let mut left = most as u64;
    let fits = |(live, _): &(u32, u32)| {
        let fits = u64::from(*live) <= left;
        left = left.saturating_sub(u64::from(*live));
        fits
    };
    let chosen = sparse.into_iter().take_while(fits).map(|(_, number)| {
        let file = &cold.files()[&number];
        Sparse {
            file: Arc::clone(&file.file),
            segment: Arc::clone(&file.segment),
            settled: settled[&number].clone(),
            ripe: file.ripe,
        }
    });
    chosen.collect()
}

/// How many of the newest runs are of about one size, if they are enough: each older one is at most twice as long as
/// all before it. So the lengths of runs that stay rise by twos, and of `n` messages there are at most
/// `ALIKE` + log2(n) runs.
fn alike(lengths: impl Iterator<Item = u64>) -> Option<usize> {
    let (mut total, mut count) = (0, 0);
    for len in lengths {
        if count > 0 && len > total * 2 {
            break;
        }
        total += len;
        count += 1;
    }
    (count >= ALIKE).then_some(count)
}

/// A captured message as an entry of a due file.
fn entry(captured: &Captured<Place>) -> Entry {
    let Message { id, number, queue, key, headers, created, lease_ms, max_attempts, standing, .. } =
        captured.message.clone();
    let ready_since = captured.ready_since;
    Entry { id, number, queue, created, key, headers, lease_ms, max_attempts, standing, ready_since }
}
