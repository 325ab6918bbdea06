//! Backoff after leases that ran out.

use dwell_model::{Backoff, LapseBackoff, Setting, State, StateKind};

use super::super::stage::*;
use crate::{Action, LeaseTerms, Put, Selection, Take, When};

/// Half of it is jitter, so that each message waits for a different time.
const JITTERED: Backoff =
    Backoff { base_ms: 10_000, factor_percent: 200, cap_ms: 60_000, jitter_percent: 50 };

/// Takes the message that is due and lets its lease of a second run out.
fn lapse(stage: &mut Stage) {
    stage.taken_for(1_000);
    stage.advance(1_000);
}

fn unlimited(body: &str) -> Put {
    Put { max_attempts: Some(dwell_model::AttemptLimit::Unlimited), ..message(body) }
}

pub fn without_lapse_backoff_a_message_is_ready_at_once_however_often_its_lease_runs_out(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.set(Setting::Backoff(JITTERED));
    let put = stage.put(unlimited("m"));
    for spent in 1..=5 {
        lapse(&mut stage);
        let standing = stage.get(put.id).standing;
        assert_eq!((standing.state, standing.attempts, standing.due), (State::Ready, spent, put.due));
    }
}

pub fn from_the_lapse_on_that_its_queue_names_a_message_waits_for_the_backoff(factory: &Factory) {
    for (from, first) in [(LapseBackoff::First, 1), (LapseBackoff::Second, 2)] {
        let mut stage = Stage::open(factory);
        stage.set(Setting::Backoff(JITTERED));
        stage.set(Setting::LapseBackoff(from));
        let id = stage.put(unlimited("m")).id;
        for spent in 1..=4 {
            lapse(&mut stage);
            let standing = stage.get(id).standing;
            assert_eq!(standing.attempts, spent);
            if spent < first {
                assert_eq!(standing.state, State::Ready, "{from:?}, attempt {spent}");
                continue;
            }
            let waits_ms = JITTERED.lapse_delay_ms(id, spent);
            assert_eq!((standing.state, standing.due), (State::Scheduled, stage.at(waits_ms as i64)));
            stage.advance(waits_ms - 1);
            assert!(stage.take_one().is_none(), "{from:?}, attempt {spent}");
            stage.advance(1);
            assert_eq!(stage.state(id), StateKind::Ready);
        }
        // The last attempt is the last one.
        let last = stage.put(Put { max_attempts: Some(attempts(1)), priority: 0, ..message("n") }).id;
        lapse(&mut stage);
        assert_eq!(stage.death(last), "attempts_spent");
    }
}

pub fn backoff_after_a_lapse_counts_from_the_deadline_whoever_notices_it(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.set(Setting::Backoff(JITTERED));
    stage.set(Setting::LapseBackoff(LapseBackoff::First));
    let ids = ["a", "b", "c"].map(|body| stage.put(unlimited(body)).id);
    stage.take(Take::from(q()).max(3).lease_ms(1_000));
    let deadline = stage.at(1_000);
    stage.advance(2_500);
    for id in ids {
        let due = deadline.after(JITTERED.lapse_delay_ms(id, 1)).unwrap();
        let standing = stage.get(id).standing;
        assert_eq!((standing.state, standing.due), (State::Scheduled, due), "noticed late");
    }
    let mut dues = ids.map(|id| stage.get(id).standing.due);
    dues.sort();
    assert!(dues[0] < dues[2], "not all at once");
    // It has passed already, since no call looked for so long.
    stage.advance(60_000);
    assert_eq!(stage.take(Take::from(q()).max(3).lease_ms(1_000)).len(), 3);
    let deadline = stage.at(1_000);
    stage.advance(600_000);
    for id in ids {
        let standing = stage.get(id).standing;
        let due = deadline.after(JITTERED.lapse_delay_ms(id, 2)).unwrap();
        assert_eq!((standing.state, standing.due), (State::Ready, due));
    }
    let order: Vec<_> =
        stage.take(Take::from(q()).max(3)).iter().map(|taken| taken.message.standing.due).collect();
    assert!(order.is_sorted(), "in the order of the instants that it was scheduled for");
}

pub fn a_revived_message_lapses_as_a_new_one_does(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.set(Setting::LapseBackoff(LapseBackoff::Second));
    let id = stage.put(unlimited("m")).id;
    let taken = stage.taken();
    stage.settle(&taken.receipt, retry(0)).unwrap();
    lapse(&mut stage);
    assert_eq!(stage.state(id), StateKind::Scheduled, "an attempt that a retry has spent counts");
    let taken = stage.store().take_id(q(), id, LeaseTerms::default()).unwrap();
    stage.settle(&taken.receipt, bury("x")).unwrap();
    stage.store().revive(q(), Selection::Ids(vec![id]), When::Now).unwrap();
    lapse(&mut stage);
    assert_eq!(stage.state(id), StateKind::Ready);
    lapse(&mut stage);
    assert_eq!(stage.state(id), StateKind::Scheduled);
}

pub fn a_session_lease_that_is_freed_waits_for_the_backoff_after_a_lapse(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory).filter(Stage::has_sessions) else { return };
    stage.set(Setting::Backoff(JITTERED));
    stage.set(Setting::LapseBackoff(LapseBackoff::First));
    let id = stage.put(unlimited("m")).id;
    let taken = stage.take(Take::from(q()).lease_ms(3_600_000).session()).pop().unwrap();
    stage.advance(1_000);
    stage.restart();
    let standing = stage.get(id).standing;
    assert_eq!((standing.state, standing.attempts), (State::Scheduled, 1));
    // A shared store may notice only later that a process has ended.
    let waits_ms = JITTERED.lapse_delay_ms(id, 1);
    assert!(
        standing.due >= taken.taken_at.after(waits_ms).unwrap() && standing.due <= stage.at(waits_ms as i64)
    );
    assert_eq!(code(stage.settle(&taken.receipt, Action::Ack)), "lease_lost");
}
