//! The processor time of the core alone per message: `cargo bench -p dwell-store --bench core -- [messages]`.
//!
//! It measures the processor time of this process, so that other load on the machine has little effect.
//! Bodies of 128 bytes stay in memory; there is no log and no lock.

use bytes::Bytes;
use dwell_model::{Limits, Now, QueueName, Timestamp};
use dwell_store::core::{Core, CoreConfig, NoLog};
use dwell_store::{Action, Put, Selection, Settle, Take, When};
use rustix::time::{ClockId, clock_gettime};

const BATCH: usize = 1_024;
const DAY_MS: u64 = 86_400_000;

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

struct Bench {
    core: Core<Bytes>,
    now: Now,
    random: u64,
}

impl Bench {
    fn new() -> Bench {
        let wall = Timestamp::from_ms(1_795_000_000_000).expect("within the years");
        let core = Core::new(CoreConfig::new(Limits { leased: usize::MAX, ..Limits::default() }, 1));
        Bench { core, now: Now { wall, mono_ms: 0 }, random: 88_172_645_463_325_252 }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn advance(&mut self, ms: u64) {
        self.now.wall = self.now.wall.saturating_after(ms);
        self.now.mono_ms += ms;
    }

    fn measure(&mut self, what: &str, messages: usize, work: impl FnOnce(&mut Bench)) {
        let (cpu, resident) = (cpu_ns(), resident_bytes());
        work(self);
        let ns = (cpu_ns() - cpu) / messages as u64;
        let per_s = 1_000.0 / ns.max(1) as f64;
        let bytes = resident_bytes() as i64 - resident as i64;
        let (total, each) = (bytes / 1_048_576, bytes / messages as i64);
        println!("{what:<44} {ns:>6} ns {per_s:>7.2} M/s {total:>7} MiB {each:>6} B each");
    }

    fn put(&mut self, queue: &QueueName, messages: usize, delay: impl Fn(u64) -> u64, key: bool) {
        let mut left = messages;
        while left > 0 {
            let count = left.min(BATCH);
            let puts = (0..count)
                .map(|at| {
                    let put = Put::new(queue.clone(), Bytes::from_static(&[7; 128]));
                    let put = put.after_ms(delay(self.random()));
                    let key_of = || format!("key-{}", left - at).parse().expect("a key");
                    if key { put.key(key_of()) } else { put }
                })
                .collect();
            let answers = self.core.put(puts, self.now, &mut NoLog);
            assert!(answers.iter().all(Result::is_ok));
            left -= count;
        }
    }

    fn take_and(&mut self, queue: &QueueName, messages: usize, action: &Action) {
        let mut left = messages;
        while left > 0 {
            let take = Take::from(queue.clone()).max(left.min(BATCH));
            let taken = self.core.take(&take, self.now, &mut NoLog).expect("leases are unlimited");
            assert!(!taken.is_empty());
            left -= taken.len();
            let settles = taken
                .into_iter()
                .map(|delivery| Settle { receipt: delivery.receipt, action: action.clone() })
                .collect();
            assert!(self.core.settle(settles, self.now, &mut NoLog).iter().all(Result::is_ok));
        }
    }
}

fn main() {
    let messages = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(1_000_000_usize);
    let queue: QueueName = "q".parse().expect("a name");
    println!("{messages} messages, batches of {BATCH}");

    let mut bench = Bench::new();
    bench.measure("put, due within a day", messages, |b| b.put(&queue, messages, |r| r % DAY_MS, false));
    bench.advance(DAY_MS / 2);
    bench.measure("the first stats after half a day", messages / 2, |b| {
        b.core.stats(&queue, b.now, &mut NoLog).expect("it is known");
    });
    bench.measure("take and ack that half", messages / 2 - messages / 100, |b| {
        b.take_and(&queue, messages / 2 - messages / 100, &Action::Ack);
    });
    bench.measure("a page of 1,000 scheduled", 1_000, |b| {
        let state = dwell_model::StateKind::Scheduled;
        b.core.list(&queue, state, None, 1_000, b.now, &mut NoLog).expect("it is known");
    });
    bench.measure("purge the rest", messages / 2, |b| {
        b.core.purge(&queue, b.now, &mut NoLog).expect("all of it is in memory");
    });

    let mut bench = Bench::new();
    bench.measure("put, due at once", messages, |b| b.put(&queue, messages, |_| 0, false));
    bench.measure("take and ack", messages, |b| b.take_and(&queue, messages, &Action::Ack));
    bench.measure("put, due at one instant", messages, |b| b.put(&queue, messages, |_| 1_000, false));
    bench.advance(1_000);
    bench.measure("the first take of 1 at that instant", 1, |b| b.take_and(&queue, 1, &Action::Ack));
    let bury = Action::Bury { reason: None, priority: None };
    bench.measure("take and bury", messages - 1, |b| b.take_and(&queue, messages - 1, &bury));
    bench.measure("revive all", messages - 1, |b| {
        let progress = b.core.revive(&queue, Selection::All, When::Now, b.now, &mut NoLog);
        b.core.finish(progress.expect("it can be"), b.now, &mut NoLog).expect("it can be");
    });
    drop(bench);

    let mut bench = Bench::new();
    bench.measure("put with a key", messages, |b| b.put(&queue, messages, |r| r % DAY_MS, true));
    let queues: Vec<QueueName> =
        (0..messages / 10).map(|at| format!("queue-{at}").parse().expect("a name")).collect();
    bench.measure("one put to each of a tenth as many queues", queues.len(), |b| {
        for queue in &queues {
            b.put(queue, 1, |_| 5, false);
        }
    });
}
