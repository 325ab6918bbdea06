//! Disasters: power failures at any write or sync, killed processes, disks that fail or are full, and opening the store
//! afterwards, which may meet the next disaster.

use std::io;
use std::sync::Arc;

use dwell_engine::disk::{Calls, Crash, Fault};
use dwell_engine::{Durability, Engine, OpenError};
use dwell_model::MessageId;

use super::client::CallSubject;
use super::deaths::Deaths;
use super::world::{Running, World};
use crate::mutants::MutantStore;
use crate::oracle::{Op, Reading, ViolationKind};
use crate::workload::body;

/// The kinds of disasters in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Climate {
    /// All kinds.
    Storms,
    /// The disk is full again and again, and then has room. Nothing else
    /// happens, and the store must not need to be opened again.
    Full,
    /// The same once: after `writes` writes, the next `times` writes fail for lack of room.
    FullAt { writes: u64, times: u64 },
    /// The process reaches its limit of open files again and again.
    /// Nothing else happens, and no attempt is spent because of it.
    FewFiles,
    /// Sectors of the journal and of index runs become unreadable for the rest of the run. Nothing else happens:
    /// everything stored elsewhere is read, and puts continue.
    BadSectors,
    /// No file can be created for a long time, though existing files can be written. Nothing else happens, and the store
    /// must not need to be opened again.
    NoInodes,
}

impl Climate {
    /// The climate of a run, by a number below 100.
    pub(super) fn of(chance: u64) -> Climate {
        match chance {
            0..10 => Climate::Full,
            10..15 => Climate::FewFiles,
            15..23 => Climate::BadSectors,
            23..27 => Climate::NoInodes,
            _ => Climate::Storms,
        }
    }
}

/// The length of the checksum before a body, in bytes: the two are read together.
const CHECKSUM_LEN: u64 = 4;

/// How long a lost sector of the journal may delay puts, in seconds: a flush tries three times to read a body, one second
/// apart, and reaches the bodies of some partitions one after the other.
const SECONDS_A_SECTOR: u64 = 12;

/// The most sectors lost in a run with [`Climate::BadSectors`].
const SECTORS_LOST: u64 = 8;

/// The current faults of the disk.
#[derive(Debug, Default)]
pub(super) struct Weather {
    /// The number of further ticks during which the disk is full.
    full: u64,
    /// When the store will have retried the writes that failed for lack of room, on the monotonic clock.
    tried_again_at: i64,
    /// Whether writes are planned to fail for lack of room, and may still do so.
    finds_none: bool,
    /// Whether other faults of writes are planned and may still occur.
    is_faulty: bool,
    /// The number of further ticks during which reads may fail.
    blind: u64,
    /// Whether the process is at its limit of open files meanwhile.
    lacks_files: bool,
    /// The number of further ticks during which bits are flipped.
    rotten: u64,
    /// The newest command that was sent while reads might fail.
    read_badly_to: Op,
    /// When the store will have retried the dead messages that it could not read, on the wall clock.
    retained_again_at: i64,
}

/// How long a store may wait before it retries a write that failed for lack of room, in ms.
const RETRY_MS: i64 = 100;
/// How long it may wait before it retries dead messages that it could not read, in ms.
const RETAIN_MS: i64 = 600_000;

impl Weather {
    /// Whether writes work, and the store has retried those that failed for lack of room.
    pub(super) fn lets_write(&self, now: Reading) -> bool {
        // If no file can be opened, a file that was closed meanwhile cannot be written.
        let finds_room = self.full == 0 && !self.finds_none && !self.lacks_files;
        finds_room && !self.is_faulty && now.mono >= self.tried_again_at
    }

    /// Whether the store has discarded all messages past retention, including those that it could not read for a while.
    pub(super) fn lets_retain(&self, now: Reading) -> bool {
        self.lets_read() && now.wall >= self.retained_again_at
    }

    /// Whether reads work.
    pub(super) fn lets_read(&self) -> bool {
        self.blind == 0 && self.rotten == 0
    }

    /// Whether the process may be at its limit of open files.
    pub(super) fn lacks_files(&self) -> bool {
        self.lacks_files
    }

