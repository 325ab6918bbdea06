//! Read-ahead of a queue's ready messages: by the executor while other commands are served, or, without one, step by
//! step.
//!
//! # Ground rules
//! 1. A flow holds what was cold when it began. Messages that left since are skipped when they are asked for, by the
//!    files' bits. Messages that came since may belong before what was read; so whatever makes an entry cold or ready
//!    that was not, except the progress of the clock, ends the flow.
//! 2. Messages that become due as the clock advances are ordered behind all that were due before and have the same
//!    priority. With several priorities that may not hold, and ends the flow.
//! 3. An error ends it too. The caller that finds the flow at its end reads on itself, and meets the error.
//! 4. The removal of a file does not end it: nothing in the file is cold any more, and the flow reads no further in it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use dwell_model::{QueueName, Timestamp};

use super::ready_stream::{PrefetchedMessage, ReadyStream};
use crate::executor::{Class, Executor, Task, spawn_detached};

/// The number of messages read before checking whether more are wanted.
const AT_A_TIME: usize = 64;
/// The maximum number of bytes of bodies that are read ahead.
const MAX_PREFETCHED_BYTES: usize = 512 * 1024;
/// The memory of a prepared message in bytes, without its body.
const PREPARED_BYTES: usize = size_of::<PrefetchedMessage>();
/// The memory of a cursor with its block in bytes. The block may be larger if it has a single entry.
const CURSOR_BYTES: usize = 33 * 1024;

/// The read-ahead of one queue.
#[derive(Debug)]
pub(super) struct Prefetch {
    pub(super) queue: QueueName,
    /// It has what was due by this instant.
    ready_until: Timestamp,
    pub(super) has_one_rank: bool,
    cursors: usize,
    /// The maximum number of messages read ahead.
    most: usize,
    got: VecDeque<PrefetchedMessage>,
    shared: Arc<SharedPrefetch>,
}

/// What the task and the caller share.
#[derive(Debug)]
struct SharedPrefetch {
    most: usize,
    state: Mutex<PrefetchState>,
    /// Notified when something was read.
    read: Condvar,
}

#[derive(Debug)]
struct PrefetchState {
    /// `None` while a thread reads from it.
    stream: Option<ReadyStream>,
    ready: VecDeque<PrefetchedMessage>,
    bytes: usize,
    /// Files that were removed while a thread reads from the stream.
    gone: Vec<u32>,
    /// Whether a task is scheduled or running that reads.
    is_under_way: bool,
    /// Whether the caller waits for what is being read.
    is_awaited: bool,
    /// Whether nothing more will be read.
    is_over: bool,
}

impl Prefetch {
    /// Reads up to `most` messages ahead, of `cursors` sections at a time; the ready ones were due by `ready_until`.
    pub(super) fn new(
        queue: QueueName,
        ready_until: Timestamp,
        has_one_rank: bool,
        stream: ReadyStream,
        cursors: usize,
        most: usize,
    ) -> Prefetch {
        let (stream, ready, gone) = (Some(stream), VecDeque::new(), Vec::new());
        let state = PrefetchState {
            stream,
            ready,
            bytes: 0,
            gone,
            is_under_way: false,
            is_awaited: false,
            is_over: false,
        };
        let shared = SharedPrefetch { most, state: Mutex::new(state), read: Condvar::new() };
        Prefetch {
            queue,
            ready_until,
            has_one_rank,
            cursors,
            most,
            got: VecDeque::new(),
            shared: Arc::new(shared),
        }
    }

    /// Whether it holds the next messages, now that what is due by `ready_until` is ready.
    pub(super) fn is_right(&self, ready_until: Timestamp) -> bool {
        ready_until == self.ready_until || ready_until > self.ready_until && self.has_one_rank
    }

    /// The next message, if it is known; `None` at its end.
    pub(super) fn peek(&mut self, ready_until: Timestamp) -> Option<&PrefetchedMessage> {
        if self.got.is_empty() {
            self.fill();
        }
        // A message that stayed ready after the clock stepped back may be due behind one that has become due since.
        self.got.front().filter(|next| ready_until == self.ready_until || next.key.1 <= self.ready_until)
    }

    /// The number of messages that were taken over, and can be had without waiting.
    pub(super) fn at_hand(&self) -> usize {
        self.got.len()
    }

    pub(super) fn pop(&mut self) -> Option<PrefetchedMessage> {
        self.got.pop_front()
    }

    /// Drops a file without cold entries: it is held no longer than a read in progress.
    pub(super) fn forget(&self, file: u32) {
        let PrefetchState { stream, gone, is_over, .. } = &mut *self.shared.state();
        match stream {
            Some(stream) => stream.forget(file),
            None if *is_over => {}
            None => gone.push(file),
        }
    }

    /// Continues reading ahead.
    pub(super) fn go_on(&self, executor: Option<&Executor>) {
        match executor {
            Some(executor) => {
                let is_under_way = std::mem::replace(&mut self.shared.state().is_under_way, true);
                let task = || ReadAhead(Arc::clone(&self.shared));
                if !is_under_way && spawn_detached(executor, Class::Prefetch, task()).is_err() {
                    // The next caller reads itself.
                    self.shared.state().is_under_way = false;
                }
            }
            // As if a task had done a part of it.
            None => self.shared.read_some(AT_A_TIME),
        }
    }

