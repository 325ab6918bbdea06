//! Applies an answer, or the lack of one, to each group that the command may have touched.

use std::collections::{BTreeSet, HashSet};

use super::group::GroupEvent;
use super::linearize::Deed;
use super::register::Access;
use super::window::Window;
use super::{
    Address, Delivered, Due, FoundMessage, GroupId, GroupTarget, Oracle, PAUSE, PutHeard, Seq, SettleHeard,
    Sight, StoreAnswer, StoreCall, Sweep, TakenById, Terms, ViolationKind, known_of, of_queue,
};

/// The time span of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) begin: Seq,
    pub(super) end: Seq,
    pub(super) window: Window,
}

impl Heard {
    pub(super) fn deed<E>(self, effect: E) -> Deed<E> {
        Deed { begin: self.begin, end: self.end, window: self.window, effect }
    }
}

impl Oracle {
    /// Applies an answer to each group.
    pub(super) fn hear(&mut self, ask: StoreCall, answer: StoreAnswer, heard: Heard) {
        match (ask, answer) {
            (StoreCall::Put(group, spec), StoreAnswer::Put(answer)) => {
                if let PutHeard::Created { id, .. } | PutHeard::Replaced { id, .. } = answer {
                    self.identify(spec.no, id);
                }
                self.push(group, heard, GroupEvent::Put(spec, Some(answer)));
            }
            (StoreCall::Mismatch { group, no }, StoreAnswer::Put(heard_put)) => {
                self.push(group, heard, GroupEvent::Mismatch { no, heard: heard_put });
            }
            (StoreCall::Take { queues, terms }, StoreAnswer::Took(batch)) => {
                self.took(&queues, terms, batch, heard)
            }
            (StoreCall::Take { queues, terms }, StoreAnswer::TookPart(batch)) => {
                self.took(&queues, terms, batch, heard);
                for queue in queues {
                    self.all_of(queue, heard, |_| GroupEvent::UnreadTake(terms));
                }
            }
            (StoreCall::TakeById { message, terms }, StoreAnswer::TookById(answer)) => {
                if let TakenById::Delivered(delivered) = &answer {
                    self.handed_over(delivered, terms, heard);
                    self.check_cap(message.queue, 1, heard);
                }
                let what = GroupEvent::TakeById { no: message.no, terms, heard: Some(answer) };
                self.push(message.group(), heard, what);
            }
            (StoreCall::Settle { message, token, action }, StoreAnswer::Settled(answer)) => {
                if answer == SettleHeard::Gone {
                    self.handed_out.remove(&message.no);
                }
                let what = GroupEvent::Settle { no: message.no, token, action, heard: Some(answer) };
                self.push(message.group(), heard, what);
            }
            (StoreCall::EndLease { message, takes }, StoreAnswer::Ended(answer)) => {
                let what = GroupEvent::EndLease { no: message.no, takes, heard: Some(answer) };
                self.push(message.group(), heard, what);
            }
            (StoreCall::Cancel(group, target), StoreAnswer::Cancelled(answer)) => {
                self.push(group, heard, GroupEvent::Cancel { target, heard: Some(answer) });
            }
            (StoreCall::Reschedule(group, target, due), StoreAnswer::Rescheduled(answer)) => {
                self.push(group, heard, GroupEvent::Reschedule { target, due, heard: Some(answer) });
            }
            (StoreCall::Get(group, target, dead), StoreAnswer::Got(found)) => {
                if let FoundMessage::Message(sight) = &found {
                    self.identify(sight.no, sight.id);
                }
                self.push(group, heard, GroupEvent::Got { target, dead, found });
            }
            (StoreCall::Peek { queue }, StoreAnswer::Peeked(shown)) => {
                shown.into_iter().for_each(|(address, sight)| self.shown_in(queue, address, sight, heard));
            }
            (StoreCall::ListAll { queue }, StoreAnswer::Listed(sights)) => self.listed(queue, sights, heard),
            (StoreCall::Look { queue }, StoreAnswer::Seen(sights)) => self.seen(queue, sights, heard),
            (StoreCall::Revive(message, due), StoreAnswer::Raised(answer)) => {
                let what = GroupEvent::Revive { no: message.no, due, heard: Some(answer) };
                self.push(message.group(), heard, what);
            }
            (StoreCall::Discard(message), StoreAnswer::Raised(answer)) => {
                self.push(
                    message.group(),
                    heard,
                    GroupEvent::Discard { no: message.no, heard: Some(answer) },
                );
            }
            (StoreCall::Sweep { queue, sweep }, StoreAnswer::Done) => self.swept(queue, sweep, heard, true),
            (StoreCall::Configure { queue, setting, value }, StoreAnswer::Done) => {
                self.push_setting(queue, setting, heard, Access::Write { value, heard: true });
            }
            (StoreCall::ReadSettings { queue }, StoreAnswer::Settings(values)) => {
                for (setting, value) in values {
                    let policy = self.policies.entry(queue).or_default();
                    policy.read(heard.begin, heard.end, self.latest_wall, setting, &value);
                    self.push_setting(queue, setting, heard, Access::Read { value });
                }
            }
            (StoreCall::Put(group, spec), StoreAnswer::Refused) => {
                self.push(group, heard, GroupEvent::Put(spec, Some(PutHeard::Refused)));
            }
            (_, StoreAnswer::Refused) => {}
            (ask, answer) => panic!("{answer:?} is no answer to {ask:?}"),
        }
    }