    /// Whether reads have worked ever since a command was sent: its answer may have been delayed for a long time.
    pub(super) fn has_let_read(&self, since: Op) -> bool {
        self.lets_read() && since > self.read_badly_to
    }

    /// Whether there is no fault.
    pub(super) fn is_clear(&self, now: Reading) -> bool {
        self.lets_write(now) && self.lets_read()
    }
}

fn is_sealed(name: &str) -> bool {
    ["table-", "numbers-", "keys-"].iter().any(|kind| name.starts_with(kind))
}

/// The most failed attempts to open a store before that is a violation by itself.
const TRIES: u32 = 30;

impl World {
    /// Before each tick: plans faults or ends some.
    pub(super) fn brew(&mut self) {
        if self.weather.full > 0 {
            self.weather.full -= 1;
            if self.weather.full == 0 {
                self.trace.add(format_args!("  room on the disk"));
                self.disk.set_capacity(None);
                if self.climate == Climate::NoInodes {
                    self.disk.heal_creates();
                }
                self.weather.tried_again_at = self.reading().mono + RETRY_MS;
            }
        }
        if self.weather.finds_none && !self.disk.has_faults(Calls::Writes) {
            self.trace.add(format_args!("  writes find room"));
            self.weather.finds_none = false;
            self.weather.tried_again_at = self.reading().mono + RETRY_MS;
        }
        self.end_bad_reads();
        match self.climate {
            Climate::Storms => self.brew_anything(),
            Climate::Full => {
                if self.rng.percent(15) && self.weather.lets_write(self.reading()) {
                    self.fill();
                }
            }
            Climate::FullAt { writes, times } => {
                if !self.is_filled {
                    self.is_filled = true;
                    self.find_none(writes, times);
                }
            }
            Climate::FewFiles => {
                if self.weather.blind == 0 && self.rng.percent(10) {
                    self.run_out_of_files();
                }
            }
            Climate::BadSectors => {
                if self.sectors_lost < SECTORS_LOST && self.rng.percent(6) {
                    self.lose_a_sector_for_good();
                }
            }
            Climate::NoInodes => {
                if self.weather.full == 0 && self.rng.percent(10) {
                    let after = self.rng.below(3);
                    let error = io::ErrorKind::StorageFull;
                    let fault = Fault { calls: Calls::Creates, after, times: u64::MAX, error };
                    self.trace.add(format_args!("  {fault:?}"));
                    self.disk.fail(fault);
                    self.weather.full = self.rng.between(10, 100);
                }
            }
        }
    }

    /// Limits the room on the disk for a while, or lets some writes fail for lack of room.
    fn fill(&mut self) {
        if self.rng.percent(50) {
            if self.rng.percent(30) {
                self.find_no_inode();
            }
            let capacity = self.disk.used() + self.rng.below(600);
            self.trace.add(format_args!("  disk full at {capacity}"));
            self.disk.set_capacity(Some(capacity));
            self.weather.full = self.rng.between(1, 12);
        } else {
            let (after, times) = (self.rng.below(8), *self.rng.pick(&[1, 1, 2, 5]));
            self.find_none(after, times);
        }
    }

    fn find_none(&mut self, after: u64, times: u64) {
        let fault = Fault { calls: Calls::Writes, after, times, error: io::ErrorKind::StorageFull };
        self.trace.add(format_args!("  {fault:?}"));
        self.disk.fail(fault);
        self.weather.finds_none = true;
    }

