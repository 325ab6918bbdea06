//! Leases that run out together, messages that expire together, and leases that end with the process: their records
//! come in batches that are no longer than usual.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use dwell_engine::Options;
use dwell_engine::disk::{Calls, Crash, Fault, MemoryDisk};
use dwell_model::{Limits, Pause, QueueName, Setting, SettingChange};
use dwell_store::{Action, Delivery, Put, Settle, Store, Take};
use dwell_time::ManualClock;

use crate::support::{Driven, options, queue, start};

const LEASED: usize = 3_000;
/// The number of batches of all those records, a slice of leases each, and one more.
const BATCHES: u64 = 11;

/// Options of a store that holds them all.
fn roomy(disk: &MemoryDisk, clock: &ManualClock) -> Options {
    Options { segment_bytes: 64 * 1024 * 1024, ..options(disk, clock) }
}

/// A store with [`LEASED`] ready messages, each with an error text that a record of its standing repeats.
fn with_errors(queues: &[QueueName], put: impl Fn(QueueName) -> Put) -> Driven {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = roomy(&disk, &clock);
    let mut store = Driven::open(disk, clock, options).unwrap();
    let engine = store.engine.clone();
    let puts = (0..LEASED).map(|at| put(queues[at % queues.len()].clone())).collect();
    assert!(store.run(engine.put(puts)).into_iter().all(|answer| answer.is_ok()));
    for taken in store.take(Take::from_all(queues.iter().cloned()).max(LEASED)).unwrap().chunks(100) {
        let error = Some("x".repeat(4_000).into());
        let retry = Action::Retry { after_ms: Some(0), error, priority: None };
        let retries = taken.iter().map(|one| Settle { receipt: one.receipt.clone(), action: retry.clone() });
        assert!(store.run(engine.settle(retries.collect())).iter().all(Result::is_ok));
    }
    store
}

/// The same, with all messages leased for `lease_ms`.
fn with_leased(queues: &[QueueName], lease_ms: u64) -> Driven {
    let mut store = with_errors(queues, |queue| Put::new(queue, "x"));
    let all = Take::from_all(queues.iter().cloned()).max(LEASED).lease_ms(lease_ms);
    assert_eq!(store.take(all).unwrap().len(), LEASED);
    store
}

#[test]
fn leases_of_another_queue_of_a_take_that_waits_are_many_batches_too() {
    let mut store = with_leased(&[queue("b")], 60_000);
    let engine = store.engine.clone();
    let both = Take::from_all([queue("a"), queue("b")]).wait_ms(600_000);
    let mut waits = pin!(engine.take(both));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    store.driver.turn();
    assert!(waits.as_mut().poll(&mut context).is_pending());
    store.clock.advance(60_000);
    let before = engine.counters().batches;
    store.put(Put::new(queue("a"), "x")).unwrap();
    let answered = store.run(waits).unwrap();
    assert_eq!((answered.len(), &answered[0].message.queue), (1, &queue("b")), "it is due first");
    let batches = engine.counters().batches - before;
    assert!(batches >= BATCHES, "12 MB of records are in {batches} batches");
    assert_eq!(store.take(Take::from(queue("a"))).unwrap().len(), 1);
}

#[test]
fn leases_of_many_queues_that_one_command_names_are_many_batches_too() {
    let queues: Vec<QueueName> = (0..250).map(|at| queue(&format!("q{at}"))).collect();
    let mut store = with_leased(&queues, 60_000);
    let engine = store.engine.clone();
    store.clock.advance(60_000);
    let before = engine.counters().batches;
    assert_eq!(store.take(Take::from_all(queues).max(1)).unwrap().len(), 1);
    let batches = engine.counters().batches - before;
    assert!(batches >= BATCHES, "12 MB of records are in {batches} batches");
}

