//! An engine on a disk in memory, with a clock that stands still, driven by the caller.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dwell_model::{Message, QueueName, StateKind, Timestamp};
use dwell_store::{Result, Store};
use dwell_time::ManualClock;

use crate::disk::MemoryDisk;
use crate::{Driver, Engine, OpenError, Options};

/// The random number of every directory here.
pub(super) const DIRECTORY: u64 = 7;

pub(super) fn dir() -> &'static Path {
    Path::new("/data")
}

pub(super) fn segment_path(number: u64) -> PathBuf {
    dir().join(format!("journal-000-{number:012}"))
}

pub(super) fn start() -> Timestamp {
    Timestamp::from_ms(1_795_000_000_000).expect("it lies in 2026")
}

pub(super) struct Driven {
    pub(super) disk: MemoryDisk,
    pub(super) clock: ManualClock,
    pub(super) engine: Engine,
    driver: Driver,
}

impl Driven {
    pub(super) fn open(disk: &MemoryDisk) -> std::result::Result<Driven, OpenError> {
        let clock = ManualClock::new(start());
        let options = Options {
            segment_bytes: Options::MIN_SEGMENT_BYTES,
            low_water_bytes: Some(0),
            clock: Arc::new(clock.clone()),
            disk: Arc::new(disk.clone()),
            seed: Some(DIRECTORY),
            ..Options::default()
        };
        let (engine, driver) = Engine::open_driven(dir(), options)?;
        Ok(Driven { disk: disk.clone(), clock, engine, driver })
    }

    /// Runs a call that needs no time to pass until its answer.
    pub(super) fn run<T>(&mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..1_000 {
            if let Poll::Ready(answer) = call.as_mut().poll(&mut context) {
                return answer;
            }
            self.driver.turn();
        }
        panic!("the call waits");
    }

    pub(super) fn queues(&mut self) -> Vec<QueueName> {
        let store = self.engine.clone();
        let queues = self.run(store.queues(None, 10_000)).expect("queues are listed");
        queues.into_iter().map(|stats| stats.name).collect()
    }

    /// All messages of all queues, by number; a damaged body, or a queue that cannot be listed, is an error.
    pub(super) fn dump(&mut self) -> Vec<Result<Message>> {
        let store = self.engine.clone();
        let mut messages = Vec::new();
        for queue in self.queues() {
            for state in StateKind::ALL {
                match self.run(store.list(queue.clone(), state, None, 10_000)) {
                    Ok(page) => {
                        messages.extend(page.messages.into_iter().map(Ok));
                        messages.extend(page.unread.into_iter().map(|(_, error)| Err(error)));
                    }
                    Err(error) => messages.push(Err(error)),
                }
            }
        }
        messages.sort_by_key(|message| message.as_ref().map_or(0, |message| message.number.get()));
        messages
    }

    /// Closes it as a graceful shutdown does.
    pub(super) fn close(mut self) {
        self.engine.close().expect("a disk that does not fail lets it close");
        assert!(!self.driver.turn(), "closed");
    }
}
