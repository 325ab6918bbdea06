//! Canaries: stores that are broken on purpose, one fault each. The suite has to notice each of them, in both
//! the scenario that names the promise and the model test; otherwise passing on other stores means nothing.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

mod harness;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dwell_model::{
    Cursor, DEFAULT_PRIORITY, LeaseToken, Limits, Message, MessageId, QueueName, Receipt, Setting,
    SettingChange, Standing, State, StateKind, Timestamp,
};
use dwell_store::conformance::scenario::{
    cap, change, expire, idempotency, inspect, key, lease, restart, retention, settle, store, wait,
};
use dwell_store::conformance::{Factory, Harness, model, run};
use dwell_store::{
    Action, BulkOutcome, Cancelled, Delivery, Forecast, LeaseRef, LeaseTerms, OnConflict, Page, Put,
    PutAnswer, QueueStats, Rescheduled, Result, Selection, Settle, Settled, Store, Take, Target, When,
    delegate_store,
};
use dwell_time::{Clock, ManualClock};

use harness::MemoryHarness;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Hands a message out one millisecond before its instant.
    Early,
    /// Adds one millisecond to every delay.
    Late,
    /// Puts again under the same idempotency key.
    ForgetsIdempotencyKeys,
    /// Gives every lease of a message the same receipt.
    ReusesReceipts,
    /// A message that replaces another loses its key.
    LosesKeyOnReplace,
    /// A retry spends no attempt.
    RetriesForEver,
    /// Reports a leased message as cancelled.
    LiesAboutCancel,
    /// A released message is removed.
    DropsReleased,
    /// All messages have the same priority.
    IgnoresPriority,
    /// A take does not wait.
    NeverWaits,
    /// An extended lease ends when it would have ended.
    IgnoresExtend,
    /// A forecast leaves out messages that are due at the very instant.
    ForecastsTooFew,
    /// Reports that a lease was ended, and leaves it in force.
    EndsNoLease,
    /// Keeps one dead message more than it may.
    KeepsOneDeadTooMany,
    /// Keeps dead messages a millisecond longer than it may.
    KeepsTheDeadTooLong,
    /// Grants one lease more than its queue may have.
    PassesMaxLeased,
    /// A restart loses everything.
    ForgetsOverRestart,
}

/// A correct store behind one fault.
struct FaultyStore {
    sound: Arc<dyn Store>,
    clock: ManualClock,
    fault: Fault,
    /// The real tokens of the leases, in place of which broken ones are handed out.
    tokens: Mutex<HashMap<MessageId, LeaseToken>>,
}

impl FaultyStore {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn delayed(&self, when: When) -> When {
        match when {
            When::AfterMs(ms) if self.has(Fault::Late) => When::AfterMs(ms.saturating_add(1)),
            when => when,
        }
    }

    fn delivered(&self, mut delivery: Delivery) -> Delivery {
        if self.has(Fault::ReusesReceipts) {
            let id = delivery.message.id;
            self.tokens.lock().unwrap().insert(id, delivery.receipt.token);
            delivery.receipt.token = LeaseToken(id.as_bits());
        }
        Delivery { message: self.shown(delivery.message), ..delivery }
    }

    fn shown(&self, mut message: Message) -> Message {
        if let (true, State::Leased(lease)) = (self.has(Fault::ReusesReceipts), &mut message.standing.state) {
            lease.token = LeaseToken(message.id.as_bits());
        }
        message
    }

    /// A limit that is exceeded by one.
    fn passed(&self, change: SettingChange) -> SettingChange {
        let SettingChange::Set(setting) = change else { return change };
        SettingChange::Set(match (self.fault, setting) {
            (Fault::KeepsOneDeadTooMany, Setting::DeadMax(most)) => Setting::DeadMax(most + 1),
            (Fault::KeepsTheDeadTooLong, Setting::DeadTtlMs(ms)) if ms > 0 => Setting::DeadTtlMs(ms + 1),
            (Fault::PassesMaxLeased, Setting::MaxLeased(most)) if most > 0 => Setting::MaxLeased(most + 1),
            (_, setting) => setting,
        })
    }

