//! Tests of what the memory store adds to the core: waiting takes, and dropping them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc::{self, Receiver};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use dwell_model::Timestamp;
use dwell_time::ManualClock;
use pollster::block_on;

use super::*;
use crate::Blocking;

const PATIENCE: Duration = Duration::from_secs(20);

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap())
}

fn store(clock: &ManualClock) -> Arc<MemoryStore> {
    Arc::new(MemoryStore::with_seed(Limits::default(), Arc::new(clock.clone()), 1))
}

fn queue() -> QueueName {
    "q".parse().unwrap()
}

fn put(store: &MemoryStore, delay_ms: u64) {
    block_on(store.put(vec![Put::new(queue(), "body").after_ms(delay_ms)])).remove(0).unwrap();
}

fn waiting() -> Take {
    Take::from(queue()).wait_ms(60_000)
}

/// Takes on a separate thread.
fn take_in_thread(store: &Arc<MemoryStore>, take: Take) -> Receiver<Result<Vec<Delivery>>> {
    let (say, hear) = mpsc::channel();
    let store = Blocking::new(Arc::clone(store));
    thread::spawn(move || say.send(store.take(take)));
    hear
}

fn waiters(store: &MemoryStore) -> u64 {
    block_on(store.stats(queue())).map_or(0, |stats| stats.waiting)
}

#[test]
fn a_take_wakes_on_the_instant_and_not_before() {
    let clock = clock();
    let store = store(&clock);
    put(&store, 100);
    let hear = take_in_thread(&store, waiting());
    assert!(clock.await_asleep(1, PATIENCE));
    clock.advance(99);
    assert_eq!(clock.asleep(), 1);
    assert_eq!(waiters(&store), 1);
    clock.advance(1);
    let taken = hear.recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!((taken.len(), taken[0].lateness_ms), (1, 0));
}

#[test]
fn a_put_that_is_due_earlier_moves_the_wake() {
    let clock = clock();
    let store = store(&clock);
    put(&store, 10_000);
    let hear = take_in_thread(&store, waiting());
    assert!(clock.await_asleep(1, PATIENCE));
    put(&store, 10);
    clock.advance(10);
    assert_eq!(hear.recv_timeout(PATIENCE).unwrap().unwrap().len(), 1);
}

#[test]
fn a_take_in_vain_ends_with_its_wait_and_then_nothing_wakes() {
    let clock = clock();
    let store = store(&clock);
    let hear = take_in_thread(&store, waiting());
    assert!(clock.await_asleep(1, PATIENCE));
    clock.advance(60_000);
    assert_eq!(hear.recv_timeout(PATIENCE).unwrap(), Ok(Vec::new()));
    assert!(clock.await_asleep(1, PATIENCE));
    put(&store, 5);
    clock.advance(1_000_000);
    assert_eq!(clock.asleep(), 1, "nobody waits, and so nothing wakes the timer");
}

#[test]
fn a_dropped_take_is_forgotten() {
    let clock = clock();
    let store = store(&clock);
    {
        let mut take = pin!(store.take(waiting()));
        assert!(take.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(waiters(&store), 1);
    }
    assert_eq!(waiters(&store), 0);
    put(&store, 0);
    assert_eq!(block_on(store.take(Take::from(queue()))).unwrap().len(), 1);
    assert!(store.shared.state().waiting.is_empty());
}

#[test]
fn an_answer_that_nobody_read_goes_back_and_to_the_next_who_waits() {
    let clock = clock();
    let store = store(&clock);
    let mut second = pin!(store.take(waiting()));
    {
        let mut first = pin!(store.take(waiting()));
        let context = &mut Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(context).is_pending());
        assert!(second.as_mut().poll(context).is_pending());
        put(&store, 0);
        let counts = block_on(store.stats(queue())).unwrap().counts;
        assert_eq!((counts.leased, counts.ready), (1, 0), "handed to the first, and not read");
    }
    let taken = block_on(second).unwrap();
    let standing = &taken[0].message.standing;
    assert_eq!((standing.counts.takes, standing.attempts), (2, 0), "no attempt was spent");
}

#[test]
fn an_answer_whose_receiver_has_gone_goes_back() {
    let clock = clock();
    let store = store(&clock);
    put(&store, 0);
    let taken = block_on(store.take(Take::from(queue())));
    let (sender, receiver) = futures_channel::oneshot::channel();
    drop(receiver);
    store.shared.send(Outgoing { answers: vec![(sender, taken)], wake_timer: false });
    assert_eq!(block_on(store.take(Take::from(queue()))).unwrap().len(), 1);
}

