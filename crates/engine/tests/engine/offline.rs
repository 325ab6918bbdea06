//! Directories that are not open: checked, measured, dumped, and repaired whatever byte of them is damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dwell_engine::disk::{Disk, DiskFile, DiskLock, MemoryDisk};
use dwell_engine::offline::{self, Filter, RepairReport, check, dump, repair, stats};
use dwell_engine::{OpenError, Options};
use dwell_model::{Headers, Message, MessageId, Setting, SettingChange, State, StateKind};
use dwell_store::{Action, Error, OnConflict, Put, Selection, Settle, Store, Take, Target, When};
use dwell_testkit::Random;
use dwell_time::{Clock, ManualClock};

use crate::support::{Driven, dir, options, queue, start};

fn new_dir() -> &'static Path {
    Path::new("/new")
}

/// Every message that ever existed, by its id.
type History = BTreeMap<MessageId, Message>;

/// A small directory with all kinds of contents: tables, some of their messages settled, moved, leased; runs of
/// numbers and keys; and a journal behind them. Each body identifies its message, so that it can be found in a file.
fn directory() -> (MemoryDisk, ManualClock, History) {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let memory_limit = Options::MIN_MEMORY_LIMIT;
    let opened = Options { segment_bytes: 4096, memory_limit, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, opened).unwrap();
    let mut history = History::new();
    let mut chance = Random::new(11);
    let mut remember = |store: &mut Driven| {
        for message in store.dump() {
            history.insert(message.id, message);
        }
    };
    let q = queue("orders");
    for i in 0..60_u64 {
        let body = format!("<{i}:{:016x}>", chance.next()).repeat(1 + (i % 3) as usize);
        let name = queue(["orders", "mail", "cold"][i as usize % 3]);
        let mut put = Put::new(name, body).after_ms(1 + i * 977 % 50_000);
        if i % 4 == 0 {
            put = put.key(format!("key {}", i % 16).parse().unwrap()).on_conflict(OnConflict::Replace);
        }
        if i % 7 == 0 {
            put.headers = Headers::new([("x-note", "é")]).unwrap();
            put.expires = Some(start().after(400_000 + i).unwrap());
        }
        store.put(put).unwrap();
        if i % 10 == 9 {
            remember(&mut store);
        }
    }
    store.advance(20_000);
    let taken = store.take(Take::from_all([q.clone(), queue("mail")]).max(9)).unwrap();
    for (at, delivery) in taken.into_iter().enumerate() {
        let action = match at % 4 {
            0 => Action::Ack,
            1 => Action::Bury { reason: Some("poison".into()), priority: None },
            2 => Action::Retry { after_ms: Some(90_000), error: Some("no luck".into()), priority: Some(3) },
            _ => Action::Extend { lease_ms: Some(3_600_000) },
        };
        store.settle(Settle { receipt: delivery.receipt, action }).unwrap();
    }
    let engine = store.engine.clone();
    let all = store.dump();
    for message in
        all.iter().filter(|message| message.standing.state.kind() == StateKind::Scheduled).step_by(5)
    {
        let target = vec![(Target::Id(message.id), When::AfterMs(70_000))];
        store.run(engine.reschedule(message.queue.clone(), target)).pop().unwrap().unwrap();
    }
    for message in
        all.iter().filter(|message| message.standing.state.kind() == StateKind::Scheduled).skip(2).step_by(7)
    {
        let target = vec![Target::Id(message.id)];
        store.run(engine.cancel(message.queue.clone(), target)).pop().unwrap().unwrap();
    }
    store.run(engine.configure(q.clone(), vec![SettingChange::Set(Setting::LeaseMs(77_000))])).unwrap();
    store.put(Put::new(queue("purged"), "purged")).unwrap();
    remember(&mut store);
    store.run(engine.purge(queue("purged"))).unwrap();
    for i in 60..70_u64 {
        let body = format!("<{i}:{:016x}>", chance.next());
        store
            .put(Put::new(q.clone(), body).after_ms(5_000).idempotency_key(format!("t{i}").parse().unwrap()))
            .unwrap();
    }
    remember(&mut store);
    assert!(store.engine.counters().tables >= 3, "{:?}", store.engine.counters());
    drop(engine);
    let (disk, clock) = store.close();
    // A merged run that no manifest names yet is removed at the next opening.
    for name in check(&disk, dir()).unwrap().leftovers {
        disk.remove(&dir().join(name)).unwrap();
    }
    (disk, clock, history)
}

