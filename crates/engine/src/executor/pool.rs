//! Threads that share a queue of work. A thread is started when there is work for it, and runs until the pool is
//! closed.
//!
//! A pool without threads keeps its work for [stepping](super::stepping).

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::threads::{Spawner, background_nice, give_way};
use super::{Class, Work};

/// The number of items in a slice: some tens of milliseconds of a merge, which is what a flush may wait.
const SLICE: usize = 64 * 1024;

/// The role of a thread in a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Role {
    pub(super) name: &'static str,
    /// Whether it has a lower priority than threads that serve.
    pub(super) gives_way: bool,
    /// The classes that it runs, the preferred ones first. The last role of a pool has every class here.
    pub(super) classes: &'static [Class],
    /// The classes that it also runs while it is the only thread, after `classes`. The first role of a pool has every
    /// class in one of the two.
    pub(super) if_alone: &'static [Class],
}

/// A pool; see the [module](self).
#[derive(Debug)]
pub(super) struct Pool {
    roles: &'static [Role],
    spawner: Arc<dyn Spawner>,
    /// The nice value of the threads that give way.
    nice: i32,
    shared: Arc<PoolShared>,
}

#[derive(Debug, Default)]
struct PoolShared {
    state: Mutex<PoolState>,
    /// Notified when there is work, or the pool is closed.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Work that no thread is running, the oldest first.
    works: VecDeque<Arc<Work>>,
    /// The number of threads that are running a slice.
    running: usize,
    /// The number of threads that wait for work.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    is_closed: bool,
}

impl Pool {
    /// A pool of at most one thread for each of `roles`, started in their order by `spawner`.
    pub(super) fn new(roles: &'static [Role], spawner: Arc<dyn Spawner>) -> Pool {
        Pool { roles, spawner, nice: background_nice(), shared: Arc::default() }
    }

    /// Whether there are threads, or may be.
    pub(super) fn has_threads(&self) -> bool {
        !self.roles.is_empty()
    }

    /// Appends work to the queue. It is queued even after an error: see [`Pool::start`].
    pub(super) fn submit(&self, work: Arc<Work>) -> io::Result<()> {
        let mut state = self.shared.state();
        if state.is_closed {
            drop(state);
            work.wind_up();
            return Ok(());
        }
        state.works.push_back(work);
        let started = self.start_missing(&mut state);
        let has_idle = state.idle > 0;
        drop(state);
        // All are notified, since not every thread runs every class. A notification is a system call even if no thread
        // waits.
        if has_idle {
            self.shared.changed.notify_all();
        }
        started
    }

    /// Starts missing threads for waiting work.
    ///
    /// # Errors
    /// There is no thread, and the system cannot start one.
    pub(super) fn start(&self) -> io::Result<()> {
        self.start_missing(&mut self.shared.state())
    }

