//! The tasks that ask for the queues that takes wait on: a few per process, whatever the number of queues and of
//! takes.

use std::hash::{BuildHasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use dwell_model::QueueName;
use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::{AskGuard, ask_for};
use crate::native::Inner;

/// The number of tasks among which the queues are divided: enough to use the processors.
const TASKS: usize = 8;

/// The handles of the tasks. Each task starts with the first of its queues, and ends some time after no take waits on
/// any of them.
#[derive(Default)]
pub(super) struct QueuePollers {
    tasks: [Option<mpsc::UnboundedSender<QueueName>>; TASKS],
    places: RandomState,
}

impl QueuePollers {
    /// Starts an asker for a queue that has none. False if the runtime has ended.
    pub(super) fn begin(&mut self, inner: &Arc<Inner>, runtime: &Handle, queue: &QueueName) -> bool {
        // It fits: a remainder is below the number of tasks.
        let place = (self.places.hash_one(queue) % TASKS as u64) as usize;
        if let Some(task) = &self.tasks[place]
            && task.send(queue.clone()).is_ok()
        {
            return true;
        }
        // There was no task, or it has ended since.
        let (task, names) = mpsc::unbounded_channel();
        // It is spawned without names: if it is dropped at once, it takes no lock of the caller's.
        runtime.spawn(ask(Begun { inner: Arc::clone(inner), runtime: runtime.clone(), names }));
        let has_begun = task.send(queue.clone()).is_ok();
        self.tasks[place] = has_begun.then_some(task);
        has_begun
    }
}

/// The queues that a task is to begin with. If the runtime ends before the task has received them all, the takes that
/// wait on the rest are answered.
struct Begun {
    inner: Arc<Inner>,
    runtime: Handle,
    names: mpsc::UnboundedReceiver<QueueName>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.names.close();
        while let Ok(queue) = self.names.try_recv() {
            drop(AskGuard::new(&self.inner, &self.runtime, queue));
        }
    }
}

async fn ask(mut begun: Begun) {
    let mut asked_for = FuturesUnordered::new();
    loop {
        tokio::select! {
            queue = begun.names.recv() => match queue {
                Some(queue) => {
                    let asker = ask_for(AskGuard::new(&begun.inner, &begun.runtime, queue));
                    // An asker that panics, which is a bug, does not stop the others.
                    asked_for.push(AssertUnwindSafe(asker).catch_unwind());
                }
                None => break,
            },
            Some(_) = asked_for.next() => {}
        }
        if asked_for.is_empty() && begun.names.is_empty() {
            // Names that were sent meanwhile are still received; later ones start another task.
            begun.names.close();
        }
    }
    while asked_for.next().await.is_some() {}
}