fn files(disk: &MemoryDisk) -> BTreeMap<String, Vec<u8>> {
    let names = disk.list(dir()).unwrap();
    names.into_iter().map(|name| (name.clone(), disk.read_file(&dir().join(name)).unwrap())).collect()
}

fn messages(disk: &MemoryDisk, dir: &Path, clock: &ManualClock) -> Vec<Message> {
    let mut messages = Vec::new();
    dump(disk, dir, clock.now(), &Filter::default(), &mut |message| {
        messages.push(message.clone());
        true
    })
    .unwrap();
    messages.sort_by_key(|message| message.number);
    messages
}

fn mend(disk: &MemoryDisk, clock: &ManualClock, seed: u64) -> Result<(RepairReport, MemoryDisk), OpenError> {
    let new = MemoryDisk::new();
    let to: Arc<dyn Disk> = Arc::new(new.clone());
    let report = repair(disk, dir(), &to, new_dir(), clock.now(), seed)?;
    Ok((report, new))
}

/// Leases as seen by another process: the monotonic deadline is local to a process.
fn comparable(mut message: Message) -> Message {
    if let State::Leased(lease) = &mut message.standing.state {
        lease.deadline_mono_ms = 0;
    }
    message
}

#[test]
fn a_sound_directory_is_said_to_be_and_left_as_it_is() {
    let (disk, clock, _) = directory();
    let before = files(&disk);
    let report = check(&disk, dir()).unwrap();
    assert!(report.is_sound() && report.leftovers.is_empty() && report.cuts.is_empty(), "{report:?}");
    let found = messages(&disk, dir(), &clock);
    assert_eq!(report.messages, Some(found.len() as u64));
    let measured = stats(&disk, dir(), clock.now()).unwrap();
    assert_eq!(measured.messages, found.len() as u64);
    let live: u32 = measured.tables.iter().map(|file| file.live).sum();
    assert_eq!(u64::from(live), report.live);
    for state in StateKind::ALL {
        let filter = Filter { queue: Some(queue("orders")), state: Some(state) };
        let mut count = 0;
        dump(&disk, dir(), clock.now(), &filter, &mut |message| {
            assert!(message.queue == queue("orders") && message.standing.state.kind() == state);
            count += 1;
            true
        })
        .unwrap();
        let (orders, _) = measured.queues.iter().find(|(stats, _)| stats.name == queue("orders")).unwrap();
        let counts = orders.counts;
        let counted = [counts.scheduled, counts.ready, counts.leased, counts.dead];
        let at = StateKind::ALL.iter().position(|kind| *kind == state).unwrap();
        assert_eq!(counted[at], count, "{state:?}");
    }
    assert_eq!(files(&disk), before);
    // The engine finds the same.
    let mut store = Driven::on(disk, clock);
    let dumped: Vec<_> = store.dump().into_iter().map(comparable).collect();
    assert_eq!(dumped, found.into_iter().map(comparable).collect::<Vec<_>>());
}

#[test]
fn a_directory_in_use_and_what_is_none_are_refused() {
    let mut store = Driven::new();
    store.put(Put::new(queue("q"), "x")).unwrap();
    let (disk, clock) = (store.disk.clone(), store.clock.clone());
    assert_eq!(check(&disk, dir()).unwrap_err().code(), "locked");
    assert_eq!(stats(&disk, dir(), clock.now()).unwrap_err().code(), "locked");
    assert_eq!(mend(&disk, &clock, 1).unwrap_err().code(), "locked");
    store.close();
    assert!(check(&disk, dir()).unwrap().is_sound());
    let to: Arc<dyn Disk> = Arc::new(disk.clone());
    assert_eq!(repair(&disk, dir(), &to, dir(), clock.now(), 1).unwrap_err().code(), "not_empty");
    disk.put_file(Path::new("/else/photo.jpg"), vec![1]);
    assert_eq!(check(&disk, Path::new("/else")).unwrap_err().code(), "foreign_directory");
    assert_eq!(check(&disk, Path::new("/nowhere")).unwrap_err().code(), "io");
    disk.put_file(Path::new("/empty/LOCK"), Vec::new());
    assert_eq!(check(&disk, Path::new("/empty")).unwrap_err().code(), "damaged");
}

