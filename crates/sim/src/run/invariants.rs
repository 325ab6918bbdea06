//! Checks where nothing is uncertain: a take returns exactly the right messages, in order; counts are exact; lists show
//! everything once; settings read as they were set; and at the end nothing is stuck.

use std::collections::BTreeMap;
use std::sync::Arc;

use dwell_model::{Message, SettingChange, SettingName, StateKind};
use dwell_store::{self as wish, Error, QueueStats, Result, Store, Take};

use super::answers::{self, CommandFate};
use super::client::{CallAnswer, CallSubject};
use super::world::World;
use crate::oracle::{
    Address, DEAD_MAX, GroupId, GroupTarget, Member, ShownMessage, Sight, StoreAnswer, StoreCall, Tallies,
    Terms, ViolationKind, are_first_of_each,
};
use crate::workload::{self, QUEUES, Uses, key_name, queue_name, words};

/// The key that most dead messages have.
fn most_often_dead(sights: &[(Address, Sight)]) -> Option<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    let dead = sights.iter().filter(|(_, sight)| sight.keyed && matches!(sight.shown, ShownMessage::Dead(_)));
    for key in dead.filter_map(|(address, _)| address.key) {
        *counts.entry(key).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(key, _)| key)
}

impl World {
    fn open_store(&self) -> Option<Arc<dyn Store>> {
        self.running.as_ref().map(|running| Arc::clone(&running.store))
    }

    /// Checks a store that was just opened.
    pub(super) fn audit(&mut self) {
        for queue in 0..QUEUES {
            self.list_all(queue);
            self.read_settings(queue);
            self.count(queue);
        }
    }

    /// One check while the store is otherwise idle.
    pub(super) fn probe(&mut self) {
        if self.uses.percent(&mut self.rng, 40) {
            return self.probe_at_rest();
        }
        match self.rng.below(4) {
            0 => {
                let queue = workload::queue(&mut self.rng);
                self.list_all(queue);
                self.count(queue);
            }
            1 => {
                let queue = workload::queue(&mut self.rng);
                self.read_settings(queue);
                self.count(queue);
            }
            _ => {
                let queues = workload::queues(&mut self.rng);
                let max = self.rng.between(1, 10) as usize;
                self.take_exactly(&queues, max);
            }
        }
    }

    /// The same for a store without pending work: it keeps no more dead messages than it may.
    fn probe_at_rest(&mut self) {
        self.expect_rest();
        if self.has_failed || self.disk.is_off() || !self.is_quiet() {
            return;
        }
        let queue = workload::queue(&mut self.rng);
        self.list_all(queue);
        let rests = !self.is_scarred && self.weather.lets_retain(self.reading());
        self.count_at(queue, rests);
        self.look_at_deaths(rests);
        let queues = workload::queues(&mut self.rng);
        let max = self.rng.between(1, 10) as usize;
        self.take_exactly(&queues, max);
    }

    /// The final check: the store is opened once more, nothing is paused and
    /// every lease is over; then all due messages are taken, and no others.
    pub(super) fn last_look(&mut self) {
        self.strike();
        for queue in 0..QUEUES {
            self.reset(queue, SettingName::Pause);
            if self.uses == Uses::All {
                self.reset(queue, SettingName::MaxLeased);
            }
        }
        self.clock.advance(120_000);
        for _ in 0..2 {
            for queue in 0..QUEUES {
                if self.oracle.violations().is_empty() {
                    self.take_exactly(&[queue], 1_000);
                }
            }
        }
        self.audit();
    }

    /// Prints all messages as the store shows them now, to debug a violation.
    pub(super) fn show_all(&mut self) {
        let Some(store) = self.open_store() else { return };
        for queue in 0..QUEUES {
            for state in StateKind::ALL {
                let (store, name) = (store.clone(), queue_name(queue));
                let page = self.ask(async move { store.list(name, state, None, 1_000).await });
                let Some(Ok(page)) = page else {
                    println!("shown in {queue}: {page:?}");
                    continue;
                };
                for message in page.messages {
                    println!("shown in {queue}: {} {}: {:?}", message.id, message.number, message.standing);
                }
            }
        }
    }

