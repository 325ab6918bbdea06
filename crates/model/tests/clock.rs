//! The clock rules: due and expiry are compared with the wall clock as it reads, ready stays ready, and leases run on
//! monotonic time and are re-based when a store is opened.

#![expect(clippy::unwrap_used, reason = "helpers of tests, where a panic is the answer")]

use dwell_model::{
    AttemptLimit, Command, DeathReason, Grant, Lease, LeaseToken, MessageId, Now, Refusal, Rules, Settings,
    Standing, State, StateKind, Timestamp, Transition,
};

const LIMIT: AttemptLimit = AttemptLimit::Unlimited;
const TOKEN: LeaseToken = LeaseToken(1);

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms).unwrap()
}

fn now(wall_ms: i64, mono_ms: u64) -> Now {
    Now { wall: at(wall_ms), mono_ms }
}

/// The standing under default settings, which remove nothing.
fn as_of(standing: &Standing, now: Now, max_attempts: AttemptLimit) -> Standing {
    let id = MessageId::new(Timestamp::MIN, 0, 0, 0);
    dwell_model::as_of(standing, now, Rules { id, max_attempts, settings: &Settings::default() }).unwrap()
}

fn apply(
    standing: &Standing,
    command: &Command,
    now: Now,
    max_attempts: AttemptLimit,
) -> Result<Transition, Refusal> {
    let id = MessageId::new(Timestamp::MIN, 0, 0, 0);
    dwell_model::apply(standing, command, now, Rules { id, max_attempts, settings: &Settings::default() })
}

fn put(due_ms: i64, expires_ms: Option<i64>, now: Now) -> Standing {
    Standing::put(at(due_ms), 1_024, expires_ms.map(at), now)
}

fn taken(lease_ms: u64, session: bool, now: Now) -> Standing {
    let standing = put(now.wall.as_ms(), None, now);
    let take = Command::Take(Grant { token: TOKEN, lease_ms, session, holder: None });
    apply(&standing, &take, now, LIMIT).unwrap().next.unwrap()
}

fn lease(standing: &Standing) -> Lease {
    match standing.state {
        State::Leased(lease) => lease,
        other => panic!("not leased but {other:?}"),
    }
}

#[test]
fn due_comes_with_the_wall_clock_and_not_a_millisecond_before() {
    let stored = put(2_000, None, now(1_000, 0));
    // Monotonic time alone changes nothing: the wall clock may have been stepped back meanwhile.
    assert_eq!(as_of(&stored, now(1_999, 99_999), LIMIT).state, State::Scheduled);
    assert_eq!(as_of(&stored, now(2_000, 0), LIMIT).state, State::Ready);
    let take = Command::Take(Grant { token: TOKEN, lease_ms: 1, session: false, holder: None });
    assert_eq!(apply(&stored, &take, now(1_999, 99_999), LIMIT), Err(Refusal::NotReady));
}

#[test]
fn a_forward_step_makes_due_at_once_what_it_passes() {
    let stored = put(86_400_000, None, now(1_000, 0));
    assert_eq!(as_of(&stored, now(90_000_000, 1), LIMIT).state, State::Ready);
}

#[test]
fn ready_stays_ready_when_the_clock_steps_back() {
    let ready = as_of(&put(2_000, None, now(1_000, 0)), now(2_000, 1_000), LIMIT);
    let back = now(500, 1_001);
    assert_eq!(as_of(&ready, back, LIMIT).state, State::Ready);
    let take = Command::Take(Grant { token: TOKEN, lease_ms: 10, session: false, holder: None });
    let held = apply(&ready, &take, back, LIMIT).unwrap().next.unwrap();
    for end in [Command::Release { token: TOKEN, after_ms: None, priority: None }, Command::GiveBack(TOKEN)] {
        let next = apply(&held, &end, back, LIMIT).unwrap().next.unwrap();
        assert_eq!((next.state, next.due), (State::Ready, at(2_000)), "{end:?}");
    }
    assert_eq!(as_of(&held, now(500, 1_011), LIMIT).state, State::Ready, "its lease has run out");
}