#[test]
fn a_sound_directory_is_repaired_to_the_same_messages_settings_and_idempotency_keys() {
    let (disk, clock, _) = directory();
    let before = files(&disk);
    let (report, new) = mend(&disk, &clock, 5).unwrap();
    assert!(report.check.is_sound(), "{:?}", report.check);
    assert!(report.lost.is_empty() && report.keyless.is_empty(), "{report:?}");
    assert_eq!((report.idle_records, report.idle_sweeps), (0, 0));
    let found: Vec<_> = messages(&disk, dir(), &clock).into_iter().map(comparable).collect();
    let saved: Vec<_> = messages(&new, new_dir(), &clock).into_iter().map(comparable).collect();
    assert_eq!(saved, found);
    assert_eq!(files(&disk), before);
    let old = check(&disk, dir()).unwrap().messages;
    assert_eq!(Some(report.messages), old);
    // Other state; ids, numbers and receipts are new ones.
    let from = new.list(new_dir()).unwrap();
    let moved = MemoryDisk::new();
    for name in from {
        moved.put_file(&dir().join(&name), new.read_file(&new_dir().join(&name)).unwrap());
    }
    let mut store = Driven::on(moved, clock);
    let highest = found.iter().map(|message| message.number).max().unwrap();
    let other = Put::new(queue("orders"), "other").idempotency_key("t65".parse().unwrap());
    let Err(Error::IdempotencyMismatch { id }) = store.put(other) else {
        panic!("it stands for another body")
    };
    let first = found.iter().find(|message| message.body.starts_with(b"<65:")).unwrap();
    let again = Put::new(queue("orders"), first.body.clone()).idempotency_key("t65".parse().unwrap());
    let again = store.put(again).unwrap();
    assert!(again.id == id && again.number <= highest);
    let engine = store.engine.clone();
    let own = store.run(engine.stats(queue("orders"))).unwrap().own;
    assert!(own.iter().any(|setting| *setting == Setting::LeaseMs(77_000)));
    let put = store.put(Put::new(queue("orders"), "new")).unwrap();
    assert!(put.number.get() > highest.get() + (1 << 31));
    let incarnations = found.iter().map(|message| message.id.incarnation());
    assert!(put.id.incarnation() > incarnations.max().unwrap() + 1_000);
}

/// The places of bodies in files.
struct Places(Vec<(MessageId, String, usize, usize)>);

impl Places {
    fn of(files: &BTreeMap<String, Vec<u8>>, live: &[Message]) -> Places {
        let mut places = Vec::new();
        for message in live {
            for (name, bytes) in files {
                let len = message.body.len();
                let found = bytes.windows(len).enumerate().filter(|(_, window)| *window == &message.body[..]);
                places.extend(found.map(|(at, _)| (message.id, name.clone(), at, at + len)));
            }
        }
        let known: BTreeSet<MessageId> = places.iter().map(|(id, ..)| *id).collect();
        assert_eq!(known.len(), live.len(), "each body lies somewhere");
        Places(places)
    }
}

