//! Our side: the engine in a folder, driven through the contract like any store.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dwell_engine::{Engine, Options};
use dwell_model::{QueueName, Timestamp};
use dwell_store::{Action, Blocking, Put, Settle, Take};
use dwell_time::{Clock, ManualClock};

use crate::Result;
use crate::workload::{BODY_BYTES, Item, Tally};

/// The instant that items' dues count from, on a clock that stands still until a scenario moves it: so a run
/// measures the same backlog however long it takes.
pub(crate) fn start() -> Timestamp {
    Timestamp::from_ms(1_800_000_000_000).expect("it lies in 2027")
}

/// The queue that scenarios use.
pub(crate) fn queue() -> QueueName {
    "bench".parse().expect("it is a queue's name")
}

/// The engine as a caller without an async runtime uses it.
pub(crate) struct Ours {
    engine: Engine,
    calls: Blocking<Engine>,
}

impl Ours {
    /// Opens the engine in `folder`, durable as by default: nothing is answered before it is synced.
    pub(crate) fn open(folder: &Path, clock: &ManualClock) -> Result<Ours> {
        let clock: Arc<dyn Clock> = Arc::new(clock.clone());
        let engine = Engine::open(folder, Options { clock, ..Options::default() })?;
        Ok(Ours { calls: engine.blocking(), engine })
    }

    /// What asynchronous callers share.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Syncs everything and lets the folder go.
    pub(crate) fn close(self) -> Result<()> {
        Ok(self.engine.close()?)
    }

    /// Puts a batch; fails if one of it was refused.
    pub(crate) fn put(&self, items: &[Item]) -> Result<()> {
        for answer in self.calls.put(puts(items)) {
            answer?;
        }
        Ok(())
    }

    /// Takes up to `max` messages, adds their bodies to `tally`, and acks them.
    pub(crate) fn take(&self, max: usize, tally: &mut Tally) -> Result<usize> {
        let deliveries = self.calls.take(Take::from(queue()).max(max))?;
        let count = deliveries.len();
        let acks = deliveries.into_iter().map(|delivery| {
            tally.add(&delivery.message.body);
            Settle { receipt: delivery.receipt, action: Action::Ack }
        });
        for answer in self.calls.settle(acks.collect()) {
            answer?;
        }
        Ok(count)
    }
}

/// One buffer for a batch's bodies, as a server would have read them; each put holds its part of it.
pub(crate) fn puts(items: &[Item]) -> Vec<Put> {
    let bodies: Bytes = items.iter().flat_map(|item| item.body).collect();
    let places = (0..items.len()).map(|index| index * BODY_BYTES..(index + 1) * BODY_BYTES);
    let put = |(item, place): (&Item, std::ops::Range<usize>)| {
        Put::new(queue(), bodies.slice(place)).at(start().saturating_after(item.due_ms))
    };
    items.iter().zip(places).map(put).collect()
}
