//! Checks while nothing is under way: no lease of a dropped take is left, lists show everything and counts agree, each
//! message is found by id, number and key, a take returns exactly the first messages, and waiting takes are woken.

use std::pin::Pin;

use dwell_engine::Engine;
use dwell_model::{MessageId, Number, QueueName, SettingChange, SettingName, StateKind, Timestamp};
use dwell_store::{Delivery, Error, Put, Result, Settle, Store as _, Take, Target as WishTarget};

use super::wait::polled;
use super::{Round, StressShared};
use crate::oracle::{
    Address, DEAD_MAX, DEAD_TTL, GroupTarget, ON_EXPIRY, Sight, StoreAnswer, StoreCall, Tallies, Terms,
    ViolationKind,
};
use crate::run::answers::{self, CommandFate};
use crate::workload::{QUEUES, Uses, key_name, queue_name, words};

/// The number of calls after which a single caller runs the shard inline.
const WARM: usize = 40;
/// A number of leases that a round never reaches.
const PLENTY: usize = 10_000;
/// The most messages that are looked up by key.
const LOOKED_FOR: usize = 40;

impl Round {
    /// Checks everything, while nothing is under way.
    pub(super) fn look(&mut self, engine: &Engine) {
        let shared = &self.shared;
        shared.settle_down(engine);
        let now = shared.now();
        shared.oracle().all_gave_back(now);
        for queue in 0..QUEUES {
            let max = self.rng.between(1, 200) as usize;
            if !self.shared.look_through(engine, queue, max) {
                return;
            }
        }
        if self.shared.manual.is_some() {
            for _ in 0..3 {
                let queues = crate::workload::queues(&mut self.rng);
                let max = self.rng.between(1, 120) as usize;
                self.shared.take_exactly(engine, &queues, max);
            }
            // If the cap on leases is small, others may hold all of them.
            if engine.limits().leased >= PLENTY {
                self.shared.wake_in_time(engine);
                self.shared.serve_in_order(engine);
            }
        }
        self.shared.nothing_is_damaged(engine);
    }

    /// The final check: nothing is paused and every lease is over; then all due messages are taken.
    pub(super) fn last_look(&mut self, engine: &Engine) {
        for queue in 0..QUEUES {
            self.shared.reset(engine, queue, SettingName::Pause);
            if self.shared.uses == Uses::All {
                self.shared.reset(engine, queue, SettingName::MaxLeased);
            }
        }
        self.shared.advance(120_000);
        if self.shared.manual.is_some() {
            for queue in (0..QUEUES).chain(0..QUEUES) {
                let max = self.rng.between(1, 400) as usize;
                self.shared.take_exactly(engine, &[queue], max);
            }
        }
        self.look(engine);
    }
}

impl StressShared {
    /// Waits until work left behind by calls is done.
    fn settle_down(&self, engine: &Engine) {
        for _ in 0..2 {
            let _ = self.answer("stats", engine.stats(queue_name(0)));
        }
    }