/// Repairs a damaged directory, and compares the output with the original contents.
fn expect_saved(
    disk: &MemoryDisk,
    clock: &ManualClock,
    how: &str,
    live: &[Message],
    places: &Places,
    history: &History,
) -> RepairReport {
    let before = files(disk);
    let checked = check(disk, dir()).unwrap();
    let (report, new) = match mend(disk, clock, 9) {
        Ok(mended) => mended,
        Err(error) => panic!("{how}: {error}"),
    };
    assert_eq!(files(disk), before, "{how}: the damaged directory was changed");
    assert!(report.check.is_sound(), "{how}: {:?}", report.check);
    if checked.is_sound() {
        assert!(report.lost.is_empty(), "{how}: sound, and something was lost: {:?}", report.lost);
    }
    let saved = messages(&new, new_dir(), clock);
    for message in &saved {
        let known = history.get(&message.id);
        let known = known.unwrap_or_else(|| panic!("{how}: {message:?} was never put"));
        assert_eq!(message.body, known.body, "{how}");
        assert_eq!((&message.queue, message.number), (&known.queue, known.number), "{how}");
        assert_eq!((&message.headers, message.created), (&known.headers, known.created), "{how}");
        assert!(message.key == known.key, "{how}: {message:?}");
    }
    let saved: BTreeSet<MessageId> = saved.iter().map(|message| message.id).collect();
    for message in live.iter().filter(|message| !saved.contains(&message.id)) {
        let excused = report.lost.iter().any(|lost| {
            let file = lost.file.file_name().unwrap().to_str().unwrap();
            let names_it = lost.reason.contains(&format!("message {}", message.number));
            places.0.iter().any(|(id, name, from, to)| {
                let meets = lost.range.is_none_or(|(start, end)| (*from as u64) < end && *to as u64 > start);
                *id == message.id && name == file && meets || names_it
            })
        });
        assert!(excused, "{how}: {message:?} is not there, and not said to be lost: {:?}", report.lost);
    }
    report
}

/// Every message here was put with an idempotency key, and so the journal is there from its beginning.
#[test]
fn what_tables_have_lost_comes_out_of_the_journal_as_it_stood() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let memory_limit = Options::MIN_MEMORY_LIMIT;
    let opened = Options { segment_bytes: 4096, memory_limit, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, opened).unwrap();
    let q = queue("orders");
    for i in 0..120_u64 {
        let mut put = Put::new(q.clone(), format!("body {i}")).after_ms(1 + i * 977 % 50_000);
        if i % 5 == 0 {
            put = put.key(format!("key {}", i % 15).parse().unwrap()).on_conflict(OnConflict::Replace);
        }
        store.put(put.idempotency_key(format!("t{i}").parse().unwrap())).unwrap();
        if i % 40 == 39 {
            store.advance(10_000);
            let taken = store.take(Take::from(q.clone()).max(9)).unwrap();
            for (at, delivery) in taken.into_iter().enumerate() {
                let action = match at % 3 {
                    0 => Action::Ack,
                    1 => Action::Bury { reason: Some("poison".into()), priority: None },
                    _ => Action::Retry {
                        after_ms: Some(90_000),
                        error: Some("no luck".into()),
                        priority: Some(3),
                    },
                };
                store.settle(Settle { receipt: delivery.receipt, action }).unwrap();
            }
            let engine = store.engine.clone();
            let scheduled =
                store.dump().into_iter().filter(|message| message.standing.state == State::Scheduled);
            for message in scheduled.step_by(6) {
                let target = vec![(Target::Id(message.id), When::AfterMs(70_000))];
                store.run(engine.reschedule(q.clone(), target)).pop().unwrap().unwrap();
            }
        }
    }
    assert!(store.engine.counters().tables >= 3, "{:?}", store.engine.counters());
    let (disk, clock) = store.close();
    for name in check(&disk, dir()).unwrap().leftovers {
        disk.remove(&dir().join(name)).unwrap();
    }
    let live = messages(&disk, dir(), &clock);
    let tables: Vec<String> = files(&disk).into_keys().filter(|name| name.starts_with("table-")).collect();
    let named = |report: &RepairReport| report.lost.iter().filter_map(|lost| lost.messages).sum::<u64>();
    let mut found = 0;
    for cut in [0, 100] {
        for name in &tables {
            let damaged = disk.copied();
            let mut bytes = damaged.read_file(&dir().join(name)).unwrap();
            bytes.truncate(cut);
            damaged.put_file(&dir().join(name), bytes);
            let (report, new) = mend(&damaged, &clock, 9).unwrap();
            assert!(report.check.is_sound(), "{name}: {:?}", report.check);
            assert!(!report.lost.is_empty() && report.found == named(&report), "{name}: {report:?}");
            found += report.found;
            let mut saved = messages(&new, new_dir(), &clock);
            for message in saved.iter_mut().filter(|message| report.keyless.contains(&message.number)) {
                let known = live.iter().find(|known| known.number == message.number).unwrap();
                assert!(known.standing.keyless || matches!(known.standing.state, State::Dead(_)));
                (message.key, message.standing.keyless) = (known.key.clone(), known.standing.keyless);
            }
            assert_eq!(saved, live, "{name}");
        }
    }
    assert!(found > 100, "{found}");
    // Settled messages do not come back although their puts are there.
    assert!(live.len() < 120 && tables.iter().all(|name| files(&disk).contains_key(name)));
}

