//! The timing queue against the simplest possible model: a vector sorted by (due, sequence).
//!
//! Each case is a random walk over all operations. The instants come from patterns that are hard for one structure or
//! another. Cases: `PROPTEST_CASES` (10,000 by default). A failure prints the walk, and proptest stores its seed in
//! `proptest-regressions/`, from where it is replayed first.

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::{Handle, TimingQueue};

/// The model, from which the queue must be indistinguishable.
#[derive(Default)]
struct Model {
    sequence: u64,
    /// (due, sequence, item), sorted.
    entries: Vec<(i64, u64, u32)>,
}

impl Model {
    fn insert(&mut self, due: i64, item: u32) {
        let at = self.entries.partition_point(|entry| entry.0 <= due);
        self.entries.insert(at, (due, self.sequence, item));
        self.sequence += 1;
    }

    fn cancel(&mut self, item: u32) -> Option<u32> {
        let at = self.entries.iter().position(|entry| entry.2 == item)?;
        Some(self.entries.remove(at).2)
    }

    fn reschedule(&mut self, item: u32, due: i64) -> bool {
        let found = self.cancel(item).is_some();
        if found {
            self.insert(due, item);
        }
        found
    }

    fn pop_due(&mut self, now: i64) -> Option<(i64, u32)> {
        let head = self.entries.first().filter(|entry| entry.0 <= now)?;
        let head = (head.0, head.2);
        self.entries.remove(0);
        Some(head)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Inserts this many items, at the next instants of the pattern.
    Insert(u16),
    /// Cancels the item of one of the handles returned so far, stale or not.
    Cancel(u16),
    Reschedule(u16, i64),
    /// Pops this many items that are due at the model's instant of this rank.
    Pop {
        rank: u16,
        times: u8,
    },
    Drain {
        rank: u16,
        max: u16,
    },
    Get(u16),
    /// Iterates over everything, and also from the model's instant of this rank on.
    Iterate(u16),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1_u16..40).prop_map(Step::Insert),
        1 => (100_u16..700).prop_map(Step::Insert),
        6 => any::<u16>().prop_map(Step::Cancel),
        4 => (any::<u16>(), due()).prop_map(|(which, due)| Step::Reschedule(which, due)),
        6 => (any::<u16>(), 1_u8..20).prop_map(|(rank, times)| Step::Pop { rank, times }),
        2 => (any::<u16>(), 0_u16..600).prop_map(|(rank, max)| Step::Drain { rank, max }),
        2 => any::<u16>().prop_map(Step::Get),
        1 => any::<u16>().prop_map(Step::Iterate),
        1 => Just(Step::Clear),
    ]
}

fn due() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0_i64..1_000,
        2 => 0_i64..10_000_000_000,
        1 => any::<i64>(),
        1 => Just(i64::MIN),
        1 => Just(i64::MAX),
    ]
}

/// The source of the instants of one walk.
#[derive(Clone, Debug)]
enum Pattern {
    AllEqual(i64),
    Ascending,
    Descending,
    NearAndFar,
    Sawtooth,
    Outlier,
    LeapOverYears,
    Random(Vec<i64>),
}

const YEAR_NS: i64 = 365 * 24 * 3_600 * 1_000_000_000;

impl Pattern {
    fn due(&self, n: i64) -> i64 {
        match self {
            Pattern::AllEqual(due) => *due,
            Pattern::Ascending => n,
            Pattern::Descending => -n,
            Pattern::NearAndFar => (n % 2) * YEAR_NS + n,
            Pattern::Sawtooth => n % 97,
            Pattern::Outlier => {
                if n == 3 {
                    i64::MAX
                } else {
                    n % 5
                }
            }
            Pattern::LeapOverYears => (n / 50).saturating_mul(YEAR_NS).saturating_add(n % 7),
            Pattern::Random(dues) => dues[n as usize % dues.len()],
        }
    }
}

fn pattern() -> impl Strategy<Value = Pattern> {
    prop_oneof![
        due().prop_map(Pattern::AllEqual),
        Just(Pattern::Ascending),
        Just(Pattern::Descending),
        Just(Pattern::NearAndFar),
        Just(Pattern::Sawtooth),
        Just(Pattern::Outlier),
        Just(Pattern::LeapOverYears),
        prop::collection::vec(due(), 1..200).prop_map(Pattern::Random),
    ]
}

