//! The load of `lateness` and `lateness-redis`: one queue has a backlog, in another a number of messages become due per
//! millisecond for waiting takes, and messages are put into a third at a steady rate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use dwell_model::{QueueName, Receipt, Timestamp};
use dwell_store::{Put, Take};
use hdrhistogram::Histogram;

use crate::Result;
use crate::stopwatch::{Stopwatch, pause, wall_us};
use crate::workload::{BATCH, BODY_BYTES, Item, Items};

/// The interval between batches of puts.
const PUT_EVERY: Duration = Duration::from_millis(10);
pub(crate) const TAKERS: usize = 4;
/// The time from the last put to the first due instant, in ms.
const LEAD_MS: i64 = 2_000;

/// A result that crosses threads.
pub(crate) type LoadResult<T> = std::result::Result<T, String>;

/// A client that puts, takes or acks: each has its own thread.
pub(crate) trait Caller: Send {
    /// Puts all messages.
    fn put(&self, puts: Vec<Put>) -> LoadResult<()>;
    /// Takes messages, and waits if nothing is due.
    fn take(&self, take: Take) -> LoadResult<Vec<TakenCount>>;
    /// Acks all messages.
    fn ack(&self, receipts: Vec<Receipt>) -> LoadResult<()>;
}

/// A message that was taken.
pub(crate) struct TakenCount {
    /// `None` where the taking caller acks it too.
    pub(crate) receipt: Option<Receipt>,
    pub(crate) due: Timestamp,
}

/// The parameters of the load.
#[derive(Clone, Copy)]
pub(crate) struct SteadyLoad {
    /// The number of messages in the queue that is not taken from.
    pub(crate) pending: u64,
    /// The number of messages that become due, and how many of them per millisecond.
    pub(crate) count: u64,
    pub(crate) due_per_ms: u64,
    pub(crate) puts_per_s: u64,
}

/// The results.
pub(crate) struct Measured {
    /// The lateness of each message in microseconds: from its due instant to the reply to the take.
    pub(crate) late: Histogram<u64>,
    pub(crate) puts_per_s: f64,
}

impl SteadyLoad {
    /// The number of messages per batch of puts.
    pub(crate) fn puts(&self) -> u64 {
        self.puts_per_s / 100
    }

