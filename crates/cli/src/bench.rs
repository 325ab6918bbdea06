//! `dwell bench`: puts messages into a new queue on a running server, takes and acks them, and measures both.
//!
//! As many threads put as take, each with its own connection; the main thread shows the progress, and stops them on a
//! signal. A message contains the time at which it was sent, so that the thread that takes it can compute the latency:
//! both ends are this process, with one clock.
//!
//! # Layout
//! - `peer`: the operations of a server; `http` and `beanstalkd`: their protocols
//! - `work`: the threads that put and those that take
//! - `tally`: their shared counts
//! - `live`: the line on a terminal; `report`: the result

mod beanstalkd;
mod http;
mod live;
mod peer;
mod report;
mod tally;
mod work;

use std::sync::Arc;
use std::thread;

use dwell_model::{QueueName, Wake};
use dwell_time::{Clock as _, SystemClock};

use self::beanstalkd::Beanstalkd;
use self::http::Http;
use self::live::Live;
use self::peer::Peer;
use self::report::BenchReport;
use self::tally::BenchCounters;
use self::work::{consume, produce};
use crate::command::{Context, Outcome, Signals};
use crate::exit::{Exit, Failure, Own};

/// The interval in milliseconds at which the live line is drawn and an interruption is noticed.
const TICK_MS: u64 = 100;

/// The parameters of a bench.
#[derive(Clone, Debug)]
pub(crate) struct BenchOptions {
    /// The queue; a new one if none is named.
    pub(crate) queue: Option<QueueName>,
    /// The address of beanstalkd's protocol; HTTP if there is none.
    pub(crate) beanstalkd: Option<String>,
    /// The number of connections that put, and of others that take.
    pub(crate) connections: usize,
    /// The number of messages per call.
    pub(crate) batch: usize,
    /// The bytes of a body.
    pub(crate) body: usize,
    /// The delay of each message.
    pub(crate) delay_ms: u64,
    /// The maximum number of messages to put.
    pub(crate) messages: Option<u64>,
    /// The time after which nothing more is put.
    pub(crate) for_ms: Option<u64>,
    /// The maximum rate per second, over all connections.
    pub(crate) rate: Option<u32>,
    /// Whether nothing is taken.
    pub(crate) put_only: bool,
}

/// Runs the bench.
pub(crate) fn run(context: &Context, wish: &BenchOptions) -> Outcome {
    let queue = match &wish.queue {
        Some(queue) => queue.clone(),
        None => own_queue()?,
    };
    match &wish.beanstalkd {
        None => run_on(context, wish, &Http::new(context, queue)),
        Some(_) if !wish.delay_ms.is_multiple_of(1_000) => {
            Err(Failure::usage("over beanstalkd's protocol a delay has whole seconds"))
        }
        Some(address) => run_on(context, wish, &Beanstalkd::new(address, queue)),
    }
}

/// A unique name.
fn own_queue() -> Result<QueueName, Failure> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(Exit::Refused, Own::Randomness.code(), error))?;
    Ok(QueueName::new(&format!("dwell-bench-{:08x}", u32::from_le_bytes(bytes)))?)
}

fn run_on<P: Peer>(context: &Context, wish: &BenchOptions, peer: &P) -> Outcome {
    let tally = Arc::new(BenchCounters::new(wish));
    // Held until the end: the task that it runs ends the process on a second interruption.
    let _runtime = stopped_by_signals(&tally)?;
    peer.claim()?;
    let worked = work(context, wish, peer, &tally);
    // In any case, the messages that were put are removed.
    let cleaned = peer.clean();
    worked?;
    let (removed, left) = cleaned.map_err(|mut failure| {
        failure.detail = format!("{}; what was put is still in '{}'", failure.detail, peer.queue());
        failure
    })?;
    BenchReport::new(wish, peer, &tally, removed, left).show(context)
}

fn work<P: Peer>(
    context: &Context,
    wish: &BenchOptions,
    peer: &P,
    tally: &BenchCounters,
) -> Result<(), Failure> {
    let connections = if wish.put_only { wish.connections } else { 2 * wish.connections };
    let mut wires = (0..connections).map(|_| peer.connect()).collect::<Result<Vec<_>, _>>()?;
    let takers = wires.split_off(wish.connections);
    let live = Live::new(context.output.has_progress());
    tally.begin(wish.connections);
    thread::scope(|scope| {
        let putting = wires
            .into_iter()
            .enumerate()
            .map(|(at, wire)| scope.spawn(move || tally.note(produce(wire, wish, at, tally))));
        let putting: Vec<_> = putting.collect();
        let taking =
            takers.into_iter().map(|wire| scope.spawn(move || tally.note(consume(wire, wish, tally))));
        let workers: Vec<_> = putting.into_iter().chain(taking.collect::<Vec<_>>()).collect();
        while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            rest(TICK_MS);
            live.show(tally);
        }
    });
    live.finish();
    tally.failure().map_or(Ok(()), Err)
}

/// Makes SIGINT and SIGTERM stop the work; a second one ends the process at once.
fn stopped_by_signals(tally: &Arc<BenchCounters>) -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Refused, Own::Threads.code(), error))?;
    let signals = {
        let _entered = runtime.enter();
        Signals::listen().map_err(|error| Failure::new(Exit::Refused, Own::Signals.code(), error))?
    };
    let tally = Arc::clone(tally);
    runtime.spawn(async move {
        signals.first().await;
        tally.interrupt();
    });
    Ok(runtime)
}

/// Sleeps for this time.
fn rest(ms: u64) {
    let clock = SystemClock::new();
    let mono_ms = Some(clock.now().mono_ms.saturating_add(ms));
    clock.sleeper().sleep(Wake { wall: None, mono_ms });
}