    /// Applies the possible effects of a command without an answer.
    pub(super) fn miss(&mut self, ask: StoreCall, heard: Heard) {
        match ask {
            StoreCall::Put(group, spec) => self.push(group, heard, GroupEvent::Put(spec, None)),
            StoreCall::Take { queues, terms } => {
                for queue in queues {
                    self.all_of(queue, heard, |_| GroupEvent::LostTake(terms));
                }
            }
            StoreCall::Unread { queues, due, attempt } => {
                for queue in queues {
                    self.all_of(queue, heard, |_| GroupEvent::SentBack { due, attempt, heard: false });
                }
            }
            StoreCall::TakeById { message, terms } => {
                let what = GroupEvent::TakeById { no: message.no, terms, heard: None };
                self.push(message.group(), heard, what);
            }
            StoreCall::Settle { message, token, action } => {
                let what = GroupEvent::Settle { no: message.no, token, action, heard: None };
                self.push(message.group(), heard, what);
            }
            StoreCall::EndLease { message, takes } => {
                let what = GroupEvent::EndLease { no: message.no, takes, heard: None };
                self.push(message.group(), heard, what);
            }
            StoreCall::Cancel(group, target) => {
                self.push(group, heard, GroupEvent::Cancel { target, heard: None })
            }
            StoreCall::Reschedule(group, target, due) => {
                self.push(group, heard, GroupEvent::Reschedule { target, due, heard: None });
            }
            StoreCall::Revive(message, due) => {
                self.push(message.group(), heard, GroupEvent::Revive { no: message.no, due, heard: None });
            }
            StoreCall::Discard(message) => {
                self.push(message.group(), heard, GroupEvent::Discard { no: message.no, heard: None });
            }
            StoreCall::Sweep { queue, sweep } => self.swept(queue, sweep, heard, false),
            StoreCall::Configure { queue, setting, value } => {
                self.push_setting(queue, setting, heard, Access::Write { value, heard: false });
            }
            // Refused or not processed: it has changed nothing in either case.
            StoreCall::Mismatch { .. }
            | StoreCall::Get(..)
            | StoreCall::Peek { .. }
            | StoreCall::ListAll { .. }
            | StoreCall::Look { .. }
            | StoreCall::ReadSettings { .. } => {}
        }
    }

    fn took(&mut self, queues: &[u32], asked: Terms, batch: Vec<(Address, Delivered)>, heard: Heard) {
        for (_, delivered) in &batch {
            self.handed_over(delivered, asked, heard);
        }
        let place = |delivered: &Delivered| (delivered.priority, delivered.due, delivered.id);
        for pair in batch.windows(2) {
            if place(&pair[0].1) > place(&pair[1].1) {
                self.accuse(
                    ViolationKind::OutOfOrder,
                    format!("in one take, {:?} came before {:?}", pair[0], pair[1]),
                );
            }
        }
        let from: BTreeSet<u32> = batch.iter().map(|(address, _)| address.queue).collect();
        for queue in from {
            self.push_setting(queue, PAUSE, heard, Access::HandedOut);
            let count = batch.iter().filter(|(address, _)| address.queue == queue).count();
            self.check_cap(queue, count, heard);
        }
        for (address, delivered) in batch {
            if !queues.contains(&address.queue) {
                let text = format!("a take from {queues:?} brought {address:?}");
                self.accuse(ViolationKind::Contradiction, text);
            }
            self.push(address.group(), heard, GroupEvent::Taken(delivered));
        }
    }

    /// The checks on every delivery, whatever else happened to the message.
    fn handed_over(&mut self, delivered: &Delivered, asked: Terms, heard: Heard) {
        if asked != delivered.terms {
            self.accuse(
                ViolationKind::Contradiction,
                format!("{delivered:?} has another lease than {asked:?}"),
            );
        }
        self.counts.delivered += 1;
        self.identify(delivered.no, delivered.id);
        if !self.tokens.insert(delivered.token) {
            self.accuse(ViolationKind::TokenReused, format!("the token of {delivered:?} was issued before"));
        }
        let since = delivered.taken_at;
        if !heard.window.wall.holds(since) {
            let text = format!("{delivered:?} says that it was taken outside of {:?}", heard.window.wall);
            self.accuse(ViolationKind::Contradiction, text);
        }
        // An earlier holder that did not settle the message was cut off by a crash, or was slow.
        let lapses = delivered.lapses;
        let last = self.handed_out.insert(delivered.no, (self.crashes, lapses));
        let (crashes, counted) = last.unwrap_or((0, 0));
        if lapses > counted && self.crashes > crashes {
            self.counts.redelivered += 1;
        }
    }