/// The number of places of a file that are damaged, unless `DWELL_EVERY_BYTE` is set: then each.
const SAMPLES: usize = 20;

fn samples(len: usize, chance: &mut Random) -> Vec<usize> {
    if std::env::var_os("DWELL_EVERY_BYTE").is_some() || len <= SAMPLES {
        return (0..len).collect();
    }
    (0..SAMPLES).map(|_| chance.below(len as u64) as usize).collect()
}

#[test]
fn whatever_byte_is_damaged_every_message_beside_it_is_saved() {
    let (disk, clock, history) = directory();
    let (whole, live) = (files(&disk), messages(&disk, dir(), &clock));
    let places = Places::of(&whole, &live);
    let mut chance = Random::new(3);
    let (mut damaged, mut losses) = (0, 0);
    for (name, bytes) in whole.iter().filter(|(name, _)| *name != "LOCK") {
        let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for at in samples(written, &mut chance) {
            let how = format!("byte {at} of {name}");
            let damaged_disk = disk.copied();
            let mut changed = bytes.clone();
            changed[at] ^= 1 << chance.below(8);
            damaged_disk.put_file(&dir().join(name), changed);
            assert!(!check(&damaged_disk, dir()).unwrap().is_sound() || is_torn(name, &whole), "{how}");
            let report = expect_saved(&damaged_disk, &clock, &how, &live, &places, &history);
            // One body, one block or one batch of these few.
            assert!(
                report.without_manifest || live.len() as u64 <= report.messages + 40,
                "{how}: {report:?}"
            );
            (damaged, losses) = (damaged + 1, losses + report.lost.len());
        }
    }
    assert!(damaged > 300 && losses > damaged / 2, "{damaged} {losses}");
}

/// The last batch of the journal records that the store was closed; damage in it looks like a torn tail.
fn is_torn(name: &str, files: &BTreeMap<String, Vec<u8>>) -> bool {
    files.keys().rfind(|name| name.starts_with("journal-")).is_some_and(|last| last == name)
}

#[test]
fn whatever_is_cut_off_or_gone_the_rest_is_saved() {
    let (disk, clock, history) = directory();
    let (whole, live) = (files(&disk), messages(&disk, dir(), &clock));
    let places = Places::of(&whole, &live);
    let mut chance = Random::new(4);
    for (name, bytes) in whole.iter().filter(|(name, _)| *name != "LOCK") {
        for at in samples(bytes.len(), &mut chance).into_iter().step_by(3) {
            let how = format!("{name} cut at {at}");
            let damaged = disk.copied();
            damaged.put_file(&dir().join(name), bytes[..at].to_vec());
            // Bytes that are missing at the end are in no range of the report.
            let cut = Places(
                places
                    .0
                    .iter()
                    .filter(|(_, file, ..)| file == name)
                    .cloned()
                    .chain(places.0.iter().cloned())
                    .collect(),
            );
            let missing: Vec<Message> = live
                .iter()
                .filter(|message| {
                    !cut.0.iter().any(|(id, file, _, to)| *id == message.id && file == name && *to > at)
                })
                .cloned()
                .collect();
            expect_saved(&damaged, &clock, &how, &missing, &places, &history);
        }
        let gone = disk.copied();
        gone.remove(&dir().join(name)).unwrap();
        let elsewhere: Vec<Message> = live
            .iter()
            .filter(|message| !places.0.iter().any(|(id, file, ..)| *id == message.id && file == name))
            .cloned()
            .collect();
        expect_saved(&gone, &clock, &format!("{name} gone"), &elsewhere, &places, &history);
    }
}