/// The instant of the entry at index `rank`, or one before all of them.
fn at_rank(model: &Model, rank: u16) -> i64 {
    let entries = &model.entries;
    if entries.is_empty() {
        0
    } else {
        entries[rank as usize % entries.len()].0.saturating_sub(i64::from(rank % 2))
    }
}

fn walk(pattern: &Pattern, steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut queue, mut model) = (TimingQueue::new(), Model::default());
    let mut handles: Vec<Handle> = Vec::new();
    for step in steps {
        let named = |which: u16| (!handles.is_empty()).then(|| which as usize % handles.len());
        match *step {
            Step::Insert(times) => {
                for _ in 0..times {
                    let item = handles.len() as u32;
                    let due = pattern.due(i64::from(item));
                    handles.push(queue.insert(due, item));
                    model.insert(due, item);
                }
            }
            Step::Cancel(which) => {
                if let Some(item) = named(which) {
                    prop_assert_eq!(queue.cancel(handles[item]), model.cancel(item as u32));
                    prop_assert_eq!(queue.cancel(handles[item]), None);
                }
            }
            Step::Reschedule(which, due) => {
                if let Some(item) = named(which) {
                    prop_assert_eq!(queue.reschedule(handles[item], due), model.reschedule(item as u32, due));
                }
            }
            Step::Pop { rank, times } => {
                let now = at_rank(&model, rank);
                for _ in 0..times {
                    prop_assert_eq!(queue.pop_due(now), model.pop_due(now));
                }
            }
            Step::Drain { rank, max } => {
                let (now, mut drained) = (at_rank(&model, rank), vec![(7, 7)]);
                let count = queue.drain_due_into(now, max.into(), &mut drained);
                let expected: Vec<_> = std::iter::from_fn(|| model.pop_due(now)).take(max.into()).collect();
                prop_assert_eq!(count, expected.len());
                prop_assert_eq!(drained[0], (7, 7));
                prop_assert_eq!(&drained[1..], &expected[..]);
            }
            Step::Get(which) => {
                if let Some(item) = named(which) {
                    let present = model.entries.iter().any(|entry| entry.2 == item as u32);
                    prop_assert_eq!(queue.get(handles[item]).copied(), present.then_some(item as u32));
                    prop_assert_eq!(queue.get_mut(handles[item]).copied(), present.then_some(item as u32));
                }
            }
            Step::Iterate(rank) => {
                let all: Vec<(i64, u32)> = queue.iter().map(|(due, item)| (due, *item)).collect();
                let mut expected: Vec<(i64, u32)> =
                    model.entries.iter().map(|entry| (entry.0, entry.2)).collect();
                prop_assert_eq!(&all, &expected);
                let upcoming: Vec<(i64, u32)> = queue.upcoming().map(|(due, item)| (due, *item)).collect();
                prop_assert!(all.starts_with(&upcoming) && upcoming.is_empty() == all.is_empty());
                let from = at_rank(&model, rank);
                let due = expected.iter().filter(|entry| entry.0 <= from).count();
                prop_assert_eq!(queue.count_due(from), due);
                let later: Vec<(i64, u32)> = queue.iter_from(from).map(|(due, item)| (due, *item)).collect();
                expected.retain(|entry| entry.0 >= from);
                prop_assert_eq!(later, expected);
            }
            Step::Clear => {
                queue.clear();
                model.entries.clear();
            }
        }
        let head = model.entries.first().map(|entry| (entry.0, entry.2));
        prop_assert_eq!(queue.len(), model.entries.len());
        prop_assert_eq!(queue.is_empty(), model.entries.is_empty());
        prop_assert_eq!(queue.peek().map(|(due, item)| (due, *item)), head);
        prop_assert_eq!(queue.next_due(), head.map(|head| head.0));
    }
    // The items that the walk left behind come out in order.
    loop {
        let next = queue.pop();
        prop_assert_eq!(next, model.pop_due(i64::MAX));
        if next.is_none() {
            return Ok(());
        }
    }
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(10_000)
}

