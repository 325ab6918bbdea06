//! The oracle: receives every command and every answer, and reports a violation if no order of the commands explains them.
//!
//! For each group of messages it keeps the set of all possible states. A command of unknown outcome leaves both
//! possibilities: it took effect, or it did not. Later answers decide, or the set becomes empty, and a promise was
//! broken. Its memory is proportional to the messages that are not gone yet.
//!
//! # Layout
//! - `ask`: commands and answers, as drivers report them
//! - `expect`: the answers that the store must give, where that is certain
//! - `group/`: the effects of each command on a group of messages
//! - `hear`: applies an answer to each group
//! - `crowd`: which messages of a queue may have died, if it limits its dead messages
//! - `message`: one message, and the changes made by time
//! - `policy`: the settings that may have been in force when something happened to a message
//! - `register`: settings
//! - `linearize`, `track`: explaining overlapping commands
//! - `violation`: naming the violation if there is no explanation
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

pub(crate) use ask::{Address, GroupId, Member, StoreAnswer, StoreCall};
pub(crate) use expect::{Tallies, are_first_of_each};
pub(crate) use group::{
    Action, Attempt, Changed, Delivered, Due, Ended, FoundMessage, GroupTarget, OnConflict, PutHeard, Raised,
    RescheduleTo, SettleHeard, ShownMessage, Sight, Spec, Sweep, TakenById, Terms,
};
pub(crate) use policy::{DEAD_MAX, DEAD_TTL, ON_EXPIRY};
pub(crate) use register::{PAUSED, paused_until};
pub(crate) use violation::{Violation, ViolationKind};
pub(crate) use window::{Reading, Rules, Seq};

use group::GroupEvent;
use hear::Heard;
use policy::Policy;
use register::Access;
use track::{SettledSince, Track};
use window::Window;

/// The setting that takes have to respect.
pub(crate) const PAUSE: &str = "pause";

/// A command under way.
pub(crate) type Op = u64;

/// The counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OracleCounts {
    /// Commands with an effect that was acknowledged.
    pub(crate) acknowledged: u64,
    /// Commands whose outcome is unknown.
    pub(crate) unknown: u64,
    /// Messages delivered.
    pub(crate) delivered: u64,
    /// Messages delivered again after a crash, since the lease that the crash cut off ran out.
    pub(crate) redelivered: u64,
    /// Groups and settings that are no longer checked, since there are too many explanations.
    pub(crate) given_up: u64,
}

/// The oracle; see the [module](self).
#[derive(Debug)]
pub(crate) struct Oracle {
    /// What is known of the store's environment.
    pub(crate) rules: Rules,
    seq: Seq,
    open: BTreeMap<Op, (StoreCall, Seq, Reading)>,
    /// Commands under way that may touch any group of a queue.
    wide: BTreeMap<u32, BTreeMap<Op, Seq>>,
    groups: BTreeMap<GroupId, Track<GroupEvent>>,
    settings: BTreeMap<(u32, &'static str), Track<Access>>,
    /// By queue: the possible values of its settings, and when.
    policies: BTreeMap<u32, Policy>,
    /// By queue: messages that may have died, with the latest possible instant.
    died: BTreeMap<u32, BTreeMap<u64, i64>>,
    /// The latest reading of the wall clock so far.
    latest_wall: i64,
    /// Groups with answers to explain.
    waiting: BTreeSet<GroupId>,
    waiting_settings: BTreeSet<(u32, &'static str)>,
    /// Puts that may be retried, so that their groups have to be kept.
    pinned: BTreeMap<GroupId, u32>,
    /// Puts that will not be retried, once all their answers are explained.
    forgotten: BTreeMap<GroupId, Vec<u64>>,
    /// The highest number that was answered before each put began.
    numbers: HashMap<u64, u64>,
    highest_number: u64,
    ids: HashMap<u128, u64>,
    numbered: HashMap<u64, u64>,
    tokens: HashSet<u128>,
    /// For delivered messages: the number of crashes before, and the number of lapses by then.
    handed_out: BTreeMap<u64, (u64, u32)>,
    crashes: u64,
    /// The begin of the latest command whose answer proves that everything before it is synced.
    durable: Seq,
    counts: OracleCounts,
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
            counts: OracleCounts::default(),
            violations: Vec::new(),
        }
    }

