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
//! - `hear`: what an answer says of each group
//! - `crowd`: which messages of a queue may have died, where it keeps so many
//! - `message`: one message, and what time makes of it
//! - `policy`: what settings may have been in force when something happened to a message
//! - `register`: settings
//! - `linearize`, `track`: explaining what overlapped
//! - `violation`: finding the word for what cannot be explained
//! - `window`: instants, as far as they are known

mod ask;
mod crowd;
mod expect;
mod group;
mod hear;
mod linearize;
mod message;
mod policy;
mod register;
#[cfg(test)]
mod tests;
mod track;
mod violation;
mod window;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

pub(crate) use ask::{Address, Answer, Ask, GroupId, Member};
pub(crate) use expect::{Tallies, are_first_of_each};
pub(crate) use group::{
    Action, Attempt, Changed, Delivered, Due, Ended, Found, Move, OnConflict, PutHeard, Raised, SettleHeard,
    Shown, Sight, Spec, Sweep, TakenById, Target, Terms,
};
pub(crate) use policy::{DEAD_MAX, DEAD_TTL, ON_EXPIRY};
pub(crate) use register::{PAUSED, paused_until};
pub(crate) use violation::{Kind, Violation};
pub(crate) use window::{Reading, Rules, Seq};

use group::What;
use hear::Heard;
use policy::Policy;
use register::Access;
use track::{Settled, Track};
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
    /// Groups and settings that are not watched any longer: what was heard of them could be explained in too many ways.
    pub(crate) given_up: u64,
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
    /// By queue: what its settings may have been, and when.
    policies: BTreeMap<u32, Policy>,
    /// By queue: messages that may have died, by the latest instant of that.
    died: BTreeMap<u32, BTreeMap<u64, i64>>,
    /// The latest that the wall clock was seen to show.
    latest_wall: i64,
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
            policies: BTreeMap::new(),
            died: BTreeMap::new(),
            latest_wall: 0,
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
        for queue in ask.wide_queues() {
            self.wide.entry(queue).or_default().insert(op, begin);
        }
        if let Some(group) = ask.narrow_group() {
            self.groups.entry(group).or_insert_with(Track::new).begin(op, begin);
        }
        if let Ask::Put(_, spec) = &ask {
            self.numbers.entry(spec.no).or_insert(self.highest_number);
        }
        if let Ask::Configure { queue, setting, .. } = &ask {
            self.settings.entry((*queue, setting)).or_insert_with(Track::new).begin(op, begin);
        }
        match &ask {
            Ask::Configure { queue, setting, value } => {
                self.policies.entry(*queue).or_default().begin(op, begin, setting, value.clone());
            }
            Ask::Sweep { queue, sweep: Sweep::DeleteQueue } => {
                self.policies.entry(*queue).or_default().begin_reset(op, begin);
            }
            _ => {}
        }
        self.latest_wall = self.latest_wall.max(now.wall);
        self.open.insert(op, (ask, begin, now));
        op
    }

    /// The store was shown this wall time; needed only where the wall clock steps.
    pub(crate) fn shown(&mut self, wall: i64) {
        let at = self.tick();
        self.latest_wall = self.latest_wall.max(wall);
        self.rules.shown(at, wall);
    }

    /// How many commands wait for others before their effect on this group is explained; past some dozens
    /// a workload should leave it alone for a while.
    pub(crate) fn waiting(&self, group: GroupId) -> usize {
        self.groups.get(&group).map_or(0, Track::waiting)
    }

    /// How many takes wait for other commands before it is known whether the queue was paused.
    pub(crate) fn takes_waiting(&self, queue: u32) -> usize {
        self.settings.get(&(queue, PAUSE)).map_or(0, Track::waiting)
    }

    /// Its answer is here. To be called after the answer was read.
    pub(crate) fn end(&mut self, op: Op, answer: Answer, now: Reading) {
        let (ask, begin, from) = self.open.remove(&op).expect("each command ends once");
        let heard = self.heard(begin, from, now);
        self.counts.acknowledged += u64::from(answer.promises());
        if answer.proves(&ask) {
            self.durable = self.durable.max(begin);
        }
        self.over(op, &ask);
        self.written(op, &ask, heard.end, Some(&answer));
        self.hear(ask, answer, heard);
        self.settle();
    }

    /// No answer will come, and nothing of the command can happen any more.
    pub(crate) fn lose(&mut self, op: Op, now: Reading) {
        let (ask, begin, from) = self.open.remove(&op).expect("each command ends once");
        let heard = self.heard(begin, from, now);
        self.counts.unknown += u64::from(!matches!(
            ask,
            Ask::Get(..)
                | Ask::Mismatch { .. }
                | Ask::ListAll { .. }
                | Ask::Look { .. }
                | Ask::ReadSettings { .. }
                | Ask::Unread { .. }
        ));
        self.over(op, &ask);
        self.written(op, &ask, heard.end, None);
        self.miss(ask, heard);
        self.settle();
    }

    /// The caller of a take has gone, and the store has noticed: what it may have leased has gone back.
    pub(crate) fn abandon(&mut self, op: Op, now: Reading) {
        let (ask, begin, from) = self.open.remove(&op).expect("each command ends once");
        let heard = self.heard(begin, from, now);
        self.over(op, &ask);
        let Ask::Take { queues, terms } = ask else { panic!("{ask:?} hands nothing out") };
        for queue in queues {
            self.all_of(queue, heard, |_| What::LostTake(terms));
            self.all_of(queue, heard, |_| What::GaveBack);
        }
        self.settle();
    }

    /// No command is under way, and the store has noticed of each take whose caller has gone that it has: nothing that such
    /// a take had leased is leased any more.
    pub(crate) fn all_gave_back(&mut self, now: Reading) {
        self.everywhere(now, |_| What::AllGaveBack);
    }

    /// Whether a command under way is a bulk operation.
    pub(crate) fn is_sweep(&self, op: Op) -> bool {
        self.open.get(&op).is_some_and(|(ask, ..)| matches!(ask, Ask::Sweep { .. }))
    }

    /// What a take could not read, and so has handed to nobody, has been seen to.
    pub(crate) fn sent_back(&mut self, op: Op, now: Reading) {
        let (ask, begin, from) = self.open.remove(&op).expect("each command ends once");
        let heard = self.heard(begin, from, now);
        self.over(op, &ask);
        let Ask::Unread { queues, due, attempt } = ask else { panic!("{ask:?} reads nothing") };
        for queue in queues {
            self.all_of(queue, heard, |_| What::SentBack { due, attempt, heard: true });
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

    /// The store was to be opened again, and could not be.
    pub(crate) fn tried_to_open(&mut self, now: Reading) {
        self.everywhere(now, |_| What::TriedToOpen(now));
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
        for queue in ask.wide_queues() {
            self.wide.get_mut(&queue).expect("entered at its begin").insert(op, begin);
        }
    }

    /// The queues that a command under way is about.
    pub(crate) fn queues_of(&self, op: Op) -> Vec<u32> {
        let (ask, ..) = &self.open[&op];
        let narrow = ask.narrow_group().map(|group| group.queue);
        ask.wide_queues().into_iter().chain(narrow).collect()
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
        self.latest_wall = self.latest_wall.max(now.wall);
        Heard { begin, end, window: self.rules.widened(Window::between(from, now), begin, end) }
    }

    /// Whatever command has begun so far is not newer than this.
    pub(crate) fn newest(&self) -> Op {
        self.seq
    }

    fn tick(&mut self) -> Seq {
        self.seq += 1;
        self.seq
    }

    /// The command is under way no more.
    fn over(&mut self, op: Op, ask: &Ask) {
        for queue in ask.wide_queues() {
            self.wide.get_mut(&queue).expect("entered at its begin").remove(&op);
        }
        if let Some(group) = ask.narrow_group() {
            self.groups.get_mut(&group).expect("entered at its begin").end(op);
            self.waiting.insert(group);
        }
        if let Ask::Configure { queue, setting, .. } = ask {
            self.settings.get_mut(&(*queue, setting)).expect("entered at its begin").end(op);
        }
    }

    /// A command that may have changed settings is over.
    fn written(&mut self, op: Op, ask: &Ask, end: Seq, answer: Option<&Answer>) {
        let (Ask::Configure { queue, .. } | Ask::Sweep { queue, sweep: Sweep::DeleteQueue }) = ask else {
            return;
        };
        let policy = self.policies.entry(*queue).or_default();
        match answer {
            Some(Answer::Refused) => policy.refused(op),
            answer => policy.end(op, end, self.latest_wall, answer.is_some()),
        }
    }

    fn push(&mut self, group: GroupId, heard: Heard, what: What) {
        if let Some(no) = what.may_meet_dead() {
            self.may_have_died(group, no);
        }
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
        self.count_crowds();
        let durable = self.durable;
        for group in std::mem::take(&mut self.waiting) {
            let horizon = self.horizon(group.queue);
            let policy = self.policies.entry(group.queue).or_default();
            let Some(track) = self.groups.get_mut(&group) else { continue };
            match track.settle(horizon, &self.rules, policy) {
                Settled::Fine => {}
                Settled::Contradicted((end, deeds)) => {
                    let kind = violation::diagnose(&deeds, &end, &self.rules, policy);
                    let text = format!(
                        "nothing explains what was heard of {group:?}, known to be {:?}:{}",
                        end.state,
                        track.report()
                    );
                    self.violations.push(Violation { kind, text });
                }
                Settled::GivenUp => self.counts.given_up += 1,
            }
            if track.waiting() > 0 {
                self.waiting.insert(group);
                continue;
            }
            crowd::note_deaths(self.died.entry(group.queue).or_default(), track);
            track.states =
                std::mem::take(&mut track.states).into_iter().map(|state| state.pruned(durable)).collect();
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
            let policy = self.policies.entry(register.0).or_default();
            let Some(track) = self.settings.get_mut(&register) else { continue };
            match track.settle(horizon, &self.rules, policy) {
                Settled::Fine => {}
                Settled::Contradicted((end, _)) => {
                    let text = format!(
                        "nothing explains setting {register:?}, known to be {:?}:{}",
                        end.state,
                        track.report()
                    );
                    self.violations.push(Violation { kind: Kind::Setting, text });
                }
                Settled::GivenUp => self.counts.given_up += 1,
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

/// The messages that a group may have.
fn known_of(track: &Track<What>) -> BTreeSet<u64> {
    let known = track.states.iter().flat_map(|state| &state.messages).map(|message| message.no);
    known.chain(track.unexplained().filter_map(What::tells_of)).collect()
}

fn of_queue(queue: u32) -> std::ops::Range<GroupId> {
    let first = |queue| GroupId { queue, member: Member::Key(0) };
    first(queue)..first(queue + 1)
}