    /// Shows the requested value of that limit.
    fn hidden(&self, mut stats: QueueStats) -> QueueStats {
        let hidden: Vec<Setting> = stats
            .own
            .iter()
            .filter_map(|setting| match (self.fault, setting) {
                (Fault::KeepsOneDeadTooMany, Setting::DeadMax(most)) => Some(Setting::DeadMax(most - 1)),
                (Fault::KeepsTheDeadTooLong, Setting::DeadTtlMs(ms)) => Some(Setting::DeadTtlMs(ms - 1)),
                (Fault::PassesMaxLeased, Setting::MaxLeased(most)) => Some(Setting::MaxLeased(most - 1)),
                _ => None,
            })
            .collect();
        for setting in hidden {
            stats.own.change(SettingChange::Set(setting));
            stats.settings = stats.own.over(&self.sound.limits().defaults);
        }
        stats
    }

    async fn is_held(&self, receipt: &Receipt) -> bool {
        let found =
            self.sound.get(receipt.queue.clone(), vec![Target::Id(receipt.id)], false).await.pop().unwrap();
        let lease = found.map(|message| message.standing.state);
        matches!(lease, Ok(State::Leased(lease)) if lease.token == receipt.token)
    }

    /// A message that is due in a millisecond.
    async fn early(&self, take: &Take) -> Option<Delivery> {
        let soon = self.clock.now().wall.after(1).ok()?;
        for queue in take.queues.iter().filter(|_| take.max > 0) {
            let page = self.sound.list(queue.clone(), StateKind::Scheduled, None, 1).await.ok()?;
            if let Some(message) = page.messages.into_iter().find(|message| message.standing.due == soon) {
                let Take { lease_ms, session, ref holder, .. } = *take;
                let terms = LeaseTerms { lease_ms, session, holder: holder.clone() };
                return self.sound.take_id(queue.clone(), message.id, terms).await.ok();
            }
        }
        None
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        let mut broken = Vec::new();
        for mut put in puts {
            put.when = self.delayed(put.when);
            if self.has(Fault::ForgetsIdempotencyKeys) {
                put.idempotency_key = None;
            }
            if self.has(Fault::IgnoresPriority) {
                put.priority = DEFAULT_PRIORITY;
            }
            if self.has(Fault::LosesKeyOnReplace) && put.on_conflict == OnConflict::Replace {
                let target = put.key.clone().map(Target::Key);
                let found = self.sound.get(put.queue.clone(), target.into_iter().collect(), false).await;
                if found.iter().any(|answer| answer.is_ok()) {
                    // The answer is correct, and the next look shows that the key is lost.
                    let answer = self.sound.put(vec![put.clone()]).await.pop().unwrap();
                    if let Ok(answer) = &answer {
                        self.sound.cancel(put.queue.clone(), vec![Target::Id(answer.id)]).await;
                        put.key = None;
                        put.idempotency_key = None;
                        self.sound.put(vec![put]).await;
                    }
                    broken.push(answer);
                    continue;
                }
            }
            broken.extend(self.sound.put(vec![put]).await);
        }
        broken
    }

    async fn take(&self, mut take: Take) -> Result<Vec<Delivery>> {
        if self.has(Fault::NeverWaits) {
            take.wait_ms = 0;
        }
        if self.has(Fault::Early)
            && let Some(delivery) = self.early(&take).await
        {
            return Ok(vec![delivery]);
        }
        let taken = self.sound.take(take).await?;
        Ok(taken.into_iter().map(|delivery| self.delivered(delivery)).collect())
    }

