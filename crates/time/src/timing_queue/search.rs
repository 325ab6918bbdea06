//! A search for expensive patterns of calls.
//!
//! It runs random programs of inserts, pops, cancels and reschedules. Their counts lie near the sizes at which the
//! structure changes its shape, or end just before such a change. Each program is charged for the entries that its
//! calls touch and for the bytes that the queue holds.
//!
//! Programs: `PROPTEST_CASES` divided by 4 (2,500 by default). A failure prints the shortest program with the same
//! cost.

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::page::{PAGE_MAX, PIECE};
use super::{Handle, TimingQueue, meter};

/// The maximum number of entries that one call may touch: a page is purged, split unevenly up to three times, and the
/// slots of its entries are updated.
const MOST: usize = 10 * PAGE_MAX;
/// The maximum number of entries that a call may touch on average over all calls so far, since one call may pay for
/// what earlier ones deferred.
///
/// It allows for a run of some hundred entries, which a cancel searches and of which an insert moves half, and for
/// filling the run.
const MEAN: usize = 700;
/// The same, as long as all calls were inserts.
const MEAN_OF_INSERTS: usize = 64;
/// The minimum number of calls that an average is taken over, so that one expensive call is not charged to a few.
const OVER: usize = 1_000;
/// The maximum number of bytes per entry over the payload.
const BYTES: usize = 24;
/// The same where items are cancelled or moved: up to half of the entries of a page are dead and still take room.
const BYTES_WITH_DEAD: usize = 2 * BYTES;
/// Chunks and lists that a queue of few items has as well.
const FIXED_BYTES: usize = 64 * 1024;

/// The instant at which a phase of inserts begins.
#[derive(Clone, Copy, Debug)]
enum From {
    /// This far above all instants so far.
    Above(i64),
    /// This far below all instants so far.
    Below(i64),
    /// At the first instant of an earlier phase, or this far from it.
    Beside(prop::sample::Index, i64),
}

/// Instants that rise or fall by a step from each group of equal ones to the next.
#[derive(Clone, Copy, Debug)]
struct InstantPattern {
    from: From,
    step: i64,
    group: usize,
}

#[derive(Clone, Debug)]
enum SearchPhase {
    Insert {
        count: usize,
        walk: InstantPattern,
    },
    /// Inserts until the page of the last entry is full: the next entry of that page changes the structure's shape.
    Fill {
        walk: InstantPattern,
    },
    /// Inserts from two walks in turn.
    Weave {
        count: usize,
        walks: [InstantPattern; 2],
    },
    Pop {
        count: usize,
    },
    /// Pops one item and inserts one.
    Turn {
        count: usize,
        walk: InstantPattern,
    },
    /// Cancels every n-th of the handles, the last ones first.
    Cancel {
        count: usize,
        every: usize,
    },
    /// Moves every n-th of the handles, the last ones first.
    Reschedule {
        count: usize,
        every: usize,
        walk: InstantPattern,
    },
    /// Inserts two items and cancels one.
    Fickle {
        count: usize,
        walk: InstantPattern,
    },
    /// Repeats the same few calls; none of the items that they insert stays.
    Fidget {
        from: From,
        calls: Vec<PhaseCall>,
        times: usize,
    },
}

/// A call of a phase that repeats a few of them, on the latest of its items, or else on the last one of all.
///
/// Instants count from the beginning of the phase.
#[derive(Clone, Copy, Debug)]
enum PhaseCall {
    Insert(i64),
    Move(i64),
    Cancel,
}

fn call() -> impl Strategy<Value = PhaseCall> {
    let due = || prop_oneof![0..4_i64, -300..300_i64];
    prop_oneof![3 => due().prop_map(PhaseCall::Insert), 2 => due().prop_map(PhaseCall::Move), 2 => Just(PhaseCall::Cancel)]
}

fn count() -> impl Strategy<Value = usize> {
    // Half of a split run goes to the pages, so that some more entries are needed to fill a page.
    let corner = prop_oneof![
        1 => Just(PIECE / 4),
        1 => Just(PIECE / 2),
        1 => Just(PIECE),
        1 => Just(2 * PIECE),
        1 => Just(PAGE_MAX / 2),
        5 => Just(PAGE_MAX),
    ];
    prop_oneof![
        4 => (corner, -100..200_isize).prop_map(|(corner, off)| corner.saturating_add_signed(off).max(1)),
        1 => 1..300_usize,
        2 => 1_000..12_000_usize,
    ]
}

