//! `storm`: half a million messages due at one instant, for four consumers that ack, while another queue is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use dwell_client::Client;
use dwell_engine::{Engine, Options};
use dwell_model::{QueueName, Timestamp};
use dwell_store::{Action, Blocking, Put, Settle, Take};
use hdrhistogram::Histogram;

use super::Scenario;
use crate::Result;
use crate::beanstalk::Wire;
use crate::run::Run;
use crate::server::{Server, cpu_s};
use crate::stopwatch::{Stopwatch, pause, wall_us};
use crate::workload::Items;

pub(crate) const SCENARIO: Scenario =
    Scenario { name: "storm", what: "500,000 due at one instant, while another queue is served", run };

const CONSUMERS: usize = 4;
/// Messages per call, or concurrent reserves.
const BATCH: usize = 256;
/// The interval between messages of the other queue.
const OTHER_EVERY_MS: i64 = 5;
/// The other queue's messages start this long before the storm.
const OTHER_BEFORE_MS: i64 = 500;
/// A storm that lasts longer is a failure.
const PATIENCE_MS: i64 = 120_000;

/// Threads return errors as text, since a scenario's error cannot be sent between threads.
type StormResult<T> = std::result::Result<T, String>;

fn run(run: &mut Run) -> Result<()> {
    let count = run.scaled(500_000);
    run.note(format!(
        "{count} messages of 128 random bytes, all due at one instant, {CONSUMERS} consumers that take {BATCH} at a time and ack"
    ));
    run.note("seconds: from the instant until the last message was read by its consumer; acked: until the last ack was answered");
    run.note("cpu_s: seconds of processors from before the instant to the end; server and consumers share the machine");
    run.note(format!(
        "other queue: one message every {OTHER_EVERY_MS} ms, from before the storm to its end; lateness: when it was read, less due"
    ));
    storm(run, "in process", count, |run| {
        let engine = Engine::open(run.empty_folder("dwell")?, Options::default())?;
        Ok(StormStage { url: None, beanstalkd: None, engine: Some(engine), server: None })
    })?;
    for (work, wired) in [("HTTP", false), ("beanstalkd's protocol", true)] {
        storm(run, work, count, |run| {
            let server = Server::start(&run.empty_folder("dwell")?)?;
            let beanstalkd = wired.then(|| server.beanstalkd().to_owned());
            Ok(StormStage {
                url: Some(server.url().to_owned()),
                beanstalkd,
                engine: None,
                server: Some(server),
            })
        })?;
    }
    Ok(())
}

/// A store, and the way it is reached.
struct StormStage {
    url: Option<String>,
    beanstalkd: Option<String>,
    engine: Option<Engine>,
    server: Option<Server>,
}

/// The operations on a store, however it is reached.
enum Caller {
    Engine(Blocking<Engine>),
    Http(Blocking<Client>),
}

impl StormStage {
    fn caller(&self) -> Result<Caller> {
        match (&self.engine, &self.url) {
            (Some(engine), _) => Ok(Caller::Engine(engine.blocking())),
            (None, Some(url)) => Ok(Caller::Http(Client::new(url)?.blocking())),
            (None, None) => Err("a stage has a store".into()),
        }
    }

    /// The processor time so far in seconds: of the server, if there is one, and of this process.
    fn cpu_s(&self) -> Result<[f64; 2]> {
        Ok([self.server.as_ref().map_or(Ok(0.0), Server::cpu_s)?, cpu_s(std::process::id())?])
    }
}

impl Caller {
    fn put(&self, puts: Vec<Put>) -> StormResult<()> {
        let answers = match self {
            Caller::Engine(engine) => engine.put(puts),
            Caller::Http(client) => client.put(puts),
        };
        let refused = answers.into_iter().find_map(|put| put.err().map(|error| error.to_string()));
        refused.map_or(Ok(()), Err)
    }

    /// Takes messages, passes their due instants to `arrived`, and acks them. Returns their number.
    fn take_and_ack(&self, take: Take, mut arrived: impl FnMut(&[Timestamp])) -> StormResult<usize> {
        let ack = |receipt| Settle { receipt, action: Action::Ack };
        let taken = match self {
            Caller::Engine(engine) => engine.take(take),
            Caller::Http(client) => client.take(take),
        };
        let taken = taken.map_err(|error| error.to_string())?;
        let dues: Vec<_> = taken.iter().map(|delivery| delivery.message.standing.due).collect();
        arrived(&dues);
        let settles = taken.into_iter().map(|delivery| ack(delivery.receipt)).collect();
        let settled = match self {
            Caller::Engine(engine) => engine.settle(settles),
            Caller::Http(client) => client.settle(settles),
        };
        settled.into_iter().try_for_each(|settled| settled.map(drop)).map_err(|error| error.to_string())?;
        Ok(dues.len())
    }
}