    /// Begins a command. Must be called before any of it can reach the store.
    pub(crate) fn begin(&mut self, ask: StoreCall, now: Reading) -> Op {
        let begin = self.tick();
        let op = begin;
        for queue in ask.wide_queues() {
            self.wide.entry(queue).or_default().insert(op, begin);
        }
        if let Some(group) = ask.narrow_group() {
            self.groups.entry(group).or_insert_with(Track::new).begin(op, begin);
        }
        if let StoreCall::Put(_, spec) = &ask {
            self.numbers.entry(spec.no).or_insert(self.highest_number);
        }
        if let StoreCall::Configure { queue, setting, .. } = &ask {
            self.settings.entry((*queue, setting)).or_insert_with(Track::new).begin(op, begin);
        }
        match &ask {
            StoreCall::Configure { queue, setting, value } => {
                self.policies.entry(*queue).or_default().begin(op, begin, setting, value.clone());
            }
            StoreCall::Sweep { queue, sweep: Sweep::DeleteQueue } => {
                self.policies.entry(*queue).or_default().begin_reset(op, begin);
            }
            _ => {}
        }
        self.latest_wall = self.latest_wall.max(now.wall);
        self.open.insert(op, (ask, begin, now));
        op
    }

    /// Records a wall time that the store was shown; needed only if the wall clock steps.
    pub(crate) fn shown(&mut self, wall: i64) {
        let at = self.tick();
        self.latest_wall = self.latest_wall.max(wall);
        self.rules.shown(at, wall);
    }

    /// Records a wall time at which reads might fail: a message to be dropped may be dead instead.
    pub(crate) fn could_not_read(&mut self, wall: i64) {
        let at = self.tick();
        self.rules.could_not_read(at, wall);
    }

    /// The number of commands that are not explained yet for this group;
    /// beyond some dozens a workload should avoid the group for a while.
    pub(crate) fn waiting(&self, group: GroupId) -> usize {
        self.groups.get(&group).map_or(0, Track::waiting)
    }

    /// The number of takes for which it is not known yet whether the queue was paused.
    pub(crate) fn takes_waiting(&self, queue: u32) -> usize {
        self.settings.get(&(queue, PAUSE)).map_or(0, Track::waiting)
    }