    async fn take_id(&self, queue: QueueName, id: MessageId, terms: LeaseTerms) -> Result<Delivery> {
        self.sound.take_id(queue, id, terms).await.map(|delivery| self.delivered(delivery))
    }

    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        let mut broken = Vec::new();
        for mut settle in settles {
            if let Some(token) = self.tokens.lock().unwrap().get(&settle.receipt.id)
                && settle.receipt.token == LeaseToken(settle.receipt.id.as_bits())
            {
                settle.receipt.token = *token;
            }
            settle.action = match (self.fault, settle.action) {
                (Fault::RetriesForEver, Action::Retry { after_ms: Some(after_ms), priority, .. }) => {
                    Action::Release { after_ms: Some(after_ms), priority }
                }
                (Fault::DropsReleased, Action::Release { .. }) => Action::Ack,
                (Fault::IgnoresExtend, Action::Extend { lease_ms: Some(lease_ms) })
                    if lease_ms > 0 && self.is_held(&settle.receipt).await =>
                {
                    let until = self.clock.now().wall.saturating_after(lease_ms);
                    broken.push(Ok(Settled::Leased(until)));
                    continue;
                }
                (_, action) => action,
            };
            broken.extend(self.sound.settle(vec![settle]).await);
        }
        broken
    }

    async fn cancel(&self, queue: QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>> {
        let answers = self.sound.cancel(queue, targets).await;
        let lie = |answer| match answer {
            Cancelled::Leased(id) if self.has(Fault::LiesAboutCancel) => Cancelled::Cancelled(id),
            answer => answer,
        };
        answers.into_iter().map(|answer| answer.map(lie)).collect()
    }

    async fn reschedule(&self, queue: QueueName, moves: Vec<(Target, When)>) -> Vec<Result<Rescheduled>> {
        let moves = moves.into_iter().map(|(target, when)| (target, self.delayed(when)));
        self.sound.reschedule(queue, moves.collect()).await
    }

    async fn get(&self, queue: QueueName, targets: Vec<Target>, dead: bool) -> Vec<Result<Message>> {
        let answers = self.sound.get(queue, targets, dead).await;
        answers.into_iter().map(|answer| answer.map(|message| self.shown(message))).collect()
    }

    async fn list(
        &self,
        queue: QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page> {
        let page = self.sound.list(queue, state, after, max).await?;
        let messages = page.messages.into_iter().map(|message| self.shown(message));
        Ok(Page { messages: messages.collect(), unread: page.unread, next: page.next })
    }

    async fn expire_lease(&self, queue: QueueName, leases: Vec<LeaseRef>) -> Vec<Result<Settled>> {
        if !self.has(Fault::EndsNoLease) {
            return self.sound.expire_lease(queue, leases).await;
        }
        let mut answers = Vec::new();
        for LeaseRef { id, takes } in leases {
            let found = self.sound.get(queue.clone(), vec![Target::Id(id)], false).await.pop().unwrap();
            let standing = found.map(|message| message.standing);
            answers.push(match standing {
                Ok(Standing { state: State::Leased(_), counts, .. }) if counts.takes == takes => {
                    Ok(Settled::Ready)
                }
                _ => {
                    self.sound.expire_lease(queue.clone(), vec![LeaseRef { id, takes }]).await.pop().unwrap()
                }
            });
        }
        answers
    }

    async fn configure(&self, queue: QueueName, changes: Vec<SettingChange>) -> Result<QueueStats> {
        let changes = changes.into_iter().map(|change| self.passed(change)).collect();
        self.sound.configure(queue, changes).await.map(|stats| self.hidden(stats))
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        self.sound.stats(queue).await.map(|stats| self.hidden(stats))
    }

    async fn queues(&self, after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        let queues = self.sound.queues(after, max).await?;
        Ok(queues.into_iter().map(|stats| self.hidden(stats)).collect())
    }

    async fn revive(&self, queue: QueueName, which: Selection, when: When) -> Result<BulkOutcome> {
        self.sound.revive(queue, which, self.delayed(when)).await
    }

    async fn forecast(&self, queues: Option<Vec<QueueName>>, mut edges: Vec<Timestamp>) -> Result<Forecast> {
        if self.has(Fault::ForecastsTooFew) {
            for edge in &mut edges {
                *edge = Timestamp::from_ms(edge.as_ms() - 1).unwrap_or(*edge);
            }
        }
        self.sound.forecast(queues, edges).await
    }

    // `peek` is the default of the trait, which calls the broken `list`.
    delegate_store! {
        self.sound;
        own: put take take_id settle expire_lease cancel reschedule get list peek stats queues configure forecast revive;
        forward: locate ready deaths discard purge delete_queue;
    }
}

struct BrokenHarness {
    sound: MemoryHarness,
    broken: Arc<FaultyStore>,
    limits: Limits,
}

impl BrokenHarness {
    fn open(fault: Fault, limits: Limits) -> BrokenHarness {
        let sound = MemoryHarness::open(limits.clone());
        let broken = Arc::new(FaultyStore {
            sound: sound.store(),
            clock: sound.clock(),
            fault,
            tokens: Mutex::default(),
        });
        BrokenHarness { sound, broken, limits }
    }
}

impl Harness for BrokenHarness {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.broken) as Arc<dyn Store>
    }

    fn now(&self) -> Timestamp {
        self.sound.now()
    }

    fn advance(&mut self, ms: u64) {
        self.sound.advance(ms);
    }

    fn step_wall(&mut self, by_ms: i64) -> bool {
        self.sound.step_wall(by_ms)
    }

    fn durable(&self) -> bool {
        self.broken.has(Fault::ForgetsOverRestart)
    }

    fn close(&mut self) {
        self.restart();
    }

    fn restart(&mut self) {
        *self = BrokenHarness::open(Fault::ForgetsOverRestart, self.limits.clone());
    }
}