    fn brew_anything(&mut self) {
        match self.rng.below(1_000) {
            // If syncs come at intervals, the power fails only when everything that was answered is durable.
            0..20 if self.options.durability != Durability::Always => {}
            0..20 => {
                let change = self.disk.changes() + self.rng.between(1, 8);
                self.trace.add(format_args!("  power to fail at change {change}"));
                self.disk.power_off_at(change);
                self.weather.is_faulty = true;
            }
            20..30 => {
                let calls = *self.rng.pick(&[Calls::Writes, Calls::Syncs, Calls::Changes]);
                let (after, times) = (self.rng.below(5), *self.rng.pick(&[1, 2, u64::MAX]));
                let fault = Fault { calls, after, times, error: io::ErrorKind::Other };
                self.trace.add(format_args!("  {fault:?}"));
                self.disk.fail(fault);
                self.weather.is_faulty = true;
            }
            30..45 if self.weather.full == 0 => {
                let capacity = self.disk.used() + self.rng.below(2_000);
                self.trace.add(format_args!("  disk full at {capacity}"));
                self.disk.set_capacity(Some(capacity));
                self.weather.full = self.rng.between(1, 12);
            }
            45..60 => {
                let (after, times) = (self.rng.below(6), *self.rng.pick(&[1, 1, 2, 6, u64::MAX]));
                let fault = Fault { calls: Calls::Reads, after, times, error: io::ErrorKind::Other };
                self.trace.add(format_args!("  {fault:?}"));
                self.disk.fail(fault);
                self.weather.blind = self.rng.between(1, 10);
            }
            60..80 => self.rot(),
            80..90 => {
                let (after, times) = (self.rng.below(5), *self.rng.pick(&[1, 1, 2]));
                let kept = self.rng.percent(50).then(|| self.rng.next());
                self.trace
                    .add(format_args!("  syncs to be lost after {after}, {times} times, kept {kept:?}"));
                self.disk.lose_syncs(after, times, kept);
                self.weather.is_faulty = true;
            }
            90..100 => self.lose_sectors(),
            100..110 => self.run_out_of_files(),
            110..120 => self.find_no_inode(),
            _ => {}
        }
    }

    /// Lets opening files fail for a while.
    fn run_out_of_files(&mut self) {
        let (after, times) = (self.rng.below(3), *self.rng.pick(&[1, 3, u64::MAX]));
        self.trace.add(format_args!("  no files to be had after {after}, {times} times"));
        self.disk.run_out_of_files(after, times);
        self.weather.lacks_files = true;
        self.weather.blind = self.rng.between(1, 10);
    }

    /// Flips some bits of the journal or of sealed files for a while.
    fn rot(&mut self) {
        for _ in 0..self.rng.between(1, 4) {
            let part = *self.rng.pick(&["journal-", "table-", "table-", "numbers-", "keys-"]);
            let seed = self.rng.next();
            let spot = self.disk.rot(seed, |name| name.starts_with(part));
            self.trace.add(format_args!("  rot at {spot:?}"));
            if spot.is_some() {
                self.weather.rotten = self.weather.rotten.max(self.rng.between(1, 20));
            }
        }
    }

    /// Makes some sectors of the journal or of sealed files unreadable for a while.
    fn lose_sectors(&mut self) {
        for _ in 0..self.rng.between(1, 3) {
            let part = *self.rng.pick(&["journal-", "journal-", "table-", "numbers-", "keys-"]);
            let seed = self.rng.next();
            let spot = self.disk.unreadable(seed, |name| name.starts_with(part));
            self.trace.add(format_args!("  cannot be read: {spot:?}"));
            if spot.is_some() {
                self.weather.rotten = self.weather.rotten.max(self.rng.between(1, 20));
            }
        }
    }

    /// Makes a sector of the journal or of an index run unreadable for good.
    fn lose_a_sector_for_good(&mut self) {
        let part = *self.rng.pick(&["journal-", "journal-", "numbers-", "keys-"]);
        let seed = self.rng.next();
        let spot = self.disk.unreadable(seed, |name| name.starts_with(part));
        self.trace.add(format_args!("  cannot be read: {spot:?}"));
        if spot.is_some() {
            self.sectors_lost += 1;
            self.is_scarred = true;
            if part == "journal-" {
                self.held_up_s += SECONDS_A_SECTOR;
            }
            let known: Vec<MessageId> = self.addresses.keys().copied().collect();
            self.forget_what_is_hidden(&known);
        }
    }

    /// Forgets those of these messages whose bodies are unreadable: later copies are made without them.
    pub(super) fn forget_what_is_hidden(&mut self, ids: &[MessageId]) {
        for id in ids {
            if !self.can_be_read(*id) {
                self.addresses.remove(id);
            }
        }
    }

