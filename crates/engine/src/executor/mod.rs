//! The executor: runs flush, compaction, prefetch and deletion of files beside the event loop, a slice at a time.
//!
//! Work is a [`Task`], cut into slices. Between two slices other work can run: on a thread of the pool, or in a
//! simulation whose seed decides which task goes on next. The event loop never waits for a task. It polls for the
//! result in its turns, and is woken when there is one.
//!
//! # Ground rules
//! 1. A task depends on nothing but its arguments and the disk. So it does not matter when its slices run.
//! 2. A task whose [`Handle`] is dropped does nothing more: the drop waits for the slice under way. So nothing is
//!    written after the directory's lock is released.
//! 3. Prefetch has its own thread and queue. It never waits behind flush, compaction or deletion, and the event loop
//!    shares no lock of that queue with a thread of lower priority.
//! 4. A panic in a slice is an outcome of its task. The thread that ran it goes on with other work.
//!
//! # Layout
//! - this file: what a task is, how its result comes back, and which threads there are
//! - `work`: a task whose type is erased, as the executor holds it
//! - `pool`: threads that share a queue of work; `threads`: how a thread is started
//! - `stepping`: the same without threads, for simulations and tests

mod pool;
mod stepping;
mod threads;
mod work;

use std::fmt::{self, Debug};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};

use dwell_time::Notifier;

use self::pool::{Pool, Role};
use self::work::Work;

pub use threads::{Spawner, SystemThreads};

/// The class of a task. It decides which thread runs the task, and its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Reads messages and bodies before a take asks for them.
    Prefetch,
    /// Writes messages to tables, and the manifest that names them.
    Flush,
    /// Removes files that are no longer needed.
    Deletion,
    /// Merges index runs.
    Compaction,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 4] = [Class::Prefetch, Class::Flush, Class::Deletion, Class::Compaction];
}

const PREFETCH: &[Role] =
    &[Role { name: "dwell-prefetch", gives_way: false, classes: &[Class::Prefetch], if_alone: &[] }];
/// Either thread can run every class of background work, so that one is enough. Where there are both, the first begins
/// nothing but flushes, since puts may wait for them, and the slice that ends a merge syncs a whole file. A flush waits
/// only if both are in a slice of other work: the first may have begun one while it was alone. The other thread prefers
/// deletions, which free room.
const BACKGROUND: &[Role] = &[
    Role {
        name: "dwell-flush",
        gives_way: true,
        classes: &[Class::Flush],
        if_alone: &[Class::Deletion, Class::Compaction],
    },
    Role {
        name: "dwell-compact",
        gives_way: true,
        classes: &[Class::Deletion, Class::Flush, Class::Compaction],
        if_alone: &[],
    },
];

/// Work that is done in slices.
pub(crate) trait Task: Send + 'static {
    /// The result.
    type Output: Send + 'static;

    /// Does a part of the remaining work: about `most` small items, or one large one. Returns the output when nothing
    /// is left; it is not called again then.
    fn slice(&mut self, most: usize) -> Option<Self::Output>;

    /// The output after a panic in a slice.
    fn panicked(self) -> Self::Output;
}

/// Runs tasks.
#[derive(Debug)]
pub(crate) struct Executor {
    prefetch: Pool,
    background: Pool,
    notifier: Option<Arc<dyn Notifier>>,
}

impl Executor {
    /// An executor with threads, which `spawner` starts on demand. `notifier` is called when a task with a [`Handle`]
    /// ends.
    pub(crate) fn threads(spawner: &Arc<dyn Spawner>, notifier: Arc<dyn Notifier>) -> Arc<Executor> {
        let pool = |roles| Pool::new(roles, Arc::clone(spawner));
        let (prefetch, background) = (pool(PREFETCH), pool(BACKGROUND));
        Arc::new(Executor { prefetch, background, notifier: Some(notifier) })
    }