#[test]
fn a_damaged_body_costs_its_message_alone() {
    let mut store = Driven::new();
    let engine = store.engine.clone();
    let puts: Vec<Put> = (0..100).map(|i| Put::new(queue("q"), format!("body {i:03} ").repeat(9))).collect();
    for put in store.run(engine.put(puts)) {
        put.unwrap();
    }
    // So that the batch is known to have been synced.
    store.put(Put::new(queue("q"), "the next batch")).unwrap();
    drop(engine);
    let (disk, clock) = store.close();
    let (name, bytes) = files(&disk).into_iter().find(|(name, _)| name.starts_with("journal-")).unwrap();
    let needle = b"body 042 ";
    let at = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    let mut damaged = bytes.clone();
    damaged[at + 20..][..4].fill(0);
    disk.put_file(&dir().join(&name), damaged);
    let checked = check(&disk, dir()).unwrap();
    assert_eq!(checked.flaws.len(), 1, "{checked:?}");
    assert_eq!(checked.flaws[0].file, PathBuf::from(format!("/data/{name}")));
    let (report, new) = mend(&disk, &clock, 3).unwrap();
    let saved: Vec<String> = messages(&new, new_dir(), &clock)
        .iter()
        .map(|message| String::from_utf8_lossy(&message.body)[..8].to_owned())
        .collect();
    assert_eq!(saved.len(), 100);
    assert!(!saved.contains(&"body 042".to_owned()) && saved.contains(&"body 041".to_owned()));
    assert_eq!(report.lost.len(), 1);
    assert_eq!((report.lost[0].messages, report.lost[0].range), (Some(1), Some((at as u64, at as u64 + 81))));
}

/// The error number of the system for too many open files.
const TOO_MANY_FILES: i32 = 24;

/// A disk that opens a number of files, and then no more for the life of the process.
#[derive(Clone, Debug)]
struct Starved {
    disk: MemoryDisk,
    left: Arc<AtomicUsize>,
}

impl Starved {
    fn after(disk: &MemoryDisk, files: usize) -> Starved {
        Starved { disk: disk.clone(), left: Arc::new(AtomicUsize::new(files)) }
    }

    fn was_refused(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    fn opened<T>(&self, opened: io::Result<T>) -> io::Result<T> {
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        taken.map_err(|_| io::Error::from_raw_os_error(TOO_MANY_FILES)).and(opened)
    }
}

impl Disk for Starved {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.opened(self.disk.create(path))
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.opened(self.disk.open(path))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.opened(self.disk.lock(path))
    }
    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.disk.free_space(dir)
    }
}

/// Wherever it is that no further file can be opened.
#[test]
fn that_no_file_can_be_opened_is_never_taken_for_damage() {
    let (disk, clock, _) = directory();
    let files = disk.list(dir()).unwrap().len();
    let filter = Filter::default();
    let whole = check(&disk, dir()).unwrap();
    assert!(whole.is_sound());
    type Tool<'a> = &'a dyn Fn(&Starved) -> Result<bool, OpenError>;
    let tools: [(&str, Tool<'_>); 5] = [
        ("check", &|disk| Ok(check(disk, dir())? == whole)),
        ("stats", &|disk| Ok(stats(disk, dir(), clock.now())?.messages == whole.messages.unwrap())),
        ("dump", &|disk| {
            let shown = dump(disk, dir(), clock.now(), &filter, &mut |_| true)?;
            Ok(shown == whole.messages.unwrap())
        }),
        ("backup", &|from| {
            let to = MemoryDisk::new();
            offline::backup(from, dir(), &to, new_dir(), clock.now(), 3, true)?;
            Ok(check(&to, new_dir())?.is_sound())
        }),
        ("repair", &|from| {
            let new = MemoryDisk::new();
            let to: Arc<dyn Disk> = Arc::new(new.clone());
            let report = repair(from, dir(), &to, new_dir(), clock.now(), 3).inspect_err(|_| {
                assert_ne!(
                    new.list(new_dir()).map(|names| names.iter().any(|name| name == "MANIFEST")).ok(),
                    Some(true)
                );
            })?;
            Ok(report.lost.is_empty() && report.check.is_sound())
        }),
    ];
    for (name, tool) in tools {
        let mut was_whole = false;
        for opened in 0..20 * files {
            let starved = Starved::after(&disk, opened);
            match tool(&starved) {
                Ok(is_right) => {
                    assert!(is_right, "{name}, {opened} files");
                    was_whole = true;
                    break;
                }
                Err(error) => {
                    assert_eq!(error.code(), "io", "{name}, {opened} files: {error}");
                    assert!(starved.was_refused(), "{name}, {opened} files: {error}");
                }
            }
        }
        assert!(was_whole, "{name} needs no more than that");
    }
}

/// What happened to a message that had expired in place.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// Its queue was purged: it was dead by then.
    Purged,
    /// And it was revived, and is there.
    Revived,
    /// And acked.
    Acked,
    /// Another has its key.
    Replaced,
    /// The clock stepped back.
    SteppedBack,
}