#[test]
fn takes_dropped_in_the_midst_of_puts_lose_nothing() {
    const ROUNDS: usize = 2_000;
    let clock = clock();
    let store = store(&clock);
    let (say, hear) = mpsc::channel();
    let putter = Arc::clone(&store);
    let thread = thread::spawn(move || {
        for _ in 0..ROUNDS {
            // One put for each waiting take, while it is being dropped.
            let Ok(()) = hear.recv_timeout(PATIENCE) else { panic!("the taker is gone") };
            put(&putter, 0);
        }
    });
    for _ in 0..ROUNDS {
        let mut take = pin!(store.take(waiting().max(usize::MAX)));
        let polled = take.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        say.send(()).unwrap();
        if let std::task::Poll::Ready(taken) = polled {
            // They were read, and so only their taker gives them back.
            let receipts: Vec<Receipt> = receipts(taken).collect();
            store.shared.call(|core, now| core.give_back(&receipts, now, &mut NoLog)).unwrap();
        }
    }
    thread.join().unwrap();
    let counts = block_on(store.stats(queue())).unwrap().counts;
    assert_eq!((counts.ready, counts.leased), (ROUNDS as u64, 0));
    assert_eq!(waiters(&store), 0);
}

#[test]
fn close_answers_who_waits_and_refuses_the_rest() {
    let clock = clock();
    let store = store(&clock);
    let hear = take_in_thread(&store, waiting());
    assert!(clock.await_asleep(1, PATIENCE));
    store.close();
    assert_eq!(hear.recv_timeout(PATIENCE).unwrap(), Ok(Vec::new()));
    assert_eq!(block_on(store.take(waiting())), Err(Error::Closed));
    let puts = vec![Put::new(queue(), "a"), Put::new(queue(), "b")];
    assert_eq!(block_on(store.put(puts)), [Err(Error::Closed), Err(Error::Closed)]);
}

#[test]
fn the_timer_ends_with_the_store() {
    let clock = clock();
    let store = store(&clock);
    {
        let mut take = pin!(store.take(waiting()));
        assert!(take.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(clock.await_asleep(1, PATIENCE));
    }
    let shared = Arc::downgrade(&store.shared);
    drop(store);
    assert!(shared.upgrade().is_none(), "its thread holds the store no longer");
    assert_eq!(clock.asleep(), 0);
}

#[test]
fn whoever_asks_is_told_of_all_leases_that_run_out_though_they_do_in_slices() {
    const LEASED: usize = 2_500;
    let clock = clock();
    let store = store(&clock);
    let (a, b): (QueueName, QueueName) = ("a".parse().unwrap(), "b".parse().unwrap());
    let lease_all = || {
        let puts = (0..LEASED).map(|_| Put::new(b.clone(), "body")).collect();
        assert!(block_on(store.put(puts)).iter().all(Result::is_ok));
        let take = Take::from(b.clone()).max(LEASED).lease_ms(1_000);
        assert_eq!(block_on(store.take(take)).unwrap().len(), LEASED);
    };
    lease_all();
    clock.advance(1_000);
    let page = block_on(store.queues(None, 10)).unwrap();
    assert_eq!(page.iter().map(|stats| stats.counts.ready).collect::<Vec<_>>(), [LEASED as u64]);
    block_on(store.purge(b.clone())).unwrap();

    lease_all();
    let both = Take::from_all([a.clone(), b.clone()]).max(1).wait_ms(60_000);
    let hear = take_in_thread(&store, both);
    assert!(clock.await_asleep(1, PATIENCE));
    clock.advance(1_000);
    let puts = (0..2).map(|_| Put::new(a.clone(), "body")).collect();
    assert!(block_on(store.put(puts)).iter().all(Result::is_ok));
    let taken = block_on(store.take(Take::from(a).max(9))).unwrap();
    assert_eq!(taken.len(), 2, "who waits is handed the first of the other queue");
    assert_eq!(hear.recv_timeout(PATIENCE).unwrap().unwrap()[0].message.queue, b);
}

/// Panics when it is woken.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker of somebody else's");
    }
}

#[test]
fn a_waker_that_panics_costs_nobody_an_answer() {
    let clock = clock();
    let store = store(&clock);
    let waker = Waker::from(Arc::new(Panics));
    let panics = &mut Context::from_waker(&waker);
    let noop = &mut Context::from_waker(Waker::noop());
    for due_ms in [0, 100] {
        let (mut first, mut second) = (pin!(store.take(waiting())), pin!(store.take(waiting())));
        assert!(first.as_mut().poll(panics).is_pending());
        assert!(second.as_mut().poll(noop).is_pending());
        let puts = (0..2).map(|_| Put::new(queue(), "body").after_ms(due_ms)).collect();
        let put = catch_unwind(AssertUnwindSafe(|| block_on(store.put(puts))));
        assert!(put.is_ok_and(|answers| answers.iter().all(Result::is_ok)), "the put is answered");
        if due_ms > 0 {
            // The timer answers both, and keeps running.
            assert!(clock.await_asleep(1, PATIENCE));
            clock.advance(due_ms);
            assert!(clock.await_asleep(1, PATIENCE));
        }
        for take in [first.as_mut(), second.as_mut()] {
            let taken = take.poll(noop);
            assert!(matches!(taken, Poll::Ready(Ok(taken)) if taken.len() == 1));
        }
    }
    let mut last = pin!(store.take(waiting()));
    assert!(last.as_mut().poll(panics).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| store.close())).is_ok());
    assert!(matches!(last.as_mut().poll(noop), Poll::Ready(Ok(taken)) if taken.is_empty()));
}