#[test]
fn a_page_of_queues_lets_leases_of_its_queues_run_out_and_of_no_others() {
    const QUEUES: usize = 3_000;
    const PAGE: usize = 10;
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let limits = Limits { batch: PAGE, ..Limits::default() };
    let mut store =
        Driven::open(disk.clone(), clock.clone(), Options { limits, ..options(&disk, &clock) }).unwrap();
    let engine = store.engine.clone();
    for at in 0..QUEUES {
        let name = queue(&format!("q{at}"));
        store.put(Put::new(name.clone(), "x")).unwrap();
        assert_eq!(store.take(Take::from(name).lease_ms(600_000)).unwrap().len(), 1);
    }
    store.clock.advance(600_000);
    let before = engine.counters().disk.written_bytes;
    let page = store.run(engine.queues(None, usize::MAX)).unwrap();
    assert_eq!(page.len(), PAGE);
    assert!(page.iter().all(|stats| (stats.counts.ready, stats.counts.leased) == (1, 0)), "{page:?}");
    let written = engine.counters().disk.written_bytes - before;
    assert!(written < QUEUES as u64, "{written} bytes are the records of more than {PAGE} leases");
}

#[test]
fn thousands_of_leases_that_run_out_together_are_many_batches_and_not_one() {
    let mut store = with_leased(&[queue("q")], 60_000);
    let engine = store.engine.clone();
    let all = || Take::from(queue("q")).max(LEASED).lease_ms(60_000);
    store.clock.advance(60_000);
    let before = engine.counters().batches;
    let mut queues = pin!(engine.queues(None, 10));
    let mut take = pin!(engine.take(all()));
    let mut other = pin!(engine.put(vec![Put::new(queue("other"), "y")]));
    let mut context = Context::from_waker(Waker::noop());
    assert!(queues.as_mut().poll(&mut context).is_pending());
    assert!(take.as_mut().poll(&mut context).is_pending());
    assert!(other.as_mut().poll(&mut context).is_pending());
    store.driver.turn();
    let batches = engine.counters().batches - before;
    assert!(batches >= BATCHES, "12 MB of records are in {batches} batches");
    let Poll::Ready(other) = other.as_mut().poll(&mut context) else { panic!("it was not answered") };
    assert!(other[0].is_ok());
    let Poll::Ready(queues) = queues.as_mut().poll(&mut context) else { panic!("it was not answered") };
    let counts = queues.unwrap().into_iter().find(|stats| stats.name == queue("q")).unwrap().counts;
    assert_eq!((counts.ready, counts.leased), (LEASED as u64, 0), "all at once to whoever asks");
    let taken = store.run(take).unwrap();
    assert!(taken.iter().all(|one| one.message.standing.attempt() == 3));
    assert_eq!(taken.len(), LEASED);
}

#[test]
fn thousands_of_messages_that_expire_together_are_many_batches_and_not_one() {
    let expires = start().after(60_000).ok();
    let mut store = with_errors(&[queue("q")], |queue| Put { expires, ..Put::new(queue, "x") });
    let engine = store.engine.clone();
    store.clock.advance(60_000);
    let before = engine.counters().batches;
    let (mut stats, mut queues) = (pin!(engine.stats(queue("q"))), pin!(engine.queues(None, 10)));
    let mut other = pin!(engine.put(vec![Put::new(queue("other"), "y")]));
    let mut context = Context::from_waker(Waker::noop());
    assert!(stats.as_mut().poll(&mut context).is_pending());
    assert!(queues.as_mut().poll(&mut context).is_pending());
    assert!(other.as_mut().poll(&mut context).is_pending());
    store.driver.turn();
    let batches = engine.counters().batches - before;
    assert!(batches >= BATCHES, "12 MB of records are in {batches} batches");
    let Poll::Ready(other) = other.as_mut().poll(&mut context) else { panic!("it was not answered") };
    assert!(other[0].is_ok());
    let counts = store.run(stats).unwrap().counts;
    assert_eq!((counts.ready, counts.dead), (0, LEASED as u64), "all at once to whoever asks");
    let queues = store.run(queues).unwrap();
    assert_eq!(queues.iter().map(|stats| stats.counts.dead).sum::<u64>(), LEASED as u64);
    assert!(store.take(Take::from(queue("q"))).unwrap().is_empty());
}

