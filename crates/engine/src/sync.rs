//! The synchronization primitives of callers and the shard's thread, replaceable by a model checker: with `--cfg
//! shuttle` each of their locks, replies and atomics is a point at which shuttle may switch threads. See
//! `tests/shard_shuttle.rs`.
//!
//! # Ground rules
//! 1. Under shuttle the shard's thread is the only one that the engine starts: the model checker does not see a
//!    thread of the operating system. Background work is done between its turns.
//! 2. No lock of another kind is held where one of these is acquired: a thread that waits for it would block the
//!    model checker.

#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::{Mutex, MutexGuard, atomic::AtomicU64},
    thread::{Builder, JoinHandle, current},
};

#[cfg(not(shuttle))]
pub(crate) use futures_channel::oneshot;

#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{Mutex, MutexGuard, atomic::AtomicU64},
    thread::{Builder, JoinHandle, current},
};

/// The same replies, with a switch point before each operation.
#[cfg(shuttle)]
pub(crate) mod oneshot {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures_channel::oneshot;
    use shuttle::sync::atomic::{AtomicBool, Ordering};

    pub(crate) use futures_channel::oneshot::Canceled;

    #[derive(Debug)]
    pub(crate) struct Sender<T> {
        sender: oneshot::Sender<T>,
        point: Point,
    }

    #[derive(Debug)]
    pub(crate) struct Receiver<T> {
        receiver: oneshot::Receiver<T>,
        point: Point,
    }

    /// A point where threads may be switched, and nothing else.
    #[derive(Debug, Default)]
    struct Point(AtomicBool);

    impl Point {
        fn pass(&self) {
            self.0.load(Ordering::SeqCst);
        }
    }

    pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Sender { sender, point: Point::default() }, Receiver { receiver, point: Point::default() })
    }

    impl<T> Sender<T> {
        pub(crate) fn send(self, value: T) -> Result<(), T> {
            self.point.pass();
            self.sender.send(value)
        }

        pub(crate) fn is_canceled(&self) -> bool {
            self.point.pass();
            self.sender.is_canceled()
        }
    }

    impl<T> Receiver<T> {
        pub(crate) fn close(&mut self) {
            self.point.pass();
            self.receiver.close();
        }

        pub(crate) fn try_recv(&mut self) -> Result<Option<T>, Canceled> {
            self.point.pass();
            self.receiver.try_recv()
        }
    }

    impl<T> Future for Receiver<T> {
        type Output = Result<T, Canceled>;

        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
            let this = self.get_mut();
            this.point.pass();
            Pin::new(&mut this.receiver).poll(context)
        }
    }
}
