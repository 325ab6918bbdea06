//! Runs messages in their handler: its outcome, its timeout, its panic, and the end of the worker.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use dwell_model::format_duration_ms;
use tokio::sync::mpsc;

use super::lane::Event;
use super::shared::{Phase, TakenMessage, WorkerShared};
use super::spec::{Handler, Spec};
use super::stats::{count, uncount};
use crate::Outcome;
use crate::token::Fired;

/// The grace period of a handler after its token has fired for the drain, in milliseconds.
pub(super) const GRACE_MS: u64 = 1_000;

/// Handles messages that were taken together, and sends their lane the outcome of each.
pub(super) async fn handle(
    shared: Arc<WorkerShared>,
    spec: Arc<Spec>,
    messages: Vec<TakenMessage>,
    lane: mpsc::UnboundedSender<Event>,
) {
    let handling = Handling { shared: &shared, spec: &spec, lane: &lane };
    match &spec.handler {
        Handler::Batch(_) => handling.batch(messages).await,
        _ => handling.in_turn(messages).await,
    }
}

struct Handling<'a> {
    shared: &'a Arc<WorkerShared>,
    spec: &'a Arc<Spec>,
    lane: &'a mpsc::UnboundedSender<Event>,
}

/// How a handler ended.
enum End<T> {
    Returned(T),
    Panicked(String),
    TimedOut,
    /// The worker ends, and the handler is dropped.
    Stopped,
}