    /// Whether the body of a message is certainly readable: it has a copy on disk, and no copy that is or was flawed.
    pub(super) fn can_be_read(&self, id: MessageId) -> bool {
        let Some(address) = self.addresses.get(&id) else { return false };
        let body = body::make(*address);
        // A short body may occur anywhere by chance.
        if body.len() < 16 {
            return false;
        }
        let (intact, flawed) = self.disk.copies(&body, CHECKSUM_LEN);
        intact > 0 && flawed == 0
    }

    /// Lets creating files fail for a while, though existing files can be written.
    fn find_no_inode(&mut self) {
        let (after, times) = (self.rng.below(3), *self.rng.pick(&[1, 2, 20]));
        let fault = Fault { calls: Calls::Creates, after, times, error: io::ErrorKind::StorageFull };
        self.trace.add(format_args!("  {fault:?}"));
        self.disk.fail(fault);
    }

    /// Ends the faults of reads when their time is over.
    fn end_bad_reads(&mut self) {
        if !self.weather.lets_read() {
            self.weather.retained_again_at =
                self.weather.retained_again_at.max(self.reading().wall + RETAIN_MS);
        }
        if self.weather.blind > 0 {
            self.weather.blind -= 1;
            if self.weather.blind == 0 {
                self.trace.add(format_args!("  reads work"));
                self.disk.heal_reads();
                if std::mem::take(&mut self.weather.lacks_files) {
                    self.weather.tried_again_at = self.reading().mono + RETRY_MS;
                }
                self.weather.read_badly_to = self.oracle.newest();
            }
        }
        if self.weather.rotten > 0 {
            self.weather.rotten -= 1;
            if self.weather.rotten == 0 {
                self.trace.add(format_args!("  no rot is left"));
                self.disk.heal_rot(|_| true);
                self.weather.read_badly_to = self.oracle.newest();
            }
        }
    }

    /// Ends the process in one way or another, then opens the store and checks it.
    pub(super) fn strike(&mut self) {
        let choice = self.rng.below(10);
        if self.disk.is_off() || choice < 5 && self.is_durable() {
            self.fail_power();
        } else if choice < 8 || self.has_failed || !self.weather.lets_write(self.reading()) {
            self.kill();
        } else {
            self.close();
        }
        self.open();
        self.audit();
    }

    /// Whether the oracle may expect that a power loss loses nothing that was answered. If syncs come at intervals, one
    /// interval passes first, so that everything answered before is durable.
    fn is_durable(&mut self) -> bool {
        let Durability::IntervalMs(ms) = self.options.durability else { return true };
        if self.has_failed || !self.weather.lets_write(self.reading()) {
            return false;
        }
        let waiting = self.flights.len();
        self.clock.advance(ms);
        self.turn();
        // What waited for a flush, and was answered in that turn, may have been written behind the sync.
        waiting == self.flights.len() && !self.has_failed && self.weather.lets_write(self.reading())
    }

    /// Ends the process: no command under way will be answered.
    fn end_process(&mut self) {
        let now = self.reading();
        self.note_scars();
        self.running = None;
        let ops: Vec<Op> = self.flights.iter().flat_map(|flight| flight.ops.iter().copied()).collect();
        let flights = std::mem::take(&mut self.flights);
        for flight in flights {
            match flight.about {
                CallSubject::Put(again) if again.put.spec.idempotency_key => self.repeat(*again),
                CallSubject::Mismatch(mut again) => {
                    again.is_mismatch = false;
                    self.repeat(*again);
                }
                _ => {}
            }
        }
        for op in ops.into_iter().chain(self.lost.drain(..)).chain(self.unread.drain(..)) {
            self.oracle.lose(op, now);
        }
        for op in self.abandoned.drain(..) {
            self.oracle.abandon(op, now);
        }
        self.has_failed = false;
    }

    /// The process ends at once: what it had under way in the background stays as it is.
    fn kill(&mut self) {
        self.trace.add(format_args!("  killed"));
        self.disk.power_off();
        self.end_process();
        self.disk.power_on(Crash::Keep);
        self.oracle.killed();
    }

    fn fail_power(&mut self) {
        self.disk.power_off();
        self.end_process();
        self.power_on();
    }