    /// An executor without threads: its tasks run by [`stepping`], and no notifier is called.
    pub(crate) fn without_threads() -> Arc<Executor> {
        let pool = || Pool::new(&[], Arc::new(SystemThreads));
        Arc::new(Executor { prefetch: pool(), background: pool(), notifier: None })
    }

    pub(crate) fn has_threads(&self) -> bool {
        self.background.has_threads()
    }

    /// The notifier of the event loop, called when a task ends or makes progress; `None` without threads.
    pub(crate) fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        self.notifier.clone()
    }

    fn pool(&self, class: Class) -> &Pool {
        match class {
            Class::Prefetch => &self.prefetch,
            Class::Flush | Class::Deletion | Class::Compaction => &self.background,
        }
    }

    /// Completes all pending deletions, cancels everything else, and joins the threads. A deletion that is submitted
    /// afterwards is done by the caller, any other task never.
    pub(crate) fn close(&self) {
        self.prefetch.close();
        self.background.close();
    }
}

/// A task under way. Dropping it cancels the task: see the [module](self).
pub(crate) struct Handle<T> {
    executor: Arc<Executor>,
    work: Arc<Work>,
    result: Receiver<T>,
    /// Whether the result was sent. It is set before the notifier is called, when the last slice has not returned
    /// yet.
    is_sent: Arc<AtomicBool>,
    /// Whether the result was taken, so that nothing is left to cancel.
    is_taken: bool,
}

/// The executor has dropped the task: it was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dropped;

/// Submits a task. If no thread can be started for it, it waits in the queue: [`Handle::start`] tries again.
pub(crate) fn spawn<T: Task>(
    executor: &Arc<Executor>,
    class: Class,
    task: T,
) -> (Handle<T::Output>, io::Result<()>) {
    let (tell, result) = mpsc::channel();
    let (notifier, is_sent) = (executor.notifier(), Arc::new(AtomicBool::new(false)));
    let work = Arc::new(Work::new(class, task, {
        let is_sent = Arc::clone(&is_sent);
        move |output| {
            // The handle may have been dropped.
            let _ = tell.send(output);
            is_sent.store(true, Ordering::SeqCst);
            notifier.iter().for_each(|notifier| notifier.notify());
        }
    }));
    let submitted = executor.pool(class).submit(Arc::clone(&work));
    (Handle { executor: Arc::clone(executor), work, result, is_sent, is_taken: false }, submitted)
}

/// Submits a task without a handle.
///
/// # Errors
/// No thread can be started for it. A deletion was done by the caller then; any other task is cancelled.
pub(crate) fn spawn_detached<T: Task<Output = ()>>(
    executor: &Executor,
    class: Class,
    task: T,
) -> io::Result<()> {
    let work = Arc::new(Work::new(class, task, |()| {}));
    let submitted = executor.pool(class).submit(Arc::clone(&work));
    submitted.inspect_err(|_| work.wind_up())
}

impl<T> Handle<T> {
    /// The result, once there is one. It is returned once.
    ///
    /// # Errors
    /// There will be none: the executor was closed, or the result was taken.
    pub(crate) fn try_take(&mut self) -> Result<Option<T>, Dropped> {
        match self.result.try_recv() {
            Ok(output) => {
                self.is_taken = true;
                Ok(Some(output))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Dropped),
        }
    }

    /// Whether it has ended, so that [`try_take`](Handle::try_take) returns how.
    pub(crate) fn is_over(&self) -> bool {
        self.is_sent.load(Ordering::SeqCst) || self.work.is_over()
    }

    /// Tries again to start a thread for it.
    ///
    /// # Errors
    /// The system cannot start one, and there is no other thread.
    pub(crate) fn start(&self) -> io::Result<()> {
        self.executor.pool(self.work.class()).start()
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // The thread that sent the result may still be inside its slice, and the event loop does not wait for it.
        if !self.is_taken {
            self.work.cancel();
        }
    }
}

