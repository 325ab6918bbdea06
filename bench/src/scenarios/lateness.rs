//! `lateness`: how late messages reach their consumers over HTTP, with a million others pending, 20,000 due a
//! second, and 5,000 synced puts a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use dwell_client::Client;
use dwell_model::{QueueName, Receipt, Timestamp};
use dwell_store::{Action, Put, Settle, Take};
use hdrhistogram::Histogram;

use super::Scenario;
use crate::Result;
use crate::run::Run;
use crate::server::Server;
use crate::stopwatch::{Stopwatch, pause, wall_us};
use crate::workload::{BATCH, Item, Items};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "lateness",
    what: "lateness over HTTP: 1 M pending, 20,000 due and 5,000 synced puts a second",
    run,
};

const DUE_PER_MS: u64 = 20;
const PUTS_PER_S: u64 = 5_000;
/// How often a batch of puts goes out, and how many there are in it.
const PUT_EVERY: Duration = Duration::from_millis(10);
const PUTS: u64 = PUTS_PER_S / 100;
const TAKERS: usize = 4;
/// From the last put to the first that is due.
const LEAD_MS: i64 = 2_000;

type Told<T> = std::result::Result<T, String>;

fn run(run: &mut Run) -> Result<()> {
    let (pending, seconds) = (run.scaled(1_000_000), run.scaled(20));
    let count = seconds * 1_000 * DUE_PER_MS;
    run.note(format!(
        "{pending} pending in another queue, due within a day; {count} messages of 128 bytes due at {} a second to {TAKERS} \
         waiting takes, acked in batches by one more client; {PUTS_PER_S} puts a second in batches of {PUTS}, each synced",
        DUE_PER_MS * 1_000
    ));
    run.note(
        "lateness: when the answer was read, less due; clients and server share the machine and its clock",
    );
    run.note("the server has its default memory limit: what does not fit is in due files");
    let mut all = Histogram::<u64>::new(3)?;
    let mut put_rates = Vec::new();
    for round in 1..=run.rounds() {
        let server = Server::start(&run.empty_folder("server")?)?;
        let (late, puts) = once(&server, pending, count)?;
        eprintln!(
            "lateness: round {round}: p50 {} us, p99 {} us, {puts:.0} puts a second",
            late.value_at_quantile(0.5),
            late.value_at_quantile(0.99)
        );
        all.add(&late)?;
        put_rates.push(puts);
    }
    run.latencies("lateness", &all);
    run.alone("puts meanwhile", "per_s", put_rates);
    Ok(())
}

fn once(server: &Server, pending: u64, count: u64) -> Result<(Histogram<u64>, f64)> {
    let (far, hot, fresh): (QueueName, QueueName, QueueName) =
        ("far".parse()?, "hot".parse()?, "fresh".parse()?);
    let client = Client::new(server.url())?;
    let day_ms = wall_us() / 1_000 + 86_400_000;
    let watch = Stopwatch::start();
    put_all(&client, &far, Items::new(pending), |item| day_ms + item.due_ms as i64)?;
    let estimate_ms = watch.elapsed().as_secs_f64() * 1_000.0 * count as f64 / pending as f64;
    // Twice what the puts so far let expect, lest the first be due before the last is put.
    let first_ms = wall_us() / 1_000 + (estimate_ms * 2.0) as i64 + LEAD_MS;
    put_all(&client, &hot, Items::new(count), |item| first_ms + (item.number / DUE_PER_MS) as i64)?;
    if wall_us() / 1_000 > first_ms - LEAD_MS / 2 {
        return Err("the puts took longer than was estimated; the machine is not quiet".into());
    }
    let taken = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let (receipts, to_ack) = mpsc::channel();
        let mut takers = Vec::new();
        for _ in 0..TAKERS {
            let (client, queue) = (Client::new(server.url())?, hot.clone());
            let (taken, receipts) = (Arc::clone(&taken), receipts.clone());
            takers.push(scope.spawn(move || take_all(&client, &queue, count, &taken, &receipts)));
        }
        drop(receipts);
        let acker = {
            let client = Client::new(server.url())?;
            scope.spawn(move || ack_all(&client, &to_ack))
        };
        let putter = {
            let (client, over) = (Client::new(server.url())?, Arc::clone(&over));
            scope.spawn(move || put_on(&client, &fresh, first_ms, day_ms, &over))
        };
        let mut late = Histogram::<u64>::new(3)?;
        let ended: Vec<_> =
            takers.into_iter().map(|taker| taker.join().expect("a taker does not panic")).collect();
        over.store(true, Ordering::Relaxed);
        for taken in ended {
            late.add(&taken?)?;
        }
        let puts = putter.join().expect("the putter does not panic")?;
        acker.join().expect("the acker does not panic")?;
        Ok((late, puts))
    })
}