    /// Puts, waits for the first instant, calls `first`, and takes until every message has come.
    pub(crate) fn run(
        &self,
        caller: &dyn Fn() -> Result<Box<dyn Caller>>,
        first: &(dyn Fn() + Sync),
    ) -> Result<Measured> {
        let (far, hot, fresh): (QueueName, QueueName, QueueName) =
            ("far".parse()?, "hot".parse()?, "fresh".parse()?);
        let putter = caller()?;
        let day_ms = wall_us() / 1_000 + 86_400_000;
        let watch = Stopwatch::start();
        put_all(&*putter, &far, self.pending, |item| day_ms + item.due_ms as i64)?;
        let estimate_ms = watch.elapsed().as_secs_f64() * 1_000.0 * self.count as f64 / self.pending as f64;
        // Twice the time that the puts so far predict, so that the first message is not due before the last put.
        let first_ms = wall_us() / 1_000 + (estimate_ms * 2.0) as i64 + LEAD_MS;
        put_all(&*putter, &hot, self.count, |item| first_ms + (item.number / self.due_per_ms) as i64)?;
        if wall_us() / 1_000 > first_ms - LEAD_MS / 2 {
            return Err("the puts took longer than was estimated; the machine is not quiet".into());
        }
        let (taken, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let (taken, over) = (&taken, &over);
        thread::scope(|scope| {
            let (receipts, to_ack) = mpsc::channel();
            let mut takers = Vec::new();
            for _ in 0..TAKERS {
                let (caller, queue, receipts) = (caller()?, hot.clone(), receipts.clone());
                let count = self.count;
                takers.push(scope.spawn(move || take_all(&*caller, &queue, count, taken, &receipts)));
            }
            drop(receipts);
            let acker = caller()?;
            let acker = scope.spawn(move || ack_all(&*acker, &to_ack));
            let putter = scope.spawn(move || {
                while wall_us() < first_ms * 1_000 {
                    pause(Duration::from_millis(1));
                }
                first();
                put_on(&*putter, &fresh, self.puts(), day_ms, over)
            });
            let mut late = Histogram::<u64>::new(3)?;
            let ended: Vec<_> =
                takers.into_iter().map(|taker| taker.join().expect("a taker does not panic")).collect();
            over.store(true, Ordering::Relaxed);
            for taker in ended {
                late.add(&taker?)?;
            }
            let puts_per_s = putter.join().expect("the putter does not panic")?;
            acker.join().expect("the acker does not panic")?;
            Ok(Measured { late, puts_per_s })
        })
    }
}

fn put_all(caller: &dyn Caller, queue: &QueueName, count: u64, due_ms: impl Fn(&Item) -> i64) -> Result<()> {
    let (mut items, mut batch) = (Items::new(count), Vec::with_capacity(BATCH));
    while items.batch(&mut batch) {
        let puts = batch.iter().map(|item| {
            let put = Put::new(queue.clone(), Bytes::copy_from_slice(&item.body));
            Ok(put.at(Timestamp::from_ms(due_ms(item))?))
        });
        caller.put(puts.collect::<Result<Vec<_>>>()?)?;
    }
    Ok(())
}

/// Takes until all messages are taken. Returns the lateness of each in microseconds.
fn take_all(
    caller: &dyn Caller,
    queue: &QueueName,
    count: u64,
    taken: &AtomicU64,
    receipts: &Sender<Vec<Receipt>>,
) -> LoadResult<Histogram<u64>> {
    let mut late = Histogram::<u64>::new(3).map_err(|error| error.to_string())?;
    let mut empty = 0;
    while taken.load(Ordering::Relaxed) < count {
        let messages = caller.take(Take::from(queue.clone()).max(256).wait_ms(1_000))?;
        let now_us = wall_us();
        empty = if messages.is_empty() { empty + 1 } else { 0 };
        if empty > 120 {
            return Err("nothing comes any more".to_owned());
        }
        for message in &messages {
            let late_us = u64::try_from(now_us - message.due.as_ms() * 1_000);
            let late_us = late_us.map_err(|_| "a message came early".to_owned())?;
            late.record(late_us).map_err(|error| error.to_string())?;
        }
        taken.fetch_add(messages.len() as u64, Ordering::Relaxed);
        let held: Vec<Receipt> = messages.into_iter().filter_map(|message| message.receipt).collect();
        if !held.is_empty() {
            receipts.send(held).map_err(|_| "the acker has ended".to_owned())?;
        }
    }
    Ok(late)
}

/// Acks the messages taken, as many at a time as there are.
fn ack_all(caller: &dyn Caller, to_ack: &Receiver<Vec<Receipt>>) -> LoadResult<()> {
    while let Ok(first) = to_ack.recv() {
        caller.ack(first.into_iter().chain(to_ack.try_iter().flatten()).collect())?;
    }
    Ok(())
}

/// Puts at a steady rate. Returns the number of puts per second.
fn put_on(
    caller: &dyn Caller,
    queue: &QueueName,
    puts: u64,
    due_ms: i64,
    over: &AtomicBool,
) -> LoadResult<f64> {
    let due = Timestamp::from_ms(due_ms).map_err(|error| error.to_string())?;
    let (watch, mut rounds) = (Stopwatch::start(), 0_u32);
    while !over.load(Ordering::Relaxed) {
        let put = |_| Put::new(queue.clone(), Bytes::from_static(&[7; BODY_BYTES])).at(due);
        caller.put((0..puts).map(put).collect())?;
        rounds += 1;
        pause((PUT_EVERY * rounds).saturating_sub(watch.elapsed()));
    }
    Ok(watch.per_second(u64::from(rounds) * puts))
}