    /// Checks a queue; returns false after a violation.
    fn look_through(&self, engine: &Engine, queue: u32, max: usize) -> bool {
        let now = self.now();
        let op = self.oracle().begin(StoreCall::ListAll { queue }, now);
        let (mut sights, mut numbered) = (Vec::new(), Vec::new());
        for state in [StateKind::Leased, StateKind::Scheduled, StateKind::Ready, StateKind::Dead] {
            let (mut cursor, mut first) = (None, None);
            loop {
                let page = self.answer("a list", engine.list(queue_name(queue), state, cursor, max));
                let page = match page {
                    Some(Ok(page)) if page.unread.is_empty() => page,
                    Some(Err(Error::UnknownQueue { .. })) => break,
                    other => {
                        self.conclude(op, CommandFate::Odd(format!("a list was answered {other:?}")));
                        return false;
                    }
                };
                numbered.extend(page.messages.iter().map(|message| (message.number, message.id)));
                let least = page.messages.iter().map(answers::peek_order).min();
                first = first.into_iter().chain(least).min();
                match answers::page(&page) {
                    Ok(shown) => sights.extend(shown),
                    Err(text) => {
                        self.conclude(op, CommandFate::Odd(text));
                        return false;
                    }
                }
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            self.peek(engine, queue, state, first);
        }
        self.conclude(op, CommandFate::Heard(StoreAnswer::Listed(sights.clone())));
        self.read_settings(engine, queue);
        self.count(engine, queue);
        self.locate(engine, queue, &numbered);
        self.find(engine, queue, &sights);
        self.is_honest()
    }

    /// A peek shows the first message of a list, if no time has passed.
    fn peek(
        &self,
        engine: &Engine,
        queue: u32,
        state: StateKind,
        first: Option<(u32, Timestamp, MessageId)>,
    ) {
        let peeked = self.answer("a peek", engine.peek(queue_name(queue), state));
        let shown = match &peeked {
            Some(Ok(shown)) => shown.as_ref().map(answers::peek_order),
            Some(Err(Error::UnknownQueue { .. })) => None,
            Some(Err(error)) => {
                return self.accuse(ViolationKind::Contradiction, format!("a peek said {error}"));
            }
            None => return,
        };
        // Dead messages beyond the limit are discarded in slices: the oldest may have gone since the list.
        let goes = state == StateKind::Dead && self.oracle().policy(queue).was_ever_set(DEAD_MAX);
        let has_gone = goes && first.is_some() && (shown.is_none() || shown >= first);
        if self.manual.is_some() && shown != first && !has_gone {
            let text = format!("a peek at {state} of queue {queue} shows {peeked:?}, and a list {first:?}");
            self.accuse(ViolationKind::OutOfOrder, text);
        }
    }

    fn read_settings(&self, engine: &Engine, queue: u32) {
        let now = self.now();
        let op = self.oracle().begin(StoreCall::ReadSettings { queue }, now);
        let answer = self.answer("stats", engine.stats(queue_name(queue)));
        self.conclude(op, answer.map_or(CommandFate::Unknown, |answer| answers::settings(&answer)));
    }

    /// Checks the counts, which are maintained incrementally and must be exact.
    fn count(&self, engine: &Engine, queue: u32) {
        // If time runs by itself, more messages may be ready by now.
        if self.manual.is_none() {
            return;
        }
        let now = self.now();
        let rests = self.has_discarded(engine, queue);
        let Some(stats) = self.answer("stats", engine.stats(queue_name(queue))) else { return };
        let Some(expected) = self.oracle().tallies(queue, now, rests) else { return };
        let counted = match stats {
            Ok(stats) => Tallies::of(&stats.counts),
            Err(Error::UnknownQueue { .. }) => Tallies::default(),
            Err(error) => return self.accuse(ViolationKind::Contradiction, format!("stats said {error}")),
        };
        if !expected.allows(counted) {
            let text = format!("queue {queue} counts {counted:?}, and has {expected:?}");
            self.accuse(expected.kind(counted), text);
        }
    }

    /// Whether the dead messages past retention are discarded: each call discards a slice, over all queues.
    fn has_discarded(&self, engine: &Engine, queue: u32) -> bool {
        let limits = |queue: u32| {
            let oracle = self.oracle();
            [DEAD_TTL, DEAD_MAX].iter().any(|setting| oracle.policy(queue).was_ever_set(setting))
        };
        if !limits(queue) {
            return false;
        }
        let dead_of_all = || {
            let limited = (0..QUEUES).filter(|queue| limits(*queue));
            let stats =
                limited.filter_map(|queue| self.answer("stats", engine.stats(queue_name(queue)))?.ok());
            stats.map(|stats| stats.counts.dead as usize).sum::<usize>()
        };
        // A flush that ends meanwhile may bring about more deaths: it rests when the calls have changed nothing.
        let mut before = None;
        loop {
            let dead = dead_of_all();
            if before == Some(dead) {
                return true;
            }
            before = Some(dead);
            let calls = 2 * QUEUES as usize + dead;
            (0..calls).for_each(|_| drop(self.answer("stats", engine.stats(queue_name(queue)))));
        }
    }

    /// Each listed message is found by its number.
    fn locate(&self, engine: &Engine, queue: u32, numbered: &[(Number, MessageId)]) {
        let numbers = numbered.iter().map(|(number, _)| *number).collect();
        let Some(located) = self.answer("a look-up of numbers", engine.locate(numbers)) else { return };
        // Messages removed by time may have gone since they were listed.
        let goes = {
            let oracle = self.oracle();
            [DEAD_TTL, DEAD_MAX, ON_EXPIRY].iter().any(|setting| oracle.policy(queue).was_ever_set(setting))
        };
        for ((number, id), found) in numbered.iter().zip(located) {
            if found != Ok(Some((queue_name(queue), *id))) && !(goes && found == Ok(None)) {
                let text =
                    format!("{number}, which was listed as {id} of queue {queue}, is located at {found:?}");
                return self.accuse(ViolationKind::Lost, text);
            }
        }
    }

    /// Some of the live listed messages are found by key, and all kinds by id.
    fn find(&self, engine: &Engine, queue: u32, sights: &[(Address, Sight)]) {
        let keyed = sights.iter().filter_map(|(address, _)| Some((address, address.key?)));
        let by_key = keyed
            .map(|(address, key)| (address.group(), GroupTarget::Key, WishTarget::Key(key_name(key))))
            .take(LOOKED_FOR);
        let by_id = sights.iter().rev().take(LOOKED_FOR).map(|(address, sight)| {
            let id = MessageId::from_bits(sight.id);
            id.map(|id| (address.group(), GroupTarget::Message(address.no), WishTarget::Id(id)))
        });
        let targets: Vec<_> = by_key.chain(by_id.flatten()).collect();
        if targets.is_empty() {
            return;
        }
        let now = self.now();
        let ask = |(group, target, _): &_| self.oracle().begin(StoreCall::Get(*group, *target, false), now);
        let ops: Vec<_> = targets.iter().map(ask).collect();
        let wishes = targets.into_iter().map(|(_, _, wish)| wish).collect();
        let found = self.answer("a get", engine.get(queue_name(queue), wishes, false)).unwrap_or_default();
        let mut found = found.iter();
        for op in ops {
            self.conclude(op, found.next().map_or(CommandFate::Unknown, answers::got));
        }
    }

    fn reset(&self, engine: &Engine, queue: u32, setting: SettingName) {
        let change = SettingChange::Reset(setting);
        let (setting, value) = words::change(&change);
        let now = self.now();
        let op = self.oracle().begin(StoreCall::Configure { queue, setting, value }, now);
        let answer = self.answer("a setting", engine.configure(queue_name(queue), vec![change]));
        self.conclude(op, answer.map_or(CommandFate::Unknown, |answer| answers::done(&answer)));
    }

    /// A take without concurrent commands: the first ready messages, in order, and nothing else.
    fn take_exactly(&self, engine: &Engine, queues: &[u32], max: usize) {
        const LEASE_MS: u64 = 60_000;
        let now = self.now();
        let terms = Terms { lease_ms: LEASE_MS as i64, session: false, holder: None };
        let ask = StoreCall::Take { queues: queues.to_vec(), terms };
        let (expected, op) = {
            let mut oracle = self.oracle();
            (oracle.ready(queues, now), oracle.begin(ask, now))
        };
        let take = Take::from_all(queues.iter().copied().map(queue_name)).max(max).lease_ms(LEASE_MS);
        let Some(answer) = self.answer("a take that does not wait", engine.take(take)) else {
            return self.conclude(op, CommandFate::Unknown);
        };
        if let (Ok(deliveries), Some(expected)) = (&answer, &expected) {
            let got: Vec<u128> = deliveries.iter().map(|delivery| delivery.message.id.as_bits()).collect();
            let first: Vec<u128> = expected.iter().take(max).map(|ready| ready.id).collect();
            // A cap on leases may end a batch early.
            let is_capped = got.len() < first.len() && !got.is_empty() && engine.limits().leased < PLENTY;
            let compared = if is_capped { &first[..got.len()] } else { &first[..] };
            if got != compared {
                let kind =
                    if got.len() < first.len() { ViolationKind::Withheld } else { ViolationKind::OutOfOrder };
                let text = format!("a take of {max} from {queues:?} brought {got:x?}, and not {first:x?}");
                self.accuse(kind, text);
            }
        }
        self.conclude(op, answers::took(&answer, false));
    }

    /// A put by a caller that runs the shard inline adds an instant that the shard's thread does not know. Only this
    /// caller can wake the thread for it.
    fn wake_in_time(&self, engine: &Engine) {
        let waiting = engine.clone();
        let future = async move { waiting.take(Take::from(probe()).wait_ms(3_600_000)).await };
        let mut taken: PendingTake = Box::pin(future);
        let _ = polled(&mut taken);
        let inline = engine.with_inline_calls();
        self.warm_up(&inline);
        let put = Put::new(probe(), "to be woken for").after_ms(10);
        let _ = self.answer("a put", inline.put(vec![put]));
        self.advance(10);
        self.settle_probe(engine, "a take that waits for a message which is due", taken);
    }

    /// Of two waiting takes, the one that was sent first is served first, even if its caller left it to the shard's
    /// thread and the other one was run inline.
    fn serve_in_order(&self, engine: &Engine) {
        let inline = engine.with_inline_calls();
        self.warm_up(&inline);
        let [mut first, mut second] = [engine.clone(), inline.clone()].map(|engine| {
            let future = async move { engine.take(Take::from(probe()).wait_ms(3_600_000)).await };
            Box::pin(future) as PendingTake
        });
        let _ = (polled(&mut first), polled(&mut second));
        let _ = self.answer("a put", inline.put(vec![Put::new(probe(), "for the first")]));
        self.settle_down(engine);
        match polled(&mut second) {
            None => self.settle_probe(engine, "the first of two takes that wait", first),
            Some(answer) => {
                let text = format!("of two takes that wait the second was served first: {answer:?}");
                self.accuse(ViolationKind::OutOfOrder, text);
            }
        }
        drop(second);
        self.settle_down(engine);
        let stats = self.answer("stats", engine.stats(probe()));
        if let Some(Ok(stats)) = stats {
            let text = format!("all takes were answered or given up, and all messages acked: {stats:?}");
            self.accuse(ViolationKind::Contradiction, text);
        }
    }

    fn warm_up(&self, inline: &Engine) {
        for _ in 0..WARM {
            let _ = self.answer("stats", inline.stats(probe()));
        }
    }

    /// Acks what the take returns.
    fn settle_probe(&self, engine: &Engine, about: &str, taking: PendingTake) {
        let Some(answer) = self.answer(about, taking) else { return };
        match answer.as_deref() {
            Ok([delivery]) => {
                let ack = Settle { receipt: delivery.receipt.clone(), action: dwell_store::Action::Ack };
                let _ = self.answer("an ack", engine.settle(vec![ack]));
            }
            other => self.accuse(ViolationKind::Withheld, format!("{about} was answered {other:?}")),
        }
    }

    fn nothing_is_damaged(&self, engine: &Engine) {
        let counters = engine.counters();
        let (bad, background_failures) =
            (counters.unread + counters.damaged + counters.runs_damaged, engine.background_failures());
        if bad > 0 || !background_failures.is_empty() {
            let text = format!("nothing is wrong with the disk: {background_failures:?}, {counters:?}");
            self.accuse(ViolationKind::Contradiction, text);
        }
    }
}

type PendingTake = Pin<Box<dyn Future<Output = Result<Vec<Delivery>>> + Send>>;

/// A queue that no other caller uses.
fn probe() -> QueueName {
    "stress-probe".parse().expect("it is a valid name")
}
