//! Calls to a store that return bodies, and when they may proceed.
//!
//! A store reads bodies when its future is polled, on the thread that polls it. Ground rules:
//! 1. A call proceeds only while no more is held than the limit, and what it returns counts at once. So the limit is
//!    exceeded by at most what one poll returns on each of the server's threads, for any number of calls.
//! 2. Half of the threads read at a time, and one that has read much yields before the next may read. So a thousand
//!    messages that fall due together do not delay other tasks.
//! 3. A call that finds no room is cancelled after [`PATIENCE`](super::PATIENCE): messages that it was handed meanwhile
//!    are given back.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::{Memory, ReservedBytes, SMALL};

/// What a call waits for before it may proceed.
enum AdmissionWait {
    Room(Pin<Box<dyn Future<Output = bool> + Send>>),
    Reader(Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>),
}

/// There was no room in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// A semaphore for the maximum number of concurrent readers.
pub(super) fn readers() -> Arc<Semaphore> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Arc::new(Semaphore::new((threads / 2).max(1)))
}

impl Memory {
    /// Makes `call`, and counts the `bytes` of what it returns. Cancel safe as far as the call is.
    ///
    /// # Errors
    /// [`NoRoom`]; the call was dropped.
    pub(crate) async fn bring<T>(
        self: &Arc<Memory>,
        call: impl Future<Output = T>,
        bytes: impl Fn(&T) -> usize,
    ) -> Result<(T, ReservedBytes), NoRoom> {
        self.bring_within(self.patience, call, bytes).await
    }

    /// The same for callers who wait for room no longer than `patience`.
    pub(crate) async fn bring_within<T>(
        self: &Arc<Memory>,
        patience: Duration,
        call: impl Future<Output = T>,
        bytes: impl Fn(&T) -> usize,
    ) -> Result<(T, ReservedBytes), NoRoom> {
        let mut call = pin!(call);
        let mut wait = None;
        let mut has_begun = false;
        poll_fn(|context| {
            // The first poll passes the call on to the store; nothing is read then.
            let Ok(reader) = ready!(self.poll_turn(context, &mut wait, patience, has_begun)) else {
                return Poll::Ready(Err(NoRoom));
            };
            has_begun = true;
            let brought = ready!(call.as_mut().poll(context));
            // No await from here on: what was read must not be dropped.
            let len = bytes(&brought);
            if let Some(reader) = reader.filter(|_| len >= SMALL) {
                tokio::spawn(async move {
                    tokio::task::yield_now().await;
                    drop(reader);
                });
            }
            Poll::Ready(Ok((brought, self.add(len as u64))))
        })
        .await
    }

    /// Ready when there is room, and, if `is_to_read`, a permit to read.
    fn poll_turn(
        self: &Arc<Memory>,
        context: &mut Context<'_>,
        wait: &mut Option<AdmissionWait>,
        patience: Duration,
        is_to_read: bool,
    ) -> Poll<Result<Option<OwnedSemaphorePermit>, NoRoom>> {
        let mut reader = None;
        loop {
            match wait {
                Some(AdmissionWait::Room(room)) => {
                    let is_room = ready!(room.as_mut().poll(context));
                    if !is_room {
                        return Poll::Ready(Err(NoRoom));
                    }
                }
                Some(AdmissionWait::Reader(turn)) => reader = ready!(turn.as_mut().poll(context)),
                None => {}
            }
            let (memory, readers) = (Arc::clone(self), Arc::clone(&self.readers));
            *wait = if self.is_over() {
                // A call that waits for room keeps no permit to read.
                reader = None;
                Some(AdmissionWait::Room(Box::pin(
                    async move { timeout(patience, memory.room()).await.is_ok() },
                )))
            } else if is_to_read && reader.is_none() {
                match Arc::clone(&readers).try_acquire_owned() {
                    Ok(place) => {
                        reader = Some(place);
                        None
                    }
                    Err(_) => {
                        Some(AdmissionWait::Reader(Box::pin(async { readers.acquire_owned().await.ok() })))
                    }
                }
            } else {
                None
            };
            if wait.is_none() {
                return Poll::Ready(Ok(reader));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt as _;
    use futures_util::future::{join_all, pending, ready};
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn what_was_brought_counts_and_a_call_without_room_waits() {
        let memory = Memory::new(100);
        let (first, held) = memory.bring(ready(vec![0; 150]), Vec::len).await.unwrap();
        assert_eq!((first.len(), memory.held()), (150, 150));
        let mut second = Box::pin(memory.bring(ready(vec![0; 10]), Vec::len));
        assert!((&mut second).now_or_never().is_none());
        drop(held);
        let (_, held) = second.await.unwrap();
        assert_eq!(memory.held(), 10);
        drop(held);
        assert_eq!(memory.held(), 0);
    }

    #[tokio::test]
    async fn many_that_go_on_at_once_pass_the_limit_by_one_of_them() {
        const EACH: usize = 64 * 1024;
        let memory = Memory::new(3 * EACH as u64);
        let (most, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (begin, calls): (Vec<_>, Vec<_>) = (0..100)
            .map(|_| {
                let (begin, begun) = oneshot::channel::<()>();
                let memory = &memory;
                let (most, done) = (&most, &done);
                let call = async move {
                    let call = begun.map(|_| EACH);
                    let (_, held) = memory.bring(call, |len| *len).await.unwrap();
                    most.fetch_max(memory.held() as usize, Ordering::Relaxed);
                    done.fetch_add(1, Ordering::Relaxed);
                    // Until it is written.
                    tokio::task::yield_now().await;
                    drop(held);
                };
                (begin, call)
            })
            .unzip();
        let all = join_all(calls);
        let begin = async { begin.into_iter().for_each(|begin| begin.send(()).unwrap()) };
        timeout(Duration::from_secs(20), async { tokio::join!(all, begin) }).await.unwrap();
        assert_eq!(done.into_inner(), 100);
        assert!(most.into_inner() <= 4 * EACH);
    }

    #[tokio::test]
    async fn a_call_that_finds_no_room_in_time_is_dropped() {
        let memory = Memory::with_patience(100, Duration::from_millis(20));
        let _held = memory.add(150);
        assert!(matches!(memory.bring(pending::<usize>(), |len| *len).await, Err(NoRoom)));
    }

    #[tokio::test]
    async fn who_has_read_much_lets_others_have_their_turn_before_the_next_may_read() {
        let memory = Memory::new(u64::MAX);
        // All permits but one are taken.
        let places =
            (1..memory.readers.available_permits()).map(|_| Arc::clone(&memory.readers).try_acquire_owned());
        let places: Vec<_> = places.map(Result::unwrap).collect();
        let order = std::sync::Mutex::new(Vec::new());
        let call = async |name: &'static str| {
            let call = async {
                tokio::task::yield_now().await;
                SMALL
            };
            memory.bring(call, |len| *len).await.unwrap();
            order.lock().unwrap().push(name);
        };
        let other = async {
            for _ in 0..2 {
                tokio::task::yield_now().await;
            }
            order.lock().unwrap().push("other");
        };
        let all = async { tokio::join!(call("first"), call("second"), call("third"), other) };
        timeout(Duration::from_secs(20), all).await.unwrap();
        let order = order.into_inner().unwrap();
        let at = |name| order.iter().position(|one| *one == name).unwrap();
        assert!(at("other") < at("third"), "{order:?}");
        drop(places);
    }
}
