//! Jobs one after the other, as a stream.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dwell_model::State;
use dwell_time::{Clock, SystemClock};
use futures_core::Stream;
use futures_core::future::BoxFuture;

use super::take::Many;
use super::{Job, SettleAll, TakeJobs};
use crate::{Action, Result, contained};

/// How long one take waits if the caller has set no end; then the take is repeated.
const WAIT_ANEW: Duration = Duration::from_secs(60 * 60);

/// The number of steps in a row, a take or a job each, after which the stream yields to other tasks of the
/// thread. They would be starved as long as a store that answers at once, such as one in memory, has
/// messages.
const IN_A_ROW: u32 = 64;

/// Jobs as they become due, by [`TakeJobs::stream`].
///
/// It takes again whenever it has none left, [`max`](TakeJobs::max) at a time: one by default. It ends
/// - when no job has come for as long as [`until_idle`](TakeJobs::until_idle) says; without it, it waits for
///   the next one for ever
/// - after an error that is not retryable ([`Error::is_retryable`](crate::Error::is_retryable)), such as that
///   of a closed store.
///
/// # Retryable errors
/// After a retryable error the next call of `next` takes again at once: the stream does not pause. Where the
/// store refuses at once, as with [`Error::TooManyWaiting`](crate::Error::TooManyWaiting), a loop that only
/// logs errors keeps a processor busy. Sleep before the next call, longer each time, say from 100 ms to 10 s.
///
/// # Several at a time
/// The jobs of one take are buffered here until they are asked for, with their leases running: if `max` is
/// more than 1, the lease must last for the handling of that many jobs. A job whose lease has passed
/// meanwhile is not passed on: it may already be leased by another consumer, or comes again, and an attempt
/// is spent.
///
/// When the stream is dropped, it gives back the messages of a take in progress, and releases the jobs that
/// it has not passed on, without spending an attempt. It does not wait for the answer: if the store does not
/// receive that release, those jobs stay leased until their leases end. (A store that runs calls on the
/// threads of its callers, as that of `dwell::blocking::Dwell::open` does, syncs then.) To receive the
/// answer, settle the jobs of [`into_buffered`](Jobs::into_buffered).
///
/// ```
/// # use std::sync::Arc;
/// # use dwell_model::Limits;
/// # use dwell_store::{MemoryStore, Queue};
/// # use dwell_time::SystemClock;
/// use std::time::Duration;
///
/// # pollster::block_on(async {
/// # let store = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
/// # let orders = Queue::new(Arc::new(store), "orders")?;
/// orders.put_many(["one", "two", "three"]).await.all()?;
/// let mut jobs = orders.take().max(16).until_idle(Duration::from_millis(5)).stream();
/// let mut done = 0;
/// while let Some(job) = jobs.next().await {
///     job?.ack().await?;
///     done += 1;
/// }
/// assert_eq!(done, 3);
/// # Ok::<(), dwell_store::Error>(())
/// # }).unwrap();
/// ```
#[must_use = "a stream does nothing before it is polled"]
pub struct Jobs {
    take: TakeJobs<Many>,
    /// Whether the stream ends after a take that timed out.
    has_end: bool,
    under_way: Option<BoxFuture<'static, Result<Vec<Job>>>>,
    buffered: VecDeque<Job>,
    clock: Arc<dyn Clock>,
    /// When the buffered jobs were handed out, or a little later, on the monotonic clock.
    taken_ms: u64,
    has_ended: bool,
    /// The number of steps in a row that did not have to wait.
    in_a_row: u32,
}

impl Jobs {
    pub(super) fn new<N>(take: TakeJobs<N>) -> Jobs {
        let idle = take.idle();
        // Such takes would be answered with nothing, at once, again and again.
        let has_ended = take.asks_for_none();
        let take = take.into_many().wait(idle.unwrap_or(WAIT_ANEW));
        let has_end = idle.is_some();
        let clock = Arc::new(SystemClock::new());
        Jobs {
            take,
            has_end,
            under_way: None,
            buffered: VecDeque::new(),
            clock,
            taken_ms: 0,
            has_ended,
            in_a_row: 0,
        }
    }

    /// Sets the clock that decides whether the lease of a job has passed before the job is passed on, for
    /// tests with a clock of their own. The default is the machine's.
    pub fn on_clock(mut self, clock: Arc<dyn Clock>) -> Jobs {
        self.clock = clock;
        self
    }

    /// The next job; `None` at the end.
    ///
    /// Dropping the future, as `select!` does, loses nothing: jobs that have arrived are returned by the next
    /// call, and a take in progress gives its messages back at once, without spending an attempt. The next
    /// call takes again, and the time of [`until_idle`](TakeJobs::until_idle) restarts with it.
    ///
    /// The `next` of a stream crate differs in this: its take continues when that future is dropped, and may
    /// receive a message that is not asked for. Drop the stream if it will not be polled for long.
    pub async fn next(&mut self) -> Option<Result<Job>> {
        let next = Next { jobs: self };
        poll_fn(|context| Pin::new(&mut *next.jobs).poll_next(context)).await
    }

    /// Ends the stream. Returns the jobs that it holds and has not passed on, to be settled: preferably
    /// released.
    pub fn into_buffered(mut self) -> Vec<Job> {
        std::mem::take(&mut self.buffered).into()
    }

    /// Whether a job's lease has passed since it was handed out. The store counts from a little earlier.
    fn has_lapsed(&self, job: &Job) -> bool {
        let State::Leased(lease) = &job.message.standing.state else { return false };
        self.clock.now().mono_ms.saturating_sub(self.taken_ms) >= lease.lease_ms
    }
}

/// The future of the next job. When it is ready, no take is in progress any more.
struct Next<'a> {
    jobs: &'a mut Jobs,
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        self.jobs.under_way = None;
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        if self.buffered.is_empty() {
            return;
        }
        let release = Action::Release { after_ms: None, priority: None };
        let unseen = self.buffered.drain(..).map(|job| (job, release.clone()));
        let mut releasing = SettleAll::new(unseen).into_future();
        // The first poll sends the call to the store. A drop cannot wait for the answer.
        contained(|| drop(releasing.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
    }
}

impl Stream for Jobs {
    type Item = Result<Job>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Job>>> {
        let this = &mut *self;
        loop {
            if this.in_a_row >= IN_A_ROW {
                this.in_a_row = 0;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            this.in_a_row += 1;
            while let Some(job) = this.buffered.pop_front() {
                if !this.has_lapsed(&job) {
                    return Poll::Ready(Some(Ok(job)));
                }
            }
            if this.has_ended {
                return Poll::Ready(None);
            }
            let taking = this.under_way.get_or_insert_with(|| this.take.clone().into_future());
            let Poll::Ready(taken) = taking.as_mut().poll(context) else {
                this.in_a_row = 0;
                return Poll::Pending;
            };
            this.under_way = None;
            match taken {
                Ok(jobs) => {
                    this.has_ended = jobs.is_empty() && this.has_end;
                    this.buffered.extend(jobs);
                    this.taken_ms = this.clock.now().mono_ms;
                }
                Err(error) => {
                    this.has_ended = !error.is_retryable();
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs")
            .field("take", &self.take)
            .field("buffered", &self.buffered.len())
            .finish_non_exhaustive()
    }
}
