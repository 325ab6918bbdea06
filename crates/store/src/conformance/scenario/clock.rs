//! Steps of the wall clock, in both directions.

use dwell_model::StateKind;

use super::super::stage::*;
use super::super::waiting::PendingTake;
use crate::{Action, Settled, Take};

pub fn a_forward_step_of_the_clock_makes_due_what_it_passes(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.put(message("in a day").after_ms(86_400_000));
    if !stage.step_wall(86_399_999) {
        return;
    }
    assert!(stage.take_one().is_none(), "1 ms is missing");
    assert!(stage.step_wall(1));
    assert_eq!(stage.drain(), ["in a day"]);
}

pub fn a_forward_step_of_the_clock_wakes_a_waiting_take(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let due = stage.put(message("in a day").after_ms(86_400_000)).due;
    let waiting = PendingTake::begin(&stage, Take::from(q()).wait_ms(60_000));
    if !stage.step_wall(90_000_000) {
        return;
    }
    let taken = waiting.answer().unwrap().pop().expect("the step made it due");
    assert_eq!(taken.taken_at, stage.now());
    assert_eq!(taken.lateness_ms, stage.now().ms_since(due));
}

pub fn a_ready_message_stays_ready_when_the_clock_steps_back(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(message("m").after_ms(1_000)).id;
    stage.advance(1_000);
    assert_eq!(stage.state(id), StateKind::Ready);
    if !stage.step_wall(-500_000) {
        return;
    }
    assert_eq!(stage.state(id), StateKind::Ready);
    let later = stage.put(message("later").after_ms(1_000)).id;
    let taken = stage.taken();
    assert_eq!((taken.message.id, taken.taken_at), (id, stage.now()));
    stage.settle(&taken.receipt, RELEASE).unwrap();
    assert_eq!(stage.state(id), StateKind::Ready, "also when it is given back");
    assert_eq!(stage.drain(), ["m"], "what is put by the new clock comes by the new clock");
    stage.advance(999);
    assert_eq!(stage.state(later), StateKind::Scheduled);
    stage.advance(1);
    assert_eq!(stage.drain(), ["later"]);
}

pub fn a_ready_message_stays_ready_when_the_clock_steps_back_across_a_restart(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    let id = stage.put(message("m").after_ms(1_000)).id;
    stage.advance(1_000);
    assert_eq!(stage.state(id), StateKind::Ready);
    // That a message became ready need not be written by itself, but with the next thing that is written.
    let later = stage.put(message("later").after_ms(1_000)).id;
    if !stage.step_wall(-500_000) {
        return;
    }
    stage.restart();
    assert_eq!((stage.state(id), stage.state(later)), (StateKind::Ready, StateKind::Scheduled));
    let taken = stage.taken();
    assert_eq!(taken.message.id, id);
    stage.settle(&taken.receipt, Action::Ack).unwrap();
    stage.advance(500_999);
    assert!(stage.take_one().is_none());
    stage.advance(1);
    assert_eq!(stage.drain(), ["later"]);
}

pub fn a_step_of_the_clock_moves_no_lease(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    let receipt = stage.taken_for(10_000).receipt;
    for by_ms in [86_400_000, -2 * 86_400_000] {
        if !stage.step_wall(by_ms) {
            return;
        }
        assert_eq!(stage.state(id), StateKind::Leased, "the wall clock was stepped by {by_ms} ms");
    }
    stage.advance(9_999);
    assert_eq!(stage.state(id), StateKind::Leased);
    assert!(matches!(stage.settle(&receipt, extend(5_000)), Ok(Settled::Leased(_))));
    stage.advance(4_999);
    assert_eq!(stage.state(id), StateKind::Leased);
    stage.advance(1);
    assert_eq!(stage.state(id), StateKind::Ready);
    assert_eq!(code(stage.settle(&receipt, Action::Ack)), "lease_lost");
}