/// Shared by the consumers.
#[derive(Default)]
struct StormCounters {
    taken: AtomicU64,
    acked: AtomicU64,
    /// In microseconds of the wall clock.
    last_taken: AtomicI64,
    last_acked: AtomicI64,
    over: AtomicBool,
}

impl StormCounters {
    fn take(&self, count: usize) {
        if count == 0 {
            return;
        }
        self.taken.fetch_add(count as u64, Ordering::Relaxed);
        self.last_taken.fetch_max(wall_us(), Ordering::Relaxed);
    }

    fn ack(&self, count: usize) {
        self.acked.fetch_add(count as u64, Ordering::Relaxed);
        self.last_acked.fetch_max(wall_us(), Ordering::Relaxed);
    }
}

fn storm(run: &mut Run, work: &str, count: u64, open: impl Fn(&Run) -> Result<StormStage>) -> Result<()> {
    let (mut taken, mut acked) = (Vec::new(), Vec::new());
    let mut cpu: [Vec<f64>; 2] = Default::default();
    let mut other = Histogram::<u64>::new(3)?;
    for round in 1..=run.rounds() {
        let stage = open(run)?;
        let Storm { last_taken, last_acked, cpu_s } = once(&stage, count, &mut other)?;
        cpu.iter_mut().zip(cpu_s).for_each(|(all, spent)| all.push(spent));
        eprintln!("{work}: round {round}: {last_taken:.2} s, acked {last_acked:.2} s");
        taken.push(last_taken);
        acked.push(last_acked);
        if let Some(engine) = stage.engine {
            engine.close()?;
        }
    }
    run.alone(work, "seconds", taken);
    run.alone(&format!("{work}, acked"), "seconds", acked);
    let [server, here] = cpu;
    if server.iter().any(|spent| *spent > 0.0) {
        run.alone(&format!("{work}, server"), "cpu_s", server);
    }
    run.alone(&format!("{work}, consumers"), "cpu_s", here);
    run.latencies(&format!("{work}, other queue"), &other);
    Ok(())
}

/// The times of a storm.
struct Storm {
    /// Seconds until the last message was read.
    last_taken: f64,
    /// Seconds until the last ack was answered.
    last_acked: f64,
    /// See [`StormStage::cpu_s`].
    cpu_s: [f64; 2],
}

fn once(stage: &StormStage, count: u64, other: &mut Histogram<u64>) -> Result<Storm> {
    let (hot, cold): (QueueName, QueueName) = ("storm".parse()?, "other".parse()?);
    let caller = stage.caller()?;
    // The time of the puts is not known in advance: a part of them is put first, due later than all puts could last.
    let watch = Stopwatch::start();
    let mut items = Items::new(count);
    let mut batch = Vec::new();
    let mut puts: Vec<Put> = Vec::new();
    let far = Timestamp::from_ms(wall_us() / 1_000 + 86_400_000)?;
    let probe: Vec<Put> = Items::new(20_000)
        .map(|item| Put::new("probe".parse().expect("it is a name"), item.body.to_vec()).at(far))
        .collect();
    for part in probe.chunks(1_000) {
        caller.put(part.to_vec())?;
    }
    let estimate_ms = watch.elapsed().as_secs_f64() * 1_000.0 * count as f64 / probe.len() as f64;
    let due_ms = wall_us() / 1_000 + (estimate_ms * 2.0) as i64 + 4_000;
    let due = Timestamp::from_ms(due_ms)?;
    while items.batch(&mut batch) {
        puts.extend(
            batch.iter().map(|item| Put::new(hot.clone(), Bytes::copy_from_slice(&item.body)).at(due)),
        );
        caller.put(std::mem::take(&mut puts))?;
    }
    let first_ms = due_ms - OTHER_BEFORE_MS;
    if wall_us() / 1_000 > first_ms - 200 {
        return Err("the puts took longer than was estimated; the machine is not quiet".into());
    }
    let seen = Arc::new(StormCounters::default());
    let before = stage.cpu_s()?;
    let late = thread::scope(|scope| -> Result<Histogram<u64>> {
        let mut consumers = Vec::new();
        for _ in 0..CONSUMERS {
            let seen = Arc::clone(&seen);
            consumers.push(match &stage.beanstalkd {
                Some(address) => {
                    let wire = Wire::connect(address)?;
                    scope.spawn(move || {
                        reserve_all(wire, count, due_ms, &seen).map_err(|error| error.to_string())
                    })
                }
                None => {
                    let (caller, hot) = (stage.caller()?, hot.clone());
                    scope.spawn(move || take_all(&caller, &hot, count, due_ms, &seen))
                }
            });
        }
        let feeder = {
            let (caller, cold, seen) = (stage.caller()?, cold.clone(), Arc::clone(&seen));
            scope.spawn(move || feed_other(&caller, &cold, first_ms, &seen))
        };
        let reader = {
            let (caller, cold, seen) = (stage.caller()?, cold.clone(), Arc::clone(&seen));
            scope.spawn(move || read_other(&caller, &cold, &seen))
        };
        let ended: Vec<StormResult<()>> = consumers
            .into_iter()
            .map(|consumer| consumer.join().expect("a consumer does not panic"))
            .collect();
        // Ends the other threads, whatever the result.
        seen.over.store(true, Ordering::Relaxed);
        ended.into_iter().collect::<StormResult<()>>()?;
        feeder.join().expect("the feeder does not panic")?;
        Ok(reader.join().expect("the reader does not panic")?)
    })?;
    other.add(&late)?;
    let taken = seen.taken.load(Ordering::Relaxed);
    if taken != count {
        return Err(format!("{taken} messages came, not {count}").into());
    }
    let since = |at: &AtomicI64| (at.load(Ordering::Relaxed) - due_ms * 1_000) as f64 / 1e6;
    let after = stage.cpu_s()?;
    Ok(Storm {
        last_taken: since(&seen.last_taken),
        last_acked: since(&seen.last_acked),
        cpu_s: [after[0] - before[0], after[1] - before[1]],
    })
}

