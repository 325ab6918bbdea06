//! Puts that come faster than they are flushed: they wait, then they are refused; all other calls continue.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dwell_engine::disk::MemoryDisk;
use dwell_engine::{Counters, Engine, Options};
use dwell_store::{Action, Cancelled, Put, Settle, Store, Take, Target};
use dwell_time::ManualClock;

use crate::blocked_creation::{Door, DoorDisk};
use crate::support::{Driven, dir, options, queue, start};

const PATIENCE: Duration = Duration::from_secs(60);

/// About a hundred messages.
const LIMIT: u64 = 64 * 1024;

struct Pressed {
    door: DoorDisk,
    clock: ManualClock,
}

impl Pressed {
    fn new() -> Pressed {
        Pressed { door: DoorDisk::new(MemoryDisk::new()), clock: ManualClock::new(start()) }
    }

    fn options(&self) -> Options {
        Options {
            memory_limit: LIMIT,
            segment_bytes: 64 * 1024,
            disk: Arc::new(self.door.clone()),
            ..options(&MemoryDisk::new(), &self.clock)
        }
    }
}

fn far(body: &'static str) -> Put {
    Put::new(queue("far"), body).after_ms(86_400_000)
}

/// Puts until one waits.
fn put_until_held(engine: &Engine) -> mpsc::Receiver<Result<u64, dwell_store::Error>> {
    let (say, hear) = mpsc::channel();
    let store = engine.blocking();
    thread::spawn(move || {
        loop {
            let answer = store.put_one(far("x")).map(|answer| answer.number.get());
            if say.send(answer).is_err() {
                return;
            }
        }
    });
    while engine.counters().held == 0 {
        thread::yield_now();
    }
    hear
}

#[test]
fn what_is_in_memory_is_bounded_however_much_is_put() {
    let pressed = Pressed::new();
    let mut store = Driven::open(MemoryDisk::new(), pressed.clock.clone(), pressed.options()).unwrap();
    let engine = store.engine.clone();
    for _ in 0..100 {
        let puts: Vec<Put> = (0..50).map(|_| far("x")).collect();
        assert!(store.run(engine.put(puts)).into_iter().all(|answer| answer.is_ok()));
        let Counters { resident, resident_bytes, .. } = engine.counters();
        // As many as fit, and those of the one call that the last of them came with.
        assert!(resident_bytes <= LIMIT && resident <= LIMIT / 224, "{resident} in {resident_bytes} bytes");
    }
    let Counters { resident, cold, held, flushes, .. } = engine.counters();
    assert_eq!(resident + cold, 5_000);
    assert!(held > 0 && flushes > 10, "{held} were held, {flushes} checkpoints");
}

#[test]
fn puts_wait_for_a_slow_flush_and_all_else_does_not() {
    let pressed = Pressed::new();
    let engine = Engine::open(dir(), pressed.options()).unwrap();
    let store = engine.blocking();
    let soon: Vec<_> = (0..20).map(|_| store.put_one(Put::new(queue("soon"), "now")).unwrap()).collect();
    pressed.door.set(Door::Shut);
    let answers = put_until_held(&engine);
    let put = answers.try_iter().count();
    // None of these waits for the thread that is blocked at the door.
    let taken = store.take(Take::from(queue("soon")).max(10)).unwrap();
    assert_eq!(taken.len(), 10);
    let acks = taken.into_iter().map(|taken| Settle { receipt: taken.receipt, action: Action::Ack });
    assert!(store.settle(acks.collect()).into_iter().all(|settled| settled.is_ok()));
    let target = Target::Id(soon[15].id);
    let cancelled = store.cancel(queue("soon"), vec![target]).pop().unwrap().unwrap();
    assert_eq!(cancelled, Cancelled::Cancelled(soon[15].id));
    assert!(put > 0 && answers.try_recv().is_err(), "the put waits");
    pressed.door.set(Door::Open);
    for _ in 0..500 {
        answers.recv_timeout(PATIENCE).unwrap().unwrap();
    }
    drop(answers);
    assert!(engine.counters().flushes > 0);
    engine.close().unwrap();
}

/// Crash story: a put waits for a flush. 1. Every two milliseconds it was checked whether the put may go on. 2. The
/// clock stood still, as a test's does, and as one does that the machine steps: the put waited for the end of the whole
/// flush, although most of it was over.
#[test]
fn puts_go_on_as_the_flush_does_though_no_time_passes() {
    let pressed = Pressed::new();
    // Thousands of messages, since the job reports its progress only from time to time.
    let engine = Engine::open(dir(), Options { memory_limit: 4 << 20, ..pressed.options() }).unwrap();
    pressed.door.set(Door::Shut);
    let (say, answers) = mpsc::channel();
    let putting = thread::spawn({
        let store = engine.blocking();
        move || {
            // Half of them go to a separate file, which is written first.
            for after_ms in [60_000, 86_400_000].into_iter().cycle() {
                let puts = (0..50).map(|_| Put::new(queue("far"), "x").after_ms(after_ms)).collect();
                let put = store.put(puts).into_iter().all(|answer| answer.is_ok());
                if say.send(put).is_err() {
                    return;
                }
            }
        }
    });
    while engine.counters().held == 0 {
        thread::yield_now();
    }
    let before = engine.counters();
    answers.try_iter().for_each(|put| assert!(put));
    pressed.door.set(Door::OnceOpen);
    for _ in 0..10 {
        assert!(answers.recv_timeout(PATIENCE).expect("a part of the room is free"));
    }
    let after = engine.counters();
    assert_eq!((before.flushes, after.flushes), (0, 0), "the other file stands at the door");
    pressed.door.set(Door::Open);
    drop(answers);
    putting.join().unwrap();
    engine.close().unwrap();
}

