//! Threads that cannot be started, or that panic: their work is done later, and all other calls continue.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dwell_engine::disk::{Disk, MemoryDisk};
use dwell_engine::{BackgroundWork, Class, Driver, Durability, Engine, Options, Spawner, SystemThreads};
use dwell_model::Key;
use dwell_store::{Put, Store as _, Take};
use dwell_time::{Clock as _, ManualClock, SystemClock};

use crate::blocked_creation::{Door, DoorDisk};
use crate::support::{Driven, dir, options, queue, start};

const PATIENCE: Duration = Duration::from_secs(60);

/// Some threads cannot be started: EAGAIN.
#[derive(Debug, Default)]
struct FailingSpawner {
    refused: Mutex<&'static [&'static str]>,
    refusals: AtomicUsize,
}

/// The threads of flush, compaction and deletion.
const BACKGROUND: &[&str] = &["dwell-flush", "dwell-compact"];

impl FailingSpawner {
    fn refuse(&self, names: &'static [&'static str]) {
        *self.refused.lock().unwrap() = names;
    }
}

impl Spawner for FailingSpawner {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        if self.refused.lock().unwrap().contains(&name) {
            self.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        SystemThreads.spawn(name, work)
    }
}

fn small(clock: &ManualClock) -> Options {
    Options { memory_limit: 64 * 1024, segment_bytes: 64 * 1024, ..options(&MemoryDisk::new(), clock) }
}

fn far(number: u64) -> Put {
    Put::new(queue("far"), format!("body {number}"))
        .after_ms(86_400_000)
        .key(Key::new(&format!("key-{number}")).unwrap())
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    let end = clock.now().mono_ms + PATIENCE.as_millis() as u64;
    while !is_so() {
        assert!(clock.now().mono_ms < end, "{what}: it never came to it");
        thread::yield_now();
    }
}

#[test]
fn where_no_thread_can_be_started_puts_wait_for_one_and_all_else_goes_on() {
    let (clock, few) = (ManualClock::new(start()), Arc::new(FailingSpawner::default()));
    let engine = Engine::open(dir(), Options { spawner: few.clone(), ..small(&clock) }).unwrap();
    let store = engine.blocking();
    store.put_one(Put::new(queue("soon"), "now")).unwrap();
    few.refuse(BACKGROUND);
    let (say, answers) = mpsc::channel();
    let putting = thread::spawn({
        let store = engine.blocking();
        move || (0..2_000).for_each(|number| drop(say.send(store.put_one(far(number)))))
    });
    wait_until("a put waits", || engine.counters().held > 0);
    assert_eq!(store.take(Take::from(queue("soon"))).unwrap()[0].message.body, "now");
    let before = engine.counters().wakeups;
    assert!(clock.await_asleep(1, PATIENCE));
    let refusals = few.refusals.load(Ordering::Relaxed);
    clock.advance(1_000);
    wait_until("it is tried again", || few.refusals.load(Ordering::Relaxed) > refusals);
    assert!(clock.await_asleep(1, PATIENCE));
    assert!(engine.counters().wakeups - before < 50, "nothing is looked at again and again");
    let background_failures = engine.background_failures();
    assert_eq!(
        background_failures.iter().map(|trouble| trouble.work).collect::<Vec<_>>(),
        [BackgroundWork::Flush]
    );
    assert!(
        background_failures[0].reason.contains("no thread can be started")
            && background_failures[0].times == 2,
        "{background_failures:?}"
    );
    assert_eq!(engine.counters().flushes, 0);
    few.refuse(&[]);
    clock.advance(1_000);
    for _ in 0..2_000 {
        answers.recv_timeout(PATIENCE).unwrap().unwrap();
    }
    putting.join().unwrap();
    assert!(engine.counters().flushes > 0);
    assert_eq!(engine.background_failures(), []);
    engine.close().unwrap();
}

#[test]
fn one_thread_is_enough_for_all_work_in_the_background() {
    let (clock, few) = (ManualClock::new(start()), Arc::new(FailingSpawner::default()));
    let engine = Engine::open(dir(), Options { spawner: few.clone(), ..small(&clock) }).unwrap();
    let store = engine.blocking();
    few.refuse(&["dwell-compact"]);
    (0..2_000).for_each(|number| store.put_one(far(number)).map(drop).unwrap());
    assert!(few.refusals.load(Ordering::Relaxed) > 0, "a second task asks for a second thread");
    wait_until("runs are merged", || {
        store.put_one(Put::new(queue("soon"), "now")).unwrap();
        engine.counters().runs < 20
    });
    assert!(engine.counters().flushes > 0);
    assert_eq!(engine.background_failures(), []);
    engine.close().unwrap();
}

/// Takes a turn, and does all background work except merges.
fn turn_without_merges(driver: &mut Driver) {
    driver.turn_alone();
    while let Some(nth) = driver.pending().iter().position(|class| *class != Class::Compaction) {
        driver.step(nth);
    }
}

/// A directory with many runs, none of which was merged.
fn unmerged(clock: &ManualClock) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let options = Options { disk: Arc::new(disk.clone()), ..small(clock) };
    let mut store = Driven::open(disk, clock.clone(), options).unwrap();
    let Driven { engine, driver, .. } = &mut store;
    for number in 0.. {
        if engine.counters().runs > 30 {
            break;
        }
        assert!(number < 2_000, "too few runs");
        let mut put = pin!(engine.put(vec![far(number)]));
        let mut turns = 0;
        while put.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            turn_without_merges(driver);
            turns += 1;
            assert!(turns < 1_000, "put {number} waits");
        }
    }
    store.close().0
}