    /// Ends a command with its answer. Must be called after the answer was read.
    pub(crate) fn end(&mut self, op: Op, answer: StoreAnswer, now: Reading) {
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

    /// Ends a command without an answer; nothing of it can take effect any more.
    pub(crate) fn lose(&mut self, op: Op, now: Reading) {
        let (ask, begin, from) = self.open.remove(&op).expect("each command ends once");
        let heard = self.heard(begin, from, now);
        self.counts.unknown += u64::from(!matches!(
            ask,
            StoreCall::Get(..)
                | StoreCall::Mismatch { .. }
                | StoreCall::ListAll { .. }
                | StoreCall::Look { .. }
                | StoreCall::ReadSettings { .. }
                | StoreCall::Unread { .. }
        ));
        self.over(op, &ask);
        self.written(op, &ask, heard.end, None);
        self.miss(ask, heard);
        self.settle();
    }

    /// Ends a take whose caller was dropped, after the store has noticed: what it may have leased was released.
    pub(crate) fn abandon(&mut self, op: Op, now: Reading) {
        let (ask, begin, from) = self.open.remove(&op).expect("each command ends once");
        let heard = self.heard(begin, from, now);
        self.over(op, &ask);
        let StoreCall::Take { queues, terms } = ask else { panic!("{ask:?} hands nothing out") };
        for queue in queues {
            self.all_of(queue, heard, |_| GroupEvent::LostTake(terms));
            self.all_of(queue, heard, |_| GroupEvent::GaveBack);
        }
        self.settle();
    }

    /// No command is under way, and the store has noticed that the callers of all abandoned takes are gone: nothing that
    /// they had leased is leased any more.
    pub(crate) fn all_gave_back(&mut self, now: Reading) {
        self.everywhere(now, |_| GroupEvent::AllGaveBack);
    }

    /// Whether a command under way is a bulk operation.
    pub(crate) fn is_sweep(&self, op: Op) -> bool {
        self.open.get(&op).is_some_and(|(ask, ..)| matches!(ask, StoreCall::Sweep { .. }))
    }

    /// The store has processed the messages that a take could not read, and so did not deliver.
    pub(crate) fn sent_back(&mut self, op: Op, now: Reading) {
        let (ask, begin, from) = self.open.remove(&op).expect("each command ends once");
        let heard = self.heard(begin, from, now);
        self.over(op, &ask);
        let StoreCall::Unread { queues, due, attempt } = ask else { panic!("{ask:?} reads nothing") };
        for queue in queues {
            self.all_of(queue, heard, |_| GroupEvent::SentBack { due, attempt, heard: true });
        }
        self.settle();
    }

    /// Marks a put that may be retried under its token; its group is kept until [`unpin`](Oracle::unpin).
    pub(crate) fn pin(&mut self, group: GroupId) {
        *self.pinned.entry(group).or_default() += 1;
    }

    /// Marks a put that will not be retried any more.
    pub(crate) fn unpin(&mut self, group: GroupId, no: u64) {
        let pins = self.pinned.get_mut(&group).expect("pinned before");
        *pins -= 1;
        if *pins == 0 {
            self.pinned.remove(&group);
        }
        // An unexplained command may be the retry itself.
        self.forgotten.entry(group).or_default().push(no);
        self.waiting.insert(group);
        self.settle();
    }

    /// Records that the process was killed, but the machine runs on. No command may be under way.
    pub(crate) fn killed(&mut self) {
        self.crashes += 1;
    }

    /// Records a power failure. No command may be under way.
    pub(crate) fn power_failed(&mut self, now: Reading) {
        self.crashes += 1;
        let durable = self.durable;
        self.everywhere(now, |_| GroupEvent::PowerLoss { durable });
    }

    /// Records that the store was closed in order, so that everything was synced. No command may be under way.
    pub(crate) fn closed(&mut self, now: Reading) {
        self.everywhere(now, |_| GroupEvent::Closed);
        self.durable = self.seq;
    }

    /// Records a failed attempt to open the store.
    pub(crate) fn tried_to_open(&mut self, now: Reading) {
        self.everywhere(now, |_| GroupEvent::TriedToOpen(now));
    }

    /// Records that the store was opened again.
    pub(crate) fn reopened(&mut self, now: Reading) {
        self.everywhere(now, |_| GroupEvent::Reopened(now));
    }

    /// Records that a command has no answer yet, although the store would have answered if it had had an effect.
    pub(crate) fn still_waits(&mut self, op: Op, now: Reading) {
        let begin = self.tick();
        let (ask, at, from) = self.open.get_mut(&op).expect("it has not ended");
        (*at, *from) = (begin, now);
        for queue in ask.wide_queues() {
            self.wide.get_mut(&queue).expect("entered at its begin").insert(op, begin);
        }
    }

    /// The queues of a command under way.
    pub(crate) fn queues_of(&self, op: Op) -> Vec<u32> {
        let (ask, ..) = &self.open[&op];
        let narrow = ask.narrow_group().map(|group| group.queue);
        ask.wide_queues().into_iter().chain(narrow).collect()
    }

    /// The counters so far.
    pub(crate) fn counts(&self) -> OracleCounts {
        self.counts
    }

    /// The violations so far.
    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Records a violation that a driver detected by itself.
    pub(crate) fn accuse(&mut self, kind: ViolationKind, text: String) {
        self.violations.push(Violation { kind, text });
    }

    /// The number of groups that are kept.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.groups.len()
    }

    fn heard(&mut self, begin: Seq, from: Reading, now: Reading) -> Heard {
        let end = self.tick();
        self.latest_wall = self.latest_wall.max(now.wall);
        Heard { begin, end, window: self.rules.widened(Window::between(from, now), begin, end) }
    }

    /// The newest command so far.
    pub(crate) fn newest(&self) -> Op {
        self.seq
    }

    fn tick(&mut self) -> Seq {
        self.seq += 1;
        self.seq
    }

    /// Removes a command from those under way.
    fn over(&mut self, op: Op, ask: &StoreCall) {
        for queue in ask.wide_queues() {
            self.wide.get_mut(&queue).expect("entered at its begin").remove(&op);
        }
        if let Some(group) = ask.narrow_group() {
            self.groups.get_mut(&group).expect("entered at its begin").end(op);
            self.waiting.insert(group);
        }
        if let StoreCall::Configure { queue, setting, .. } = ask {
            self.settings.get_mut(&(*queue, setting)).expect("entered at its begin").end(op);
        }
    }