    /// Restarts the machine, with some of the data that was not synced.
    fn power_on(&mut self) {
        let seed = self.rng.next();
        let crash = *self.rng.pick(&[Crash::Drop, Crash::Keep, Crash::Prefix(seed), Crash::Holes(seed)]);
        self.trace.add(format_args!("  power failed, {crash:?}"));
        self.disk.power_on(crash);
        let now = self.reading();
        self.oracle.power_failed(now);
    }

    /// Closes the store in order.
    fn close(&mut self) {
        self.trace.add(format_args!("  closed"));
        let Some(running) = &self.running else { return };
        // Without a thread the answer arrives with the turn; the next open shows that the store was closed.
        let _ = running.engine.close();
        self.turn();
        let now = self.reading();
        // A bulk operation is interrupted: it reports how far it came, and that the store is closed.
        for op in self.lost.extract_if(.., |op| self.oracle.is_sweep(*op)).collect::<Vec<_>>() {
            self.oracle.lose(op, now);
        }
        let in_order = self.lost.is_empty() && self.flights.is_empty();
        self.end_process();
        if in_order {
            self.oracle.closed(now);
        } else {
            self.oracle.accuse(
                ViolationKind::Contradiction,
                "a store that was closed left calls without an answer".to_owned(),
            );
        }
    }

    /// Opens the store, with as many attempts as it takes.
    pub(super) fn open(&mut self) {
        for _ in 0..TRIES {
            self.disk.heal();
            self.disk.set_capacity(None);
            self.weather = Weather::default();
            // At a damaged end of the journal, the data counts as torn.
            self.disk.heal_rot(|name| !is_sealed(name) || self.reopened == 0);
            if self.reopened > 0 {
                self.pass_time();
                self.plan_trouble_while_opening();
            }
            let now = self.reading();
            self.oracle.shown(now.wall);
            if let Some(mutant) = &self.mutant_disk {
                mutant.before_opening(&self.directory());
            }
            let opened = Engine::open_driven(self.directory(), self.options.clone());
            let is_off = self.disk.is_off();
            self.trace
                .add(format_args!("  opened: {:?}", opened.as_ref().map(|(engine, _)| engine.report())));
            if is_off || opened.is_err() {
                self.oracle.tried_to_open(now);
            }
            match opened {
                Ok((engine, driver)) if !is_off => {
                    self.disk.heal();
                    self.disk.heal_rot(|_| true);
                    let store = MutantStore::new(Arc::new(engine.clone()), self.fault, self.memory.clone());
                    self.running = Some(Running { driver, engine, store: Arc::new(store) });
                    self.oracle.reopened(now);
                    self.deaths = Deaths::default();
                    self.reopened += 1;
                    return;
                }
                Ok(opened) => {
                    // Before the power is back: nothing may be removed then.
                    drop(opened);
                    self.power_on();
                }
                Err(_) if is_off => self.power_on(),
                Err(OpenError::Io { .. }) => self.disk.heal_rot(|_| true),
                // It reports the damage, changes nothing, and opens once the medium is readable again.
                Err(OpenError::Damaged { .. }) if self.disk.is_rotten() => self.disk.heal_rot(|_| true),
                Err(error) => {
                    self.oracle.accuse(ViolationKind::Lost, format!("the store cannot be opened: {error}"));
                    return;
                }
            }
        }
        self.oracle.accuse(ViolationKind::Lost, format!("the store did not open in {TRIES} tries"));
    }

    fn plan_trouble_while_opening(&mut self) {
        if self.rng.percent(10) {
            let seed = self.rng.next();
            let spot = self.disk.rot(seed, is_sealed);
            self.trace.add(format_args!("  rot at {spot:?}"));
        }
        match self.rng.below(10) {
            0..2 => {
                let change = self.rng.between(1, 12);
                // Answers of a killed process may not be synced yet.
                if self.options.durability == Durability::Always {
                    self.disk.power_off_at(change);
                }
            }
            2 => {
                let calls = *self.rng.pick(&[Calls::Reads, Calls::Writes, Calls::Syncs, Calls::Changes]);
                let after = self.rng.below(10);
                self.disk.fail(Fault { calls, after, times: 1, error: io::ErrorKind::Other });
            }
            _ => {}
        }
    }
}