#[test]
fn what_expired_in_tables_is_repaired_to_what_became_of_it_then() {
    const HOUR_MS: u64 = 3_600_000;
    for then in [Then::Purged, Then::Revived, Then::Acked, Then::Replaced, Then::SteppedBack] {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
        let memory_limit = Options::MIN_MEMORY_LIMIT;
        let small = Options { memory_limit, ..options(&disk, &clock) };
        let mut store = Driven::open(disk, clock, small).unwrap();
        let engine = store.engine.clone();
        let key = || "k".parse().unwrap();
        let expires = Some(start().after(HOUR_MS).unwrap());
        let put = Put { expires, ..Put::new(queue("q"), "mortal").after_ms(HOUR_MS / 2) };
        let mortal = store.put(put.key(key())).unwrap();
        for i in 0..200 {
            store.put(Put::new(queue("far"), format!("{i}")).after_ms(100 * HOUR_MS)).unwrap();
        }
        store.clock.advance(HOUR_MS + 1);
        // A call that records the latest time, and does nothing else.
        assert_eq!(store.run(engine.stats(queue("q"))).unwrap().counts.dead, 1, "{then:?}");
        let back = || async {
            let swept = engine.revive(queue("q"), Selection::Ids(vec![mortal.id]), When::Now).await;
            assert_eq!(swept.unwrap().done, 1);
        };
        if let Then::Purged | Then::Revived | Then::Acked = then {
            store.put(Put::new(queue("q"), "purged")).unwrap();
            assert_eq!(store.run(engine.purge(queue("q"))), Ok(1));
        }
        match then {
            Then::Purged => {}
            Then::Revived => store.run(back()),
            Then::Acked => {
                store.run(back());
                let taken = store.take(Take::from(queue("q"))).unwrap().remove(0);
                assert_eq!(taken.message.id, mortal.id);
                store.settle(Settle { receipt: taken.receipt, action: Action::Ack }).unwrap();
            }
            Then::Replaced => {
                store.put(Put::new(queue("q"), "new").after_ms(HOUR_MS).key(key())).unwrap();
            }
            Then::SteppedBack => store.clock.step_wall(start()),
        }
        drop(engine);
        let (disk, clock) = store.kill();
        disk.power_on(dwell_engine::disk::Crash::Keep);
        let (report, new) = mend(&disk, &clock, 5).unwrap();
        assert!(report.check.is_sound() && report.lost.is_empty(), "{then:?}: {report:?}");
        assert_eq!((report.idle_records, &report.keyless), (0, &Vec::new()), "{then:?}");
        let found = messages(&disk, dir(), &clock);
        let is_there = found.iter().find(|message| message.id == mortal.id);
        let kind = is_there.map(|message| message.standing.state.kind());
        let expected = match then {
            Then::Purged | Then::Replaced | Then::SteppedBack => Some(StateKind::Dead),
            Then::Revived => Some(StateKind::Ready),
            Then::Acked => None,
        };
        assert_eq!(kind, expected, "{then:?}");
        assert_eq!(messages(&new, new_dir(), &clock), found, "{then:?}");
    }
}
