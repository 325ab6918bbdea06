//! What an answer, or the lack of one, says of each group that the command may have touched.

use std::collections::{BTreeSet, HashSet};

use super::group::What;
use super::linearize::Deed;
use super::register::Access;
use super::window::Window;
use super::{
    Address, Answer, Ask, Delivered, Due, Found, GroupId, Kind, Oracle, PAUSE, PutHeard, Seq, SettleHeard,
    Sight, Sweep, TakenById, Target, Terms, known_of, of_queue,
};

/// When something was heard.
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
    /// What an answer says of each group.
    pub(super) fn hear(&mut self, ask: Ask, answer: Answer, heard: Heard) {
        match (ask, answer) {
            (Ask::Put(group, spec), Answer::Put(answer)) => {
                if let PutHeard::Created { id, .. } | PutHeard::Replaced { id, .. } = answer {
                    self.identify(spec.no, id);
                }
                self.push(group, heard, What::Put(spec, Some(answer)));
            }
            (Ask::Mismatch { group, no }, Answer::Put(heard_put)) => {
                self.push(group, heard, What::Mismatch { no, heard: heard_put });
            }
            (Ask::Take { queues, terms }, Answer::Took(batch)) => self.took(&queues, terms, batch, heard),
            (Ask::Take { queues, terms }, Answer::TookPart(batch)) => {
                self.took(&queues, terms, batch, heard);
                for queue in queues {
                    self.all_of(queue, heard, |_| What::UnreadTake(terms));
                }
            }
            (Ask::TakeById { message, terms }, Answer::TookById(answer)) => {
                if let TakenById::Delivered(delivered) = &answer {
                    self.handed_over(delivered, terms, heard);
                    self.check_cap(message.queue, 1, heard);
                }
                let what = What::TakeById { no: message.no, terms, heard: Some(answer) };
                self.push(message.group(), heard, what);
            }
            (Ask::Settle { message, token, action }, Answer::Settled(answer)) => {
                if answer == SettleHeard::Gone {
                    self.handed_out.remove(&message.no);
                }
                let what = What::Settle { no: message.no, token, action, heard: Some(answer) };
                self.push(message.group(), heard, what);
            }
            (Ask::EndLease { message, takes }, Answer::Ended(answer)) => {
                let what = What::EndLease { no: message.no, takes, heard: Some(answer) };
                self.push(message.group(), heard, what);
            }
            (Ask::Cancel(group, target), Answer::Cancelled(answer)) => {
                self.push(group, heard, What::Cancel { target, heard: Some(answer) });
            }
            (Ask::Reschedule(group, target, due), Answer::Rescheduled(answer)) => {
                self.push(group, heard, What::Reschedule { target, due, heard: Some(answer) });
            }
            (Ask::Get(group, target, dead), Answer::Got(found)) => {
                if let Found::Message(sight) = &found {
                    self.identify(sight.no, sight.id);
                }
                self.push(group, heard, What::Got { target, dead, found });
            }
            (Ask::Peek { queue }, Answer::Peeked(shown)) => {
                shown.into_iter().for_each(|(address, sight)| self.shown_in(queue, address, sight, heard));
            }
            (Ask::ListAll { queue }, Answer::Listed(sights)) => self.listed(queue, sights, heard),
            (Ask::Look { queue }, Answer::Seen(sights)) => self.seen(queue, sights, heard),
            (Ask::Revive(message, due), Answer::Raised(answer)) => {
                let what = What::Revive { no: message.no, due, heard: Some(answer) };
                self.push(message.group(), heard, what);
            }
            (Ask::Discard(message), Answer::Raised(answer)) => {
                self.push(message.group(), heard, What::Discard { no: message.no, heard: Some(answer) });
            }
            (Ask::Sweep { queue, sweep }, Answer::Done) => self.swept(queue, sweep, heard, true),
            (Ask::Configure { queue, setting, value }, Answer::Done) => {
                self.push_setting(queue, setting, heard, Access::Write { value, heard: true });
            }
            (Ask::ReadSettings { queue }, Answer::Settings(values)) => {
                for (setting, value) in values {
                    let policy = self.policies.entry(queue).or_default();
                    policy.read(heard.begin, heard.end, self.latest_wall, setting, &value);
                    self.push_setting(queue, setting, heard, Access::Read { value });
                }
            }
            (Ask::Put(group, spec), Answer::Refused) => {
                self.push(group, heard, What::Put(spec, Some(PutHeard::Refused)));
            }
            (_, Answer::Refused) => {}
            (ask, answer) => panic!("{answer:?} is no answer to {ask:?}"),
        }
    }

    /// What may have happened without an answer.
    pub(super) fn miss(&mut self, ask: Ask, heard: Heard) {
        match ask {
            Ask::Put(group, spec) => self.push(group, heard, What::Put(spec, None)),
            Ask::Take { queues, terms } => {
                for queue in queues {
                    self.all_of(queue, heard, |_| What::LostTake(terms));
                }
            }
            Ask::Unread { queues, due, attempt } => {
                for queue in queues {
                    self.all_of(queue, heard, |_| What::SentBack { due, attempt, heard: false });
                }
            }
            Ask::TakeById { message, terms } => {
                let what = What::TakeById { no: message.no, terms, heard: None };
                self.push(message.group(), heard, what);
            }
            Ask::Settle { message, token, action } => {
                let what = What::Settle { no: message.no, token, action, heard: None };
                self.push(message.group(), heard, what);
            }
            Ask::EndLease { message, takes } => {
                let what = What::EndLease { no: message.no, takes, heard: None };
                self.push(message.group(), heard, what);
            }
            Ask::Cancel(group, target) => self.push(group, heard, What::Cancel { target, heard: None }),
            Ask::Reschedule(group, target, due) => {
                self.push(group, heard, What::Reschedule { target, due, heard: None });
            }
            Ask::Revive(message, due) => {
                self.push(message.group(), heard, What::Revive { no: message.no, due, heard: None });
            }
            Ask::Discard(message) => {
                self.push(message.group(), heard, What::Discard { no: message.no, heard: None });
            }
            Ask::Sweep { queue, sweep } => self.swept(queue, sweep, heard, false),
            Ask::Configure { queue, setting, value } => {
                self.push_setting(queue, setting, heard, Access::Write { value, heard: false });
            }
            // Whether it was refused or not looked at, it has changed nothing.
            Ask::Mismatch { .. }
            | Ask::Get(..)
            | Ask::Peek { .. }
            | Ask::ListAll { .. }
            | Ask::Look { .. }
            | Ask::ReadSettings { .. } => {}
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
                    Kind::OutOfOrder,
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
                self.accuse(Kind::Contradiction, text);
            }
            self.push(address.group(), heard, What::Taken(delivered));
        }
    }

    /// What holds for everything that is handed out, whatever else was done to it.
    fn handed_over(&mut self, delivered: &Delivered, asked: Terms, heard: Heard) {
        if asked != delivered.terms {
            self.accuse(Kind::Contradiction, format!("{delivered:?} has another lease than {asked:?}"));
        }
        self.counts.delivered += 1;
        self.identify(delivered.no, delivered.id);
        if !self.tokens.insert(delivered.token) {
            self.accuse(Kind::TokenReused, format!("the token of {delivered:?} was issued before"));
        }
        let since = delivered.taken_at;
        if !heard.window.wall.holds(since) {
            let text = format!("{delivered:?} says that it was taken outside of {:?}", heard.window.wall);
            self.accuse(Kind::Contradiction, text);
        }
        // Whoever was handed the message before and did not settle it was cut off by a crash, or was slow.
        let lapses = delivered.lapses;
        let last = self.handed_out.insert(delivered.no, (self.crashes, lapses));
        let (crashes, counted) = last.unwrap_or((0, 0));
        if lapses > counted && self.crashes > crashes {
            self.counts.redelivered += 1;
        }
    }

    /// No more messages of a queue are leased than it allows, now that so many were handed out: beside those that were certainly
    /// leased already.
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
            self.accuse(Kind::CapPassed, text);
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
            let what = What::Got { target: Target::Message(no), dead: false, found: Found::Nothing };
            self.push(group, heard, what);
        }
    }

    fn seen(&mut self, queue: u32, sights: Vec<(Address, Sight)>, heard: Heard) {
        for (address, sight) in sights {
            self.shown_in(queue, address, sight, heard);
        }
    }

    /// A message was shown as one of a queue's.
    fn shown_in(&mut self, queue: u32, address: Address, sight: Sight, heard: Heard) {
        if address.queue != queue {
            return self.accuse(Kind::Contradiction, format!("{address:?} was shown in queue {queue}"));
        }
        self.identify(sight.no, sight.id);
        self.push(address.group(), heard, What::Listed(sight));
    }

    fn swept(&mut self, queue: u32, sweep: Sweep, heard: Heard, answered: bool) {
        if let Sweep::ReviveAll(due) = sweep {
            return self.revived_all(queue, due, heard, answered);
        }
        for (group, no) in self.known_in(queue) {
            self.may_have_died(group, no);
        }
        self.all_of(queue, heard, |_| What::Sweep { sweep, heard: answered });
        if sweep == Sweep::DeleteQueue {
            let settings: Vec<&'static str> =
                self.settings.range((queue, "")..(queue + 1, "")).map(|((_, setting), _)| *setting).collect();
            for setting in settings {
                self.push_setting(queue, setting, heard, Access::Write { value: None, heard: answered });
            }
        }
    }

    /// A revive of all comes to each message by itself.
    fn revived_all(&mut self, queue: u32, due: Due, heard: Heard, answered: bool) {
        for (group, no) in self.known_in(queue) {
            self.push(group, heard, What::RevivedWithAll { no, due, heard: answered });
        }
    }

    /// All messages that there may be in a queue.
    fn known_in(&self, queue: u32) -> Vec<(GroupId, u64)> {
        let mut messages = Vec::new();
        for (group, track) in self.groups.range(of_queue(queue)) {
            messages.extend(known_of(track).into_iter().map(|no| (*group, no)));
        }
        // A put that is not answered yet may have been done, and its message dead by then.
        messages.extend(self.open.values().filter_map(|(ask, ..)| match ask {
            Ask::Put(group, spec) if group.queue == queue => Some((*group, spec.no)),
            _ => None,
        }));
        messages.sort_unstable();
        messages.dedup();
        messages
    }

    /// An id belongs to one put for ever.
    fn identify(&mut self, no: u64, id: u128) {
        let owner = *self.ids.entry(id).or_insert(no);
        if owner != no {
            let text = format!("put {no} has the id {id:032x}, which put {owner} had");
            self.accuse(Kind::IdReused, text);
        }
    }

    /// A number belongs to one put for ever, and is higher than all that were answered before the put began.
    pub(crate) fn numbered(&mut self, no: u64, number: u64) {
        let before = self.numbers.get(&no).copied().unwrap_or_default();
        self.highest_number = self.highest_number.max(number);
        let owner = *self.numbered.entry(number).or_insert(no);
        if number <= before || owner != no {
            let text = format!(
                "put {no} has number {number}, which put {owner} has, and {before} was answered before it began"
            );
            self.accuse(Kind::IdReused, text);
        }
    }
}