fn from() -> impl Strategy<Value = From> {
    prop_oneof![
        prop_oneof![Just(1), Just(1_000_000)].prop_map(From::Above),
        prop_oneof![Just(1), Just(1_000_000)].prop_map(From::Below),
        (any::<prop::sample::Index>(), prop_oneof![Just(0), Just(100_000), Just(-100_000), -3..3_i64])
            .prop_map(|(which, off)| From::Beside(which, off)),
    ]
}

fn walk() -> impl Strategy<Value = InstantPattern> {
    let step =
        prop_oneof![4 => Just(0), 3 => Just(1), 3 => Just(-1), 1 => -1_000..1_000_i64, 1 => Just(7_919)];
    let group = prop_oneof![4 => Just(1), 1 => 2..10_usize, 1 => 50..300_usize];
    (from(), step, group).prop_map(|(from, step, group)| InstantPattern { from, step, group })
}

fn phase() -> impl Strategy<Value = SearchPhase> {
    let every = || prop_oneof![1..4_usize, 1..300_usize];
    prop_oneof![
        6 => (count(), walk()).prop_map(|(count, walk)| SearchPhase::Insert { count, walk }),
        2 => walk().prop_map(|walk| SearchPhase::Fill { walk }),
        2 => (count(), [walk(), walk()]).prop_map(|(count, walks)| SearchPhase::Weave { count, walks }),
        1 => count().prop_map(|count| SearchPhase::Pop { count }),
        1 => (count(), walk()).prop_map(|(count, walk)| SearchPhase::Turn { count, walk }),
        1 => (count(), every()).prop_map(|(count, every)| SearchPhase::Cancel { count, every }),
        1 => (count(), every(), walk()).prop_map(|(count, every, walk)| SearchPhase::Reschedule { count, every, walk }),
        1 => (count(), walk()).prop_map(|(count, walk)| SearchPhase::Fickle { count, walk }),
        1 => (from(), prop::collection::vec(call(), 1..5), 1_000..3_000_usize)
            .prop_map(|(from, calls, times)| SearchPhase::Fidget { from, calls, times }),
    ]
}

/// Several rounds of a few phases, so that small costs per phase add up.
#[derive(Clone, Debug)]
struct Program {
    once: Vec<SearchPhase>,
    again: Vec<SearchPhase>,
    rounds: usize,
}

fn program() -> impl Strategy<Value = Program> {
    let again = prop_oneof![3 => Just(0..1_usize), 2 => Just(1..4_usize)];
    let again = again.prop_flat_map(|count| prop::collection::vec(phase(), count));
    (prop::collection::vec(phase(), 1..5), again, 1..12_usize).prop_map(|(once, again, rounds)| Program {
        once,
        again,
        rounds,
    })
}

/// A queue whose calls are charged.
#[derive(Default)]
struct Charged {
    queue: TimingQueue<u64>,
    handles: Vec<Handle>,
    /// The first instant of each walk.
    starts: Vec<i64>,
    reach: (i64, i64),
    most_in: usize,
    calls: usize,
    touched: usize,
    most: usize,
}

impl Charged {
    fn call<R>(&mut self, call: impl FnOnce(&mut TimingQueue<u64>) -> R) -> R {
        meter::take();
        let answer = call(&mut self.queue);
        let touched = meter::take();
        self.calls += 1;
        self.touched += touched;
        self.most = self.most.max(touched);
        self.most_in = self.most_in.max(self.queue.len());
        answer
    }

    fn start(&mut self, from: From) -> i64 {
        let start = match from {
            From::Above(distance) => self.reach.1 + distance,
            From::Below(distance) => self.reach.0 - distance,
            From::Beside(_, _) if self.starts.is_empty() => 0,
            From::Beside(which, off) => which.get(&self.starts) + off,
        };
        self.starts.push(start);
        start
    }

    fn dues(&mut self, walk: InstantPattern) -> impl FnMut(&mut Charged) -> i64 + use<> {
        let start = self.start(walk.from);
        let mut n = 0;
        move |charged| {
            let due = start + (n / walk.group) as i64 * walk.step;
            n += 1;
            charged.reach = (charged.reach.0.min(due), charged.reach.1.max(due));
            due
        }
    }

    fn insert(&mut self, due: i64) {
        let handle = self.call(|queue| queue.insert(due, 0));
        self.handles.push(handle);
    }

