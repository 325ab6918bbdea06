//! Our side: the engine in a folder, called through the store contract.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dwell_engine::disk::Disk;
use dwell_engine::{Engine, Options};
use dwell_model::{Message, QueueName, Timestamp};
use dwell_store::{Action, Blocking, Put, PutAnswer, Settle, Take};
use dwell_time::{Clock, ManualClock};

use crate::Result;
use crate::stopwatch::{Stopwatch, pause};
use crate::workload::{BODY_BYTES, Item, Tally};

/// The instant that the items' dues count from, on a clock that stands still until a scenario moves it, so that a run
/// measures the same backlog however long it takes.
pub(crate) fn start() -> Timestamp {
    Timestamp::from_ms(1_800_000_000_000).expect("it lies in 2027")
}

/// The memory limit for messages where memory is bounded, before it is divided.
pub(crate) const MEMORY_LIMIT: u64 = 256 << 20;

/// How long a put is retried after refusals that ask for a retry.
const PATIENCE: Duration = Duration::from_secs(60);

/// The queue that scenarios use.
pub(crate) fn queue() -> QueueName {
    "bench".parse().expect("it is a queue's name")
}

/// The engine as used by a caller without an async runtime.
pub(crate) struct Ours {
    engine: Engine,
    calls: Blocking<Engine>,
}

impl Ours {
    /// Opens the engine in `folder`, durable as by default: everything is synced before it is answered.
    ///
    /// All messages stay in memory and in the journal.
    pub(crate) fn open(folder: &Path, clock: &ManualClock) -> Result<Ours> {
        Ours::open_bounded(folder, clock, u64::MAX)
    }

    /// The same with a memory limit: the rest is flushed to tables.
    pub(crate) fn open_bounded(folder: &Path, clock: &ManualClock, memory_limit: u64) -> Result<Ours> {
        Ours::open_with(folder, clock, memory_limit, Options::default().disk)
    }

    /// The same on another disk.
    pub(crate) fn open_with(
        folder: &Path,
        clock: &ManualClock,
        memory_limit: u64,
        disk: Arc<dyn Disk>,
    ) -> Result<Ours> {
        let clock: Arc<dyn Clock> = Arc::new(clock.clone());
        let engine = Engine::open(folder, Options { clock, memory_limit, disk, ..Options::default() })?;
        Ok(Ours { calls: engine.blocking(), engine })
    }

    /// The blocking interface.
    pub(crate) fn calls(&self) -> &Blocking<Engine> {
        &self.calls
    }

    /// The engine, as asynchronous callers share it.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Syncs everything and releases the folder.
    pub(crate) fn close(self) -> Result<()> {
        Ok(self.engine.close()?)
    }

    /// Puts a batch; fails if an item was refused.
    pub(crate) fn put(&self, items: &[Item]) -> Result<()> {
        for answer in self.calls.put(puts(items)) {
            answer?;
        }
        Ok(())
    }

    /// Puts a batch, and retries the rest of it while the engine asks for that.
    ///
    /// `again` creates the puts anew from an index in the batch on. Returns the number of retries.
    ///
    /// # Errors
    /// Any other refusal, and a put that takes more than a minute.
    pub(crate) fn put_patiently(
        &self,
        batch: Vec<Put>,
        again: impl Fn(usize) -> Vec<Put>,
    ) -> Result<(Vec<PutAnswer>, u64)> {
        let watch = Stopwatch::start();
        let (mut waits, mut answers) = (0, Vec::with_capacity(batch.len()));
        let mut batch = batch;
        loop {
            let mut refusal = None;
            for answer in self.calls.put(batch) {
                match answer {
                    Ok(answer) if refusal.is_none() => answers.push(answer),
                    Ok(_) => return Err("a batch was refused in its middle, and not to its end".into()),
                    Err(error) => refusal = refusal.or(Some(error)),
                }
            }
            match refusal {
                None => return Ok((answers, waits)),
                Some(error) if !error.is_retryable() || watch.elapsed() > PATIENCE => {
                    return Err(error.into());
                }
                Some(_) => waits += 1,
            }
            pause(Duration::from_millis(1));
            batch = again(answers.len());
        }
    }

    /// Takes up to `max` messages, adds their bodies to `tally`, and acks them.
    pub(crate) fn take(&self, max: usize, tally: &mut Tally) -> Result<usize> {
        self.take_from(Take::from(queue()).max(max), |message| tally.add(&message.body))
    }

    /// Takes messages, passes them to `see`, and acks them. Returns their number.
    pub(crate) fn take_from(&self, take: Take, mut see: impl FnMut(&Message)) -> Result<usize> {
        let deliveries = self.calls.take(take)?;
        let count = deliveries.len();
        let acks = deliveries.into_iter().map(|delivery| {
            see(&delivery.message);
            Settle { receipt: delivery.receipt, action: Action::Ack }
        });
        for answer in self.calls.settle(acks.collect()) {
            answer?;
        }
        Ok(count)
    }
}

/// Puts whose bodies share one buffer, as when a server has read them.
pub(crate) fn puts(items: &[Item]) -> Vec<Put> {
    let bodies: Bytes = items.iter().flat_map(|item| item.body).collect();
    let places = (0..items.len()).map(|index| index * BODY_BYTES..(index + 1) * BODY_BYTES);
    let (queue, start) = (queue(), start());
    let put = |(item, place): (&Item, std::ops::Range<usize>)| {
        Put::new(queue.clone(), bodies.slice(place)).at(start.saturating_after(item.due_ms))
    };
    items.iter().zip(places).map(put).collect()
}
