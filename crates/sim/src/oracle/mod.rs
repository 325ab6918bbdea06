//! The oracle: hears every command and every answer, and accuses the store of what no order of the commands
//! can explain.
//!
//! It keeps, for each group of messages, the set of all states in which the group may be. A command whose
//! outcome is unknown leaves both: it happened, it did not. What is heard later tells, or the set runs empty,
//! and a promise was broken. Memory is that of the messages which are not yet gone.
//!
//! # Layout
//! - `ask`: commands and answers, as drivers report them
//! - `expect`: what the store must answer, where that is certain
//! - `group/`: what each command makes of a group of messages
//! - `message`: one message, and what time makes of it
//! - `register`: settings
//! - `linearize`, `track`: explaining what overlapped
//! - `violation`: finding the word for what cannot be explained
//! - `window`: instants, as far as they are known

mod ask;
mod expect;
mod group;
mod linearize;
mod message;
mod register;
#[cfg(test)]
mod tests;
mod track;
mod violation;
mod window;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

pub(crate) use ask::{Address, Answer, Ask, GroupId, Member};
pub(crate) use expect::Tallies;
pub(crate) use group::{
    Action, Changed, Delivered, Due, Found, Move, OnConflict, PutHeard, Raised, SettleHeard, Shown, Sight,
    Spec, Sweep, TakenById, Target,
};
pub(crate) use register::{PAUSED, paused_until};
pub(crate) use violation::{Kind, Violation};
pub(crate) use window::{Reading, Rules, Seq};

use group::What;
use linearize::Deed;
use register::Access;
use track::Track;
use window::Window;

/// The setting that takes have to obey.
pub(crate) const PAUSE: &str = "pause";

/// A command under way.
pub(crate) type Op = u64;