/// The number of [`LEASED`] messages that are ready, and the attempts and takes that each has spent.
fn freed(store: &mut Driven) -> (usize, Vec<(u32, u32)>) {
    let mut all = store.dump();
    all.retain(|message| message.queue != queue("other"));
    let mut spent: Vec<(u32, u32)> =
        all.iter().map(|message| (message.standing.attempts, message.standing.counts.takes)).collect();
    spent.dedup();
    (all.iter().filter(|message| message.standing.state == dwell_model::State::Ready).count(), spent)
}

#[test]
fn leases_that_end_with_the_process_are_freed_in_batches_no_longer_than_usual() {
    let queues = [queue("a"), queue("b")];
    let mut store = with_errors(&queues, |queue| Put::new(queue, "x"));
    let session = || Take::from_all(queues.iter().cloned()).max(LEASED).lease_ms(600_000).session();
    assert_eq!(store.take(session()).unwrap().len(), LEASED);
    let (engine, before) = (store.engine.clone(), store.engine.counters().batches);
    let (disk, clock) = store.close();
    let batches = engine.counters().batches - before;
    assert!(batches >= BATCHES, "a close frees them in {batches} batches");
    let options = || roomy(&disk, &clock);
    let mut store = Driven::open(disk.clone(), clock.clone(), options()).unwrap();
    assert_eq!(freed(&mut store), (LEASED, vec![(1, 2)]), "a close spends no attempt");

    assert_eq!(store.take(session()).unwrap().len(), LEASED);
    // An opening rewrites the part of the tail that is not known to be synced: it has to be short.
    for _ in 0..2 {
        store.put(Put::new(queue("other"), "x").after_ms(1)).unwrap();
    }
    drop(engine);
    let (disk, clock) = store.kill();
    disk.power_on(Crash::Keep);
    let options = roomy(&disk, &clock);
    let mut store = Driven::open(disk, clock, options).unwrap();
    let most = store.engine.write_sizes().counts.iter().rposition(|count| *count > 0).unwrap();
    assert!(most <= 21, "an opening writes 2^{most} bytes at once");
    assert_eq!(freed(&mut store), (LEASED, vec![(2, 3)]), "a crash does");
}

#[test]
fn a_disk_that_fails_while_leases_are_freed_does_not_keep_the_store_open() {
    for error in [io::ErrorKind::Other, io::ErrorKind::StorageFull] {
        let mut store = with_errors(&[queue("q")], |queue| Put::new(queue, "x"));
        let session = Take::from(queue("q")).max(LEASED).lease_ms(600_000).session();
        assert_eq!(store.take(session).unwrap().len(), LEASED);
        store.disk.fail(Fault { calls: Calls::Writes, after: 3, times: u64::MAX, error });
        store.engine.close().unwrap();
        assert!((0..10).any(|_| !store.driver.turn()), "{error:?}");
    }
}

type PendingTake = Pin<Box<dyn Future<Output = dwell_store::Result<Vec<Delivery>>> + Send>>;

/// Drops a take when it is woken.
struct Drops(Mutex<Option<PendingTake>>);

