//! What asks for the queues that takes wait on: a few tasks of this process, whatever the number of queues and of takes.

use std::hash::{BuildHasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use dwell_model::QueueName;
use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::Inner;
use super::waiting::ask_for;

/// Among so many tasks the queues are divided: as many as find processors to run on.
const TASKS: usize = 8;

/// The tasks, from outside. Each begins with the first of its queues, and ends some time after nobody waits on any of them.
#[derive(Default)]
pub(super) struct Askers {
    tasks: [Option<mpsc::UnboundedSender<QueueName>>; TASKS],
    places: RandomState,
}

impl Askers {
    /// Begins to ask for a queue that nobody asks for.
    pub(super) fn begin(&mut self, inner: &Arc<Inner>, runtime: &Handle, queue: &QueueName) {
        // It fits: a remainder is below the number of tasks.
        let place = (self.places.hash_one(queue) % TASKS as u64) as usize;
        let mut queue = queue.clone();
        loop {
            let task = self.tasks[place].get_or_insert_with(|| {
                let (task, begun) = mpsc::unbounded_channel();
                runtime.spawn(ask(Arc::clone(inner), runtime.clone(), begun));
                task
            });
            match task.send(queue) {
                Ok(()) => return,
                // It has ended since.
                Err(mpsc::error::SendError(unsent)) => {
                    queue = unsent;
                    self.tasks[place] = None;
                }
            }
        }
    }
}

async fn ask(inner: Arc<Inner>, runtime: Handle, mut begun: mpsc::UnboundedReceiver<QueueName>) {
    let mut asked_for = FuturesUnordered::new();
    loop {
        tokio::select! {
            queue = begun.recv() => match queue {
                Some(queue) => {
                    let asker = ask_for(Arc::clone(&inner), runtime.clone(), queue);
                    // One that panics, which is a mistake of ours, takes no other with it.
                    asked_for.push(AssertUnwindSafe(asker).catch_unwind());
                }
                None => break,
            },
            Some(_) = asked_for.next() => {}
        }
        if asked_for.is_empty() && begun.is_empty() {
            // What was sent meanwhile is received yet; whoever comes from here on begins another task.
            begun.close();
        }
    }
    while asked_for.next().await.is_some() {}
}