/// Asserts that the scenario and the model test both notice the fault.
#[track_caller]
fn noticed(fault: Fault, scenario: fn(&Factory)) {
    let factory = move |limits| Box::new(BrokenHarness::open(fault, limits)) as Box<dyn Harness>;
    let outcome = catch_unwind(AssertUnwindSafe(|| run("canary", Arc::new(factory), scenario)));
    assert!(outcome.is_err(), "{fault:?}: the scenario passes");
    let failure = model::try_run(move |limits| BrokenHarness::open(fault, limits), 100, 200, 1);
    let failure = failure.expect_err(&format!("{fault:?}: the model test passes"));
    assert!(failure.contains("DWELL_SEED="), "{fault:?}: it does not say how to replay: {failure}");
    println!("{fault:?}: {failure}");
}

#[test]
fn a_message_handed_out_a_millisecond_early_is_noticed() {
    noticed(Fault::Early, store::a_message_is_handed_out_at_its_instant_and_never_before);
}

#[test]
fn a_delay_too_long_by_a_millisecond_is_noticed() {
    noticed(Fault::Late, store::a_message_is_handed_out_at_its_instant_and_never_before);
}

#[test]
fn a_forgotten_idempotency_key_is_noticed() {
    noticed(
        Fault::ForgetsIdempotencyKeys,
        idempotency::the_same_idempotency_key_gives_the_same_answer_and_puts_nothing_also_when_the_message_is_gone,
    );
}

#[test]
fn a_receipt_that_is_used_again_is_noticed() {
    noticed(Fault::ReusesReceipts, store::at_most_one_valid_receipt_exists_for_a_message);
}

#[test]
fn a_key_lost_on_replace_is_noticed() {
    noticed(Fault::LosesKeyOnReplace, key::replace_puts_a_new_message_and_the_old_id_is_gone);
}

#[test]
fn an_attempt_that_is_not_spent_is_noticed() {
    noticed(Fault::RetriesForEver, lease::a_message_is_dead_when_its_attempts_are_spent);
}

#[test]
fn an_ended_lease_whose_receipt_still_works_is_noticed() {
    noticed(Fault::EndsNoLease, expire::an_ended_lease_is_as_one_that_ran_out);
}

#[test]
fn one_dead_message_too_many_is_noticed() {
    noticed(Fault::KeepsOneDeadTooMany, retention::each_death_beyond_the_most_discards_the_oldest);
}

#[test]
fn a_dead_message_that_stays_a_millisecond_too_long_is_noticed() {
    noticed(Fault::KeepsTheDeadTooLong, retention::a_dead_message_is_gone_when_its_time_is_over);
}

#[test]
fn a_lease_beyond_the_cap_of_its_queue_is_noticed() {
    noticed(Fault::PassesMaxLeased, cap::at_its_max_leased_a_queue_is_as_if_paused_and_others_do_not_notice);
}

#[test]
fn an_untrue_answer_to_a_cancel_is_noticed() {
    noticed(Fault::LiesAboutCancel, change::cancel_says_truthfully_what_it_found);
}

#[test]
fn a_forecast_that_leaves_out_what_is_due_at_the_instant_is_noticed() {
    noticed(Fault::ForecastsTooFew, inspect::a_forecast_agrees_with_a_full_listing_after_every_change);
}

#[test]
fn a_message_lost_on_release_is_noticed() {
    noticed(Fault::DropsReleased, settle::a_release_spends_no_attempt);
}

#[test]
fn an_order_without_priority_is_noticed() {
    noticed(Fault::IgnoresPriority, store::due_messages_go_out_by_priority_then_due_then_id);
}

#[test]
fn a_take_that_does_not_wait_is_noticed() {
    noticed(Fault::NeverWaits, wait::a_take_waits_without_polling_and_wakes_on_the_instant);
}

#[test]
fn a_lease_that_is_not_extended_is_noticed() {
    noticed(Fault::IgnoresExtend, settle::extend_moves_the_deadline);
}

#[test]
fn a_restart_that_loses_messages_is_noticed() {
    noticed(Fault::ForgetsOverRestart, restart::a_put_that_was_answered_survives_a_restart);
}