fn is_over(seen: &StormCounters, count: u64, due_ms: i64) -> bool {
    seen.acked.load(Ordering::Relaxed) >= count || wall_us() / 1_000 > due_ms + PATIENCE_MS
}

fn take_all(
    caller: &Caller,
    queue: &QueueName,
    count: u64,
    due_ms: i64,
    seen: &StormCounters,
) -> StormResult<()> {
    while !is_over(seen, count, due_ms) {
        let take = Take::from(queue.clone()).max(BATCH).wait_ms(1_000);
        let mut early = false;
        let acked = caller.take_and_ack(take, |dues| {
            early |= !dues.is_empty() && wall_us() < due_ms * 1_000;
            seen.take(dues.len());
        })?;
        if early {
            return Err("a message came before its instant".to_owned());
        }
        if acked > 0 {
            seen.ack(acked);
        }
    }
    Ok(())
}

/// The same over beanstalkd's protocol: deletes of received jobs are sent with the next reserves.
fn reserve_all(mut wire: Wire, count: u64, due_ms: i64, seen: &StormCounters) -> Result<()> {
    wire.send(b"watch storm\r\nignore default\r\n")?;
    wire.expect("WATCHING")?;
    wire.expect("WATCHING")?;
    let mut commands = Vec::new();
    while !is_over(seen, count, due_ms) {
        // The first reserve waits for the storm; those behind it do not wait.
        commands.extend_from_slice(b"reserve-with-timeout 1\r\n");
        (1..BATCH).for_each(|_| commands.extend_from_slice(b"reserve-with-timeout 0\r\n"));
        wire.send(&commands)?;
        commands.clear();
        let mut ids = Vec::new();
        for _ in 0..BATCH {
            ids.extend(wire.reserved()?.map(|job| job.id));
        }
        if ids.is_empty() {
            continue;
        }
        if wall_us() < due_ms * 1_000 {
            return Err("a job came before its instant".into());
        }
        seen.take(ids.len());
        for id in &ids {
            commands.extend_from_slice(format!("delete {id}\r\n").as_bytes());
        }
        wire.send(&commands)?;
        commands.clear();
        for _ in &ids {
            wire.expect("DELETED")?;
        }
        seen.ack(ids.len());
    }
    Ok(())
}

/// Puts the other queue's messages, each a second before it is due.
fn feed_other(caller: &Caller, queue: &QueueName, first_ms: i64, seen: &StormCounters) -> StormResult<()> {
    let mut next_ms = first_ms;
    while !seen.over.load(Ordering::Relaxed) {
        let now_ms = wall_us() / 1_000;
        let mut puts = Vec::new();
        while next_ms < now_ms + 1_000 {
            let due = Timestamp::from_ms(next_ms).map_err(|error| error.to_string())?;
            puts.push(Put::new(queue.clone(), "other").at(due));
            next_ms += OTHER_EVERY_MS;
        }
        // There is nothing to do before the first one.
        if next_ms == first_ms || puts.is_empty() {
            pause(Duration::from_millis(20));
            continue;
        }
        caller.put(puts)?;
        pause(Duration::from_millis(100));
    }
    Ok(())
}

/// The lateness of the other queue's messages in microseconds.
fn read_other(caller: &Caller, queue: &QueueName, seen: &StormCounters) -> StormResult<Histogram<u64>> {
    let mut late = Histogram::<u64>::new(3).map_err(|error| error.to_string())?;
    while !seen.over.load(Ordering::Relaxed) {
        let mut came = Vec::new();
        caller.take_and_ack(Take::from(queue.clone()).max(64).wait_ms(1_000), |dues| {
            let now = wall_us();
            came.extend(dues.iter().map(|due| now - due.as_ms() * 1_000));
        })?;
        for late_us in came {
            let late_us = u64::try_from(late_us).map_err(|_| "a message came early".to_owned())?;
            late.record(late_us).map_err(|error| error.to_string())?;
        }
    }
    Ok(late)
}