impl Handling<'_> {
    /// One after the other. Those that have not begun are given back when an earlier one is not done, and when the
    /// worker ends.
    async fn in_turn(&self, messages: Vec<TakenMessage>) {
        let mut is_held_up = false;
        for (place, held) in messages.into_iter().enumerate() {
            let phase = *self.shared.phase.borrow();
            // Another worker may have it, and what follows it must not overtake it.
            is_held_up |= held.is_lost();
            if is_held_up || phase == Phase::Stopping || (place > 0 && phase == Phase::Draining) {
                self.tell(held, Outcome::Release { after: None }, false);
                continue;
            }
            is_held_up = !self.one(held).await;
        }
    }

    /// Returns whether those after it may proceed.
    async fn one(&self, held: TakenMessage) -> bool {
        let deadline_ms = self.shared.now_ms().saturating_add(self.spec.timeout_ms);
        let job = held.job(self.shared, deadline_ms);
        let (outcome, is_said) = match &self.spec.handler {
            Handler::Each(handler) => {
                let handler = Arc::clone(handler);
                let running = Caught::new(async move { handler(job).await });
                self.outcome(self.until(running, deadline_ms, &[&held]).await)
            }
            Handler::Blocking(handler) => {
                let handler = Arc::clone(handler);
                // Claimed by whichever comes first: a thread that begins, or the worker that no longer waits for a free
                // one.
                let claim = Arc::new(AtomicBool::new(false));
                let its_claim = Arc::clone(&claim);
                let mut running = tokio::task::spawn_blocking(move || {
                    if its_claim.swap(true, Ordering::AcqRel) {
                        return Outcome::Release { after: None };
                    }
                    handler(job)
                });
                let ended = async {
                    match (&mut running).await {
                        Ok(outcome) => Ok(outcome),
                        // A runtime that shuts down has not begun it, and nothing receives this.
                        Err(error) => {
                            Err(error.try_into_panic().map_or_else(|_| "it was not begun".into(), text))
                        }
                    }
                };
                match self.until(ended, deadline_ms, &[&held]).await {
                    End::TimedOut | End::Stopped if !claim.swap(true, Ordering::AcqRel) => {
                        self.tell(held, Outcome::Release { after: None }, false);
                        return false;
                    }
                    End::TimedOut => {
                        self.stuck(held, running).await;
                        return false;
                    }
                    End::Stopped => {
                        let _ = self.lane.send(Event::Abandoned { held });
                        return false;
                    }
                    ended => self.outcome(ended),
                }
            }
            Handler::Batch(_) => return true,
        };
        let goes_on = matches!(outcome, Outcome::Done | Outcome::Bury { .. });
        self.tell(held, outcome, is_said);
        goes_on
    }

    async fn batch(&self, messages: Vec<TakenMessage>) {
        let Handler::Batch(handler) = &self.spec.handler else { return };
        let (lost, messages): (Vec<TakenMessage>, Vec<TakenMessage>) =
            messages.into_iter().partition(TakenMessage::is_lost);
        lost.into_iter().for_each(|held| self.tell(held, Outcome::Release { after: None }, false));
        if messages.is_empty() {
            return;
        }
        let deadline_ms = self.shared.now_ms().saturating_add(self.spec.timeout_ms);
        let jobs: Vec<_> = messages.iter().map(|held| held.job(self.shared, deadline_ms)).collect();
        let (handler, count_of_jobs) = (Arc::clone(handler), jobs.len());
        let running = Caught::new(async move { handler(jobs).await });
        let all: Vec<&TakenMessage> = messages.iter().collect();
        let (mut outcomes, is_said) = match self.until(running, deadline_ms, &all).await {
            End::Returned(outcomes) => (outcomes, true),
            End::Panicked(text) => (vec![self.panicked(&text); count_of_jobs], false),
            End::TimedOut => (vec![self.timed_out(); count_of_jobs], false),
            End::Stopped => (vec![Outcome::Release { after: None }; count_of_jobs], false),
        };
        let given = outcomes.len();
        let missing = || Outcome::Retry {
            error: format!("the handler gave {given} outcomes for {count_of_jobs} messages"),
            after: None,
        };
        outcomes.resize_with(count_of_jobs, missing);
        for (held, outcome) in messages.into_iter().zip(outcomes) {
            self.tell(held, outcome, is_said);
        }
    }

    /// Runs a handler until it ends, times out, or the worker ends.
    async fn until<T>(
        &self,
        running: impl Future<Output = Result<T, String>>,
        deadline_ms: u64,
        messages: &[&TakenMessage],
    ) -> End<T> {
        let mut running = std::pin::pin!(running);
        let mut phase = self.shared.phase.subscribe();
        let stopping = phase.wait_for(|phase| *phase == Phase::Stopping);
        let stop = |why| messages.iter().for_each(|held| held.fuse.fire(why));
        tokio::select! {
            biased;
            ended = &mut running => return end(ended),
            () = self.shared.timer.sleep_until(deadline_ms) => {
                stop(Fired::TimedOut);
                return End::TimedOut;
            }
            _ = stopping => stop(Fired::Draining),
        }
        tokio::select! {
            biased;
            ended = &mut running => end(ended),
            () = self.shared.timer.sleep_until(self.shared.now_ms().saturating_add(GRACE_MS)) => End::Stopped,
        }
    }

    /// The outcome of a message, and whether the handler itself returned it.
    fn outcome(&self, end: End<Outcome>) -> (Outcome, bool) {
        match end {
            End::Returned(outcome) => (outcome, true),
            End::Panicked(text) => (self.panicked(&text), false),
            End::TimedOut => (self.timed_out(), false),
            End::Stopped => (Outcome::Release { after: None }, false),
        }
    }

    fn panicked(&self, text: &str) -> Outcome {
        count(&self.spec.stats.panicked);
        Outcome::Retry { error: format!("the handler panicked: {text}"), after: None }
    }

    fn timed_out(&self) -> Outcome {
        count(&self.spec.stats.timed_out);
        let timeout = format_duration_ms(self.spec.timeout_ms);
        Outcome::Retry { error: format!("the handler has not returned after {timeout}"), after: None }
    }

    /// A blocking handler has timed out. Its message has failed, and its slot stays taken until it returns.
    async fn stuck(&self, held: TakenMessage, running: tokio::task::JoinHandle<Outcome>) {
        let stats = &self.spec.stats;
        count(&stats.stuck);
        let bytes = held.bytes();
        let outcome = self.timed_out();
        let _ = self.lane.send(Event::Handled { held, outcome, is_said: false, keeps_slot: true });
        let mut phase = self.shared.phase.subscribe();
        tokio::select! {
            _ = running => {}
            _ = phase.wait_for(|phase| *phase == Phase::Stopping) => {}
        }
        uncount(&stats.stuck);
        let _ = self.lane.send(Event::Freed { bytes });
    }

    fn tell(&self, held: TakenMessage, outcome: Outcome, is_said: bool) {
        // A lane that has ended has left its messages to their leases.
        let _ = self.lane.send(Event::Handled { held, outcome, is_said, keeps_slot: false });
    }
}

fn end<T>(ended: Result<T, String>) -> End<T> {
    match ended {
        Ok(value) => End::Returned(value),
        Err(text) => End::Panicked(text),
    }
}

/// A future whose panic is its output. It may also panic when it is dropped, as does a client that owns a runtime.
struct Caught<F>(Option<Pin<Box<F>>>);

impl<F> Caught<F> {
    fn new(running: F) -> Caught<F> {
        Caught(Some(Box::pin(running)))
    }
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, String>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(running) = &mut self.get_mut().0 else { return Poll::Pending };
        // After a panic it is not polled again, so its inconsistent state is not observed.
        match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context))) {
            Ok(polled) => polled.map(Ok),
            Err(payload) => Poll::Ready(Err(text(payload))),
        }
    }
}

impl<F> Drop for Caught<F> {
    fn drop(&mut self) {
        let running = self.0.take();
        // A panic that propagated from here would leak the message's slot.
        dwell_store::contained(|| drop(running));
    }
}

/// The message of a panic.
fn text(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a text".to_owned())
}
