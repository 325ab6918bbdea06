//! Random calls: the indexes stay correct, and the log replays into a core that gives the same answers.
//!
//! The same seed replays a failure: proptest prints it, with the shrunk calls, and stores it beside this
//! file.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use dwell_model::{
    AttemptLimit, Backoff, Headers, Holder, IdempotencyKey, LapseBackoff, Message, MessageId, Number,
    OnExpiry, Pause, Setting, SettingChange, SettingName, Settings, StateKind,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::core::WaiterId;
use crate::{
    Error, LeaseRef, LeaseTerms, OnConflict, PutDigest, PutOutcome, QueueStats, Selection, Target, When,
};

const QUEUES: u8 = 4;

#[derive(Clone, Debug)]
pub(super) enum Call {
    Advance(u16),
    StepWall(i16),
    Put(Box<AnyPut>),
    Take { queues: Vec<u8>, max: usize, lease_ms: Option<u64>, session: bool, wait_ms: u64 },
    TakeId { message: u8, session: bool },
    Settle { receipt: u8, action: Action },
    GiveBack { receipt: u8 },
    Cancel { queue: u8, target: AnyTarget },
    Reschedule { queue: u8, target: AnyTarget, when: When },
    Revive { queue: u8, which: AnySelection, when: When },
    Discard { queue: u8, which: AnySelection },
    Purge(u8),
    DeleteQueue(u8),
    Configure { queue: u8, change: SettingChange },
    Get { queue: u8, target: AnyTarget, dead: bool },
    ExpireLease { queue: u8, message: u8, takes: u32 },
    List { queue: u8, state: StateKind },
    Stats(u8),
    Serve,
    Forget(u8),
}

#[derive(Clone, Debug)]
pub(super) struct AnyPut {
    queue: u8,
    when: When,
    key: Option<u8>,
    on_conflict: OnConflict,
    priority: u32,
    lease_ms: Option<u64>,
    max_attempts: Option<u32>,
    expires_after: Option<i64>,
    idempotency_key: Option<u8>,
    has_headers: bool,
}

#[derive(Clone, Debug)]
pub(super) enum AnyTarget {
    Message(u8),
    Key(u8),
}

#[derive(Clone, Debug)]
pub(super) enum AnySelection {
    Messages(Vec<u8>),
    Oldest(u64),
    All,
}

fn any_when() -> impl Strategy<Value = When> {
    prop_oneof![
        3 => Just(When::Now),
        4 => (0..3_000_u64).prop_map(When::AfterMs),
        2 => (-2_000..4_000_i64).prop_map(|ms| When::At(at(ms))),
        1 => (0..4_u32).prop_map(When::Level),
    ]
}

fn any_target() -> impl Strategy<Value = AnyTarget> {
    prop_oneof![any::<u8>().prop_map(AnyTarget::Message), (0..3_u8).prop_map(AnyTarget::Key)]
}

fn any_selection() -> impl Strategy<Value = AnySelection> {
    prop_oneof![
        vec(any::<u8>(), 1..3).prop_map(AnySelection::Messages),
        (0..4_u64).prop_map(AnySelection::Oldest),
        Just(AnySelection::All),
    ]
}

fn any_lease() -> impl Strategy<Value = Option<u64>> {
    proptest::option::of(1..2_000_u64)
}

fn any_priority() -> impl Strategy<Value = Option<u32>> {
    proptest::option::of(1_022..1_026_u32)
}

fn any_action() -> impl Strategy<Value = Action> {
    let text = || proptest::option::of(Just("it broke".into()));
    let after = || proptest::option::of(0..2_000_u64);
    prop_oneof![
        3 => Just(Action::Ack),
        3 => (after(), text(), any_priority())
            .prop_map(|(after_ms, error, priority)| Action::Retry { after_ms, error, priority }),
        2 => (after(), any_priority()).prop_map(|(after_ms, priority)| Action::Release { after_ms, priority }),
        3 => (text(), any_priority()).prop_map(|(reason, priority)| Action::Bury { reason, priority }),
        1 => any_lease().prop_map(|lease_ms| Action::Extend { lease_ms }),
    ]
}