    fn run(&mut self, phase: &SearchPhase) {
        match *phase {
            SearchPhase::Insert { count, walk } => {
                let mut dues = self.dues(walk);
                for _ in 0..count {
                    let due = dues(self);
                    self.insert(due);
                }
            }
            SearchPhase::Fill { walk } => {
                let mut dues = self.dues(walk);
                for _ in 0..2 * PAGE_MAX {
                    let due = dues(self);
                    self.insert(due);
                    if self.last_page_is_full() {
                        break;
                    }
                }
            }
            SearchPhase::Weave { count, walks } => {
                let mut dues = walks.map(|walk| self.dues(walk));
                for n in 0..count {
                    let due = dues[n % 2](self);
                    self.insert(due);
                }
            }
            SearchPhase::Pop { count } => (0..count).for_each(|_| {
                self.call(TimingQueue::pop);
            }),
            SearchPhase::Turn { count, walk } => {
                let mut dues = self.dues(walk);
                for _ in 0..count {
                    self.call(TimingQueue::pop);
                    let due = dues(self);
                    self.insert(due);
                }
            }
            SearchPhase::Cancel { count, every } => {
                for handle in self.some_handles(count, every) {
                    self.call(|queue| queue.cancel(handle));
                }
            }
            SearchPhase::Reschedule { count, every, walk } => {
                let mut dues = self.dues(walk);
                for handle in self.some_handles(count, every) {
                    let due = dues(self);
                    self.call(|queue| queue.reschedule(handle, due));
                }
            }
            SearchPhase::Fickle { count, walk } => {
                let mut dues = self.dues(walk);
                for n in 0..count {
                    let due = dues(self);
                    self.insert(due);
                    if n % 2 == 1 {
                        let handle = self.handles[self.handles.len() - 2];
                        self.call(|queue| queue.cancel(handle));
                    }
                }
            }
            SearchPhase::Fidget { from, ref calls, times } => {
                let start = self.start(from);
                for _ in 0..times {
                    self.fidget(start, calls);
                }
            }
        }
    }

    fn fidget(&mut self, start: i64, calls: &[PhaseCall]) {
        let mut own = Vec::new();
        for call in calls {
            match (*call, own.last().or(self.handles.last()).copied()) {
                (PhaseCall::Insert(off), _) => own.push(self.call(|queue| queue.insert(start + off, 0))),
                (PhaseCall::Move(off), Some(handle)) => {
                    self.call(|queue| queue.reschedule(handle, start + off));
                }
                (PhaseCall::Cancel, Some(handle)) => {
                    own.pop();
                    self.call(|queue| queue.cancel(handle));
                }
                (PhaseCall::Move(_) | PhaseCall::Cancel, None) => {}
            }
        }
        for handle in own {
            self.call(|queue| queue.cancel(handle));
        }
    }

    fn last_page_is_full(&self) -> bool {
        let place = self.handles.last().and_then(|last| self.queue.slots.find(*last));
        place.and_then(|(_, place)| place.in_page()).is_some_and(|page| self.queue.pages.is_full(page))
    }

    fn some_handles(&self, count: usize, every: usize) -> Vec<Handle> {
        self.handles.iter().rev().step_by(every).take(count).copied().collect()
    }

    fn bytes(&self) -> usize {
        self.queue.slots.bytes() + self.queue.run.bytes() + self.queue.pages.bytes()
    }
}

/// Charges a program: an error if its costs are too high.
fn charge(program: &Program) -> Result<(), TestCaseError> {
    let mut charged = Charged::default();
    let rounds = std::iter::repeat_n(&program.again, program.rounds).flatten();
    let (mut only_inserts, mut only_pops) = (true, true);
    for (at, phase) in program.once.iter().chain(rounds).enumerate() {
        let inserts = matches!(
            phase,
            SearchPhase::Insert { .. } | SearchPhase::Fill { .. } | SearchPhase::Weave { .. }
        );
        only_inserts &= inserts;
        only_pops &= inserts || matches!(phase, SearchPhase::Pop { .. } | SearchPhase::Turn { .. });
        charged.run(phase);
        let mean = charged.touched / charged.calls.max(OVER);
        let allowed = if only_inserts { MEAN_OF_INSERTS } else { MEAN };
        prop_assert!(mean <= allowed, "phase {at}, {phase:?}: {mean} entries touched a call");
        prop_assert!(
            charged.most <= MOST,
            "phase {at}, {phase:?}: {} entries touched by a call",
            charged.most
        );
        let allowed = size_of::<u64>() + if only_pops { BYTES } else { BYTES_WITH_DEAD };
        let (bytes, most_in) = (charged.bytes(), charged.most_in);
        prop_assert!(
            bytes <= most_in * allowed + FIXED_BYTES,
            "phase {at}, {phase:?}: {bytes} bytes for {most_in} entries, {:.1} each over the payload",
            bytes as f64 / most_in as f64 - 8.0
        );
    }
    Ok(())
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(10_000_u32)
        .div_ceil(4)
}

proptest! {
    #![proptest_config(Config { cases: cases(), ..Config::default() })]

    #[test]
    fn no_program_costs_much(program in program()) {
        charge(&program)?;
    }
}
