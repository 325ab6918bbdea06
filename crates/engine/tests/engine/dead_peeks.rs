//! Peeks at the oldest of many dead messages in tables, a piece of the files a turn; and gets of the youngest one
//! that had a key, a few messages a turn.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use dwell_engine::disk::MemoryDisk;
use dwell_engine::{Engine, Options};
use dwell_model::{Headers, Message, StateKind};
use dwell_store::{BulkOutcome, Error, Put, Result, Selection, Store, Target};
use dwell_time::{Clock as _, ManualClock};

use crate::support::{Driven, options, queue, start};

const HOUR_MS: u64 = 3_600_000;
/// With their headers they take three megabytes of tables, and a turn reads half of one.
const MANY: u64 = 3_000;

/// A store with `MANY` dead messages in each of these queues, which died by expiry in place. The oldest is the one that
/// was put last.
fn with_dead(names: &[&str]) -> Driven {
    with_so_many_dead(names, MANY)
}

fn with_so_many_dead(names: &[&str], count: u64) -> Driven {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let small = Options { memory_limit: 16 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, small).unwrap();
    for name in names {
        for first in (0..count).step_by(20) {
            let put = |i: u64| {
                let mut put = Put::new(queue(name), format!("{i}")).after_ms(HOUR_MS);
                put.expires = start().after(2 * HOUR_MS - i).ok();
                put.headers = Headers::new([("long", format!("{i:0>1000}").as_str())]).unwrap();
                put
            };
            let engine = store.engine.clone();
            let answers = store.run_patiently(engine.put((first..first + 20).map(put).collect()));
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        }
    }
    // Nothing waits for a flush, and nothing else is read meanwhile.
    store.rest();
    store.clock.advance(2 * HOUR_MS);
    for name in names {
        let engine = store.engine.clone();
        assert_eq!(store.run(engine.stats(queue(name))).unwrap().counts.dead, count);
    }
    store
}

type Peek = Pin<Box<dyn Future<Output = Result<Option<Message>>> + Send>>;

fn peek(store: &Driven, name: &str) -> Peek {
    let engine = store.engine.clone();
    let name = queue(name);
    Box::pin(async move { engine.peek(name, StateKind::Dead).await })
}

fn answer(call: &mut Peek) -> Option<Message> {
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer.unwrap().expect("many are dead")),
        Poll::Pending => None,
    }
}

/// Records its name when it is woken.
struct Woken {
    name: &'static str,
    order: Arc<Mutex<Vec<&'static str>>>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.order.lock().unwrap().push(self.name);
    }
}

#[test]
fn a_peek_of_many_dead_messages_leaves_turns_to_others() {
    let mut store = with_dead(&["q"]);
    let order = Arc::default();
    let waker = |name| Waker::from(Arc::new(Woken { name, order: Arc::clone(&order) }));
    let engine = store.engine.clone();
    let mut call = peek(&store, "q");
    let mut put = pin!(engine.put(vec![Put::new(queue("other"), "beside it").after_ms(HOUR_MS)]));
    assert!(call.as_mut().poll(&mut Context::from_waker(&waker("peek"))).is_pending());
    assert!(put.as_mut().poll(&mut Context::from_waker(&waker("put"))).is_pending());
    store.driver.turn();
    assert_eq!(*order.lock().unwrap(), ["put", "peek"], "who came later is answered while files are read");
    assert_eq!(answer(&mut call).unwrap().body, format!("{}", MANY - 1));
}

#[test]
fn peeks_of_more_queues_than_are_walked_at_a_time_all_end() {
    let names = ["a", "b", "c", "d"];
    let mut store = with_dead(&names);
    let mut calls: Vec<Peek> = names.iter().map(|name| peek(&store, name)).collect();
    assert!(calls.iter_mut().all(|call| answer(call).is_none()));
    store.driver.turn();
    for call in &mut calls {
        assert_eq!(answer(call).unwrap().body, format!("{}", MANY - 1));
    }
}

/// Runs the test in a separate thread: a shard that never comes to rest would block it forever.
fn comes_to_an_end(test: fn()) {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        test();
        tell.send(())
    });
    told.recv_timeout(Duration::from_secs(60)).expect("it passes, and comes to an end");
}

#[test]
fn a_peek_and_a_sweep_of_one_queue_leave_each_other_what_they_have_read() {
    comes_to_an_end(peek_while_sweeping);
}

