//! Tests of the core: what only its owner sees, and that replay rebuilds the same core.
//!
//! The contract is tested once for all stores, in `conformance`.

mod bulk;
mod calls;
mod cold;
mod lazy_free;
mod random;
mod retention;
mod waiting;

use bytes::Bytes;
use dwell_model::{Limits, Now, QueueName, Receipt, Timestamp};

use super::{Cold, Core, CoreConfig, Durability, Log, PutRecord, Record, TakeAnswer};
use crate::{Action, BulkOutcome, Delivery, Put, PutAnswer, Result, Selection, Settle, Settled, Take, When};

/// The start of the tests' clock.
const START_MS: i64 = 1_795_000_000_000;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(START_MS + ms).unwrap()
}

/// `ms` after the start, on both clocks.
fn now(ms: u64) -> Now {
    Now { wall: at(ms as i64), mono_ms: ms }
}

fn queue(name: &str) -> QueueName {
    name.parse().unwrap()
}

fn put_to(name: &str) -> Put {
    Put::new(queue(name), "body")
}

/// A fact that a core reported to its log.
#[derive(Clone, Debug, PartialEq)]
enum LoggedFact {
    Put(PutRecord, Bytes),
    Record(Record, Durability),
    /// The end of a batch.
    Time(Timestamp),
}

#[derive(Debug, Default)]
struct Recorder(Vec<LoggedFact>, Option<cold::Toy>);

impl Log<Bytes> for Recorder {
    fn put(&mut self, record: &PutRecord, body: &Bytes) -> Bytes {
        self.0.push(LoggedFact::Put(record.clone(), body.clone()));
        body.clone()
    }

    fn record(&mut self, record: &Record, durability: Durability) {
        self.0.push(LoggedFact::Record(record.clone(), durability));
    }

    fn cold(&mut self) -> Option<&mut dyn Cold<Bytes>> {
        self.1.as_mut().map(|toy| toy as &mut dyn Cold<Bytes>)
    }
}

/// A core and its log, driven call by call; each call is a separate batch.
struct Rig {
    core: Core<Bytes>,
    log: Recorder,
    config: CoreConfig,
    /// All answers so far.
    said: Vec<String>,
    /// Answers to waiting takes while another take was repeated.
    served: Vec<TakeAnswer<Bytes>>,
}

impl Rig {
    fn new() -> Rig {
        Rig::with(Limits::default())
    }

    fn with(limits: Limits) -> Rig {
        // So few at a time that purged messages remain for long.
        Rig::configured(CoreConfig { freed_per_call: 1, ..CoreConfig::new(limits, 7) })
    }

    fn configured(config: CoreConfig) -> Rig {
        Rig {
            core: Core::new(config.clone()),
            log: Recorder::default(),
            config,
            said: Vec::new(),
            served: Vec::new(),
        }
    }

    /// Makes a call, ends the batch, and verifies the indexes.
    fn call<T: std::fmt::Debug>(&mut self, call: impl FnOnce(&mut Core<Bytes>, &mut Recorder) -> T) -> T {
        let answer = call(&mut self.core, &mut self.log);
        self.said.push(format!("{answer:?}"));
        self.core.check();
        self.log.0.push(LoggedFact::Time(self.core.seen()));
        answer
    }

    /// Expires all cold messages whose time has come.
    fn catch_up(&mut self, now: Now) {
        while !self.core.catch_up(now, &mut self.log) {
            self.core.check();
        }
        self.log.0.push(LoggedFact::Time(self.core.seen()));
    }

    fn put(&mut self, put: Put, now: Now) -> Result<PutAnswer> {
        self.call(|core, log| core.put(vec![put], now, log)).remove(0)
    }

    fn take(&mut self, take: Take, now: Now) -> Result<Vec<Delivery>> {
        let mut served = Vec::new();
        let taken = self.call(|core, log| {
            let taken = core.take(&take, now, log);
            if !core.gave_up() || taken.as_ref().is_ok_and(|taken| !taken.is_empty()) {
                return taken;
            }
            while !core.catch_up(now, log) {}
            loop {
                let taken = core.take(&take, now, log);
                if !core.gave_up() || taken.as_ref().is_ok_and(|taken| !taken.is_empty()) {
                    return taken;
                }
                served.extend(core.serve(now, log));
            }
        });
        self.served.extend(served);
        taken
    }

    /// Revives in one step.
    fn revive(&mut self, queue: &QueueName, which: Selection, when: When, now: Now) -> Result<BulkOutcome> {
        self.call(|core, log| {
            let progress = core.revive(queue, which, when, now, log)?;
            core.finish(progress, now, log)
        })
    }

    /// Discards in one step.
    fn discard(&mut self, queue: &QueueName, which: Selection, now: Now) -> Result<BulkOutcome> {
        self.call(|core, log| {
            let progress = core.discard(queue, which, now, log)?;
            core.finish(progress, now, log)
        })
    }

    fn settle(&mut self, receipt: &Receipt, action: Action, now: Now) -> Result<Settled> {
        let settle = Settle { receipt: receipt.clone(), action };
        self.call(|core, log| core.settle(vec![settle], now, log)).remove(0)
    }

    /// The same core again, from the log; not opened yet.
    fn replayed(&self) -> Rig {
        let incarnation = self.config.incarnation + 1;
        let mut again = Rig::configured(CoreConfig { incarnation, ..self.config.clone() });
        for told in &self.log.0 {
            match told.clone() {
                LoggedFact::Put(record, body) => again.core.replay_put(record, body).unwrap(),
                LoggedFact::Record(record, _) => again.core.replay(record).unwrap(),
                LoggedFact::Time(wall) => again.core.replay_time(wall),
            }
        }
        again.core.check();
        again.log.0 = self.log.0.clone();
        again
    }

    /// The same core again, opened at `now`.
    fn reopened(&self, now: Now) -> Rig {
        let mut again = self.replayed();
        again.call(|core, log| core.opened(now, log));
        while again.call(|core, log| core.release_session_leases(now, log)) {}
        again
    }
}
