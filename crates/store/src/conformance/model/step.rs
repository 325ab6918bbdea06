//! Random calls: small numbers that name few queues, keys, idempotency keys and messages, so that calls interact; and
//! some that every store has to refuse.

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any};
use proptest::prop_oneof;
use proptest::sample::select;

use dwell_model::{LapseBackoff, OnExpiry, SettingName, StateKind};

use crate::OnConflict;

/// One of a few queues.
pub(super) type Q = u8;

/// Selects a message, mostly among those that exist.
pub(super) type Pick = u8;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Put(Vec<PutPlan>),
    Take(TakePlan),
    TakeId {
        q: Q,
        pick: Pick,
        lease_ms: Option<u64>,
        session: bool,
        holder: Option<u8>,
    },
    /// Selects a message, and the distance of the named number of takes from its own.
    ExpireLease {
        q: Q,
        leases: Vec<(Pick, u32)>,
    },
    Settle(Vec<(Pick, ActionPlan)>),
    Cancel {
        q: Q,
        targets: Vec<TargetPlan>,
    },
    Reschedule {
        q: Q,
        moves: Vec<(TargetPlan, WhenPlan)>,
    },
    Get {
        q: Q,
        targets: Vec<TargetPlan>,
        dead: bool,
    },
    Locate(Vec<Pick>),
    List {
        q: Q,
        state: StateKind,
        max: usize,
    },
    Stats(Q),
    Queues {
        after: Option<Q>,
        max: usize,
    },
    Configure {
        q: Q,
        changes: Vec<ChangePlan>,
    },
    Revive {
        q: Q,
        which: SelectionPlan,
        when: WhenPlan,
    },
    Discard {
        q: Q,
        which: SelectionPlan,
    },
    Purge(Q),
    DeleteQueue(Q),
    Advance(u64),
    MoveWall(i64),
    Restart,
    Close,
    /// A take waits; then something happens that may end its wait; then its caller drops it, or has the
    /// answer.
    Wait {
        take: TakePlan,
        then: Then,
        dropped: bool,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Then {
    Put(Box<PutPlan>),
    Advance(u64),
}

#[derive(Clone, Debug)]
pub(super) struct PutPlan {
    pub(super) q: Q,
    pub(super) when: WhenPlan,
    pub(super) body_len: u8,
    pub(super) key: Option<u8>,
    pub(super) on_conflict: OnConflict,
    pub(super) priority: u32,
    pub(super) lease_ms: Option<u64>,
    pub(super) max_attempts: Option<u8>,
    pub(super) expires_ms: Option<i64>,
    pub(super) idempotency_key: Option<u8>,
    pub(super) header: bool,
}

#[derive(Clone, Debug)]
pub(super) enum WhenPlan {
    Now,
    /// The number of milliseconds from now, which may be negative.
    At(i64),
    AfterMs(u64),
    Level(u32),
}

#[derive(Clone, Debug)]
pub(super) struct TakePlan {
    pub(super) queues: Vec<Q>,
    pub(super) max: usize,
    pub(super) max_bytes: Option<usize>,
    pub(super) lease_ms: Option<u64>,
    pub(super) session: bool,
    pub(super) holder: Option<u8>,
}

#[derive(Clone, Debug)]
pub(super) enum ActionPlan {
    Ack,
    Retry { after_ms: Option<u64>, error: Option<u8>, priority: Option<u32> },
    Release { after_ms: Option<u64>, priority: Option<u32> },
    Bury { reason: Option<u8>, priority: Option<u32> },
    Extend { lease_ms: Option<u64> },
}

#[derive(Clone, Debug)]
pub(super) enum TargetPlan {
    Id(Pick),
    Key(u8),
}

#[derive(Clone, Debug)]
pub(super) enum SelectionPlan {
    Ids(Vec<Pick>),
    Oldest(u64),
    All,
}

#[derive(Clone, Debug)]
pub(super) enum ChangePlan {
    LeaseMs(u64),
    MaxAttempts(u8),
    Backoff { base_ms: u64, factor_percent: u32 },
    MaxPending(u64),
    Pause(Option<i64>),
    Resume,
    Levels(Vec<u64>),
    Partitions(u16),
    IdempotencyMs(u64),
    DeadTtlMs(u64),
    DeadMax(u64),
    OnExpiry(OnExpiry),
    MaxLeased(u64),
    LapseBackoff(LapseBackoff),
    Reset(usize),
}

/// The number of queues, keys and idempotency keys.
pub(super) const QUEUES: u8 = 4;
const KEYS: u8 = 3;
const TOKENS: u8 = 4;

fn delay_ms() -> impl Strategy<Value = u64> + Clone {
    select(vec![0, 1, 5, 10, 50, 100, 500, 1_000, 5_000])
}

fn lease_ms() -> impl Strategy<Value = u64> + Clone {
    // 0 is out of bounds.
    select(vec![10, 100, 500, 1_000, 60_000, 60_000, 60_000, 0])
}

fn priority() -> impl Strategy<Value = u32> + Clone {
    select(vec![1_024, 1_024, 1_024, 0, 5, 1_023, u32::MAX])
}

fn when() -> impl Strategy<Value = WhenPlan> + Clone {
    prop_oneof![
        3 => Just(WhenPlan::Now),
        2 => select(vec![-10_000, -5, -1, 0, 1, 5, 10, 100, 1_000]).prop_map(WhenPlan::At),
        5 => delay_ms().prop_map(WhenPlan::AfterMs),
        1 => (0..4u32).prop_map(WhenPlan::Level),
        1 => Just(WhenPlan::AfterMs(u64::MAX)),
    ]
}

fn put() -> impl Strategy<Value = PutPlan> + Clone {
    let conflict = select(vec![OnConflict::Reject, OnConflict::Replace, OnConflict::Keep]);
    let expires_ms = weighted(0.15, select(vec![1, 5, 10, 100, 1_000, 5_000]));
    (
        (0..QUEUES, when(), 0..40u8, weighted(0.5, 0..KEYS), conflict, priority()),
        (weighted(0.2, lease_ms()), weighted(0.2, 0..3u8), expires_ms, weighted(0.2, 0..TOKENS)),
        any::<bool>(),
    )
        .prop_map(
            |(
                (q, when, body_len, key, on_conflict, priority),
                (lease_ms, max_attempts, expires_ms, idempotency_key),
                header,
            )| PutPlan {
                q,
                when,
                body_len,
                key,
                on_conflict,
                priority,
                lease_ms,
                max_attempts,
                expires_ms,
                idempotency_key,
                header,
            },
        )
}

fn take() -> impl Strategy<Value = TakePlan> + Clone {
    let max_bytes = weighted(0.2, 0..100usize);
    (vec(0..QUEUES, 1..4), 0..5usize, max_bytes, weighted(0.6, lease_ms()), any::<bool>(), holder()).prop_map(
        |(queues, max, max_bytes, lease_ms, session, holder)| TakePlan {
            queues,
            max,
            max_bytes,
            lease_ms,
            session,
            holder,
        },
    )
}

fn holder() -> impl Strategy<Value = Option<u8>> + Clone {
    weighted(0.4, 0..3u8)
}

fn action() -> impl Strategy<Value = ActionPlan> + Clone {
    let after_ms = || prop_oneof![8 => delay_ms(), 1 => Just(u64::MAX)];
    let text = || weighted(0.4, 0..4u8);
    let priority = || weighted(0.2, priority());
    prop_oneof![
        4 => Just(ActionPlan::Ack),
        4 => (weighted(0.6, after_ms()), text(), priority()).prop_map(|(after_ms, error, priority)| {
            ActionPlan::Retry { after_ms, error, priority }
        }),
        3 => (weighted(0.5, after_ms()), priority()).prop_map(|(after_ms, priority)| {
            ActionPlan::Release { after_ms, priority }
        }),
        2 => (text(), priority()).prop_map(|(reason, priority)| ActionPlan::Bury { reason, priority }),
        2 => weighted(0.7, lease_ms()).prop_map(|lease_ms| ActionPlan::Extend { lease_ms }),
    ]
}

fn target() -> impl Strategy<Value = TargetPlan> + Clone {
    prop_oneof![3 => any::<Pick>().prop_map(TargetPlan::Id), 2 => (0..KEYS).prop_map(TargetPlan::Key)]
}

fn selection() -> impl Strategy<Value = SelectionPlan> + Clone {
    prop_oneof![
        2 => vec(any::<Pick>(), 0..4).prop_map(SelectionPlan::Ids),
        1 => (0..4u64).prop_map(SelectionPlan::Oldest),
        1 => Just(SelectionPlan::All),
    ]
}

fn change() -> impl Strategy<Value = ChangePlan> + Clone {
    prop_oneof![
        2 => lease_ms().prop_map(ChangePlan::LeaseMs),
        2 => (0..4u8).prop_map(ChangePlan::MaxAttempts),
        // 50 % is out of bounds.
        1 => (delay_ms(), select(vec![100, 150, 200, 50]))
            .prop_map(|(base_ms, factor_percent)| ChangePlan::Backoff { base_ms, factor_percent }),
        1 => (0..8u64).prop_map(ChangePlan::MaxPending),
        2 => weighted(0.8, select(vec![1, 10, 100, 1_000])).prop_map(ChangePlan::Pause),
        3 => Just(ChangePlan::Resume),
        2 => vec(delay_ms(), 0..3).prop_map(ChangePlan::Levels),
        1 => (0..3u16).prop_map(ChangePlan::Partitions),
        1 => delay_ms().prop_map(ChangePlan::IdempotencyMs),
        // 0 is out of bounds of the first and the fourth.
        2 => select(vec![0, 1, 10, 100, 1_000, 5_000, 60_000]).prop_map(ChangePlan::DeadTtlMs),
        2 => (0..4u64).prop_map(ChangePlan::DeadMax),
        2 => select(OnExpiry::ALL.to_vec()).prop_map(ChangePlan::OnExpiry),
        2 => (0..4u64).prop_map(ChangePlan::MaxLeased),
        3 => select(LapseBackoff::ALL.to_vec()).prop_map(ChangePlan::LapseBackoff),
        6 => (0..SettingName::ALL.len()).prop_map(ChangePlan::Reset),
    ]
}

fn advance() -> impl Strategy<Value = u64> + Clone {
    select(vec![0, 1, 1, 5, 10, 10, 50, 100, 500, 1_000, 5_000, 60_000])
}

/// One call, or one event of the store.
fn step() -> impl Strategy<Value = Step> + Clone {
    let targets = || vec(target(), 1..3);
    prop_oneof![
        30 => vec(put(), 1..4).prop_map(Step::Put),
        22 => take().prop_map(Step::Take),
        4 => (0..QUEUES, any::<Pick>(), weighted(0.5, lease_ms()), any::<bool>(), holder())
            .prop_map(|(q, pick, lease_ms, session, holder)| Step::TakeId { q, pick, lease_ms, session, holder }),
        4 => (0..QUEUES, vec((any::<Pick>(), select(vec![0, 0, 0, 1])), 1..3))
            .prop_map(|(q, leases)| Step::ExpireLease { q, leases }),
        22 => vec((any::<Pick>(), action()), 1..4).prop_map(Step::Settle),
        5 => (0..QUEUES, targets()).prop_map(|(q, targets)| Step::Cancel { q, targets }),
        6 => (0..QUEUES, vec((target(), when()), 1..3)).prop_map(|(q, moves)| Step::Reschedule { q, moves }),
        5 => (0..QUEUES, targets(), any::<bool>()).prop_map(|(q, targets, dead)| Step::Get { q, targets, dead }),
        2 => vec(any::<Pick>(), 1..4).prop_map(Step::Locate),
        4 => (0..QUEUES, select(StateKind::ALL.to_vec()), 1..6usize)
            .prop_map(|(q, state, max)| Step::List { q, state, max }),
        1 => (0..QUEUES).prop_map(Step::Stats),
        1 => (weighted(0.5, 0..QUEUES), 1..4usize).prop_map(|(after, max)| Step::Queues { after, max }),
        5 => (0..QUEUES, vec(change(), 0..3)).prop_map(|(q, changes)| Step::Configure { q, changes }),
        5 => (0..QUEUES, selection(), when()).prop_map(|(q, which, when)| Step::Revive { q, which, when }),
        2 => (0..QUEUES, selection()).prop_map(|(q, which)| Step::Discard { q, which }),
        1 => (0..QUEUES).prop_map(Step::Purge),
        1 => (0..QUEUES).prop_map(Step::DeleteQueue),
        25 => advance().prop_map(Step::Advance),
        3 => select(vec![-100_000, -1_000, -10, -1, 1, 10, 1_000, 100_000]).prop_map(Step::MoveWall),
        1 => Just(Step::Restart),
        1 => Just(Step::Close),
        4 => (take(), prop_oneof![
                put().prop_map(|put| Then::Put(Box::new(put))),
                advance().prop_map(Then::Advance),
            ], any::<bool>())
            .prop_map(|(take, then, dropped)| Step::Wait { take, then, dropped }),
    ]
}

/// A life of a store, of `commands` steps on average. Its length is free, so that a failing life can be shortened.
pub(super) fn steps(commands: usize) -> BoxedStrategy<Vec<Step>> {
    vec(step(), 0..=2 * commands).boxed()
}