fn peek_while_sweeping() {
    let mut store = with_dead(&["q"]);
    let engine = store.engine.clone();
    let mut sweep = pin!(engine.discard(queue("q"), Selection::Oldest(200)));
    let mut call = peek(&store, "q");
    assert!(sweep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(answer(&mut call).is_none());
    let mut swept = None;
    for _ in 0..5_000 {
        store.driver.turn();
        if let Poll::Ready(answer) = sweep.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            swept = Some(answer.unwrap().done);
            break;
        }
        // One after the other, each from the first one on.
        if answer(&mut call).is_some() {
            call = peek(&store, "q");
            assert!(answer(&mut call).is_none());
        }
    }
    assert_eq!(swept, Some(200), "it comes to an end");
}

/// Crash story: 1. A sweep reads files for several turns before it comes to its first message. 2. In each of them
/// others begin, and read from the first message on: of the same queue, or of more queues than there are windows. 3.
/// What the first one had read was dropped each time, and it never ended.
#[test]
fn sweeps_of_one_queue_that_begin_in_each_turn_keep_none_from_its_end() {
    comes_to_an_end(|| sweep_beside(&["q"]));
}

#[test]
fn sweeps_of_other_queues_that_begin_in_each_turn_keep_none_from_its_end() {
    comes_to_an_end(|| sweep_beside(&["r", "s", "t"]));
}

fn sweep_beside(names: &[&str]) {
    let mut store = with_dead(&["q", "r", "s", "t"]);
    let engine = store.engine.clone();
    let mut sweep = pin!(engine.discard(queue("q"), Selection::Oldest(20)));
    let mut others: Vec<Pin<Box<dyn Future<Output = _>>>> = Vec::new();
    for _ in 0..300 {
        if let Poll::Ready(answer) = sweep.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            assert_eq!(answer.unwrap().done, 20);
            return;
        }
        for name in names {
            let (engine, name) = (store.engine.clone(), queue(name));
            let mut other = Box::pin(async move { engine.discard(name, Selection::Oldest(1)).await });
            assert!(other.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            others.push(other);
        }
        store.driver.turn();
    }
    panic!("it does not end");
}

/// Records the number of reads of the disk when it is woken.
struct Reads {
    engine: Engine,
    reads: Mutex<Option<u64>>,
}

impl Wake for Reads {
    fn wake(self: Arc<Self>) {
        let reads = self.engine.counters().disk.reads;
        self.reads.lock().unwrap().get_or_insert(reads);
    }
}

/// Crash story: 1. Many discards of the oldest few come at once, each in a different queue whose dead are in files. 2.
/// Each read as much as a turn may, all of them in one turn. 3. All other callers waited for that.
#[test]
fn of_many_sweeps_that_begin_at_once_one_reads_files_in_a_turn() {
    let names: Vec<String> = (0..32).map(|number| format!("q{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut store = with_so_many_dead(&names, 100);
    let before = store.engine.counters().disk.reads;
    let mut calls: Vec<Pin<Box<dyn Future<Output = Result<BulkOutcome>>>>> = Vec::new();
    for name in &names {
        let (engine, name) = (store.engine.clone(), queue(name));
        let mut call = Box::pin(async move { engine.discard(name, Selection::Oldest(1)).await });
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        calls.push(call);
    }
    let engine = store.engine.clone();
    let mut put = pin!(engine.put(vec![Put::new(queue("other"), "beside them").after_ms(HOUR_MS)]));
    let woken = Arc::new(Reads { engine: engine.clone(), reads: Mutex::default() });
    assert!(put.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&woken)))).is_pending());
    for _ in 0..1_000 {
        store.driver.turn();
        let mut context = Context::from_waker(Waker::noop());
        calls.retain_mut(|call| match call.as_mut().poll(&mut context) {
            Poll::Ready(answer) => {
                assert_eq!(answer.unwrap().done, 1);
                false
            }
            Poll::Pending => true,
        });
    }
    assert!(calls.is_empty(), "{} do not end", calls.len());
    let all = store.engine.counters().disk.reads - before;
    let meanwhile = woken.reads.lock().unwrap().expect("it is put") - before;
    assert!(meanwhile <= all / 8, "{meanwhile} of {all} reads before it was put");
}

/// Drops a peek when it is woken.
struct LetsGo(Mutex<Option<Peek>>);

impl Wake for LetsGo {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().take();
    }
}