#[test]
fn a_ready_message_that_is_moved_waits_for_its_new_instant() {
    let ready = put(1_000, None, now(2_000, 0));
    let back = now(500, 1);
    let moved = apply(&ready, &Command::Reschedule(at(900)), back, LIMIT).unwrap().next.unwrap();
    assert_eq!(moved.state, State::Scheduled, "900 has not come, by the clock as it is now");
}

#[test]
fn a_ready_message_that_is_brought_forward_stays_ready() {
    let ready = put(1_000, None, now(2_000, 0));
    let back = now(500, 1);
    let kept = apply(&ready, &Command::BringForward(at(900)), back, LIMIT).unwrap().next.unwrap();
    assert_eq!((kept.state, kept.due), (State::Ready, at(900)));
}

#[test]
fn a_lease_runs_on_monotonic_time_whatever_the_wall_clock_does() {
    let held = taken(1_000, false, now(50_000, 10_000));
    for wall_ms in [0, 50_000, 99_000_000] {
        assert_eq!(as_of(&held, now(wall_ms, 10_999), LIMIT).state.kind(), StateKind::Leased, "{wall_ms}");
        let lapsed = as_of(&held, now(wall_ms, 11_000), LIMIT);
        assert_eq!((lapsed.state, lapsed.attempts, lapsed.counts.lapses), (State::Ready, 1, 1));
    }
    let extend = Command::Extend { token: TOKEN, lease_ms: 5_000 };
    let extended = apply(&held, &extend, now(0, 10_999), LIMIT).unwrap().next.unwrap();
    assert_eq!(lease(&extended).deadline_mono_ms, 15_999);
    assert_eq!(apply(&held, &extend, now(0, 11_000), LIMIT), Err(Refusal::LeaseLost));
}

#[test]
fn at_open_a_lease_has_what_was_left_by_the_wall_clock() {
    let granted = lease(&taken(10_000, false, now(50_000, 999_999)));
    for (opened_wall_ms, left_ms) in [
        (50_000, 10_000),
        (53_000, 7_000),
        (60_000, 0),
        (99_000, 0),
        // Stepped back while the store was closed: at most the granted length.
        (1_000, 10_000),
    ] {
        let opened = now(opened_wall_ms, 7);
        let rebased = granted.rebased(opened);
        assert_eq!(rebased.deadline_mono_ms, 7 + left_ms, "opened at {opened_wall_ms}");
        assert_eq!((rebased.token, rebased.deadline), (granted.token, granted.deadline));
        assert_eq!(rebased.has_lapsed(opened), left_ms == 0);
    }
}

#[test]
fn only_a_session_lease_ends_with_its_process() {
    let opened = now(50_001, 3);
    let session = taken(10_000, true, now(50_000, 0));
    let freed = apply(&session, &Command::EndSession, opened, LIMIT).unwrap().next.unwrap();
    assert_eq!((freed.state, freed.attempts), (State::Ready, 1));
    let other = taken(10_000, false, now(50_000, 0));
    assert_eq!(apply(&other, &Command::EndSession, opened, LIMIT).unwrap().next.unwrap(), other);
}

#[test]
fn expiry_goes_by_the_wall_clock_and_the_dead_stay_dead() {
    let stored = put(1_000, Some(3_000), now(500, 0));
    assert_eq!(as_of(&stored, now(2_999, 0), LIMIT).state, State::Ready);
    let dead = as_of(&stored, now(7_000, 0), LIMIT);
    let State::Dead(death) = dead.state else { panic!("alive: {dead:?}") };
    assert_eq!((death.reason, death.at), (DeathReason::Expired, at(3_000)));
    assert_eq!(as_of(&dead, now(1, 1), LIMIT), dead, "the clock steps back");
}

#[test]
fn a_death_has_one_instant_whenever_it_is_noticed() {
    let once = AttemptLimit::At(1.try_into().unwrap());
    let held = taken(1_000, false, now(50_000, 0));
    let noticed = [1_000, 1_001, 777_777].map(|late_ms| {
        let seen = as_of(&held, now(50_000 + late_ms, late_ms as u64), once);
        let State::Dead(death) = seen.state else { panic!("alive: {seen:?}") };
        death
    });
    assert!(noticed.iter().all(|death| death.at == at(51_000)), "{noticed:?}");
}