/// What was counted on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Commands that changed something, and said so.
    pub(crate) acknowledged: u64,
    /// Commands whose outcome is unknown.
    pub(crate) unknown: u64,
    /// Messages handed out.
    pub(crate) delivered: u64,
    /// Of these, again after a crash, because the lease that the crash cut off ran out.
    pub(crate) redelivered: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Oracle {
    /// What there is to know of the store's surroundings.
    pub(crate) rules: Rules,
    seq: Seq,
    open: BTreeMap<Op, (Ask, Seq, Reading)>,
    /// Commands under way that may touch any group of a queue.
    wide: BTreeMap<u32, BTreeMap<Op, Seq>>,
    groups: BTreeMap<GroupId, Track<What>>,
    settings: BTreeMap<(u32, &'static str), Track<Access>>,
    /// Groups with something to explain.
    waiting: BTreeSet<GroupId>,
    waiting_settings: BTreeSet<(u32, &'static str)>,
    /// Puts that may be repeated, so that their groups have to be kept.
    pinned: BTreeMap<GroupId, u32>,
    /// Puts that will not be repeated, once all that was heard of them is explained.
    forgotten: BTreeMap<GroupId, Vec<u64>>,
    /// The highest number that was answered before each put began.
    numbers: HashMap<u64, u64>,
    highest_number: u64,
    ids: HashMap<u128, u64>,
    numbered: HashMap<u64, u64>,
    tokens: HashSet<u128>,
    /// For messages that were handed out: the crashes before, and the lapses counted by then.
    handed_out: BTreeMap<u64, (u64, u32)>,
    crashes: u64,
    /// The begin of the latest command whose answer proves that all before it is synced.
    durable: Seq,
    counts: Counts,
    violations: Vec<Violation>,
}

impl Oracle {
    /// An oracle for an empty store.
    pub(crate) fn new(rules: Rules) -> Oracle {
        Oracle {
            rules,
            seq: 0,
            open: BTreeMap::new(),
            wide: BTreeMap::new(),
            groups: BTreeMap::new(),
            settings: BTreeMap::new(),
            waiting: BTreeSet::new(),
            waiting_settings: BTreeSet::new(),
            pinned: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            numbers: HashMap::new(),
            highest_number: 0,
            ids: HashMap::new(),
            numbered: HashMap::new(),
            tokens: HashSet::new(),
            handed_out: BTreeMap::new(),
            crashes: 0,
            durable: 0,
            counts: Counts::default(),
            violations: Vec::new(),
        }
    }

    /// A command is about to be sent. To be called before anything of it can reach the store.
    pub(crate) fn begin(&mut self, ask: Ask, now: Reading) -> Op {
        let begin = self.tick();
        let op = begin;
        for queue in wide_queues(&ask) {
            self.wide.entry(queue).or_default().insert(op, begin);
        }
        if let Some(group) = narrow_group(&ask) {
            self.groups.entry(group).or_insert_with(Track::new).begin(op, begin);
        }
        if let Ask::Put(_, spec) = &ask {
            self.numbers.entry(spec.no).or_insert(self.highest_number);
        }
        if let Ask::Configure { queue, setting, .. } = &ask {
            self.settings.entry((*queue, setting)).or_insert_with(Track::new).begin(op, begin);
        }
        self.open.insert(op, (ask, begin, now));
        op
    }

    /// The store was shown this wall time; needed only where the wall clock steps.
    pub(crate) fn shown(&mut self, wall: i64) {
        let at = self.tick();
        self.rules.shown(at, wall);
    }

    /// How many commands wait for others before their effect on this group is explained; past some dozens
    /// a workload should leave it alone for a while.
    pub(crate) fn waiting(&self, group: GroupId) -> usize {
        self.groups.get(&group).map_or(0, Track::waiting)
    }

    /// Its answer is here. To be called after the answer was read.
    pub(crate) fn end(&mut self, op: Op, answer: Answer, now: Reading) {
        let (ask, begin, from) = self.open.remove(&op).expect("each command ends once");
        let heard = self.heard(begin, from, now);
        self.counts.acknowledged += u64::from(acknowledges(&answer));
        if is_recorded(&ask, &answer) {
            self.durable = self.durable.max(begin);
        }
        self.over(op, &ask);
        self.hear(ask, answer, heard);
        self.settle();
    }

    /// No answer will come, and nothing of the command can happen any more.
    pub(crate) fn lose(&mut self, op: Op, now: Reading) {
        let (ask, begin, from) = self.open.remove(&op).expect("each command ends once");
        let heard = self.heard(begin, from, now);
        self.counts.unknown +=
            u64::from(!matches!(ask, Ask::Get(..) | Ask::ListAll { .. } | Ask::ReadSettings { .. }));
        self.over(op, &ask);
        self.miss(ask, heard);
        self.settle();
    }

    /// The caller of a take has gone, and the store has noticed: what it may have leased has gone back.
    pub(crate) fn abandon(&mut self, op: Op, now: Reading) {
        let (ask, begin, from) = self.open.remove(&op).expect("each command ends once");
        let heard = self.heard(begin, from, now);
        self.over(op, &ask);
        let Ask::Take { queues, lease_ms, bound } = ask else { panic!("{ask:?} hands nothing out") };
        for queue in queues {
            self.all_of(queue, heard, |_| What::LostTake { lease_ms, bound });
            self.all_of(queue, heard, |_| What::GaveBack);
        }
        self.settle();
    }

    /// A put that may be repeated under its token; until [`unpin`](Oracle::unpin), its group is kept.
    pub(crate) fn pin(&mut self, group: GroupId) {
        *self.pinned.entry(group).or_default() += 1;
    }

    /// The put will not be repeated any more.
    pub(crate) fn unpin(&mut self, group: GroupId, no: u64) {
        let pins = self.pinned.get_mut(&group).expect("pinned before");
        *pins -= 1;
        if *pins == 0 {
            self.pinned.remove(&group);
        }
        // What still waits to be explained may be the repetition itself.
        self.forgotten.entry(group).or_default().push(no);
        self.waiting.insert(group);
        self.settle();
    }

    /// The process was killed, but the machine runs on. No command may be under way.
    pub(crate) fn killed(&mut self) {
        self.crashes += 1;
    }

    /// The power failed. No command may be under way.
    pub(crate) fn power_failed(&mut self, now: Reading) {
        self.crashes += 1;
        let durable = self.durable;
        self.everywhere(now, |_| What::PowerLoss { durable });
    }

    /// The store was closed in good order, so all that it had was synced. No command may be under way.
    pub(crate) fn closed(&mut self, now: Reading) {
        self.everywhere(now, |_| What::Closed);
        self.durable = self.seq;
    }

    /// The store was opened again.
    pub(crate) fn reopened(&mut self, now: Reading) {
        self.everywhere(now, |_| What::Reopened(now));
    }

    /// The command is still without an answer, though the store would have given one had it done anything.
    pub(crate) fn still_waits(&mut self, op: Op, now: Reading) {
        let begin = self.tick();
        let (ask, at, from) = self.open.get_mut(&op).expect("it has not ended");
        (*at, *from) = (begin, now);
        for queue in wide_queues(ask) {
            self.wide.get_mut(&queue).expect("entered at its begin").insert(op, begin);
        }
    }

    /// What was counted.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// What the store is accused of so far.
    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Accuses the store of something that a driver saw by itself.
    pub(crate) fn accuse(&mut self, kind: Kind, text: String) {
        self.violations.push(Violation { kind, text });
    }

    /// How many groups are kept.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.groups.len()
    }

    fn heard(&mut self, begin: Seq, from: Reading, now: Reading) -> Heard {
        let end = self.tick();
        Heard { begin, end, window: self.rules.widened(Window::between(from, now), begin, end) }
    }

    fn tick(&mut self) -> Seq {
        self.seq += 1;
        self.seq
    }

    /// The command is under way no more.
    fn over(&mut self, op: Op, ask: &Ask) {
        for queue in wide_queues(ask) {
            self.wide.get_mut(&queue).expect("entered at its begin").remove(&op);
        }
        if let Some(group) = narrow_group(ask) {
            self.groups.get_mut(&group).expect("entered at its begin").end(op);
            self.waiting.insert(group);
        }
        if let Ask::Configure { queue, setting, .. } = ask {
            self.settings.get_mut(&(*queue, setting)).expect("entered at its begin").end(op);
        }
    }

    /// What an answer says of each group.
    fn hear(&mut self, ask: Ask, answer: Answer, heard: Heard) {
        match (ask, answer) {
            (Ask::Put(group, spec), Answer::Put(answer)) => {
                if let PutHeard::Created { id, .. } | PutHeard::Replaced { id, .. } = answer {
                    self.identify(spec.no, id);
                }
                self.push(group, heard, What::Put(spec, Some(answer)));
            }
            (Ask::Take { queues, lease_ms, bound }, Answer::Took(batch)) => {
                for (_, delivered) in &batch {
                    self.handed_over(delivered, (lease_ms, bound), heard);
                }
                self.took(&queues, batch, heard);
            }
            (Ask::TakeById { message, lease_ms, bound }, Answer::TookById(answer)) => {
                if let TakenById::Delivered(delivered) = &answer {
                    self.handed_over(delivered, (lease_ms, bound), heard);
                }
                let what = What::TakeById { no: message.no, lease_ms, bound, heard: Some(answer) };
                self.push(message.group(), heard, what);
            }
            (Ask::Settle { message, token, action }, Answer::Settled(answer)) => {
                if answer == SettleHeard::Gone {
                    self.handed_out.remove(&message.no);
                }
                let what = What::Settle { no: message.no, token, action, heard: Some(answer) };
                self.push(message.group(), heard, what);
            }
            (Ask::Cancel(group, target), Answer::Cancelled(answer)) => {
                self.push(group, heard, What::Cancel { target, heard: Some(answer) });
            }
            (Ask::Reschedule(group, target, due), Answer::Rescheduled(answer)) => {
                self.push(group, heard, What::Reschedule { target, due, heard: Some(answer) });
            }
            (Ask::Get(group, target), Answer::Got(found)) => {
                if let Found::Message(sight) = &found {
                    self.identify(sight.no, sight.id);
                }
                self.push(group, heard, What::Got { target, found });
            }
            (Ask::ListAll { queue }, Answer::Listed(sights)) => self.listed(queue, sights, heard),
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
    fn miss(&mut self, ask: Ask, heard: Heard) {
        match ask {
            Ask::Put(group, spec) => self.push(group, heard, What::Put(spec, None)),
            Ask::Take { queues, lease_ms, bound } => {
                for queue in queues {
                    self.all_of(queue, heard, |_| What::LostTake { lease_ms, bound });
                }
            }
            Ask::TakeById { message, lease_ms, bound } => {
                let what = What::TakeById { no: message.no, lease_ms, bound, heard: None };
                self.push(message.group(), heard, what);
            }
            Ask::Settle { message, token, action } => {
                let what = What::Settle { no: message.no, token, action, heard: None };
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
            Ask::Get(..) | Ask::ListAll { .. } | Ask::ReadSettings { .. } => {}
        }
    }

    fn took(&mut self, queues: &[u32], batch: Vec<(Address, Delivered)>, heard: Heard) {
        let place = |delivered: &Delivered| (delivered.priority, delivered.due, delivered.id);
        for pair in batch.windows(2) {
            if place(&pair[0].1) > place(&pair[1].1) {
                self.accuse(
                    Kind::OutOfOrder,
                    format!("in one take, {:?} came before {:?}", pair[0], pair[1]),
                );
            }
        }
        for (address, delivered) in batch {
            if !queues.contains(&address.queue) {
                let text = format!("a take from {queues:?} brought {address:?}");
                self.accuse(Kind::Contradiction, text);
            }
            self.push_setting(address.queue, PAUSE, heard, Access::HandedOut);
            self.push(address.group(), heard, What::Taken(delivered));
        }
    }

    /// What holds for everything that is handed out, whatever else was done to it.
    fn handed_over(&mut self, delivered: &Delivered, asked: (i64, bool), heard: Heard) {
        if asked != (delivered.lease_ms, delivered.bound) {
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

    fn listed(&mut self, queue: u32, sights: Vec<(Address, Sight)>, heard: Heard) {
        let shown: HashSet<u64> = sights.iter().map(|(_, sight)| sight.no).collect();
        for (address, sight) in sights {
            if address.queue != queue {
                self.accuse(Kind::Contradiction, format!("{address:?} was listed in queue {queue}"));
                continue;
            }
            self.identify(sight.no, sight.id);
            self.push(address.group(), heard, What::Listed(sight));
        }
        let mut missing = Vec::new();
        for (group, track) in self.groups.range(of_queue(queue)) {
            let known = track.states.iter().flat_map(|state| &state.messages).map(|message| message.no);
            let known: BTreeSet<u64> = known.filter(|no| !shown.contains(no)).collect();
            missing.extend(known.into_iter().map(|no| (*group, no)));
        }
        for (group, no) in missing {
            let what = What::Got { target: Target::Message(no), found: Found::Nothing };
            self.push(group, heard, what);
        }
    }

    fn swept(&mut self, queue: u32, sweep: Sweep, heard: Heard, answered: bool) {
        self.all_of(queue, heard, |_| What::Sweep { sweep, heard: answered });
        if sweep == Sweep::DeleteQueue {
            let settings: Vec<&'static str> =
                self.settings.range((queue, "")..(queue + 1, "")).map(|((_, setting), _)| *setting).collect();
            for setting in settings {
                self.push_setting(queue, setting, heard, Access::Write { value: None, heard: answered });
            }
        }
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

    fn push(&mut self, group: GroupId, heard: Heard, what: What) {
        self.groups.entry(group).or_insert_with(Track::new).push(heard.deed(what));
        self.waiting.insert(group);
    }

    fn push_setting(&mut self, queue: u32, setting: &'static str, heard: Heard, access: Access) {
        let register = (queue, setting);
        self.settings.entry(register).or_insert_with(Track::new).push(heard.deed(access));
        self.waiting_settings.insert(register);
    }

    fn all_of(&mut self, queue: u32, heard: Heard, what: impl Fn(GroupId) -> What) {
        for (group, track) in self.groups.range_mut(of_queue(queue)) {
            track.push(heard.deed(what(*group)));
            self.waiting.insert(*group);
        }
    }

    fn everywhere(&mut self, now: Reading, what: impl Fn(GroupId) -> What) {
        assert!(self.open.is_empty(), "a crash ends every command");
        let at = self.tick();
        let heard = Heard { begin: at, end: at, window: Window::between(now, now) };
        for (group, track) in &mut self.groups {
            track.push(heard.deed(what(*group)));
            self.waiting.insert(*group);
        }
        self.settle();
    }

    /// Explains whatever can be explained by now.
    fn settle(&mut self) {
        for group in std::mem::take(&mut self.waiting) {
            let horizon = self.horizon(group.queue);
            let Some(track) = self.groups.get_mut(&group) else { continue };
            if let Some((end, deeds)) = track.settle(horizon, &self.rules) {
                let kind = violation::diagnose(&deeds, &end, &self.rules);
                let text = format!(
                    "nothing explains what was heard of {group:?}, known to be {:?}:{}",
                    end.state,
                    track.report()
                );
                self.violations.push(Violation { kind, text });
            }
            if track.waiting() > 0 {
                self.waiting.insert(group);
                continue;
            }
            for no in self.forgotten.remove(&group).unwrap_or_default() {
                let forget = |mut state: group::State| {
                    state.answered.remove(&no);
                    state
                };
                track.states = std::mem::take(&mut track.states).into_iter().map(forget).collect();
            }
            let is_empty = track.states.iter().all(|state| *state == group::State::default());
            if is_empty && !track.is_broken() && !self.pinned.contains_key(&group) {
                self.groups.remove(&group);
            }
        }
        for register in std::mem::take(&mut self.waiting_settings) {
            let horizon = self.horizon(register.0);
            let Some(track) = self.settings.get_mut(&register) else { continue };
            if let Some((end, _)) = track.settle(horizon, &self.rules) {
                let text = format!(
                    "nothing explains setting {register:?}, known to be {:?}:{}",
                    end.state,
                    track.report()
                );
                self.violations.push(Violation { kind: Kind::Setting, text });
            }
            if track.waiting() > 0 {
                self.waiting_settings.insert(register);
            }
        }
    }

    /// The begin of the earliest command under way that may touch any group of the queue.
    fn horizon(&self, queue: u32) -> Seq {
        self.wide.get(&queue).and_then(|wide| wide.values().min().copied()).unwrap_or(Seq::MAX)
    }
}

/// When something was heard.
#[derive(Clone, Copy, Debug)]
struct Heard {
    begin: Seq,
    end: Seq,
    window: Window,
}

impl Heard {
    fn deed<E>(self, effect: E) -> Deed<E> {
        Deed { begin: self.begin, end: self.end, window: self.window, effect }
    }
}

fn of_queue(queue: u32) -> std::ops::Range<GroupId> {
    let first = |queue| GroupId { queue, member: Member::Key(0) };
    first(queue)..first(queue + 1)
}

/// The queues of which a command may touch any group.
fn wide_queues(ask: &Ask) -> Vec<u32> {
    match ask {
        Ask::Take { queues, .. } => queues.clone(),
        Ask::ListAll { queue } | Ask::Sweep { queue, .. } | Ask::ReadSettings { queue } => vec![*queue],
        _ => Vec::new(),
    }
}

/// The one group that a command is about.
fn narrow_group(ask: &Ask) -> Option<GroupId> {
    match ask {
        Ask::Put(group, _) | Ask::Cancel(group, _) | Ask::Reschedule(group, ..) | Ask::Get(group, _) => {
            Some(*group)
        }
        Ask::TakeById { message, .. }
        | Ask::Settle { message, .. }
        | Ask::Revive(message, _)
        | Ask::Discard(message) => Some(message.group()),
        Ask::Take { .. }
        | Ask::ListAll { .. }
        | Ask::Sweep { .. }
        | Ask::Configure { .. }
        | Ask::ReadSettings { .. } => None,
    }
}

/// Whether the answer proves that the command was written down, and so that it was synced. Others may have had
/// nothing to write.
fn is_recorded(ask: &Ask, answer: &Answer) -> bool {
    match (ask, answer) {
        (Ask::Put(_, spec), Answer::Put(heard)) => {
            !spec.token && matches!(heard, PutHeard::Created { .. } | PutHeard::Replaced { .. })
        }
        (_, Answer::Settled(SettleHeard::Leased(_))) => false,
        (_, Answer::Settled(_) | Answer::Cancelled(_) | Answer::Rescheduled(_) | Answer::Raised(_)) => {
            acknowledges(answer)
        }
        _ => false,
    }
}

/// Whether the answer promises something.
fn acknowledges(answer: &Answer) -> bool {
    match answer {
        Answer::Put(heard) => {
            matches!(heard, PutHeard::Created { .. } | PutHeard::Replaced { .. } | PutHeard::Kept { .. })
        }
        Answer::Settled(heard) => *heard != SettleHeard::LeaseLost,
        Answer::Cancelled(heard) => matches!(heard, Changed::Cancelled(_)),
        Answer::Rescheduled(heard) => matches!(heard, Move::Moved { .. }),
        Answer::Raised(heard) => *heard == Raised::Done,
        Answer::Done => true,
        _ => false,
    }
}