    /// Ends a command that may have changed settings.
    fn written(&mut self, op: Op, ask: &StoreCall, end: Seq, answer: Option<&StoreAnswer>) {
        let (StoreCall::Configure { queue, .. } | StoreCall::Sweep { queue, sweep: Sweep::DeleteQueue }) =
            ask
        else {
            return;
        };
        let policy = self.policies.entry(*queue).or_default();
        match answer {
            Some(StoreAnswer::Refused) => policy.refused(op),
            answer => policy.end(op, end, self.latest_wall, answer.is_some()),
        }
    }

    fn push(&mut self, group: GroupId, heard: Heard, what: GroupEvent) {
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

    fn all_of(&mut self, queue: u32, heard: Heard, what: impl Fn(GroupId) -> GroupEvent) {
        for (group, track) in self.groups.range_mut(of_queue(queue)) {
            track.push(heard.deed(what(*group)));
            self.waiting.insert(*group);
        }
    }

    fn everywhere(&mut self, now: Reading, what: impl Fn(GroupId) -> GroupEvent) {
        assert!(self.open.is_empty(), "a crash ends every command");
        let at = self.tick();
        let heard = Heard { begin: at, end: at, window: Window::between(now, now) };
        for (group, track) in &mut self.groups {
            track.push(heard.deed(what(*group)));
            self.waiting.insert(*group);
        }
        self.settle();
    }

    /// Explains everything that can be explained by now.
    fn settle(&mut self) {
        self.count_crowds();
        let durable = self.durable;
        for group in std::mem::take(&mut self.waiting) {
            let horizon = self.horizon(group.queue);
            let policy = self.policies.entry(group.queue).or_default();
            let Some(track) = self.groups.get_mut(&group) else { continue };
            match track.settle(horizon, &self.rules, policy) {
                SettledSince::Fine => {}
                SettledSince::Contradicted((end, deeds)) => {
                    let kind = violation::diagnose(&deeds, &end, &self.rules, policy);
                    let text = format!(
                        "nothing explains what was heard of {group:?}, known to be {:?}:{}",
                        end.state,
                        track.report()
                    );
                    self.violations.push(Violation { kind, text });
                }
                SettledSince::GivenUp => self.counts.given_up += 1,
            }
            if track.waiting() > 0 {
                self.waiting.insert(group);
                continue;
            }
            crowd::note_deaths(self.died.entry(group.queue).or_default(), track);
            track.states =
                std::mem::take(&mut track.states).into_iter().map(|state| state.pruned(durable)).collect();
            for no in self.forgotten.remove(&group).unwrap_or_default() {
                let forget = |mut state: group::GroupState| {
                    state.answered.remove(&no);
                    state
                };
                track.states = std::mem::take(&mut track.states).into_iter().map(forget).collect();
            }
            let is_empty = track.states.iter().all(|state| *state == group::GroupState::default());
            if is_empty && !track.is_broken() && !self.pinned.contains_key(&group) {
                self.groups.remove(&group);
            }
        }
        for register in std::mem::take(&mut self.waiting_settings) {
            let horizon = self.horizon(register.0);
            let policy = self.policies.entry(register.0).or_default();
            let Some(track) = self.settings.get_mut(&register) else { continue };
            match track.settle(horizon, &self.rules, policy) {
                SettledSince::Fine => {}
                SettledSince::Contradicted((end, _)) => {
                    let text = format!(
                        "nothing explains setting {register:?}, known to be {:?}:{}",
                        end.state,
                        track.report()
                    );
                    self.violations.push(Violation { kind: ViolationKind::Setting, text });
                }
                SettledSince::GivenUp => self.counts.given_up += 1,
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

/// The messages that a group may contain.
fn known_of(track: &Track<GroupEvent>) -> BTreeSet<u64> {
    let known = track.states.iter().flat_map(|state| &state.messages).map(|message| message.no);
    known.chain(track.unexplained().filter_map(GroupEvent::tells_of)).collect()
}

fn of_queue(queue: u32) -> std::ops::Range<GroupId> {
    let first = |queue| GroupId { queue, member: Member::Key(0) };
    first(queue)..first(queue + 1)
}
