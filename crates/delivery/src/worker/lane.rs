//! The task of a lane: takes as many messages as there is room for, hands them to handlers, and settles their outcomes.
//!
//! It alone changes its accounting and its breaker. Handlers, the settler and probes send it events.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use dwell_model::{MessageId, Pause, QueueName, State};
use dwell_store::{
    Action, BoxFuture, Delivery, Error as StoreError, LeaseTerms, Settle, Settled, Store, Take, Target,
};
use tokio::sync::{mpsc, watch};

use super::handling;
use super::settler::Request;
use super::shared::{Phase, TakenMessage, WorkerShared};
use super::spec::{Handler, Spec};
use super::stats::{count, uncount};
use crate::breaker::{Admission, Blame, Breaker, Report};
use crate::lane::{Capacity, Room};
use crate::suspect::{self, Step};
use crate::{Outcome, Result, jitter, whole_ms};

/// The length of a take's wait, as a fraction of the lease: a lease counts from before the call, so a message that
/// arrives at the end of the wait has lost that much of it.
const WAIT_OF_LEASE: u64 = 6;
/// The initial and the maximum delay before a take is retried that the store could not execute, in milliseconds.
const FIRST_PAUSE_MS: u64 = 100;
const LAST_PAUSE_MS: u64 = 5_000;
/// When a lane of a lasting worker takes again that was refused as if for good, in milliseconds.
const REFUSED_PAUSE_MS: u64 = 30_000;

/// The interval at which a strict lane checks the message that it waits for and that may not be taken yet, in
/// milliseconds.
const LOOK_AGAIN_MS: u64 = 250;

/// An event from outside the lane's task.
pub(super) enum Event {
    /// The outcome of a handler.
    Handled {
        held: TakenMessage,
        outcome: Outcome,
        /// Whether the handler itself returned it: a panic or a timeout says nothing of the destination.
        is_said: bool,
        /// The slot stays taken until [`Event::Freed`].
        keeps_slot: bool,
    },
    /// The store has answered a settlement.
    Settled { held: TakenMessage, answer: dwell_store::Result<Settled>, action: Action, keeps_slot: bool },
    /// A handler that had timed out has returned, or the worker ends without it.
    Freed { bytes: usize },
    /// The worker ends while a blocking handler still runs: its message is left to its lease.
    Abandoned { held: TakenMessage },
    /// A probe has ended.
    Probed(bool),
}

/// A take in progress.
struct TakeInProgress {
    asked_ms: u64,
    call: BoxFuture<'static, dwell_store::Result<Vec<Delivery>>>,
    /// The message that a strict lane takes, if it waits for one.
    id: Option<MessageId>,
}

impl TakeInProgress {
    /// When the lease of what it returns would be over: a take that has not been answered by then, as on a connection
    /// whose peer has silently vanished, is made again.
    fn over_ms(&self, spec: &Spec) -> u64 {
        self.asked_ms.saturating_add(spec.lease_ms)
    }
}

pub(super) struct LaneTask {
    shared: Arc<WorkerShared>,
    spec: Arc<Spec>,
    capacity: Capacity,
    breaker: Breaker,
    events: mpsc::UnboundedReceiver<Event>,
    sender: mpsc::UnboundedSender<Event>,
    taking: Option<TakeInProgress>,
    /// Waits until its worker holds no other lease.
    suspect: Option<TakenMessage>,
    /// Set if the last take returned suspects: then takes one message at a time, so that few are given back.
    is_wary: bool,
    /// Whether the store has ever answered a take.
    has_answered: bool,
    /// The number of consecutive failed takes, and when the next one may be made.
    failures: u32,
    paused_until_ms: u64,
    seed: u64,
}

/// What a lane waits for.
enum Next {
    Take(Take),
    TakeId(MessageId),
    Wait(Option<u64>),
}

impl LaneTask {
    pub(super) fn new(shared: Arc<WorkerShared>, spec: Spec) -> LaneTask {
        let (sender, events) = mpsc::unbounded_channel();
        let seed = RandomState::new().hash_one(spec.queue.as_str());
        LaneTask {
            capacity: Capacity::new(spec.bounds, shared.now_ms()),
            breaker: Breaker::new(spec.probe.is_some(), seed),
            shared,
            spec: Arc::new(spec),
            events,
            sender,
            taking: None,
            suspect: None,
            is_wary: false,
            has_answered: false,
            failures: 0,
            paused_until_ms: 0,
            seed,
        }
    }

