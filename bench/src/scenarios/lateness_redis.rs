//! `lateness-redis`: the lateness of messages for waiting takes on the native store, with others pending and concurrent
//! puts, at a load that one Redis and its clients sustain on two cores.

use std::sync::{Arc, OnceLock};

use dwell_model::Receipt;
use dwell_redis::RedisStore;
use dwell_store::{Put, Store as _, Take};
use hdrhistogram::Histogram;
use tokio::runtime::Handle;

use super::Scenario;
use crate::Result;
use crate::ours_redis::{Native, acks};
use crate::run::Run;
use crate::steady_load::{Caller, LoadResult, SteadyLoad, TAKERS, TakenCount};
use crate::stopwatch::Stopwatch;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "lateness-redis",
    what: "lateness on Redis: 300,000 pending, 4,000 due and 1,000 puts a second",
    run,
};

const DUE_PER_MS: u64 = 4;
const PUTS_PER_S: u64 = 1_000;

fn run(run: &mut Run) -> Result<()> {
    let (pending, seconds) = (run.scaled(300_000), run.scaled(20));
    let count = seconds * 1_000 * DUE_PER_MS;
    let load = SteadyLoad { pending, count, due_per_ms: DUE_PER_MS, puts_per_s: PUTS_PER_S };
    run.note(format!(
        "{pending} pending in another queue, due within a day; {count} messages of 128 bytes due at {} a second to {TAKERS} \
         waiting takes of one process, acked in batches; {PUTS_PER_S} puts a second in batches of {}",
        DUE_PER_MS * 1_000,
        load.puts()
    ));
    run.note("lateness: when the take had its answer, less due; Redis, which keeps nothing on disk, and its clients share the machine and its clock");
    let mut all = Histogram::<u64>::new(3)?;
    let (mut put_rates, mut shares) = (Vec::new(), Vec::new());
    for round in 1..=run.rounds() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let native = Native::start_on(runtime)?;
        let caller = || {
            let (store, runtime) = (Arc::clone(&native.store), native.runtime.handle().clone());
            Ok(Box::new(OnRedis { store, runtime }) as Box<dyn Caller>)
        };
        let began = OnceLock::new();
        let measured = load.run(&caller, &|| {
            // The putter calls it once.
            let _ = began.set((Stopwatch::start(), busy_us(&native)));
        })?;
        let (watch, busy_before_us) = began.get().ok_or("nothing fell due")?;
        let busy_us = busy_us(&native).saturating_sub(*busy_before_us);
        let share = busy_us as f64 / watch.elapsed().as_micros() as f64 * 100.0;
        let (late, puts) = (measured.late, measured.puts_per_s);
        eprintln!(
            "lateness-redis: round {round}: p50 {} us, p99 {} us, {puts:.0} puts a second, Redis busy {share:.0} %",
            late.value_at_quantile(0.5),
            late.value_at_quantile(0.99)
        );
        all.add(&late)?;
        put_rates.push(puts);
        shares.push(share);
    }
    run.latencies("lateness", &all);
    run.alone("puts meanwhile", "per_s", put_rates);
    run.alone("Redis, of one core", "percent", shares);
    Ok(())
}

/// The processor time of Redis so far, in microseconds.
fn busy_us(native: &Native) -> u64 {
    let used = |field| native.server.info(field).and_then(|seconds| seconds.parse::<f64>().ok());
    let seconds: f64 = ["used_cpu_user", "used_cpu_sys"].into_iter().filter_map(used).sum();
    (seconds * 1e6) as u64
}

/// The store that all callers of the process share.
struct OnRedis {
    store: Arc<RedisStore>,
    runtime: Handle,
}

impl Caller for OnRedis {
    fn put(&self, puts: Vec<Put>) -> LoadResult<()> {
        let answers = self.runtime.block_on(self.store.put(puts));
        answers.into_iter().try_for_each(|answer| answer.map(drop)).map_err(|error| error.to_string())
    }

    fn take(&self, take: Take) -> LoadResult<Vec<TakenCount>> {
        let taken = self.runtime.block_on(self.store.take(take)).map_err(|error| error.to_string())?;
        let seen = |delivery: dwell_store::Delivery| TakenCount {
            due: delivery.message.standing.due,
            receipt: Some(delivery.receipt),
        };
        Ok(taken.into_iter().map(seen).collect())
    }

    fn ack(&self, receipts: Vec<Receipt>) -> LoadResult<()> {
        let settled = self.runtime.block_on(self.store.settle(acks(receipts)));
        settled.into_iter().try_for_each(|answer| answer.map(drop)).map_err(|error| error.to_string())
    }
}