    fn start_missing(&self, state: &mut PoolState) -> io::Result<()> {
        state.forget_over();
        let wanted = (state.running + state.works.len()).min(self.roles.len());
        while state.threads.len() < wanted {
            let role = self.roles[state.threads.len()];
            let (shared, nice) = (Arc::clone(&self.shared), self.nice);
            match self.spawner.spawn(role.name, Box::new(move || shared.run(role, nice))) {
                Ok(thread) => state.threads.push(thread),
                Err(error) if state.threads.is_empty() => return Err(error),
                // The existing threads do the work.
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// The waiting work, the oldest first.
    pub(super) fn waiting(&self) -> Vec<Arc<Work>> {
        let mut state = self.shared.state();
        state.forget_over();
        state.works.iter().cloned().collect()
    }

    /// Completes all pending deletions, cancels everything else, and joins the threads. See [`Executor::close`].
    ///
    /// [`Executor::close`]: super::Executor::close
    pub(super) fn close(&self) {
        let (works, threads) = {
            let mut state = self.shared.state();
            state.is_closed = true;
            (std::mem::take(&mut state.works), std::mem::take(&mut state.threads))
        };
        self.shared.changed.notify_all();
        works.iter().for_each(|work| work.wind_up());
        for thread in threads {
            debug_assert_ne!(
                thread.thread().id(),
                std::thread::current().id(),
                "a task outlives its executor"
            );
            // The thread catches the panics of its tasks.
            let _ = thread.join();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

impl PoolState {
    /// Drops work that was cancelled before a thread ran it.
    fn forget_over(&mut self) {
        self.works.retain(|work| !work.is_over());
    }

    /// The first work of the most preferred class.
    fn next(&mut self, role: Role) -> Option<Arc<Work>> {
        let first = |class: &Class| self.works.iter().position(|work| work.class() == *class);
        let if_alone = if self.threads.len() > 1 { &[] } else { role.if_alone };
        let at = role.classes.iter().chain(if_alone).find_map(first)?;
        let work = self.works.remove(at)?;
        self.running += 1;
        Some(work)
    }
}

impl PoolShared {
    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of a thread: runs slices until the pool is closed.
    fn run(&self, role: Role, nice: i32) {
        if role.gives_way {
            give_way(nice);
        }
        let mut state = self.state();
        loop {
            let Some(work) = state.next(role) else {
                if state.is_closed {
                    return;
                }
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            drop(state);
            let is_over = catch_unwind(AssertUnwindSafe(|| work.run_slice(SLICE))).unwrap_or_else(|_| {
                // It was not of the task's slice, nor caught there: what the task was to tell, or what it does after a panic.
                let _ = catch_unwind(AssertUnwindSafe(|| work.cancel()));
                true
            });
            state = self.state();
            state.running -= 1;
            if state.is_closed {
                drop(state);
                work.wind_up();
                state = self.state();
            } else if !is_over {
                // Behind others of its class, so that they make progress too.
                state.works.push_back(work);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::super::tests::Countdown;
    use super::super::{Executor, Handle, SystemThreads, Task, spawn, spawn_detached};
    use super::*;
    use dwell_time::Notifier;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[derive(Debug)]
    struct Wakes(Sender<()>);

    impl Notifier for Wakes {
        fn notify(&self) {
            // The test may have ended.
            let _ = self.0.send(());
        }
    }

    /// A spawner that fails while it `is_out`.
    #[derive(Debug, Default)]
    struct FailingSpawner {
        is_out: AtomicBool,
        started: AtomicUsize,
    }

    impl Spawner for FailingSpawner {
        fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
            if self.is_out.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.started.fetch_add(1, Ordering::SeqCst);
            SystemThreads.spawn(name, work)
        }
    }

    fn pool(spawner: Arc<dyn Spawner>) -> (Arc<Executor>, Receiver<()>) {
        let (tell, told) = channel();
        (Executor::threads(&spawner, Arc::new(Wakes(tell))), told)
    }

    fn result<T>(handle: &mut Handle<T>, told: &Receiver<()>) -> T {
        loop {
            if let Some(output) = handle.try_take().unwrap() {
                return output;
            }
            told.recv_timeout(PATIENCE).expect("the event loop is woken");
        }
    }

    /// Blocks its thread until it is released.
    struct BlockedTask(Receiver<()>);

    impl Task for BlockedTask {
        type Output = ();

        fn slice(&mut self, _: usize) -> Option<()> {
            self.0.recv_timeout(PATIENCE).ok()
        }

        fn panicked(self) {}
    }

    /// Reports that it was run.
    struct Says(Sender<()>);

    impl Task for Says {
        type Output = ();

        fn slice(&mut self, _: usize) -> Option<()> {
            self.0.send(()).ok()
        }

        fn panicked(self) {}
    }

    #[test]
    fn tasks_are_done_and_the_event_loop_is_woken_for_each() {
        let (executor, told) = pool(Arc::new(SystemThreads));
        let mut handles: Vec<_> = [Class::Flush, Class::Compaction, Class::Compaction]
            .into_iter()
            .map(|class| spawn(&executor, class, Countdown::from(100)).0)
            .collect();
        for handle in &mut handles {
            assert_eq!(result(handle, &told), Ok(101));
        }
    }

    #[test]
    fn prefetch_and_a_flush_go_on_beside_compactions_that_do_not_end() {
        let (executor, told) = pool(Arc::new(SystemThreads));
        let ((let_on, held), (let_other, other)) = (channel(), channel());
        let mut compactions =
            [held, other].map(|held| spawn(&executor, Class::Compaction, BlockedTask(held)).0);
        let (mut flush, _) = spawn(&executor, Class::Flush, Countdown::from(3));
        let (prefetch, read) = channel();
        spawn_detached(&executor, Class::Prefetch, Says(prefetch)).unwrap();
        read.recv_timeout(PATIENCE).expect("prefetch has a thread of its own");
        // One slice of a compaction ends, and the flush is next.
        let_on.send(()).unwrap();
        assert_eq!(result(&mut flush, &told), Ok(4));
        let_other.send(()).unwrap();
        compactions.iter_mut().for_each(|one| result(one, &told));
    }

    /// Crash story: 1. the system has no thread left when messages are to be flushed. 2. The flush is never done,
    /// though there are threads again: puts wait for ever.
    #[test]
    fn what_found_no_thread_is_done_when_there_is_one_again() {
        let few = Arc::new(FailingSpawner::default());
        let (executor, told) = pool(few.clone());
        few.is_out.store(true, Ordering::SeqCst);
        let (mut flush, submitted) = spawn(&executor, Class::Flush, Countdown::from(3));
        assert_eq!(submitted.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(flush.start().is_err());
        few.is_out.store(false, Ordering::SeqCst);
        flush.start().unwrap();
        assert_eq!(result(&mut flush, &told), Ok(4));
        assert_eq!(few.started.load(Ordering::SeqCst), 1, "one task needs one thread");
    }

    #[test]
    fn a_task_that_panics_ends_and_its_thread_goes_on() {
        let (executor, told) = pool(Arc::new(SystemThreads));
        let bad = Countdown { panics_at: Some(2), ..Countdown::from(5) };
        let (mut failing, _) = spawn(&executor, Class::Flush, bad);
        assert_eq!(result(&mut failing, &told), Err("at 2".to_owned()));
        let (mut next, _) = spawn(&executor, Class::Flush, Countdown::from(1));
        assert_eq!(result(&mut next, &told), Ok(2));
    }

    /// Panics, and once more when it is asked what to tell of that.
    struct FallsTwice;

    impl Task for FallsTwice {
        type Output = ();

        fn slice(&mut self, _: usize) -> Option<()> {
            panic!("the test asked for it");
        }

        fn panicked(self) {
            panic!("and to do it again");
        }
    }

    /// Crash story: 1. a task panics where nobody expects it. 2. Its thread ends, and the pool counts it as one of its own. 3. When the last
    /// one has ended, flushes are never done.
    #[test]
    fn a_panic_beside_a_slice_costs_no_thread() {
        let (executor, told) = pool(Arc::new(SystemThreads));
        let falls = || spawn(&executor, Class::Flush, FallsTwice).0;
        let mut failing: Vec<_> = std::iter::repeat_with(falls).take(8).collect();
        let (mut next, _) = spawn(&executor, Class::Flush, Countdown::from(1));
        assert_eq!(result(&mut next, &told), Ok(2));
        dwell_testkit::until("the others are over too", || failing.iter().all(Handle::is_over));
        assert!(failing.iter_mut().all(|one| one.try_take().is_err()));
    }

    #[test]
    fn closed_it_has_done_the_deletions_with_threads_or_without() {
        for is_out in [false, true] {
            let few = Arc::new(FailingSpawner::default());
            few.is_out.store(is_out, Ordering::SeqCst);
            let (executor, _told) = pool(few);
            let (mut deletion, submitted) = spawn(&executor, Class::Deletion, Countdown::from(100));
            assert_eq!(submitted.is_err(), is_out);
            executor.close();
            assert!(matches!(deletion.try_take(), Ok(Some(Ok(101)))));
        }
    }
}