    /// Runs until the worker is drained.
    ///
    /// # Errors
    /// The store's, if no later call can succeed.
    pub(super) async fn run(mut self) -> Result<()> {
        let mut phase = self.shared.phase.subscribe();
        let mut solo = self.shared.solo_changed.subscribe();
        let mut switch = self.spec.switch.changes();
        let mut failed = None;
        loop {
            let is_draining = *phase.borrow_and_update() > Phase::Running;
            solo.mark_unchanged();
            switch.mark_unchanged();
            let wake_at_ms = self.step(is_draining);
            if is_draining && self.capacity.messages() == 0 {
                return failed.map_or(Ok(()), Err);
            }
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => self.hear(event),
                taken = taken(&mut self.taking) => if let Err(error) = self.taken(taken) {
                    // The worker ends, and this lane's messages are settled like those of the others.
                    self.shared.drain();
                    failed.get_or_insert(error);
                },
                () = changed(&mut phase) => {}
                () = changed(&mut solo) => {}
                () = changed(&mut switch) => {}
                () = self.shared.timer.sleep_until_some(wake_at_ms) => {}
            }
            while let Ok(event) = self.events.try_recv() {
                self.hear(event);
            }
        }
    }

    /// Advances the time, begins what may begin, and drops a take that may not wait any more. Returns when to do so
    /// again.
    fn step(&mut self, is_draining: bool) -> Option<u64> {
        let now_ms = self.shared.now_ms();
        if self.breaker.wake(now_ms) {
            self.probe();
        }
        self.spec.stats.set_breaker(self.breaker.state());
        let mut wake_at_ms = self.breaker.wake_at_ms();
        wake_at_ms = earlier(wake_at_ms, self.step_suspect(now_ms, is_draining));
        if self.taking.as_ref().is_some_and(|taking| taking.over_ms(&self.spec) <= now_ms) {
            self.taking = None;
        }
        match self.next(now_ms, is_draining) {
            Next::Wait(until_ms) => {
                // Dropping it gives back the messages that it was about to return.
                self.taking = None;
                wake_at_ms = earlier(wake_at_ms, until_ms);
            }
            Next::Take(take) if self.taking.is_none() => {
                let store = Arc::clone(&self.shared.store);
                let call = Box::pin(async move { store.take(take).await });
                self.taking = Some(TakeInProgress { asked_ms: now_ms, call, id: None });
            }
            Next::TakeId(id) if self.taking.is_none() => {
                let (store, queue) = (Arc::clone(&self.shared.store), self.spec.queue.clone());
                let (lease_ms, is_session) = (self.spec.lease_ms, self.shared.terms.is_session);
                let call = Box::pin(async move {
                    let terms = LeaseTerms { session: is_session, ..LeaseTerms::of_ms(lease_ms) };
                    take_held(&*store, queue, id, terms).await
                });
                self.taking = Some(TakeInProgress { asked_ms: now_ms, call, id: Some(id) });
            }
            Next::Take(_) | Next::TakeId(_) => {}
        }
        earlier(wake_at_ms, self.taking.as_ref().map(|taking| taking.over_ms(&self.spec)))
    }

    fn next(&mut self, now_ms: u64, is_draining: bool) -> Next {
        if is_draining
            || self.spec.switch.paused().is_some()
            || !self.shared.solo(false, |solo| solo.may_take())
        {
            return Next::Wait(None);
        }
        if self.paused_until_ms > now_ms {
            return Next::Wait(Some(self.paused_until_ms));
        }
        let most = match self.breaker.admission() {
            Admission::None => return Next::Wait(None),
            Admission::One => 1,
            Admission::Any if self.is_wary => 1,
            Admission::Any => usize::MAX,
        };
        match self.capacity.room(now_ms) {
            Room::Full => Next::Wait(None),
            Room::Until(until_ms) => Next::Wait(Some(until_ms)),
            Room::TakeId(id) => Next::TakeId(id),
            Room::Take { max, max_bytes } => {
                let take = Take::from(self.spec.queue.clone())
                    .max(max.min(most).min(self.shared.store.limits().batch.max(1)))
                    .wait_ms(self.spec.lease_ms / WAIT_OF_LEASE)
                    .lease_ms(self.spec.lease_ms);
                Next::Take(Take { max_bytes, session: self.shared.terms.is_session, ..take })
            }
        }
    }

    /// A suspect begins, waits or is released.
    fn step_suspect(&mut self, now_ms: u64, is_draining: bool) -> Option<u64> {
        let held = self.suspect.take()?;
        if is_draining {
            self.shared.solo(true, |solo| solo.ended());
            self.give_back(held, None);
            return None;
        }
        if held.is_lost() {
            // Its lease is lost: another worker has it, or will.
            self.handled(held, Outcome::Release { after: None }, false, false);
            return None;
        }
        match self.shared.solo(false, |solo| solo.step(now_ms)) {
            Step::Run => {
                self.begin(vec![held]);
                None
            }
            Step::Wait(until_ms) => {
                self.suspect = Some(held);
                Some(until_ms)
            }
            Step::GiveBack => {
                self.shared.solo_changed.send_replace(());
                self.give_back(held, Some(Duration::from_millis(suspect::AGAIN_AFTER_MS)));
                None
            }
        }
    }

    fn probe(&self) {
        let Some(probe) = self.spec.probe.clone() else { return };
        let (shared, sender, timeout_ms) =
            (Arc::clone(&self.shared), self.sender.clone(), self.spec.timeout_ms);
        tokio::spawn(async move {
            // In a separate task, so that a panic is a failed probe.
            let mut probing = tokio::spawn(async move { probe().await });
            let passed = tokio::select! {
                passed = &mut probing => passed.unwrap_or(false),
                () = shared.timer.sleep_until(shared.now_ms().saturating_add(timeout_ms)) => false,
            };
            probing.abort();
            let _ = sender.send(Event::Probed(passed));
        });
    }

    fn taken(&mut self, taken: dwell_store::Result<Vec<Delivery>>) -> Result<()> {
        let Some(TakeInProgress { asked_ms, id, .. }) = self.taking.take() else { return Ok(()) };
        match taken {
            Ok(deliveries) => {
                (self.failures, self.has_answered) = (0, true);
                match id {
                    Some(id) if deliveries.is_empty() => {
                        self.capacity.hold(id, asked_ms.saturating_add(LOOK_AGAIN_MS));
                    }
                    Some(_) => self.capacity.let_go(),
                    None => {}
                }
                self.admit(deliveries, asked_ms);
            }
            // It is deleted, dead, or leased by others: this lane no longer waits for it.
            Err(
                StoreError::MessageNotFound { .. } | StoreError::Leased { .. } | StoreError::KeyTaken { .. },
            ) if id.is_some() => self.capacity.let_go(),
            // A proxy answers for the server behind it while that restarts.
            Err(error)
                if error.is_retryable()
                    || (self.has_answered && matches!(error, StoreError::BadAnswer { .. })) =>
            {
                let longest = FIRST_PAUSE_MS.saturating_mul(1 << self.failures.min(20)).min(LAST_PAUSE_MS);
                self.failures = self.failures.saturating_add(1);
                let parts: [&[u8]; 2] = [&self.seed.to_le_bytes(), &self.failures.to_le_bytes()];
                let pause_ms = jitter::shortened(longest, 20, &parts);
                self.paused_until_ms = self.shared.now_ms().saturating_add(pause_ms);
            }
            Err(error) if self.shared.terms.is_lasting && !error.needs_reopen() => {
                self.paused_until_ms = self.shared.now_ms().saturating_add(REFUSED_PAUSE_MS);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Begins with the taken messages, except for suspects.
    fn admit(&mut self, mut deliveries: Vec<Delivery>, asked_ms: u64) {
        let is_suspect = |delivery: &Delivery| suspect::is_suspect(delivery.message.standing.counts.lapses);
        // A suspect waits. In a strict lane nothing overtakes it, and it overtakes nothing that may fail.
        let first = deliveries.iter().position(is_suspect).filter(|_| self.spec.bounds.is_strict);
        let behind = first.map(|at| deliveries.split_off(at.max(1))).unwrap_or_default();
        let (suspects, others): (Vec<Delivery>, Vec<Delivery>) = deliveries.into_iter().partition(is_suspect);
        if !(suspects.is_empty() && others.is_empty()) {
            self.is_wary = !(suspects.is_empty() && behind.is_empty());
        }
        for delivery in behind {
            let held = self.hold(delivery, asked_ms, false);
            self.give_back(held, None);
        }
        let count_of_others = others.len();
        let may_run = self.shared.solo(false, |solo| solo.admit(count_of_others));
        let others: Vec<TakenMessage> =
            others.into_iter().map(|one| self.hold(one, asked_ms, false)).collect();
        if may_run {
            self.begin(others);
        } else {
            // A suspect runs: these were in flight when it began.
            others.into_iter().for_each(|held| self.give_back(held, None));
        }
        for delivery in suspects {
            let now_ms = self.shared.now_ms();
            let asked = self.shared.solo(false, |solo| solo.ask(now_ms));
            let held = self.hold(delivery, asked_ms, asked.is_ok());
            match asked {
                Ok(()) => {
                    self.suspect = Some(held);
                    self.shared.solo_changed.send_replace(());
                }
                Err(after_ms) => {
                    self.give_back(held, (after_ms > 0).then(|| Duration::from_millis(after_ms)));
                }
            }
        }
    }

    fn hold(&mut self, delivery: Delivery, asked_ms: u64, is_suspect: bool) -> TakenMessage {
        count(&self.spec.stats.taken);
        count(&self.spec.stats.running);
        let held = self.shared.hold(delivery, self.spec.lease_ms, asked_ms, is_suspect);
        self.capacity.taken(held.bytes(), held.answered_ms);
        held
    }

    /// Hands messages to their handler: together, if they are a batch or the lane is strict.
    fn begin(&mut self, messages: Vec<TakenMessage>) {
        if messages.is_empty() {
            return;
        }
        messages.iter().for_each(|held| self.breaker.sent(held.id()));
        let is_together = self.spec.bounds.is_strict || matches!(self.spec.handler, Handler::Batch(_));
        let groups =
            if is_together { vec![messages] } else { messages.into_iter().map(|one| vec![one]).collect() };
        for group in groups {
            tokio::spawn(handling::handle(
                Arc::clone(&self.shared),
                Arc::clone(&self.spec),
                group,
                self.sender.clone(),
            ));
        }
    }

    /// Gives back a message that was not admitted, or a suspect that does not run.
    fn give_back(&mut self, held: TakenMessage, after: Option<Duration>) {
        self.shared.solo(false, |solo| solo.goes_back());
        self.handled(TakenMessage { is_suspect: false, ..held }, Outcome::Release { after }, false, false);
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Handled { held, outcome, is_said, keeps_slot } => {
                self.handled(held, outcome, is_said, keeps_slot);
            }
            Event::Settled { held, answer, action, keeps_slot } => {
                self.settled(&held, &answer, &action);
                self.leave(held.is_suspect);
                if !keeps_slot {
                    self.vacate(held.bytes());
                }
            }
            Event::Freed { bytes } => self.vacate(bytes),
            Event::Abandoned { held } => {
                drop(self.shared.end(&held));
                self.leave(held.is_suspect);
                self.vacate(held.bytes());
            }
            Event::Probed(has_passed) => self.breaker.probed(has_passed, self.shared.now_ms()),
        }
    }

    fn handled(&mut self, held: TakenMessage, outcome: Outcome, is_said: bool, keeps_slot: bool) {
        let action = self.action(&held, outcome, is_said);
        match self.shared.end(&held) {
            Some((receipt, deadline_ms)) => {
                let settle = Settle { receipt, action };
                let request = Request { settle, deadline_ms, held, keeps_slot, lane: self.sender.clone() };
                // The settler ends after the lanes.
                let _ = self.shared.settler.send(request);
            }
            None => {
                count(&self.spec.stats.lost);
                self.leave(held.is_suspect);
                if !keeps_slot {
                    self.vacate(held.bytes());
                }
            }
        }
    }

    /// The settlement of an outcome.
    fn action(&mut self, held: &TakenMessage, outcome: Outcome, is_said: bool) -> Action {
        let now_ms = self.shared.now_ms();
        let (report, outcome) = match outcome {
            Outcome::Destination { report, error } => {
                let blame = self.breaker.report(held.id(), report, now_ms);
                let error = format!("it breaks a destination that is up: {error}");
                let outcome = match blame {
                    Blame::Message => Outcome::Retry { error, after: None },
                    Blame::Destination => Outcome::Release { after: self.until_trial(now_ms) },
                };
                (None, outcome)
            }
            Outcome::Release { after } => (Some(Report::Unknown), Outcome::Release { after }),
            outcome if is_said => (Some(Report::Answered), outcome),
            outcome => (Some(Report::Unknown), outcome),
        };
        if let Some(report) = report {
            self.breaker.report(held.id(), report, now_ms);
        }
        match outcome {
            Outcome::Done => Action::Ack,
            Outcome::Bury { reason } => Action::Bury { reason: Some(shortened(reason)), priority: None },
            Outcome::Retry { error, after } => {
                let of_ladder = || {
                    self.spec
                        .ladder
                        .as_ref()
                        .map(|ladder| ladder.delay_ms(held.delivery.attempt(), held.id()))
                };
                let after_ms = after.map(whole_ms).or_else(of_ladder);
                Action::Retry { after_ms, error: Some(shortened(error)), priority: None }
            }
            Outcome::Release { after } => Action::Release { after_ms: after.map(whole_ms), priority: None },
            Outcome::Destination { .. } => Action::Release { after_ms: None, priority: None },
        }
    }

    /// The delay of a message that the destination has refused. Where messages are the only trials, another one is
    /// tried next: otherwise a message that breaks the destination would be the first of its queue each time, and
    /// nothing would show that the destination is up.
    fn until_trial(&self, now_ms: u64) -> Option<Duration> {
        if self.spec.probe.is_some() || self.spec.bounds.is_strict {
            return None;
        }
        self.breaker.wake_at_ms().map(|at_ms| Duration::from_millis(at_ms.saturating_sub(now_ms)))
    }

    fn settled(&mut self, held: &TakenMessage, answer: &dwell_store::Result<Settled>, action: &Action) {
        let stats = &self.spec.stats;
        if let (Ok(Settled::Scheduled(at)), true) = (answer, self.spec.bounds.is_strict) {
            // At this time the store's clock reads at least `at`.
            let after_ms = at.ms_since(held.delivery.taken_at);
            // Both clocks truncate to milliseconds.
            self.capacity.hold(held.id(), held.answered_ms.saturating_add(after_ms).saturating_add(1));
        }
        // The state that the settlement has led to: a message that has expired meanwhile is dead or deleted, and not
        // done.
        match (answer, action) {
            (Err(_), _) => count(&stats.lost),
            (Ok(_), Action::Ack) => count(&stats.done),
            (Ok(_), Action::Bury { .. }) => count(&stats.buried),
            (Ok(_), Action::Release { .. }) => count(&stats.released),
            (Ok(_), Action::Retry { .. } | Action::Extend { .. }) => count(&stats.retried),
        }
    }

    /// Frees a slot.
    fn vacate(&mut self, bytes: usize) {
        uncount(&self.spec.stats.running);
        self.capacity.settled(bytes);
    }

    /// Records that a lease is over. A blocking handler that still runs holds none: it delays no suspect, and as a
    /// suspect no lane.
    fn leave(&self, is_suspect: bool) {
        if is_suspect {
            self.shared.solo(true, |solo| solo.ended());
        } else {
            self.shared.solo(false, |solo| solo.settled(1));
            if !self.shared.solo(false, |solo| solo.may_take()) {
                self.shared.solo_changed.send_replace(());
            }
        }
    }
}

/// Takes the message that a strict lane waits for; none if it may not be taken yet. A take by its id alone would also
/// take it from a paused queue, before an instant that it was moved to, and from the dead, if it has expired.
async fn take_held(
    store: &dyn Store,
    queue: QueueName,
    id: MessageId,
    terms: LeaseTerms,
) -> dwell_store::Result<Vec<Delivery>> {
    let is_gone = |queue: &QueueName| Err(StoreError::MessageNotFound { queue: queue.clone() });
    match store.get(queue.clone(), vec![Target::Id(id)], false).await.pop() {
        Some(Ok(message)) => match message.standing.state {
            State::Ready => {}
            State::Scheduled => return Ok(Vec::new()),
            State::Leased(_) => return Err(StoreError::Leased { id }),
            State::Dead(_) => return is_gone(&queue),
        },
        Some(Err(StoreError::UnknownQueue { .. })) => return is_gone(&queue),
        // The right to take does not include the right to read.
        Some(Err(StoreError::Refused { is_retryable: false, .. })) | None => {}
        Some(Err(error)) => return Err(error),
    }
    match store.stats(queue.clone()).await {
        Ok(stats) if stats.settings.pause != Pause::Running => return Ok(Vec::new()),
        Ok(_) | Err(StoreError::Refused { is_retryable: false, .. }) => {}
        Err(StoreError::UnknownQueue { .. }) => return is_gone(&queue),
        Err(error) => return Err(error),
    }
    store.take_id(queue, id, terms).await.map(|delivery| vec![delivery])
}

/// The answer of the take in progress; pending for ever if there is none.
async fn taken(taking: &mut Option<TakeInProgress>) -> dwell_store::Result<Vec<Delivery>> {
    match taking {
        Some(taking) => taking.call.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Ends when a value was sent; pending for ever when none can be any more.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// The part of a text that a message may keep.
fn shortened(mut text: String) -> Arc<str> {
    text.truncate(text.floor_char_boundary(dwell_model::Limits::MAX_ERROR_TEXT_LEN));
    text.into()
}
