//! Take by id.

use dwell_model::{Pause, Setting, StateKind};

use super::super::stage::*;
use crate::{Action, Error, LeaseTerms, Settled};

pub fn take_by_id_hands_out_a_scheduled_a_ready_and_a_dead_message(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let ready = stage.put(message("ready")).id;
    stage.put(keyed("k", "dead").priority(0));
    let dead = stage.bury_head();
    let scheduled = stage.put(message("scheduled").after_ms(86_400_000)).id;
    stage.advance(10);
    for (id, attempts) in [(scheduled, 0), (ready, 0), (dead, 0)] {
        let taken = stage.store().take_id(q(), id, LeaseTerms::of_ms(1_000)).unwrap();
        assert_eq!((taken.message.id, taken.taken_at, taken.lease_until), (id, stage.now(), stage.at(1_000)));
        let standing = &taken.message.standing;
        assert_eq!((standing.state.kind(), standing.attempts), (StateKind::Leased, attempts));
        assert!(standing.due <= stage.now(), "what is leased has been due");
        assert_eq!(stage.settle(&taken.receipt, RELEASE), Ok(Settled::Ready));
    }
    assert_eq!(stage.get(scheduled).standing.due, stage.now(), "its instant became now");
    let revived = stage.try_get(by_key("k")).unwrap();
    assert_eq!((revived.id, revived.standing.counts.revives), (dead, 1), "its key is its own again");
    assert_eq!(stage.drain().len(), 3);
}

pub fn take_by_id_hands_out_from_a_paused_queue(factory: &Factory) {
    let stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    stage.set(Setting::Pause(Pause::Indefinite));
    let taken = stage.store().take_id(q(), id, LeaseTerms::default()).unwrap();
    assert_eq!(stage.settle(&taken.receipt, Action::Ack), Ok(Settled::Gone));
}

pub fn take_by_id_of_a_leased_message_is_refused(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    let taken = stage.taken_for(1_000);
    assert_eq!(stage.store().take_id(q(), id, LeaseTerms::default()), Err(Error::Leased { id }));
    stage.settle(&taken.receipt, extend(1_000)).expect("the holder is not disturbed");
    stage.advance(1_000);
    assert_eq!(stage.store().take_id(q(), id, LeaseTerms::default()).unwrap().message.standing.attempt(), 2);
}

pub fn take_by_id_of_what_is_not_there_is_refused(factory: &Factory) {
    let stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    let not_found = |name: &str| Err(Error::MessageNotFound { queue: queue(name) });
    assert_eq!(stage.store().take_id(queue("other"), id, LeaseTerms::default()), not_found("other"));
    let taken = stage.taken();
    stage.settle(&taken.receipt, Action::Ack).unwrap();
    assert_eq!(stage.store().take_id(q(), id, LeaseTerms::default()), not_found("q"));
}

pub fn take_by_id_of_a_dead_message_whose_key_has_a_new_owner_is_refused(factory: &Factory) {
    let stage = Stage::open(factory);
    stage.put(keyed("k", "dead"));
    let dead = stage.bury_head();
    let owner = stage.put(keyed("k", "owner")).id;
    assert_eq!(stage.store().take_id(q(), dead, LeaseTerms::default()), Err(Error::KeyTaken { id: owner }));
    assert_eq!(stage.state(dead), StateKind::Dead);
    stage.cancel(by_key("k"));
    assert_eq!(stage.store().take_id(q(), dead, LeaseTerms::default()).unwrap().message.id, dead);
}
