//! Takes that have lost their task or asker, since the runtime has ended or a task has panicked: they are answered.

use std::sync::{Arc, Mutex};
use std::thread::panicking;

use dwell_model::QueueName;
use dwell_store::Error;
use tokio::runtime::Handle;

use super::{Inner, Probe, Ticket, WaitingState, end_look, finish, locked, pay};

/// Held by the task that serves a ticket, or is about to. Dropped before the serving has ended, it answers the
/// ticket.
pub(super) struct ServeGuard {
    inner: Arc<Inner>,
    runtime: Handle,
    ticket: Arc<Ticket>,
    has_ended: bool,
}

impl ServeGuard {
    pub(super) fn new(inner: &Arc<Inner>, runtime: &Handle, ticket: &Arc<Ticket>) -> ServeGuard {
        let (inner, runtime) = (Arc::clone(inner), runtime.clone());
        ServeGuard { inner, runtime, ticket: Arc::clone(ticket), has_ended: false }
    }

    /// The serving has ended normally.
    pub(super) fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for ServeGuard {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let error = {
            let mut state = locked(&self.ticket.state);
            if panicking() {
                // Without a sender the caller panics too.
                state.has_panicked = true;
                state.answer = None;
            }
            runtime_gone(state.begun)
        };
        abandon(&self.inner, &self.runtime, &self.ticket, error);
    }
}

/// Held by the asker of a queue. Dropped while takes wait there, it answers those that no task serves.
pub(in crate::native) struct AskGuard {
    inner: Arc<Inner>,
    runtime: Handle,
    queue: QueueName,
    look: Option<Arc<Mutex<Probe>>>,
    has_ended: bool,
}

impl AskGuard {
    pub(in crate::native) fn new(inner: &Arc<Inner>, runtime: &Handle, queue: QueueName) -> AskGuard {
        let (inner, runtime) = (Arc::clone(inner), runtime.clone());
        AskGuard { inner, runtime, queue, look: None, has_ended: false }
    }

    pub(super) fn asks_for(&self) -> (Arc<Inner>, Handle, QueueName) {
        (Arc::clone(&self.inner), self.runtime.clone(), self.queue.clone())
    }

    /// The look during which the guard may be dropped.
    pub(super) fn looks(&mut self, look: &Arc<Mutex<Probe>>) {
        self.look = Some(Arc::clone(look));
    }

    /// No take waits on the queue any more.
    pub(super) fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for AskGuard {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        if let Some(look) = &self.look {
            end_look(&self.inner, &self.runtime, &self.queue, look);
        }
        let tickets: Vec<Arc<Ticket>> = {
            let mut waits = locked(&self.inner.waiters.0);
            let WaitingState { takes, queues, .. } = &mut *waits;
            let Some(watched) = queues.get_mut(&self.queue) else { return };
            if watched.turns.is_empty() {
                queues.remove(&self.queue);
                return;
            }
            watched.asked = false;
            watched.moved.notify_waiters();
            watched.turns.iter().filter_map(|turn| Some(Arc::clone(&takes.get(turn)?.ticket))).collect()
        };
        let error = if panicking() {
            Error::Unavailable { reason: "the task that asked for a queue of the take has panicked".into() }
        } else {
            Error::Closed
        };
        for ticket in tickets {
            give_up(&self.inner, &self.runtime, &ticket, error.clone());
        }
    }
}

/// Ends a take without an asker. If a task serves it, that task ends it.
pub(super) fn give_up(inner: &Arc<Inner>, runtime: &Handle, ticket: &Ticket, error: Error) {
    let was_busy = std::mem::replace(&mut locked(&ticket.state).busy, true);
    if !was_busy {
        abandon(inner, runtime, ticket, error);
    }
}

/// Ends the serving of a ticket for the task that made it busy. What Redis may have handed out is unknown: those
/// leases run out.
fn abandon(inner: &Arc<Inner>, runtime: &Handle, ticket: &Ticket, error: Error) {
    let turn = locked(&ticket.state).turn;
    if let Some(turn) = turn {
        inner.waiters.unlist(turn, &inner.returns);
    }
    finish(inner, runtime, ticket, Err(error));
    pay(inner, runtime);
}

/// The error of a call whose runtime has ended.
pub(in crate::native) fn runtime_gone(has_begun: bool) -> Error {
    if !has_begun {
        return Error::Closed;
    }
    let reason = "the runtime of the store ended before Redis answered".into();
    Error::OutcomeUnknown { reason, needs_reopen: true }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::task::Poll;
    use std::time::Duration;

    use dwell_model::Limits;
    use dwell_store::{Store as _, Take};
    use dwell_testkit::redis::Server;

    use super::*;
    use crate::RedisStore;
    use crate::native::waiting::{TakeAnswer, serve};

    async fn in_time<T>(event: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(60), event).await.expect("it comes in time")
    }

    #[tokio::test]
    async fn a_take_whose_serving_panics_panics() {
        let server = Server::start();
        let store = RedisStore::open(server.address(), Limits::default()).await.unwrap();
        let (inner, runtime) = (Arc::clone(&store.inner), store.runtime.clone());
        let panics = poll_fn(|_| -> Poll<TakeAnswer> { panic!("on purpose") });
        let taking = async move { serve(&inner, &runtime, panics).await };
        assert!(in_time(tokio::spawn(taking)).await.unwrap_err().is_panic());
        assert!(in_time(store.queues(None, 1)).await.unwrap().is_empty(), "calls go on");
    }

    #[tokio::test]
    async fn takes_that_wait_on_a_queue_whose_asker_panics_may_be_repeated() {
        let server = Server::start();
        let store = Arc::new(RedisStore::open(server.address(), Limits::default()).await.unwrap());
        let orders = QueueName::new("orders").unwrap();
        let take = Take::from(orders.clone()).wait_ms(3_600_000);
        let waiting = {
            let (store, take) = (Arc::clone(&store), take.clone());
            tokio::spawn(async move { store.take(take).await })
        };
        let is_free = || {
            let waits = locked(&store.inner.waiters.0);
            waits.queues.get(&orders).is_some_and(|watched| watched.asked)
                && waits.takes.values().all(|waiting| !locked(&waiting.ticket.state).busy)
        };
        in_time(async {
            while !is_free() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let guard = AskGuard::new(&store.inner, &store.runtime, orders);
        let panics = move || {
            let _guard = guard;
            panic!("on purpose")
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        let error = in_time(waiting).await.unwrap().unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert_eq!(in_time(store.take(take.wait_ms(1))).await, Ok(Vec::new()));
    }
}