#[test]
fn a_merge_that_finds_no_thread_is_made_later_and_nothing_waits_for_it() {
    let (clock, few) = (ManualClock::new(start()), Arc::new(FailingSpawner::default()));
    let disk: Arc<dyn Disk> = Arc::new(unmerged(&clock));
    few.refuse(BACKGROUND);
    // With so much room no flush is due, which would keep merges from being begun.
    let options = Options { disk, spawner: few.clone(), memory_limit: 64 * 1024 * 1024, ..small(&clock) };
    let engine = Engine::open(dir(), options).unwrap();
    let store = engine.blocking();
    let works = || engine.background_failures().iter().map(|trouble| trouble.work).collect::<Vec<_>>();
    wait_until("both kinds of merges are tried", || works().len() == 2);
    assert_eq!(works(), [BackgroundWork::MergeNumbers, BackgroundWork::MergeKeys]);
    assert!(
        engine.background_failures()[0].reason.contains("would block"),
        "{:?}",
        engine.background_failures()
    );
    let unmerged = engine.counters().runs;
    for _ in 0..100 {
        store.put_one(Put::new(queue("soon"), "now")).unwrap();
        assert_eq!(store.take(Take::from(queue("soon"))).unwrap()[0].message.body, "now");
    }
    let refusals = few.refusals.load(Ordering::Relaxed);
    assert!(refusals < 5, "it rests between: {refusals}");
    assert_eq!(engine.counters().runs, unmerged);
    few.refuse(&[]);
    wait_until("runs are merged", || {
        clock.advance(1_000);
        store.put_one(Put::new(queue("soon"), "now")).unwrap();
        engine.counters().runs < 20 && engine.background_failures().is_empty()
    });
    engine.close().unwrap();
}

/// Crash story: 1. A flush panics: the file that it has begun stays, and the next one begins another.
#[test]
fn a_flush_that_panics_leaves_no_file_and_does_not_end_the_store() {
    let (clock, disk) = (ManualClock::new(start()), MemoryDisk::new());
    let door = DoorDisk::new(disk.clone());
    let engine = Engine::open(dir(), Options { disk: Arc::new(door.clone()), ..small(&clock) }).unwrap();
    let store = engine.blocking();
    door.set(Door::Trapped);
    let mut number = 0;
    while door.state() == Door::Trapped {
        store.put_one(far(number)).unwrap();
        number += 1;
        assert!(number < 10_000);
    }
    wait_until("it is reported", || {
        // The next turn gets the result.
        number += u64::from(store.put_one(far(number)).is_ok());
        !engine.background_failures().is_empty()
    });
    assert!(
        engine.background_failures()[0].reason.contains("panicked"),
        "{:?}",
        engine.background_failures()
    );
    wait_until("it is tried again", || {
        clock.advance(1_000);
        let put = store.put_one(far(number));
        number += u64::from(put.is_ok());
        engine.background_failures().is_empty()
    });
    engine.close().unwrap();
    let named = ["table-", "numbers-", "keys-"];
    let sealed =
        disk.list(dir()).unwrap().into_iter().filter(|name| named.iter().any(|kind| name.starts_with(kind)));
    let empty: Vec<String> =
        sealed.filter(|name| disk.read_file(&dir().join(name)).unwrap().is_empty()).collect();
    assert_eq!(empty, Vec::<String>::new());
    let mut store = Driven::on(disk, clock);
    assert_eq!(store.numbers().len() as u64, number);
}

/// Crash story: 1. A caller's turn holds its put back until the flush in progress is further. 2. The thread sleeps
/// until the next sync is due, within three seconds, and so it is not woken for the put. 3. The flush is further, and
/// no thread continues the put.
#[test]
fn a_put_held_back_in_a_turn_of_its_caller_goes_on_as_soon_as_there_is_room() {
    let (clock, door) = (ManualClock::new(start()), DoorDisk::new(MemoryDisk::new()));
    // A flush reports its progress after every few hundred messages.
    let options = Options {
        disk: Arc::new(door.clone()),
        memory_limit: 4 * 1024 * 1024,
        durability: Durability::IntervalMs(1_000),
        ..small(&clock)
    };
    let engine = Engine::open(dir(), options).unwrap();
    door.set(Door::Shut);
    let (say, answers) = mpsc::channel();
    let putting = thread::spawn({
        let store = engine.blocking();
        // Two tables at least.
        let far = |number: u64| Put::new(queue("far"), "body").after_ms(300_000 + number % 2 * 864_000_000);
        move || (0..).map(|number| store.put_one(far(number))).all(|answer| say.send(answer).is_ok())
    });
    wait_until("a put waits", || engine.counters().held > 0);
    assert!(clock.await_asleep(1, PATIENCE));
    answers.try_iter().for_each(|answer| assert!(answer.is_ok()));
    door.set(Door::OnceOpen);
    answers.recv_timeout(PATIENCE).expect("the first file is written").unwrap();
    drop(answers);
    door.set(Door::Open);
    assert!(!putting.join().unwrap());
    engine.close().unwrap();
}