impl<T> Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("work", &self.work).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// An executor with threads, whose notifier does nothing.
    pub(crate) fn threads() -> Arc<Executor> {
        let spawner: Arc<dyn Spawner> = Arc::new(SystemThreads);
        Executor::threads(&spawner, Arc::new(Nobody))
    }

    #[derive(Debug)]
    struct Nobody;

    impl Notifier for Nobody {
        fn notify(&self) {}
    }

    /// Counts down, one item at a time.
    pub(super) struct Countdown {
        pub(super) left: usize,
        pub(super) slices: Arc<AtomicUsize>,
        pub(super) panics_at: Option<usize>,
    }

    impl Countdown {
        pub(super) fn from(left: usize) -> Countdown {
            Countdown { left, slices: Arc::default(), panics_at: None }
        }
    }

    impl Task for Countdown {
        type Output = Result<usize, String>;

        fn slice(&mut self, _: usize) -> Option<Self::Output> {
            self.slices.fetch_add(1, Ordering::SeqCst);
            assert_ne!(self.panics_at, Some(self.left), "the test asked for a panic");
            if self.left == 0 {
                return Some(Ok(self.slices.load(Ordering::SeqCst)));
            }
            self.left -= 1;
            None
        }

        fn panicked(self) -> Self::Output {
            Err(format!("at {}", self.left))
        }
    }

    #[test]
    fn a_result_is_given_once_and_a_panic_is_one() {
        let executor = Executor::without_threads();
        let (mut handle, submitted) = spawn(&executor, Class::Flush, Countdown::from(2));
        submitted.unwrap();
        let bad = Countdown { panics_at: Some(1), ..Countdown::from(2) };
        let (mut failing, submitted) = spawn(&executor, Class::Compaction, bad);
        submitted.unwrap();
        while !executor.pending().is_empty() {
            executor.step_each();
        }
        assert!(handle.is_over());
        assert_eq!(handle.try_take(), Ok(Some(Ok(3))));
        assert_eq!(handle.try_take(), Err(Dropped));
        assert_eq!(failing.try_take(), Ok(Some(Err("at 1".to_owned()))));
    }

    /// Blocks the thread that notifies until it is released.
    #[derive(Debug)]
    struct SlowNotifier {
        notified: Mutex<Sender<()>>,
        let_on: Mutex<Receiver<()>>,
    }

    impl Notifier for SlowNotifier {
        fn notify(&self) {
            self.notified.lock().unwrap().send(()).unwrap();
            self.let_on.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
    }

    /// Crash story: 1. a merge ends and wakes the event loop. 2. The event loop finds its last slice still under way,
    /// and sleeps again. 3. Nothing wakes it any more, and the runs stay unmerged.
    #[test]
    fn whoever_is_woken_finds_the_task_over() {
        let ((notified, has_notified), (let_on, goes_on)) = (channel(), channel());
        let slow = SlowNotifier { notified: Mutex::new(notified), let_on: Mutex::new(goes_on) };
        let spawner: Arc<dyn Spawner> = Arc::new(SystemThreads);
        let executor = Executor::threads(&spawner, Arc::new(slow));
        let (mut handle, submitted) = spawn(&executor, Class::Compaction, Countdown::from(0));
        submitted.unwrap();
        has_notified.recv_timeout(PATIENCE).unwrap();
        assert!(handle.is_over());
        assert_eq!(handle.try_take(), Ok(Some(Ok(1))));
        let_on.send(()).unwrap();
    }

    #[test]
    fn a_task_whose_handle_is_dropped_does_nothing_more() {
        let executor = Executor::without_threads();
        let task = Countdown::from(10);
        let slices = Arc::clone(&task.slices);
        let (handle, submitted) = spawn(&executor, Class::Flush, task);
        submitted.unwrap();
        executor.step_each();
        drop(handle);
        assert_eq!(executor.pending(), []);
        executor.step_each();
        assert_eq!(slices.load(Ordering::SeqCst), 1);
        assert_eq!(Arc::strong_count(&slices), 1, "the task is gone");
    }
}