fn put_all(
    client: &Client,
    queue: &QueueName,
    mut items: Items,
    due_ms: impl Fn(&Item) -> i64,
) -> Result<()> {
    let mut batch = Vec::with_capacity(BATCH);
    while items.batch(&mut batch) {
        let puts = batch.iter().map(|item| {
            let put = Put::new(queue.clone(), Bytes::copy_from_slice(&item.body));
            Ok(put.at(Timestamp::from_ms(due_ms(item))?))
        });
        for answer in client.put(&puts.collect::<Result<Vec<Put>>>()?) {
            answer?;
        }
    }
    Ok(())
}

/// Takes until all have been taken; how late each came, in microseconds.
fn take_all(
    client: &Client,
    queue: &QueueName,
    count: u64,
    taken: &AtomicU64,
    receipts: &Sender<Vec<Receipt>>,
) -> Told<Histogram<u64>> {
    let mut late = Histogram::<u64>::new(3).map_err(|error| error.to_string())?;
    let mut empty = 0;
    while taken.load(Ordering::Relaxed) < count {
        let take = Take::from(queue.clone()).max(256).wait_ms(1_000);
        let deliveries = client.take(&take).map_err(|error| error.to_string())?;
        let now = wall_us();
        empty = if deliveries.is_empty() { empty + 1 } else { 0 };
        if empty > 120 {
            return Err("nothing comes any more".to_owned());
        }
        for delivery in &deliveries {
            let late_us = now - delivery.message.due.as_ms() * 1_000;
            let late_us = u64::try_from(late_us).map_err(|_| "a message came early".to_owned())?;
            late.record(late_us).map_err(|error| error.to_string())?;
        }
        taken.fetch_add(deliveries.len() as u64, Ordering::Relaxed);
        if !deliveries.is_empty() {
            let settled = receipts.send(deliveries.into_iter().map(|delivery| delivery.receipt).collect());
            settled.map_err(|_| "the acker has ended".to_owned())?;
        }
    }
    Ok(late)
}

/// Acks what was taken, all that there is at a time.
fn ack_all(client: &Client, to_ack: &Receiver<Vec<Receipt>>) -> Told<()> {
    while let Ok(first) = to_ack.recv() {
        let all = first.into_iter().chain(to_ack.try_iter().flatten());
        let settles: Vec<_> = all.map(|receipt| Settle { receipt, action: Action::Ack }).collect();
        for settled in client.settle(&settles) {
            settled.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Puts at a steady rate from `first_ms` on; answers how many a second were put.
fn put_on(client: &Client, queue: &QueueName, first_ms: i64, due_ms: i64, over: &AtomicBool) -> Told<f64> {
    let due = Timestamp::from_ms(due_ms).map_err(|error| error.to_string())?;
    while wall_us() < first_ms * 1_000 {
        pause(Duration::from_millis(1));
    }
    let (watch, mut rounds) = (Stopwatch::start(), 0_u32);
    while !over.load(Ordering::Relaxed) {
        let puts: Vec<Put> =
            (0..PUTS).map(|_| Put::new(queue.clone(), Bytes::from_static(&[7; 128])).at(due)).collect();
        for answer in client.put(&puts) {
            answer.map_err(|error| error.to_string())?;
        }
        rounds += 1;
        pause((PUT_EVERY * rounds).saturating_sub(watch.elapsed()));
    }
    Ok(watch.per_second(u64::from(rounds) * PUTS))
}