fn any_change() -> impl Strategy<Value = SettingChange> {
    let backoff = Backoff { base_ms: 500, factor_percent: 150, cap_ms: 2_000, jitter_percent: 50 };
    prop_oneof![
        (1..3_000_u64).prop_map(|ms| SettingChange::Set(Setting::LeaseMs(ms))),
        (1..4_u32).prop_map(|n| SettingChange::Set(Setting::MaxAttempts(AttemptLimit::At(nonzero(n))))),
        Just(SettingChange::Set(Setting::Backoff(backoff))),
        (0..6_u64).prop_map(|limit| SettingChange::Set(Setting::MaxPending(limit))),
        (-500..2_000_i64).prop_map(|ms| SettingChange::Set(Setting::Pause(Pause::Until(at(ms))))),
        Just(SettingChange::Set(Setting::Pause(Pause::Indefinite))),
        Just(SettingChange::Set(Setting::Levels(vec![10, 700]))),
        Just(SettingChange::Set(Setting::Partitions(2))),
        (0..2_000_u64).prop_map(|ms| SettingChange::Set(Setting::IdempotencyMs(ms))),
        prop_oneof![1..3_000_u64, Just(60_000)].prop_map(|ms| SettingChange::Set(Setting::DeadTtlMs(ms))),
        (0..4_u64).prop_map(|most| SettingChange::Set(Setting::DeadMax(most))),
        Just(SettingChange::Set(Setting::OnExpiry(OnExpiry::Drop))),
        (1..4_u64).prop_map(|most| SettingChange::Set(Setting::MaxLeased(most))),
        (0..3_usize).prop_map(|at| SettingChange::Set(Setting::LapseBackoff(LapseBackoff::ALL[at]))),
        (0..SettingName::ALL.len()).prop_map(|at| SettingChange::Reset(SettingName::ALL[at])),
    ]
}

fn any_put() -> impl Strategy<Value = AnyPut> {
    let conflict = prop_oneof![Just(OnConflict::Reject), Just(OnConflict::Replace), Just(OnConflict::Keep)];
    let key = proptest::option::of(0..3_u8);
    let attempts = proptest::option::weighted(0.2, 1..3_u32);
    let expires = proptest::option::weighted(0.3, -500..3_000_i64);
    let idempotency_key = proptest::option::weighted(0.3, 0..4_u8);
    let lease = proptest::option::weighted(0.2, 1..2_000_u64);
    let headers = proptest::bool::weighted(0.2);
    (
        (0..QUEUES, any_when(), key, conflict, headers),
        (any_priority(), lease, attempts, expires, idempotency_key),
    )
        .prop_map(
            |(
                (queue, when, key, on_conflict, has_headers),
                (priority, lease_ms, max_attempts, expires_after, idempotency_key),
            )| {
                AnyPut {
                    queue,
                    when,
                    key,
                    on_conflict,
                    priority: priority.unwrap_or(1_024),
                    lease_ms,
                    max_attempts,
                    expires_after,
                    idempotency_key,
                    has_headers,
                }
            },
        )
}