    pub(super) fn list_all(&mut self, queue: u32) {
        let Some(store) = self.open_store() else { return };
        let now = self.reading();
        let op = self.oracle.begin(StoreCall::ListAll { queue }, now);
        let page_len = self.rng.between(1, 60) as usize;
        let mut sights = Vec::new();
        let mut firsts: BTreeMap<&str, Message> = BTreeMap::new();
        for state in [StateKind::Leased, StateKind::Scheduled, StateKind::Ready, StateKind::Dead] {
            let mut cursor = None;
            loop {
                let (store, name) = (store.clone(), queue_name(queue));
                let page = self.ask(async move { store.list(name, state, cursor, page_len).await });
                let page = match page {
                    Some(Ok(page)) => page,
                    Some(Err(Error::UnknownQueue { .. })) => break,
                    Some(Err(error)) if answers::is_unread(&error) && self.is_scarred => {
                        let now = self.reading();
                        return self.oracle.lose(op, now);
                    }
                    other => return self.odd(op, format!("a list was answered {other:?}")),
                };
                if let Some((id, error)) = page.unread.first() {
                    if let Some((id, error)) = page.unread.iter().find(|(id, _)| self.can_be_read(*id)) {
                        return self.odd(op, format!("{id} lies where all can be read: {error}"));
                    }
                    if self.is_scarred {
                        let now = self.reading();
                        return self.oracle.lose(op, now);
                    }
                    return self.odd(op, format!("nothing keeps the store from reading {id}: {error}"));
                }
                match answers::page(&page) {
                    Ok(shown) => sights.extend(shown),
                    Err(text) => return self.odd(op, text),
                }
                cursor = page.next;
                let first = firsts.remove(state.as_str()).into_iter().chain(page.messages);
                let first = first.min_by_key(answers::peek_order);
                firsts.extend(first.map(|first| (state.as_str(), first)));
                if cursor.is_none() {
                    break;
                }
            }
        }
        self.trace.add(format_args!("  listed {queue}: {sights:?}"));
        let key = most_often_dead(&sights);
        self.conclude(op, CommandFate::Heard(StoreAnswer::Listed(sights)));
        for state in StateKind::ALL {
            self.peek_exactly(queue, state, firsts.remove(state.as_str()));
        }
        if let Some(key) = key {
            self.get_dead(queue, key);
        }
    }

    /// Gets a message by a key that dead messages have, at the instant of a full list, so that all of them are known: the
    /// youngest, unless a live one has the key.
    fn get_dead(&mut self, queue: u32, key: u32) {
        let Some(store) = self.open_store() else { return };
        let group = GroupId { queue, member: Member::Key(key) };
        let now = self.reading();
        let op = self.oracle.begin(StoreCall::Get(group, GroupTarget::Key, true), now);
        let asked = vec![wish::Target::Key(key_name(key))];
        let answer = self.ask(async move { store.get(queue_name(queue), asked, true).await.pop() });
        let fate = match answer.flatten() {
            Some(answer) => answers::got(&answer),
            None => CommandFate::Odd("a get was not answered".to_owned()),
        };
        self.trace.add(format_args!("  got by key {key} in {queue}: {fate:?}"));
        self.conclude(op, fate);
    }

    /// A peek without concurrent commands, at the instant of a full list, shows the first message of that list.
    fn peek_exactly(&mut self, queue: u32, state: StateKind, first: Option<Message>) {
        let Some(store) = self.open_store() else { return };
        let peeked = match self.ask(async move { store.peek(queue_name(queue), state).await }) {
            Some(Ok(peeked)) => peeked,
            Some(Err(Error::UnknownQueue { .. })) => None,
            Some(Err(error)) if answers::is_unread(&error) && self.is_scarred => return,
            // While flushes fail and memory is full, no ready message of a table can be read into memory.
            Some(Err(Error::Overloaded { .. })) if state == StateKind::Ready => return,
            other => {
                return self
                    .oracle
                    .accuse(ViolationKind::Contradiction, format!("a peek was answered {other:?}"));
            }
        };
        let order = |message: &Option<Message>| message.as_ref().map(answers::peek_order);
        // The oldest may have gone between the list and the peek: dead messages beyond the limit are discarded in slices.
        let goes = state == StateKind::Dead && self.oracle.policy(queue).was_ever_set(DEAD_MAX);
        if goes && first.is_some() && (peeked.is_none() || order(&peeked) >= order(&first)) {
            return;
        }
        if order(&peeked) != order(&first) {
            let text = format!("a peek at {state} of queue {queue} shows {peeked:?}, and a list {first:?}");
            self.oracle.accuse(ViolationKind::OutOfOrder, text);
        }
    }