#[test]
fn a_put_that_waits_for_too_long_is_refused_and_may_be_repeated() {
    let pressed = Pressed::new();
    let engine = Engine::open(dir(), pressed.options()).unwrap();
    pressed.door.set(Door::Shut);
    let answers = put_until_held(&engine);
    let mut put = answers.try_iter().filter(Result::is_ok).count() as u64;
    assert!(pressed.clock.await_asleep(1, PATIENCE));
    pressed.clock.advance(3_000);
    let refused = loop {
        match answers.recv_timeout(PATIENCE).unwrap() {
            Ok(_) => put += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!((refused.code(), refused.is_retryable()), ("overloaded", true));
    pressed.door.set(Door::Open);
    let first = loop {
        match answers.recv_timeout(PATIENCE).unwrap() {
            Ok(number) => break number,
            Err(refused) => assert_eq!(refused.code(), "overloaded"),
        }
    };
    assert_eq!(first, put + 1, "what was refused has changed nothing");
    drop(answers);
    engine.close().unwrap();
}

#[test]
fn where_nothing_can_be_flushed_puts_are_refused_at_once_until_it_can() {
    let pressed = Pressed::new();
    let mut store = Driven::open(MemoryDisk::new(), pressed.clock.clone(), pressed.options()).unwrap();
    let soon = store.put(Put::new(queue("soon"), "now")).unwrap();
    pressed.door.set(Door::Barred);
    let mut refused = None;
    for _ in 0..1_000 {
        if let Err(error) = store.put(far("x")) {
            refused = Some(error);
            break;
        }
    }
    assert_eq!(refused.unwrap().code(), "overloaded");
    let taken = store.take(Take::from(queue("soon"))).unwrap().pop().unwrap();
    assert_eq!(taken.message.id, soon.id);
    store.settle(Settle { receipt: taken.receipt, action: Action::Ack }).unwrap();
    pressed.door.set(Door::Open);
    store.advance(1_000);
    for _ in 0..500 {
        store.put(far("x")).unwrap();
    }
}

/// Crash story: a disk had room for what was put, and a little more. 1. Messages were put until it was full. 2. Nine in
/// ten were cancelled. 3. To free their space what was left had to be written once more, for which there was no room:
/// puts were refused for good.
#[test]
fn on_a_full_disk_the_room_of_cancelled_messages_comes_back() {
    for capacity in [300_000, 1_000_000] {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
        disk.set_capacity(Some(capacity));
        let opened = Options {
            memory_limit: 4 << 20,
            segment_bytes: 64 * 1024,
            low_water_bytes: None,
            ..options(&disk, &clock)
        };
        let mut store = Driven::open(disk.clone(), clock, opened).unwrap();
        let engine = store.engine.clone();
        let mut ids = Vec::new();
        let mut waited = 0;
        let refused = loop {
            let far =
                Put::new(queue("far"), vec![7; 1_000]).after_ms(86_400_000 * (1 + ids.len() as u64 % 100));
            match store.put(far) {
                Ok(put) => ids.push(put.id),
                // Early flushes make room.
                Err(error) if store.engine.counters().flushes < 3 => {
                    assert_eq!((error.code(), error.is_retryable()), ("disk_full", true));
                    waited += 1;
                    assert!(waited < 100, "nothing was flushed in {waited} s, {} fit", ids.len());
                    store.advance(1_000);
                }
                Err(error) => break error,
            }
            assert!((ids.len() as u64) < capacity / 1_000);
        };
        assert_eq!(refused.code(), "disk_full");
        assert!(ids.len() as u64 * 1_000 > capacity / 2, "{} fit", ids.len());
        let (gone, left): (Vec<_>, Vec<_>) = ids.into_iter().enumerate().partition(|(at, _)| at % 10 != 0);
        for (_, id) in gone {
            store.run(engine.cancel(queue("far"), vec![Target::Id(id)])).pop().unwrap().unwrap();
        }
        let mut again = 0;
        for _ in 0..100 {
            let puts = (0..10).map(|_| Put::new(queue("far"), vec![7; 1_000]).after_ms(86_400_000)).collect();
            again += store.run(engine.put(puts)).into_iter().filter(Result::is_ok).count();
            store.advance(1_000);
        }
        assert!(again as u64 * 1_000 > capacity / 4, "{again} fit behind {}", left.len());
        let all = store.dump();
        assert_eq!(all.len(), left.len() + again);
        assert!(left.iter().all(|(_, id)| all.iter().any(|message| message.id == *id)));
    }
}

#[test]
fn closing_does_not_leave_a_put_that_waits_without_an_answer() {
    let pressed = Pressed::new();
    let engine = Engine::open(dir(), pressed.options()).unwrap();
    pressed.door.set(Door::Shut);
    let answers = put_until_held(&engine);
    let closing = engine.clone();
    let closed = thread::spawn(move || closing.close());
    let last = loop {
        match answers.recv_timeout(PATIENCE).unwrap() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(last.code(), "closed");
    pressed.door.set(Door::Open);
    drop(answers);
    closed.join().unwrap().unwrap();
}
