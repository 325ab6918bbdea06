//! Cancel and reschedule.

use dwell_model::{Setting, StateKind};

use super::super::stage::*;
use crate::{Action, Cancelled, Put, Rescheduled, Take, Target, When};

pub fn cancel_says_truthfully_what_it_found(factory: &Factory) {
    let stage = Stage::open(factory);
    let never = stage.put(message("m")).id;
    stage.store().purge(q()).unwrap();
    stage.put(message("dead"));
    let dead = stage.bury_head();
    stage.put(message("leased"));
    let held = stage.taken();
    let ready = stage.put(message("ready")).id;
    let scheduled = stage.put(message("scheduled").after_ms(9)).id;
    let targets = [never, dead, held.message.id, ready, scheduled, ready].map(Target::Id);
    let found: Vec<_> = stage.store().cancel(q(), targets.to_vec()).into_iter().map(Result::unwrap).collect();
    assert_eq!(
        found,
        [
            Cancelled::NotFound,
            Cancelled::Dead(dead),
            Cancelled::Leased(held.message.id),
            Cancelled::Cancelled(ready),
            Cancelled::Cancelled(scheduled),
            Cancelled::NotFound,
        ]
    );
    assert_eq!(stage.state(dead), StateKind::Dead);
    stage.settle(&held.receipt, Action::Ack).expect("its holder is not disturbed");
    let elsewhere = stage.store().cancel(queue("unknown"), vec![Target::Id(dead)]);
    assert_eq!(elsewhere, [Ok(Cancelled::NotFound)]);
}

pub fn a_cancelled_message_is_never_handed_out(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let ids = [0, 10, 60_000].map(|ms| stage.put(message("m").after_ms(ms)).id);
    for id in ids {
        assert_eq!(stage.cancel(Target::Id(id)), Cancelled::Cancelled(id));
        assert_eq!(stage.cancel(Target::Id(id)), Cancelled::NotFound);
    }
    stage.advance(60_000);
    assert!(stage.take_one().is_none());
    assert_eq!(code(stage.store().stats(q())), "unknown_queue");
}

pub fn cancel_by_key_finds_the_live_message_that_has_it(factory: &Factory) {
    let stage = Stage::open(factory);
    stage.put(keyed("k", "dead"));
    let dead = stage.bury_head();
    assert_eq!(stage.cancel(by_key("k")), Cancelled::NotFound, "the dead have no keys");
    let held = stage.put(keyed("k", "m")).id;
    let receipt = stage.taken().receipt;
    assert_eq!(stage.cancel(by_key("k")), Cancelled::Leased(held));
    stage.settle(&receipt, RELEASE).unwrap();
    assert_eq!(stage.cancel(by_key("k")), Cancelled::Cancelled(held));
    assert_eq!(stage.cancel(by_key("k")), Cancelled::NotFound);
    assert_eq!(stage.state(dead), StateKind::Dead);
}

pub fn cancel_by_key_of_a_replaced_message_finds_the_new_one(factory: &Factory) {
    let stage = Stage::open(factory);
    let old = stage.put(keyed("k", "old")).id;
    let new = stage.put(replacing("k", "new").after_ms(100)).id;
    assert_eq!(stage.cancel(Target::Id(old)), Cancelled::NotFound);
    assert_eq!(stage.cancel(by_key("k")), Cancelled::Cancelled(new));
    let held = stage.put(keyed("k", "held")).id;
    let receipt = stage.taken().receipt;
    let new = stage.put(replacing("k", "new")).id;
    assert_eq!(stage.cancel(by_key("k")), Cancelled::Cancelled(new));
    assert_eq!(stage.cancel(by_key("k")), Cancelled::NotFound, "the held one is keyless for good");
    stage.settle(&receipt, RELEASE).unwrap();
    assert_eq!(stage.cancel(by_key("k")), Cancelled::NotFound);
    assert_eq!(stage.cancel(Target::Id(held)), Cancelled::Cancelled(held));
}

pub fn reschedule_moves_the_instant_and_keeps_the_id(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.set(Setting::Levels(vec![250]));
    let put = stage.put(keyed("k", "m").after_ms(1_000));
    for (target, when, ms) in [
        (Target::Id(put.id), When::AfterMs(5_000), 5_000),
        (by_key("k"), When::At(stage.at(300)), 300),
        (by_key("k"), When::Level(1), 250),
    ] {
        let due = stage.at(ms);
        assert_eq!(stage.reschedule(target, when), Rescheduled::Moved(put.id, due));
        let got = stage.try_get(by_key("k")).unwrap();
        assert_eq!((got.id, got.number, got.standing.due), (put.id, put.number, due));
    }
    stage.advance(249);
    assert!(stage.take_one().is_none());
    stage.advance(1);
    let taken = stage.taken();
    assert_eq!((taken.message.id, text(&taken.message.body)), (put.id, "m".to_owned()));
    assert_eq!(taken.message.standing.attempt(), 1);
    assert!(stage.take_one().is_none(), "it is there once");
}

pub fn a_ready_message_can_be_rescheduled_into_the_future(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    assert_eq!(stage.state(id), StateKind::Ready);
    assert_eq!(stage.reschedule(Target::Id(id), When::AfterMs(100)), Rescheduled::Moved(id, stage.at(100)));
    assert_eq!(stage.state(id), StateKind::Scheduled);
    assert!(stage.take_one().is_none());
    assert_eq!(stage.reschedule(Target::Id(id), When::Now), Rescheduled::Moved(id, stage.now()));
    assert_eq!(stage.state(id), StateKind::Ready);
    stage.reschedule(Target::Id(id), When::AfterMs(100));
    stage.advance(100);
    assert_eq!(stage.drain(), ["m"]);
}

pub fn reschedule_of_a_leased_or_dead_message_changes_nothing(factory: &Factory) {
    let stage = Stage::open(factory);
    stage.put(message("dead"));
    let dead = stage.bury_head();
    let held = stage.put(keyed("k", "held")).id;
    stage.taken_for(60_000);
    let before = stage.snapshot();
    let when = When::AfterMs(100);
    assert_eq!(stage.reschedule(Target::Id(dead), when), Rescheduled::Dead(dead));
    assert_eq!(stage.reschedule(Target::Id(held), when), Rescheduled::Leased(held));
    assert_eq!(stage.reschedule(by_key("k"), when), Rescheduled::Leased(held));
    assert_eq!(stage.reschedule(by_key("nobody"), when), Rescheduled::NotFound);
    assert_eq!(stage.snapshot(), before);
    let unknown = stage.store().reschedule(queue("unknown"), vec![(Target::Id(held), when)]);
    assert_eq!(unknown, [Ok(Rescheduled::NotFound)]);
}

pub fn reschedule_past_the_expiry_is_refused(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(Put { expires: Some(stage.at(1_000)), ..message("m").after_ms(10) }).id;
    for ms in [1_000, 1_001] {
        assert_eq!(code(stage.try_reschedule(Target::Id(id), When::AfterMs(ms))), "expires_before_due");
    }
    assert_eq!(stage.get(id).standing.due, stage.at(10));
    stage.reschedule(Target::Id(id), When::AfterMs(999));
    stage.advance(999);
    let taken = stage.take(Take::from(q()));
    assert_eq!(taken[0].message.id, id);
}