    /// Takes over what was read; waits if a thread is reading, and reads itself if none is.
    fn fill(&mut self) {
        let mut state = self.shared.state();
        loop {
            if !state.ready.is_empty() {
                state.bytes = 0;
                std::mem::swap(&mut self.got, &mut state.ready);
                return;
            }
            if state.is_over {
                return;
            }
            if state.stream.is_some() {
                drop(state);
                self.shared.read_some(self.most.min(AT_A_TIME));
                state = self.shared.state();
            } else {
                state.is_awaited = true;
                state = self.shared.read.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.is_awaited = false;
            }
        }
    }

    /// Takes the stream out, as a reading thread does; it has to be [given back](Prefetch::give_back).
    #[cfg(test)]
    pub(super) fn lend(&self) -> Option<ReadyStream> {
        self.shared.state().stream.take()
    }

    #[cfg(test)]
    pub(super) fn give_back(&self, stream: ReadyStream) {
        drop(LentStream { shared: &self.shared, stream: Some(stream), some: Vec::new() });
    }

    /// The maximum memory in bytes, approximately.
    pub(super) fn memory(&self) -> usize {
        self.cursors * CURSOR_BYTES + 2 * (self.most * PREPARED_BYTES + MAX_PREFETCHED_BYTES)
    }
}

impl Drop for Prefetch {
    /// A task that has not run yet then holds no file.
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_over = true;
        let (stream, ready) = (state.stream.take(), std::mem::take(&mut state.ready));
        drop(state);
        drop((stream, ready));
    }
}

impl SharedPrefetch {
    fn state(&self) -> MutexGuard<'_, PrefetchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads some, unless another thread does.
    fn read_some(&self, most: usize) {
        let Some(stream) = self.state().stream.take() else { return };
        let mut lent = LentStream { shared: self, stream: Some(stream), some: Vec::new() };
        let has_more = lent.stream.as_mut().is_some_and(|stream| stream.more(most, &mut lent.some));
        if !has_more {
            lent.stream = None;
        }
    }
}

/// A stream that is being read from. It comes back with what was read; not at all if the read panicked, and then no
/// thread waits for it.
struct LentStream<'a> {
    shared: &'a SharedPrefetch,
    stream: Option<ReadyStream>,
    some: Vec<PrefetchedMessage>,
}

impl Drop for LentStream<'_> {
    fn drop(&mut self) {
        let mut stream = self.stream.take().filter(|_| !std::thread::panicking());
        let mut state = self.shared.state();
        state.is_over |= stream.is_none();
        for file in std::mem::take(&mut state.gone) {
            stream.iter_mut().for_each(|stream| stream.forget(file));
        }
        state.stream = stream;
        state.bytes +=
            self.some.iter().filter_map(|one| one.body.as_ref()).map(|body| body.len()).sum::<usize>();
        state.ready.extend(self.some.drain(..));
        let is_awaited = state.is_awaited;
        drop(state);
        // A notification is a system call even if there is nothing to wake.
        if is_awaited {
            self.shared.read.notify_all();
        }
    }
}

/// Reads until there is enough, or the flow has ended.
struct ReadAhead(Arc<SharedPrefetch>);

impl Task for ReadAhead {
    type Output = ();

    fn slice(&mut self, most: usize) -> Option<()> {
        for _ in 0..most.div_ceil(AT_A_TIME) {
            let mut state = self.0.state();
            let has_enough = state.ready.len() >= self.0.most || state.bytes >= MAX_PREFETCHED_BYTES;
            if state.is_over || state.stream.is_none() || has_enough {
                state.is_under_way = false;
                return Some(());
            }
            drop(state);
            self.0.read_some(AT_A_TIME);
        }
        None
    }

    /// The stream that it read from is dropped with it.
    fn panicked(self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flow may end while a slice reads, and what that read from comes back then.
    #[test]
    fn nothing_is_read_ahead_for_a_flow_that_has_ended() {
        for has_ended in [true, false] {
            let prefetch =
                Prefetch::new("q".parse().unwrap(), Timestamp::MIN, true, ReadyStream::new(Vec::new()), 0, 8);
            let shared = Arc::clone(&prefetch.shared);
            let lent = LentStream { shared: &shared, stream: prefetch.lend(), some: Vec::new() };
            let prefetch = Some(prefetch).filter(|_| !has_ended);
            drop(lent);
            let is_over = ReadAhead(Arc::clone(&shared)).slice(1).is_some();
            // A stream that was read to its end is dropped.
            assert_eq!((is_over, shared.state().stream.is_some()), (has_ended, has_ended));
            drop(prefetch);
        }
    }

    #[test]
    fn a_flow_that_has_ended_holds_nothing_though_its_task_was_not_come_to() {
        let executor = Executor::without_threads();
        let stream = ReadyStream::new(Vec::new());
        let prefetch = Prefetch::new("q".parse().unwrap(), Timestamp::MIN, true, stream, 0, 8);
        (0..3).for_each(|_| prefetch.go_on(Some(&executor)));
        assert_eq!(executor.pending(), [Class::Prefetch], "one task reads, however often it is asked for");
        let shared = Arc::clone(&prefetch.shared);
        drop(prefetch);
        assert!(shared.state().stream.is_none());
        while executor.step(0) {}
        assert_eq!(Arc::strong_count(&shared), 1, "the task is gone");
    }
}