proptest! {
    #![proptest_config(Config { cases: cases(), ..Config::default() })]

    #[test]
    fn answers_as_a_sorted_vector_would(pattern in pattern(), steps in prop::collection::vec(step(), 1..60)) {
        walk(&pattern, &steps)?;
    }
}

/// Steps that fill whole pages, so that these are split, cut and merged.
fn large_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_000_u16..9_000).prop_map(Step::Insert),
        1 => (any::<u16>(), 0_u16..9_000).prop_map(|(rank, max)| Step::Drain { rank, max }),
        4 => step(),
    ]
}

proptest! {
    #![proptest_config(Config { cases: cases().div_ceil(250), ..Config::default() })]

    #[test]
    fn answers_so_with_many_items(pattern in pattern(), steps in prop::collection::vec(large_step(), 1..12)) {
        walk(&pattern, &steps)?;
    }
}

/// An item that counts its drops, so that none is lost and none dropped twice.
#[test]
fn every_item_is_dropped_once() {
    use std::rc::Rc;
    let alive = Rc::new(());
    let mut queue = TimingQueue::new();
    let handles: Vec<Handle> = (0..1_000).map(|n| queue.insert(n % 10, Rc::clone(&alive))).collect();
    for handle in &handles[..300] {
        assert!(queue.cancel(*handle).is_some());
    }
    for _ in 0..300 {
        assert!(queue.pop().is_some());
    }
    assert_eq!(Rc::strong_count(&alive), 401);
    queue.clear();
    assert_eq!(Rc::strong_count(&alive), 1);
    assert!(handles.iter().all(|handle| queue.get(*handle).is_none()), "handles are stale after clear");
    queue.insert(1, Rc::clone(&alive));
    assert!(handles.iter().all(|handle| queue.cancel(*handle).is_none()), "and stay stale");
    drop(queue);
    assert_eq!(Rc::strong_count(&alive), 1);
}

/// A drop that panics leaves the queue empty and the other items dropped, as `Vec::clear` does.
#[test]
fn a_drop_that_panics_leaves_an_empty_queue() {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    struct Item<'a>(&'a Cell<u32>);
    impl Drop for Item<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            assert!(self.0.get() != 700, "the 700th to be dropped");
        }
    }
    let dropped = Cell::new(0);
    let mut queue = TimingQueue::new();
    let handles: Vec<Handle> = (0..3_000).map(|n| queue.insert(n % 10, Item(&dropped))).collect();
    assert!(catch_unwind(AssertUnwindSafe(|| queue.clear())).is_err());
    assert_eq!((dropped.get(), queue.len(), queue.next_due()), (3_000, 0, None));
    assert!(handles.iter().all(|handle| queue.get(*handle).is_none()));
    queue.insert(7, Item(&dropped));
    assert_eq!(queue.pop().map(|(due, _)| due), Some(7));
    assert!(queue.is_empty());
}