impl Wake for Drops {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

#[test]
fn a_take_that_is_dropped_while_leases_run_out_waits_no_more() {
    let mut store = with_leased(&[queue("q")], 60_000);
    let engine = store.engine.clone();
    let pause = vec![SettingChange::Set(Setting::Pause(Pause::Indefinite))];
    store.run(engine.configure(queue("q"), pause)).unwrap();
    store.clock.advance(60_000);
    let taker = engine.clone();
    let mut take: PendingTake =
        Box::pin(async move { taker.take(Take::from(queue("q")).wait_ms(600_000)).await });
    assert!(take.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let drops = Arc::new(Drops(Mutex::new(Some(take))));
    // It is answered in the first turn, in which only a slice of the leases has run out.
    let mut other = pin!(engine.put(vec![Put::new(queue("other"), "y")]));
    assert!(other.as_mut().poll(&mut Context::from_waker(&Waker::from(drops.clone()))).is_pending());
    store.driver.turn();
    assert!(drops.0.lock().unwrap().is_none());
    let stats = store.run(engine.stats(queue("q"))).unwrap();
    assert_eq!((stats.counts.ready, stats.waiting), (LEASED as u64, 0));
}

/// A store in which the leases of `b`, which is paused, have run out, and were not processed yet.
fn with_lapsed() -> Driven {
    let mut store = with_leased(&[queue("b")], 60_000);
    let engine = store.engine.clone();
    let pause = vec![SettingChange::Set(Setting::Pause(Pause::Indefinite))];
    store.run(engine.configure(queue("b"), pause)).unwrap();
    store.clock.advance(60_000);
    store
}

#[test]
fn a_take_that_is_made_later_than_one_that_waits_for_leases_to_run_out_gets_nothing_before_it() {
    let both = || Take::from_all([queue("a"), queue("b")]).wait_ms(600_000);
    let mut context = Context::from_waker(Waker::noop());
    // Both wait.
    let mut store = with_lapsed();
    let engine = store.engine.clone();
    let (mut first, mut second) =
        (pin!(engine.take(both())), pin!(engine.take(Take::from(queue("a")).wait_ms(600_000))));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    store.driver.turn();
    store.put(Put::new(queue("a"), "x")).unwrap();
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert_eq!(store.run(first).unwrap().len(), 1);
    store.put(Put::new(queue("a"), "x")).unwrap();
    assert_eq!(store.run(second).unwrap().len(), 1);
    // The later one does not.
    let mut store = with_lapsed();
    store.put(Put::new(queue("a"), "x")).unwrap();
    let engine = store.engine.clone();
    let (mut first, mut second) = (pin!(engine.take(both())), pin!(engine.take(Take::from(queue("a")))));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert_eq!(store.run(second).unwrap(), []);
    assert_eq!(store.run(first).unwrap().len(), 1);
}

#[test]
fn what_a_dropped_take_gives_back_is_there_at_once_though_leases_of_another_queue_run_out() {
    let mut store = with_leased(&[queue("b")], 60_000);
    for name in ["a", "b"] {
        store.put(Put::new(queue(name), "x")).unwrap();
    }
    let (engine, taker) = (store.engine.clone(), store.engine.clone());
    let both = Take::from_all([queue("a"), queue("b")]).max(2).lease_ms(600_000);
    let mut take: PendingTake = Box::pin(async move { taker.take(both).await });
    assert!(take.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    store.driver.turn();
    store.clock.advance(60_000);
    drop(take);
    let taken = store.run(engine.take(Take::from(queue("a")))).unwrap();
    assert_eq!((taken.len(), taken[0].message.standing.attempts), (1, 0));
    let rest = store.take(Take::from(queue("b")).max(2 * LEASED)).unwrap();
    assert_eq!(rest.len(), LEASED + 1, "and the rest comes back too");
}

#[test]
fn a_close_waits_for_calls_that_wait_for_leases_to_run_out() {
    let mut store = with_leased(&[queue("q")], 60_000);
    let engine = store.engine.clone();
    store.clock.advance(60_000);
    let mut take = pin!(engine.take(Take::from(queue("q"))));
    let mut context = Context::from_waker(Waker::noop());
    assert!(take.as_mut().poll(&mut context).is_pending());
    engine.close().unwrap();
    assert!(!store.driver.turn(), "it is closed");
    let Poll::Ready(taken) = take.as_mut().poll(&mut context) else { panic!("it was not answered") };
    assert_eq!(taken.map(|taken| taken.len()), Ok(1));
}
