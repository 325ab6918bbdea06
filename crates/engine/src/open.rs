//! Opening a data directory, step by step.
//!
//! Nothing is changed before the whole journal was read and verified. Then, each step durable before the next:
//! 1. the part of the tail that no mark proves is rewritten and synced, since it may be in the page cache alone, and
//!    the names in the directory are synced; room behind the tail is given back, and stale files are removed: the
//!    next steps may need their room;
//! 2. the manifest gets the next incarnation, so that ids and lease tokens of this opening are new;
//! 3. a new segment is begun, whose header says that everything before it is synced;
//! 4. leases that were bound to the previous process are freed.
//!
//! Crash story, for the order of 1 and 3: 1. the process is killed between a write and its sync. 2. The next one
//! reads the batch from the page cache and begins segment 6, whose header says that everything before it is synced.
//! 3. The power fails; segment 6 is there, the batch is not. Had the batch not been synced first, recovery would now
//! refuse the directory for damage that no disk has done.
//!
//! Crash story, for the rewrite: 1. a sync of batch 40 fails, and the put in it is answered `outcome_unknown`. Its
//! pages stay in the cache, and count as written. 2. The next process reads batch 40, and its sync succeeds: there is
//! nothing left to write. 3. The put is repeated under its idempotency key, and answered from batch 40. 4. The power
//! fails, and batch 40 is lost. So it is rewritten first ([`crate::unsynced_tail`]).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dwell_model::{MessageId, Now, Number};
use dwell_store::core::{Core, CoreConfig};

use crate::backup;
use crate::checkpoint::{Checkpoint, LeasedMessage};
use crate::cold::{ColdSet, ColdTable};
use crate::disk::{CountedDisk, Disk, DiskLock, failure};
use crate::executor::Executor;
use crate::flush::{Flush, FlushContext, MemoryBudget};
use crate::index_run::{self, IndexRun};
use crate::journal::batch::Batch;
use crate::journal::format::SegmentName;
use crate::journal::segment::Segment;
use crate::journal::writer::{JournalSettings, JournalStart, JournalWriter, WriteError};
use crate::manifest::{self, Manifest};
use crate::recovery::{Recovered, recover};
use crate::replay::Replayer;
use crate::report::OpenReport;
use crate::sealed::{self, FileId, FileKind};
use crate::shard::step::Step;
use crate::shard::{FREED_PER_CALL_DRIVEN, Shard, ShardCounters};
use crate::table::Table;
use crate::unsynced_tail::UnsyncedTail;
use crate::{Durability, OpenError, Options};

/// The file whose lock excludes a second process.
pub(crate) const LOCK: &str = "LOCK";

/// A directory that was opened.
pub(crate) struct OpenedDirectory {
    pub(crate) shard: Shard,
    pub(crate) lock: Box<dyn DiskLock>,
    pub(crate) report: OpenReport,
}

pub(crate) fn open(
    dir: &Path,
    options: &Options,
    disk: &CountedDisk,
    counters: &Arc<ShardCounters>,
    executor: &Arc<Executor>,
) -> Result<OpenedDirectory, OpenError> {
    options.check()?;
    let lock = enter(disk, dir)?;
    let now = options.clock.now();
    let is_new = is_empty(disk, dir)?;
    let mut manifest = if is_new { new_manifest(options, now) } else { Manifest::read(disk, dir)? };
    if manifest.incarnation >= MessageId::MAX_INCARNATION {
        return Err(OpenError::Exhausted { dir: dir.to_owned(), times: manifest.incarnation });
    }
    let restored = backup::taken_at(disk, dir)?;
    if restored.is_some() {
        // A backup may be opened in several places, and their ids must differ.
        manifest.incarnation = backup::fresh_incarnation(dir, manifest.incarnation, options.seed())?;
    }
    let core = CoreConfig {
        incarnation: manifest.incarnation + 1,
        waiting_limit: options.waiting,
        freed_per_call: FREED_PER_CALL_DRIVEN,
        bulk_per_call: options.bulk_per_call,
        expired_a_call: options.expired_per_turn,
        lapsed_a_call: options.lapsed_per_slice,
        ..CoreConfig::new(options.limits.clone(), options.seed())
    };
    let mut budget = MemoryBudget::of(options.memory_limit, options.segment_bytes);
    let cold = ColdSet::new(manifest.directory, budget.window(), budget.blocks(), budget.dead_entries());
    let mut step = Step::new(Core::new(core), cold);
    take_in(disk, dir, &manifest, &mut step, executor.has_threads())?;
    let mut recovered = recover(disk, dir, &manifest, &mut Replayer::new(&mut step))?;
    recovered.report.restored = restored;
    if restored.is_some() {
        // Beyond the journal, and not only the manifest, at the time of the copy.
        recovered.preamble.next_number = backup::fresh_number(recovered.preamble.next_number);
    }
    step.core_mut().skip_numbers(recovered.preamble.next_number);

    if let Some(tail) = recovered.kept.back() {
        take_over(&tail.segment, recovered.unproven, recovered.end)
            .map_err(|error| OpenError::io(&tail.segment.path, error))?;
    }
    disk.sync_dir(dir).map_err(|error| OpenError::io(dir, error))?;
    for path in recovered.stale.drain(..).chain(unnamed(disk, dir, &manifest)?) {
        let _ = disk.remove(&path);
    }
    manifest.incarnation += 1;
    manifest.newest = manifest.newest.max(recovered.newest);
    manifest.next_number = recovered.preamble.next_number;
    manifest.write(disk, dir)?;

    let mut context = FlushContext::new(
        Arc::new(disk.clone()),
        dir.to_owned(),
        manifest.directory,
        &budget,
        manifest.checkpoint.next_file,
        Arc::clone(executor),
    );
    context.run_bytes = options.run_bytes;
    context.damaged = Arc::clone(&counters.damaged);
    budget.set_files(step.both().1.memory() as u64);
    let flush = Flush::new(budget, context.clone(), manifest.clone());
    let mut report = recovered.report.clone();
    report.incarnation = manifest.incarnation;
    report.memory = budget.told();
    let begun = begin(&context, options, &manifest, recovered, &mut step, now);
    // Segments are removed before the directory's lock is released.
    let (writer, batch) = begun.inspect_err(|_| executor.close())?;
    report.messages = step.core().len() as u64 + step.core().cold_len();
    counters.segments.store(writer.segments() as u64, Ordering::Relaxed);
    step.read_ahead(executor);
    let shard =
        Shard::new(step, batch, writer, flush, options.durability, options.low_water(), Arc::clone(counters));
    Ok(OpenedDirectory { shard, lock, report })
}