pub(super) fn any_call() -> impl Strategy<Value = Call> {
    let queue = || 0..QUEUES;
    let state = (0..4_usize).prop_map(|at| StateKind::ALL[at]);
    prop_oneof![
        8 => (0..1_500_u16).prop_map(Call::Advance),
        1 => (-2_000..2_000_i16).prop_map(Call::StepWall),
        14 => any_put().prop_map(|put| Call::Put(Box::new(put))),
        10 => (vec(queue(), 1..4), 0..4_usize, any_lease(), any::<bool>(), prop_oneof![Just(0), 1..2_000_u64])
            .prop_map(|(queues, max, lease_ms, session, wait_ms)| Call::Take { queues, max, lease_ms, session, wait_ms }),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(message, session)| Call::TakeId { message, session }),
        10 => (any::<u8>(), any_action()).prop_map(|(receipt, action)| Call::Settle { receipt, action }),
        1 => any::<u8>().prop_map(|receipt| Call::GiveBack { receipt }),
        2 => (queue(), any_target()).prop_map(|(queue, target)| Call::Cancel { queue, target }),
        2 => (queue(), any_target(), any_when())
            .prop_map(|(queue, target, when)| Call::Reschedule { queue, target, when }),
        2 => (queue(), any_selection(), any_when())
            .prop_map(|(queue, which, when)| Call::Revive { queue, which, when }),
        1 => (queue(), any_selection()).prop_map(|(queue, which)| Call::Discard { queue, which }),
        1 => queue().prop_map(Call::Purge),
        1 => queue().prop_map(Call::DeleteQueue),
        2 => (queue(), any_change()).prop_map(|(queue, change)| Call::Configure { queue, change }),
        2 => (queue(), any_target(), any::<bool>())
            .prop_map(|(queue, target, dead)| Call::Get { queue, target, dead }),
        2 => (queue(), any::<u8>(), 0..3_u32)
            .prop_map(|(queue, message, takes)| Call::ExpireLease { queue, message, takes }),
        1 => (queue(), state).prop_map(|(queue, state)| Call::List { queue, state }),
        1 => queue().prop_map(Call::Stats),
        4 => Just(Call::Serve),
        1 => any::<u8>().prop_map(Call::Forget),
    ]
}

/// That cold messages are past their queue's retention is noticed some time later, and counts show it.
pub(super) fn any_call_without_retention() -> impl Strategy<Value = Call> {
    any_call().prop_map(|call| match call {
        Call::Configure {
            queue,
            change: SettingChange::Set(Setting::DeadTtlMs(_) | Setting::DeadMax(_)),
        } => Call::Stats(queue),
        call => call,
    })
}

fn holder(is_named: bool, number: usize) -> Option<Holder> {
    is_named.then(|| format!("worker {number}").parse().unwrap())
}