    /// Checks the cap of a queue after `count` deliveries: no more messages may be leased than it allows, including those
    /// that were certainly leased already.
    fn check_cap(&mut self, queue: u32, count: usize, heard: Heard) {
        let Some(policy) = self.policies.get(&queue) else { return };
        let mut most = Some(0);
        for allowed in policy.max_leased(heard.begin, heard.end) {
            most = most.zip(allowed).map(|(most, allowed)| most.max(allowed));
        }
        let Some(most) = most else { return };
        let held = self.certainly_leased(queue, heard);
        if (held + count) as i64 > most {
            let text = format!(
                "{count} messages of queue {queue} were handed out while {held} were leased, and {most} may be"
            );
            self.accuse(ViolationKind::CapPassed, text);
        }
    }

    fn listed(&mut self, queue: u32, sights: Vec<(Address, Sight)>, heard: Heard) {
        let shown: HashSet<u64> = sights.iter().map(|(_, sight)| sight.no).collect();
        self.seen(queue, sights, heard);
        let mut missing = Vec::new();
        for (group, track) in self.groups.range(of_queue(queue)) {
            let known = track.states.iter().flat_map(|state| &state.messages);
            let known = known.filter(|message| !message.is_gone()).map(|message| message.no);
            let known: BTreeSet<u64> = known.filter(|no| !shown.contains(no)).collect();
            missing.extend(known.into_iter().map(|no| (*group, no)));
        }
        for (group, no) in missing {
            let what = GroupEvent::Got {
                target: GroupTarget::Message(no),
                dead: false,
                found: FoundMessage::Nothing,
            };
            self.push(group, heard, what);
        }
    }

    fn seen(&mut self, queue: u32, sights: Vec<(Address, Sight)>, heard: Heard) {
        for (address, sight) in sights {
            self.shown_in(queue, address, sight, heard);
        }
    }

    /// A message was shown in a queue.
    fn shown_in(&mut self, queue: u32, address: Address, sight: Sight, heard: Heard) {
        if address.queue != queue {
            return self
                .accuse(ViolationKind::Contradiction, format!("{address:?} was shown in queue {queue}"));
        }
        self.identify(sight.no, sight.id);
        self.push(address.group(), heard, GroupEvent::Listed(sight));
    }

    fn swept(&mut self, queue: u32, sweep: Sweep, heard: Heard, answered: bool) {
        if let Sweep::ReviveAll(due) = sweep {
            return self.revived_all(queue, due, heard, answered);
        }
        for (group, no) in self.known_in(queue) {
            self.may_have_died(group, no);
        }
        self.all_of(queue, heard, |_| GroupEvent::Sweep { sweep, heard: answered });
        if sweep == Sweep::DeleteQueue {
            let settings: Vec<&'static str> =
                self.settings.range((queue, "")..(queue + 1, "")).map(|((_, setting), _)| *setting).collect();
            for setting in settings {
                self.push_setting(queue, setting, heard, Access::Write { value: None, heard: answered });
            }
        }
    }

    /// A revive of all reaches each message separately.
    fn revived_all(&mut self, queue: u32, due: Due, heard: Heard, answered: bool) {
        for (group, no) in self.known_in(queue) {
            self.push(group, heard, GroupEvent::RevivedWithAll { no, due, heard: answered });
        }
    }

    /// All messages that may exist in a queue.
    fn known_in(&self, queue: u32) -> Vec<(GroupId, u64)> {
        let mut messages = Vec::new();
        for (group, track) in self.groups.range(of_queue(queue)) {
            messages.extend(known_of(track).into_iter().map(|no| (*group, no)));
        }
        // A put that is not answered yet may have taken effect, and its message may be dead already.
        messages.extend(self.open.values().filter_map(|(ask, ..)| match ask {
            StoreCall::Put(group, spec) if group.queue == queue => Some((*group, spec.no)),
            _ => None,
        }));
        messages.sort_unstable();
        messages.dedup();
        messages
    }

    /// Checks that an id belongs to one put only.
    fn identify(&mut self, no: u64, id: u128) {
        let owner = *self.ids.entry(id).or_insert(no);
        if owner != no {
            let text = format!("put {no} has the id {id:032x}, which put {owner} had");
            self.accuse(ViolationKind::IdReused, text);
        }
    }

    /// Checks that a number belongs to one put only, and is higher than all that were answered before the put began.
    pub(crate) fn numbered(&mut self, no: u64, number: u64) {
        let before = self.numbers.get(&no).copied().unwrap_or_default();
        self.highest_number = self.highest_number.max(number);
        let owner = *self.numbered.entry(number).or_insert(no);
        if number <= before || owner != no {
            let text = format!(
                "put {no} has number {number}, which put {owner} has, and {before} was answered before it began"
            );
            self.accuse(ViolationKind::IdReused, text);
        }
    }
}