/// Makes the tail of the journal durable, and gives back what lies behind it: a torn batch, and preallocated room.
fn take_over(tail: &Segment, unproven: Option<UnsyncedTail>, end: u64) -> std::io::Result<()> {
    match unproven {
        Some(unproven) => unproven.write_anew(tail, end)?,
        None => tail.file.sync()?,
    }
    match tail.file.set_size(end) {
        // Nothing reads those bytes, so it is safe to leave them.
        Err(error) if failure::is_full(&error) => Ok(()),
        done => done,
    }
}

/// Creates the directory if it is missing, and locks it. Leaves foreign directories alone.
fn enter(disk: &CountedDisk, dir: &Path) -> Result<Box<dyn DiskLock>, OpenError> {
    let at_dir = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => OpenError::NotADirectory { dir: dir.to_owned() },
        _ => OpenError::io(dir, error),
    };
    disk.create_dir(dir).map_err(at_dir)?;
    is_empty(disk, dir)?;
    match disk.lock(&dir.join(LOCK)).map_err(at_dir)? {
        Some(lock) => Ok(lock),
        None => Err(OpenError::Locked { dir: dir.to_owned() }),
    }
}

/// Whether the directory has no store in it yet; refuses one that holds something else.
fn is_empty(disk: &CountedDisk, dir: &Path) -> Result<bool, OpenError> {
    let names = disk.list(dir).map_err(|error| OpenError::io(dir, error))?;
    if names.iter().any(|name| name == manifest::FILE) {
        return Ok(false);
    }
    // It has had one: other files, such as the socket of a server that was killed, do not make it foreign.
    if names.iter().any(|name| SegmentName::parse(name).is_some() || FileId::parse(name).is_some()) {
        return Err(OpenError::damaged(&dir.join(manifest::FILE), 0, "the manifest is missing"));
    }
    // What a first opening that was cut short before it had a manifest leaves behind.
    let is_ours = |name: &String| name == LOCK || name == manifest::NEW_FILE;
    match names.into_iter().find(|name| !is_ours(name)) {
        None => Ok(true),
        Some(found) => Err(OpenError::Foreign { dir: dir.to_owned(), found }),
    }
}

fn new_manifest(options: &Options, now: Now) -> Manifest {
    Manifest {
        incarnation: 0,
        directory: options.seed(),
        made: now.wall,
        newest: 0,
        next_number: 1,
        checkpoint: Checkpoint::default(),
    }
}

/// A sealed file that the checkpoint names.
enum SealedFile {
    Table(Table),
    Numbers(IndexRun<index_run::TableRef>),
    Keys(IndexRun<Number>),
}

impl SealedFile {
    fn of(opened: sealed::OpenedFile) -> sealed::Result<SealedFile> {
        Ok(match opened.name.kind {
            FileKind::Table => SealedFile::Table(Table::of(opened)?),
            FileKind::Numbers => SealedFile::Numbers(IndexRun::of(opened)?),
            FileKind::Keys => SealedFile::Keys(IndexRun::of(opened)?),
        })
    }
}