    fn odd(&mut self, op: crate::oracle::Op, text: String) {
        self.conclude(op, CommandFate::Odd(text));
    }

    pub(super) fn stats(&mut self, queue: u32) -> Option<Result<QueueStats>> {
        let store = self.open_store()?;
        self.ask(async move { store.stats(queue_name(queue)).await })
    }

    fn read_settings(&mut self, queue: u32) {
        let now = self.reading();
        let op = self.oracle.begin(StoreCall::ReadSettings { queue }, now);
        let fate = match self.stats(queue) {
            Some(stats) => answers::settings(&stats),
            None => CommandFate::Odd("stats were not answered".to_owned()),
        };
        self.trace.add(format_args!("  settings of {queue}: {fate:?}"));
        self.conclude(op, fate);
    }

    /// Checks the counts, which are maintained incrementally and must be exact.
    fn count(&mut self, queue: u32) {
        self.count_at(queue, false);
    }

    /// The same, for a store that may have no pending work (`rests`).
    fn count_at(&mut self, queue: u32, rests: bool) {
        let now = self.reading();
        let Some(stats) = self.stats(queue) else { return };
        let Some(expected) = self.oracle.tallies(queue, now, rests) else { return };
        let counted = match stats {
            Ok(stats) => Tallies::of(&stats.counts),
            Err(Error::UnknownQueue { .. }) => Tallies::default(),
            Err(error) => {
                return self.oracle.accuse(ViolationKind::Contradiction, format!("stats said {error}"));
            }
        };
        if !expected.allows(counted) {
            let text = format!("queue {queue} counts {counted:?}, and has {expected:?}");
            self.oracle.accuse(expected.kind(counted), text);
        }
    }

    fn reset(&mut self, queue: u32, setting: SettingName) {
        let Some(store) = self.open_store() else { return };
        let change = SettingChange::Reset(setting);
        let (setting, value) = words::change(&change);
        let now = self.reading();
        let op = self.oracle.begin(StoreCall::Configure { queue, setting, value }, now);
        let answer = self.ask(async move { store.configure(queue_name(queue), vec![change]).await });
        let fate = match answer {
            Some(answer) => answers::done(&answer),
            None => CommandFate::Odd("a change of a setting was not answered".to_owned()),
        };
        self.conclude(op, fate);
    }

    /// A take without concurrent commands: the first ready messages, in order, and nothing else.
    fn take_exactly(&mut self, queues: &[u32], max: usize) {
        let Some(store) = self.open_store() else { return };
        let now = self.reading();
        let expected = self.oracle.ready(queues, now);
        let take = Take::from_all(queues.iter().copied().map(queue_name)).max(max).lease_ms(60_000);
        let terms = Terms { lease_ms: 60_000, session: false, holder: None };
        let op = self.oracle.begin(StoreCall::Take { queues: queues.to_vec(), terms }, now);
        let before = (self.unread_so_far(), self.memory_full_so_far());
        let Some(answer) = self.ask(async move { store.take(take).await }) else {
            return self.odd(op, "a take that need not wait was not answered".to_owned());
        };
        let (bad_reads, memory_full) =
            (self.unread_so_far() > before.0, self.memory_full_so_far() > before.1);
        self.trace.add(format_args!("  took from {queues:?}: {answer:?}, expected {expected:?}"));
        if let (Ok(deliveries), Some(expected), false) = (&answer, &expected, bad_reads) {
            let got: Vec<u128> = deliveries.iter().map(|delivery| delivery.message.id.as_bits()).collect();
            let first: Vec<u128> = expected.iter().take(max).map(|ready| ready.id).collect();
            // A cap on leases may end a batch early, and so may many simultaneous expiries; neither changes the order.
            let ends_early = self.options.limits.leased < 100 || self.options.expired_per_turn < 100;
            let capped = got.len() < first.len() && !got.is_empty() && ends_early;
            let compared = if capped { &first[..got.len()] } else { &first[..] };
            // Queues whose next messages do not fit in memory are skipped.
            if got != compared && !(memory_full && are_first_of_each(&got, expected)) {
                let kind =
                    if got.len() < first.len() { ViolationKind::Withheld } else { ViolationKind::OutOfOrder };
                let text = format!("a take of {max} from {queues:?} brought {got:x?}, and not {first:x?}");
                self.oracle.accuse(kind, text);
            }
        }
        self.land(vec![op], CallSubject::Other, CallAnswer::Took(answer), bad_reads);
    }
}