/// No call touches more entries than a few pages hold, and on average a call touches few, whatever the pattern: nothing
/// is quadratic, and no single pop bears the cost of all the others.
#[test]
fn no_pattern_has_a_slow_worst_case() {
    const COUNT: i64 = 300_000;
    // A full page of 8,192 entries is purged, sorted and cut, its slots are updated, and the lists of pages change: 0.2
    // ms.
    const MOST: usize = 50_000;
    type Pattern = fn(i64) -> i64;
    let patterns: [(&str, Pattern); 14] = [
        ("equal, then falling above", |n| if n < 8_255 { 5 } else { 1_000_000 - n }),
        ("equal, then rising below", |n| if n < 8_255 { 1_000_000 } else { n }),
        ("equal, then falling above, a page later", |n| if n < 8_256 { 5 } else { 1_000_000 - n }),
        ("equal, then to either side in turn", |n| match n {
            0..8_000 => 0,
            _ if n % 2 == 0 => 1_000_000 - n,
            _ => n - 1_000_000,
        }),
        ("all equal", |_| 5),
        ("ascending", |n| n),
        ("descending", |n| -n),
        ("alternating near and far", |n| n % 2 * YEAR_NS + n),
        ("sawtooth", |n| n % 1_000),
        ("falling sawtooth", |n| -(n % 1_000)),
        ("one far outlier", |n| if n == 100 { i64::MAX } else { n % 50 }),
        ("a leap over years", |n| n / 1_000 * (YEAR_NS / 100) + n % 7),
        ("outside in", |n| if n % 2 == 0 { n } else { COUNT * 2 - n }),
        ("halving gaps", |n| i64::MAX >> (n % 60)),
    ];
    for (name, due) in patterns {
        let mut queue = TimingQueue::new();
        let mut most = (0, "");
        let mut sum = 0;
        let mut note = |call: &'static str| {
            let touched = super::meter::take();
            sum += touched;
            most = most.max((touched, call));
        };
        // Twice: in the second round most items are cancelled or moved, some while others are popped.
        for round in 0..2 {
            let handles: Vec<Handle> = (0..COUNT)
                .map(|n| {
                    let handle = queue.insert(due(n), n);
                    note("insert");
                    handle
                })
                .collect();
            if round == 1 {
                for (n, handle) in handles.iter().enumerate().rev() {
                    match n % 4 {
                        0 => drop(queue.cancel(*handle)),
                        1 => drop(queue.reschedule(*handle, due(n as i64 / 2))),
                        2 => drop(queue.pop()),
                        _ => {}
                    }
                    note("cancel, reschedule or pop");
                }
            }
            while queue.pop().is_some() {
                note("pop");
            }
        }
        let calls = COUNT * 4;
        println!("{name}: {most:?} entries touched at most, {:.1} on average", sum as f64 / calls as f64);
        assert!(most.0 < MOST, "{name}: {most:?} entries were touched by one call");
        assert!(sum < 10 * calls as usize, "{name}: {sum} entries were touched by {calls} calls");
    }
}

/// A queue of these instants, with its last handle. Resets the meter.
fn filled(dues: impl Iterator<Item = i64>) -> (TimingQueue<i64>, Handle) {
    let mut queue = TimingQueue::new();
    let last = dues.map(|due| queue.insert(due, due)).last().expect("some instants");
    super::meter::take();
    (queue, last)
}

#[test]
fn an_entry_that_is_moved_again_and_again_costs_little() {
    // The page of the last entry is then full.
    let (mut queue, last) = filled(0..8_256);
    for n in 0..2_000 {
        assert!(queue.reschedule(last, 10_000 + n));
    }
    let touched = super::meter::take();
    assert!(touched <= 700 * 2_000, "{touched} entries were touched by 2,000 moves");

    let (mut queue, _) = filled(0..8_255);
    for n in 0..2_000 {
        let handle = queue.insert(10_000 + n, n);
        assert_eq!(queue.cancel(handle), Some(n));
    }
    let touched = super::meter::take();
    assert!(touched <= 700 * 4_000, "{touched} entries were touched by 2,000 puts and cancels");

    // The entry of the later instant is dead when the earlier one comes.
    let (mut queue, _) = filled(0..8_255);
    for n in 0..2_000 {
        let handle = queue.insert(if n % 2 == 0 { 9_300 } else { 9_250 }, n);
        assert_eq!(queue.cancel(handle), Some(n));
    }
    let touched = super::meter::take();
    assert!(touched <= 700 * 4_000, "{touched} entries were touched by 2,000 puts and cancels in turn");
    assert_eq!(
        std::iter::from_fn(|| queue.pop()).map(|(due, _)| due).collect::<Vec<_>>(),
        Vec::from_iter(0..8_255)
    );
}

#[test]
fn a_hot_instant_is_not_parted_for_each_that_comes_after_it() {
    let mut queue = TimingQueue::new();
    for n in 0..8_255 {
        queue.insert(5, n);
    }
    super::meter::take();
    for _ in 0..1_000 {
        let later = queue.insert(201, 201);
        let earlier = queue.insert(200, 200);
        assert_eq!((queue.cancel(earlier), queue.cancel(later)), (Some(200), Some(201)));
    }
    let touched = super::meter::take();
    assert!(touched <= 700 * 4_000, "{touched} entries were touched by 4,000 calls");
    queue.insert(5, 8_255);
    let left: Vec<i32> = std::iter::from_fn(|| queue.pop()).map(|(_, n)| n).collect();
    assert_eq!(left, Vec::from_iter(0..8_256));
}