/// Loads the checkpoint: files, runs, and leased messages. Opens several files at a time, if threads are allowed.
pub(crate) fn take_in(
    disk: &dyn Disk,
    dir: &Path,
    manifest: &Manifest,
    step: &mut Step,
    with_threads: bool,
) -> Result<(), OpenError> {
    let Manifest { directory, checkpoint, .. } = manifest;
    let (core, cold) = step.both();
    let damaged = |reason: &str| OpenError::damaged(&dir.join(manifest::FILE), 0, reason);
    let names: Vec<FileId> = checkpoint.names(*directory).collect();
    let (mut due, mut numbers, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    for taken in sealed::open_all(disk, dir, &names, with_threads, SealedFile::of)? {
        match taken {
            SealedFile::Table(file) => due.push(file),
            SealedFile::Numbers(run) => numbers.push(Arc::new(run)),
            SealedFile::Keys(run) => keys.push(Arc::new(run)),
        }
    }
    let mut named = BTreeSet::new();
    for (state, file) in checkpoint.files.iter().zip(due) {
        if !named.insert(state.number) {
            return Err(damaged("a table is named twice"));
        }
        if file.len() != state.settled.len() || state.number == 0 {
            return Err(damaged("a table has another number of entries than the manifest says"));
        }
        let segment = Arc::new(Segment::of_table(&file));
        cold.add(ColdTable::new(
            Arc::new(file),
            segment,
            state.settled.clone(),
            state.ready_until,
            checkpoint.seen,
        ));
    }
    cold.set_runs(numbers, keys);
    for (incarnation, start) in &checkpoint.numbering {
        core.set_numbering(*incarnation, *start);
    }
    for (queue, (pending, dead)) in cold.totals() {
        core.set_cold(&queue, pending, dead);
    }
    let mut held: Vec<&LeasedMessage> = checkpoint.held.iter().collect();
    // The checkpoint lists them in the order of their places in memory. In the order of files each block is read
    // once.
    held.sort_unstable_by_key(|held| held.copy);
    let mut named = BTreeSet::new();
    for held in held {
        if !named.insert(held.number) {
            return Err(damaged("a held message is named twice"));
        }
        let mut message = cold.read(held.copy)?.ok_or_else(|| damaged("a held message lies in no file"))?;
        if message.number != held.number {
            return Err(damaged("a held message is another than the manifest says"));
        }
        message.standing = held.standing.clone();
        core.hold(message, held.copy);
    }
    core.replay_time(checkpoint.seen);
    Ok(())
}

/// Sealed files that the manifest does not name: leftovers of earlier flushes.
fn unnamed(disk: &dyn Disk, dir: &Path, manifest: &Manifest) -> Result<Vec<std::path::PathBuf>, OpenError> {
    let named: BTreeSet<String> =
        manifest.checkpoint.names(manifest.directory).map(|name| name.file_name()).collect();
    let names = disk.list(dir).map_err(|error| OpenError::io(dir, error))?;
    let is_ours = |name: &String| sealed::FileId::parse(name).is_some() && !named.contains(name);
    Ok(names.into_iter().filter(is_ours).map(|name| dir.join(name)).collect())
}

/// Begins the first segment of this incarnation, and service.
fn begin(
    context: &FlushContext,
    options: &Options,
    manifest: &Manifest,
    recovered: Recovered,
    step: &mut Step,
    now: Now,
) -> Result<(JournalWriter, Batch), OpenError> {
    let (disk, dir) = (&*context.disk, context.dir.as_path());
    let home = JournalSettings {
        disk: Arc::clone(&context.disk),
        deleter: context.deleter.clone(),
        dir: dir.to_owned(),
        directory: manifest.directory,
        shard: 0,
        incarnation: manifest.incarnation,
        segment_bytes: options.segment_bytes,
        synced_answers: options.durability == Durability::Always,
        body_reach: options.body_reach,
    };
    let Recovered { kept, preamble, sequence, newest, report, .. } = recovered;
    let Checkpoint { start, files, .. } = &manifest.checkpoint;
    let start = JournalStart { segment: *start, has_files: !files.is_empty() };
    let at_dir = |error| match error {
        WriteError::Full(error) | WriteError::Failed(error) => OpenError::io(dir, error),
    };
    let (mut writer, mut batch) =
        JournalWriter::begin(home, kept, newest + 1, sequence, preamble, start, now.wall).map_err(at_dir)?;
    if report.restored.is_some() {
        let _ = disk.remove(&dir.join(backup::MARKER));
    }
    writer.begin_batch(&mut batch, now.wall, false).map_err(at_dir)?;
    step.opened(now, &mut batch);
    loop {
        let is_more = step.release_session_leases(now, &mut batch);
        if !batch.is_empty() {
            writer.append(&mut batch).map_err(at_dir)?;
        }
        if !is_more {
            break;
        }
        writer.begin_batch(&mut batch, now.wall, false).map_err(at_dir)?;
    }
    writer.sync().map_err(|error| OpenError::io(dir, error))?;
    Ok((writer, batch))
}