fn nonzero(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

pub(super) fn name(queue: u8) -> QueueName {
    queue_name(["a", "b", "c", "d"][usize::from(queue)])
}

fn queue_name(name: &str) -> QueueName {
    name.parse().unwrap()
}

fn idempotency_key(number: u8) -> IdempotencyKey {
    IdempotencyKey::new(&format!("token-{number}")).unwrap()
}

/// Everything that can be observed of a core, except waiting takes: those do not outlive their process.
#[derive(Debug, PartialEq)]
pub(super) struct ObservedState {
    queues: Vec<QueueStats>,
    /// In the order of the list.
    messages: Vec<Message>,
    /// Oldest first.
    dead: BTreeMap<QueueName, Vec<MessageId>>,
    located: Vec<Option<(QueueName, MessageId)>>,
    idempotency_keys: Vec<Option<(PutAnswer, PutDigest)>>,
    next_number: u64,
}

/// A core under random calls, with the state of its callers.
pub(super) struct Walk {
    pub(super) rig: Rig,
    pub(super) now: Now,
    /// The latest wall time of all calls.
    latest: Timestamp,
    messages: Vec<(QueueName, MessageId)>,
    pub(super) receipts: Vec<Receipt>,
    waiters: u64,
    /// Whether any queue was set to drop what expires: then it may be removed with its last message, and for
    /// cold messages that is not noticed at once.
    drops: bool,
}

impl Walk {
    fn new(rig: Rig) -> Walk {
        let (now, latest) = (now(0), at(0));
        Walk { rig, now, latest, messages: Vec::new(), receipts: Vec::new(), waiters: 0, drops: false }
    }

    pub(super) fn random() -> Walk {
        let defaults = Settings { lease_ms: 1_000, idempotency_ms: 1_000, ..Settings::default() };
        let limits = Limits {
            leased: 6,
            leased_per_queue: 4,
            waiting_per_queue: 3,
            queues: 3,
            defaults,
            ..Limits::default()
        };
        // So few at a time that purged messages remain for long, and that leases run out in several slices.
        let config = CoreConfig { freed_per_call: 1, lapsed_a_call: 2, ..CoreConfig::new(limits, 7) };
        Walk::new(Rig::configured(config))
    }

    fn message(&self, at: u8) -> (QueueName, MessageId) {
        let nowhere = || (name(0), MessageId::new(at_start(), 9, 9, 9));
        let at = usize::from(at).checked_rem(self.messages.len());
        at.map_or_else(nowhere, |at| self.messages[at].clone())
    }

    fn receipt(&self, at: u8) -> Option<Receipt> {
        // The youngest are the likeliest to be current.
        let at = usize::from(at).checked_rem(self.receipts.len().min(8))?;
        Some(self.receipts[self.receipts.len() - 1 - at].clone())
    }

    fn target(&self, target: &AnyTarget) -> Target {
        match target {
            AnyTarget::Message(at) => Target::Id(self.message(*at).1),
            AnyTarget::Key(key) => Target::Key(format!("key-{key}").parse().unwrap()),
        }
    }

    fn selection(&self, which: &AnySelection) -> Selection {
        match which {
            AnySelection::Messages(at) => Selection::Ids(at.iter().map(|at| self.message(*at).1).collect()),
            AnySelection::Oldest(count) => Selection::Oldest(*count),
            AnySelection::All => Selection::All,
        }
    }

    pub(super) fn again(&self, rig: Rig) -> Walk {
        Walk { now: self.now, latest: self.latest, ..Walk::new(rig) }
    }

    fn reopened(&self) -> Walk {
        self.again(self.rig.reopened(self.now))
    }

    pub(super) fn make(&mut self, call: &Call) {
        let now = self.now;
        self.latest = self.latest.max(now.wall);
        self.rig.core.catch_up(now, &mut self.rig.log);
        self.rig.log.0.push(LoggedFact::Time(self.rig.core.seen()));
        if self.drops {
            self.rig.catch_up(now);
        }
        match call {
            Call::Advance(ms) => {
                self.now.wall = now.wall.after(u64::from(*ms)).unwrap();
                self.now.mono_ms += u64::from(*ms);
            }
            Call::StepWall(ms) => {
                self.now.wall = Timestamp::from_ms(now.wall.as_ms() + i64::from(*ms)).unwrap();
            }
            Call::Put(put) => self.put(put),
            Call::Take { queues, max, lease_ms, session, wait_ms } => {
                let take = Take {
                    queues: queues.iter().map(|queue| name(*queue)).collect(),
                    max: *max,
                    max_bytes: None,
                    wait_ms: *wait_ms,
                    lease_ms: *lease_ms,
                    session: *session,
                    holder: holder(*session, *max),
                };
                let taken = self.rig.take(take.clone(), now);
                let nothing = taken.as_ref().is_ok_and(Vec::is_empty);
                self.hand_over(taken);
                if nothing && *wait_ms > 0 {
                    let id = WaiterId(self.waiters + 1);
                    match self.rig.call(|core, log| core.wait(id, take, now, log)) {
                        Ok(()) => self.waiters += 1,
                        Err(Error::TooManyQueues { .. } | Error::TooManyWaiting { .. }) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
            }
            Call::TakeId { message, session } => {
                let terms = LeaseTerms { session: *session, ..LeaseTerms::default() };
                let (queue, id) = self.message(*message);
                let taken = self.rig.call(|core, log| core.take_id(&queue, id, terms, now, log));
                self.hand_over(taken.map(|delivery| vec![delivery]));
            }
            Call::Settle { receipt, action } => {
                if let Some(receipt) = self.receipt(*receipt) {
                    let _ = self.rig.settle(&receipt, action.clone(), now);
                }
            }
            Call::GiveBack { receipt } => {
                let receipts: Vec<Receipt> = self.receipt(*receipt).into_iter().collect();
                self.rig.call(|core, log| core.give_back(&receipts, now, log));
            }
            Call::Cancel { queue, target } => {
                let targets = vec![self.target(target)];
                self.rig.call(|core, log| core.cancel(&name(*queue), targets, now, log));
            }
            Call::Reschedule { queue, target, when } => {
                let moves = vec![(self.target(target), *when)];
                self.rig.call(|core, log| core.reschedule(&name(*queue), moves, now, log));
            }
            Call::Revive { queue, which, when } => {
                let which = self.selection(which);
                let _ = self.rig.revive(&name(*queue), which, *when, now);
            }
            Call::Discard { queue, which } => {
                let which = self.selection(which);
                self.rig.discard(&name(*queue), which, now).unwrap();
            }
            Call::Purge(queue) => {
                self.rig.call(|core, log| core.purge(&name(*queue), now, log)).unwrap();
            }
            Call::DeleteQueue(queue) => {
                self.rig.call(|core, log| core.delete_queue(&name(*queue), now, log));
            }
            Call::Configure { queue, change } => {
                self.drops |= *change == SettingChange::Set(Setting::OnExpiry(OnExpiry::Drop));
                let changes = vec![change.clone()];
                let _ = self.rig.call(|core, log| core.configure(&name(*queue), changes, now, log));
            }
            Call::ExpireLease { queue, message, takes } => {
                let leases = vec![LeaseRef { id: self.message(*message).1, takes: *takes }];
                self.rig.call(|core, log| core.expire_lease(&name(*queue), leases, now, log));
            }
            Call::Get { queue, target, dead } => {
                let (targets, dead) = (vec![self.target(target)], *dead);
                self.rig.call(|core, log| core.get(&name(*queue), targets, dead, now, log));
            }
            Call::List { queue, state } => {
                let _ = self.rig.call(|core, log| core.list(&name(*queue), *state, None, 2, now, log));
            }
            Call::Stats(queue) => {
                self.rig.catch_up(now);
                let _ = self.rig.call(|core, log| core.stats(&name(*queue), now, log));
            }
            Call::Serve => {
                self.rig.catch_up(now);
                let mut answers = std::mem::take(&mut self.rig.served);
                answers.extend(self.rig.call(|core, log| core.serve(now, log)));
                let mut turns = 0;
                while self.rig.core.next_wake().is_reached(now) {
                    answers.extend(self.rig.call(|core, log| core.serve(now, log)));
                    turns += 1;
                    assert!(turns < 100, "it goes on for ever");
                }
                self.rig.core.check_served(now);
                // The number of slices, and in which of them a wait ends, depends on where messages are
                // stored. What the slices hand out together does not, nor which waits end.
                let (handed_out, mut ended): (Vec<_>, Vec<_>) =
                    answers.iter().partition(|(_, answer)| !answer.as_ref().is_ok_and(Vec::is_empty));
                ended.sort_by_key(|(id, _)| *id);
                self.rig.said.push(format!("{handed_out:?} {ended:?}"));
                answers.into_iter().for_each(|(_, answer)| self.hand_over(answer));
            }
            Call::Forget(waiter) => {
                let id = WaiterId(u64::from(*waiter).checked_rem(self.waiters + 1).unwrap_or(0));
                self.rig.call(|core, log| core.forget(id, now, log));
            }
        }
    }

    fn put(&mut self, put: &AnyPut) {
        let expires = put.expires_after.map(|ms| at(ms).max(self.now.wall));
        let put = Put {
            when: put.when,
            key: put.key.map(|key| format!("key-{key}").parse().unwrap()),
            on_conflict: put.on_conflict,
            priority: put.priority,
            lease_ms: put.lease_ms,
            max_attempts: put.max_attempts.map(|limit| AttemptLimit::At(nonzero(limit))),
            expires,
            idempotency_key: put.idempotency_key.map(idempotency_key),
            headers: Headers::new(put.has_headers.then_some(("name", "value"))).unwrap(),
            ..Put::new(name(put.queue), "body")
        };
        let queue = put.queue.clone();
        if let Ok(answer) = self.rig.put(put, self.now) {
            if answer.outcome == PutOutcome::Created {
                assert_eq!(answer.id.due_at_put(), answer.due);
            }
            self.messages.push((queue, answer.id));
        }
    }

    fn hand_over(&mut self, taken: Result<Vec<Delivery>>) {
        for delivery in taken.into_iter().flatten() {
            assert!(!self.receipts.contains(&delivery.receipt), "a token is never issued twice");
            self.receipts.push(delivery.receipt);
        }
    }

    /// Reads everything; all changes by time so far are recorded then.
    pub(super) fn see(&mut self) -> ObservedState {
        let now = self.now;
        self.rig.catch_up(now);
        for queue in 0..QUEUES {
            // All lapsed leases run out: a page of queues lets no more of them run out than a slice.
            let _ = self.rig.call(|core, log| core.stats(&name(queue), now, log));
        }
        let mut queues = self.rig.call(|core, log| core.queues(None, 100, now, log));
        // A queue that only has waiting takes does not exist after a restart.
        queues.retain(|stats| stats.counts != Default::default() || !stats.own.is_empty());
        let mut messages = Vec::new();
        let mut dead = BTreeMap::new();
        for stats in &mut queues {
            stats.waiting = 0;
            for state in StateKind::ALL {
                let page = self.rig.call(|core, log| core.list(&stats.name, state, None, 1_000, now, log));
                messages.extend(page.unwrap().messages);
            }
            let queue = self.rig.core.queues.find(&stats.name).unwrap();
            let oldest = self.rig.core.queues.get(queue).dead.by_death.keys();
            dead.insert(stats.name.clone(), oldest.map(|(_, id)| *id).collect());
        }
        let next_number = self.rig.core.next_number;
        let numbers: Vec<Number> = (1..next_number).map(|number| Number::new(number).unwrap()).collect();
        let located = self.rig.core.locate(numbers, now, &mut self.rig.log);
        let located = located.into_iter().map(Result::unwrap).collect();
        // An idempotency key that has run out by then may have been forgotten, or may come back with a clock that steps
        // back.
        let latest = self.latest.max(now.wall);
        let recall = |(queue, number): (u8, u8)| {
            self.rig.core.idempotency_keys.recall(&name(queue), &idempotency_key(number), latest)
        };
        let idempotency_keys = (0..QUEUES).flat_map(|queue| (0..4).map(move |number| (queue, number)));
        ObservedState {
            queues,
            messages,
            dead,
            located,
            idempotency_keys: idempotency_keys.map(recall).collect(),
            next_number,
        }
    }
}

fn at_start() -> Timestamp {
    at(0)
}

/// The number of cases of each property; `PROPTEST_CASES` raises it.
pub(super) fn config() -> ProptestConfig {
    let cases = ProptestConfig::default().cases.max(1_500);
    ProptestConfig { cases, max_shrink_iters: 20_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_log_cut_after_any_call_replays_into_a_core_that_answers_alike(calls in vec(any_call(), 1..60)) {
        let mut walk = Walk::random();
        calls.iter().for_each(|call| walk.make(call));
        let mut again = walk.again(walk.rig.replayed());
        prop_assert_eq!(walk.see(), again.see());
    }

    #[test]
    fn a_core_that_was_opened_again_goes_on(
        before in vec(any_call(), 1..30),
        down_ms in 0..3_000_u64,
        after in vec(any_call(), 1..30),
    ) {
        let mut walk = Walk::random();
        before.iter().for_each(|call| walk.make(call));
        // It is another process, and so its monotonic clock starts again.
        let now = Now { wall: walk.now.wall.after(down_ms).unwrap(), mono_ms: 5 };
        walk.rig = walk.rig.reopened(now);
        walk.now = now;
        after.iter().for_each(|call| walk.make(call));
        let mut again = walk.reopened();
        let mut once_more = again.reopened();
        prop_assert_eq!(again.see(), once_more.see());
    }

    #[test]
    fn the_same_calls_give_the_same_records(calls in vec(any_call(), 1..60)) {
        let [mut one, mut other] = [Walk::random(), Walk::random()];
        calls.iter().for_each(|call| one.make(call));
        calls.iter().for_each(|call| other.make(call));
        prop_assert_eq!(&one.receipts, &other.receipts);
        prop_assert_eq!(one.rig.log.0, other.rig.log.0);
    }
}