#[test]
fn a_peek_whose_caller_has_gone_reads_no_more() {
    let mut store = with_dead(&["a", "b"]);
    // Reads of background work are not counted.
    let reads = |store: &Driven| store.engine.counters().disk.reads;
    let before = reads(&store);
    let mut call = peek(&store, "a");
    assert!(answer(&mut call).is_none());
    store.driver.turn_alone();
    assert!(answer(&mut call).is_some());
    let whole = reads(&store) - before;
    assert!(whole > 6, "{whole} reads");
    // One is dropped before its turn.
    let before = reads(&store);
    let mut call = peek(&store, "b");
    assert!(answer(&mut call).is_none());
    drop(call);
    store.driver.turn_alone();
    assert_eq!(reads(&store), before);
    // And one when its first piece was read: the call that came with it is answered then.
    let mut call = peek(&store, "b");
    assert!(answer(&mut call).is_none());
    let waker = Waker::from(Arc::new(LetsGo(Mutex::new(Some(call)))));
    let engine = store.engine.clone();
    let mut put = pin!(engine.put(vec![Put::new(queue("other"), "beside it").after_ms(HOUR_MS)]));
    assert!(put.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    store.driver.turn_alone();
    let read = reads(&store) - before;
    assert!(0 < read && read < whole / 2, "{read} of {whole} reads");
}

/// A store in which `count` messages had one key and have died, one after the other; and one that had another.
fn with_dead_of_one_key(count: u64) -> Driven {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let small = Options { memory_limit: 16 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, small).unwrap();
    for i in 0..=count {
        let key = if i == 0 { "rare" } else { "often" };
        let mut put = Put::new(queue("q"), format!("{i}")).key(key.parse().unwrap());
        let expires = start().after(10_000_000 * (i + 1)).unwrap();
        put.expires = Some(expires);
        let engine = store.engine.clone();
        let answers = store.run_patiently(engine.put(vec![put]));
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        store.clock.advance(expires.ms_since(store.clock.now().wall));
    }
    store.rest();
    store
}

/// Crash story: 1. A key is used again and again, and each message that had it dies. 2. Support asks for the youngest.
/// 3. A block was read for each of them, in one turn.
#[test]
fn a_get_of_the_youngest_of_many_dead_leaves_turns_to_others() {
    let count = 600;
    let mut store = with_dead_of_one_key(count);
    let order = Arc::default();
    let waker = |name| Waker::from(Arc::new(Woken { name, order: Arc::clone(&order) }));
    let engine = store.engine.clone();
    let by_key = |key: &str| vec![Target::Key(key.parse().unwrap())];
    let mut often = pin!(engine.get(queue("q"), by_key("often"), true));
    let mut rare = pin!(engine.get(queue("q"), by_key("rare"), true));
    let mut put = pin!(engine.put(vec![Put::new(queue("other"), "beside it").after_ms(HOUR_MS)]));
    assert!(often.as_mut().poll(&mut Context::from_waker(&waker("often"))).is_pending());
    assert!(rare.as_mut().poll(&mut Context::from_waker(&waker("rare"))).is_pending());
    assert!(put.as_mut().poll(&mut Context::from_waker(&waker("put"))).is_pending());
    store.driver.turn();
    assert_eq!(*order.lock().unwrap(), ["rare", "put", "often"], "who came later is answered meanwhile");
    let body = |call: Poll<Vec<Result<Message>>>| match call {
        Poll::Ready(mut answers) => answers.remove(0).unwrap().body,
        Poll::Pending => panic!("it was woken"),
    };
    let context = &mut Context::from_waker(Waker::noop());
    assert_eq!(body(often.as_mut().poll(context)), format!("{count}"));
    assert_eq!(body(rare.as_mut().poll(context)), "0");
    // In one call each is found.
    let targets = ["often", "none", "rare"].map(|key| Target::Key(key.parse().unwrap())).to_vec();
    let answers = store.run(engine.get(queue("q"), targets, true));
    let bodies = answers.into_iter().map(|answer| answer.ok().map(|message| message.body.to_vec()));
    let expected = [Some(count.to_string().into_bytes()), None, Some(b"0".to_vec())];
    assert_eq!(bodies.collect::<Vec<_>>(), expected);
}

/// Crash story: 1. A get goes on for many turns. 2. The store is closed meanwhile, and waits for it.
#[test]
fn a_close_waits_for_no_get_that_goes_on() {
    let mut store = with_dead_of_one_key(300);
    let engine = store.engine.clone();
    let mut get = pin!(engine.get(queue("q"), vec![Target::Key("often".parse().unwrap())], true));
    let context = &mut Context::from_waker(Waker::noop());
    assert!(get.as_mut().poll(context).is_pending());
    engine.close().unwrap();
    assert!(!store.driver.turn(), "it is closed");
    let Poll::Ready(mut answers) = get.as_mut().poll(context) else { panic!("it is answered") };
    assert_eq!(answers.remove(0).unwrap_err(), Error::Closed);
}
