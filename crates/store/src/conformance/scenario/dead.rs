//! The dead: revive and discard.

use dwell_model::{AttemptLimit, MessageId, StateKind};

use super::super::stage::*;
use crate::{BulkOutcome, Error, LeaseTerms, Put, Selection, Settle, Take, Target, When};

/// Buries N messages, one second apart; returns them with the oldest death first.
fn buried<const N: usize>(stage: &mut Stage) -> [MessageId; N] {
    // The first to die is the last by due and id, so that the order of deaths matters.
    let ids: Vec<_> = (0..N).map(|n| stage.put(message(&format!("m{n}"))).id).collect();
    let mut dead = ids.clone();
    dead.reverse();
    for &id in &dead {
        let taken = stage.store().take_id(q(), id, LeaseTerms::default()).unwrap();
        stage.settle(&taken.receipt, bury("x")).unwrap();
        stage.advance(1_000);
    }
    dead.try_into().unwrap()
}

fn done(done: u64) -> BulkOutcome {
    BulkOutcome { done, ..BulkOutcome::default() }
}

pub fn revive_brings_back_one_many_and_all_oldest_first(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let ids: [_; 7] = buried(&mut stage);
    let revive = |stage: &Stage, which, when| stage.store().revive(q(), which, when).unwrap();
    assert_eq!(revive(&stage, Selection::Ids(vec![ids[6]]), When::AfterMs(500)), done(1));
    assert_eq!(stage.get(ids[6]).standing.due, stage.at(500));
    assert_eq!(revive(&stage, Selection::Oldest(2), When::Now), done(2));
    let dead = |stage: &Stage| ids.map(|id| stage.state(id) == StateKind::Dead);
    assert_eq!(dead(&stage), [false, false, true, true, true, true, false]);
    assert_eq!(revive(&stage, Selection::Oldest(0), When::Now), done(0));
    assert_eq!(revive(&stage, Selection::All, When::AfterMs(9)), done(4));
    assert_eq!(revive(&stage, Selection::All, When::Now), done(0));
    assert_eq!(revive(&stage, Selection::Oldest(5), When::Now), done(0));
    stage.advance(500);
    assert_eq!(stage.drain().len(), 7);
    let unknown = stage.store().revive(queue("unknown"), Selection::All, When::Now);
    assert_eq!(unknown, Ok(done(0)));
}

pub fn revive_of_more_than_a_thousand_counts_each_of_them_once(factory: &Factory) {
    const BATCH: usize = 250;
    const HOUR_MS: u64 = 3_600_000;
    let stage = Stage::open(factory);
    // Each batch is dead before the next one is put, so that two of them may have had one key.
    let dead: Vec<MessageId> = ["twice", "other", "owned", "another", "twice"]
        .into_iter()
        .flat_map(|name| {
            let puts = (0..BATCH).map(|n| if n == 0 { keyed(name, "m") } else { message("m") });
            let answers = stage.store().put(puts.collect());
            let taken = stage.take(Take::from(q()).max(BATCH));
            assert_eq!(taken.len(), BATCH);
            let settles = taken.into_iter().map(|taken| Settle { receipt: taken.receipt, action: bury("x") });
            assert!(stage.store().settle(settles.collect()).iter().all(Result::is_ok));
            answers.into_iter().map(|answer| answer.unwrap().id).collect::<Vec<_>>()
        })
        .collect();
    let owner = stage.put(keyed("owned", "owner").after_ms(HOUR_MS)).id;
    let swept = stage.store().revive(q(), Selection::All, When::AfterMs(HOUR_MS)).unwrap();
    let refused = [(dead[2 * BATCH], owner), (dead[4 * BATCH], dead[0])];
    let refused = refused.map(|(id, owner)| (id, Error::KeyTaken { id: owner })).to_vec();
    let done = (dead.len() - refused.len()) as u64;
    assert_eq!(swept, BulkOutcome { done, refused: refused.clone(), refused_in_all: 2 });
    let counts = stage.stats().counts;
    assert_eq!((counts.scheduled, counts.ready, counts.dead), (done + 1, 0, 2));
    let swept = stage.store().revive(q(), Selection::Oldest(5_000), When::Now).unwrap();
    assert_eq!(swept, BulkOutcome { done: 0, refused, refused_in_all: 2 });
}

pub fn revive_is_refused_where_the_key_has_a_new_owner(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let [older, younger, free] = ["k", "k", "free"].map(|name| {
        stage.put(keyed(name, "dead"));
        let id = stage.bury_head();
        stage.advance(1_000);
        id
    });
    let owner = stage.put(keyed("k", "owner").after_ms(50)).id;
    let taken = |id| (id, Error::KeyTaken { id: owner });
    let swept = stage.store().revive(q(), Selection::Ids(vec![older]), When::Now).unwrap();
    assert_eq!(swept, BulkOutcome { done: 0, refused: vec![taken(older)], refused_in_all: 1 });
    let swept = stage.store().revive(q(), Selection::All, When::Now).unwrap();
    assert_eq!(
        swept,
        BulkOutcome { done: 1, refused: vec![taken(older), taken(younger)], refused_in_all: 2 }
    );
    assert_eq!([older, younger].map(|id| stage.state(id)), [StateKind::Dead; 2]);
    assert_eq!(stage.state(free), StateKind::Ready);
    stage.cancel(by_key("k"));
    let swept = stage.store().revive(q(), Selection::All, When::Now).unwrap();
    assert_eq!((swept.done, swept.refused_in_all), (1, 1), "the older has the key now");
    assert_eq!(swept.refused, [(younger, Error::KeyTaken { id: older })]);
    assert_eq!(stage.try_get(by_key("k")).unwrap().id, older);
}

pub fn a_revived_message_has_all_its_attempts_again(factory: &Factory) {
    let stage = Stage::open(factory);
    let limit = Some(AttemptLimit::At(2.try_into().unwrap()));
    let id = stage.put(Put { max_attempts: limit, ..message("m") }).id;
    for round in 1..=3 {
        for attempt in 1..=2 {
            let taken = stage.taken();
            assert_eq!(taken.message.standing.attempt(), attempt);
            stage.settle(&taken.receipt, retry(0)).unwrap();
        }
        assert_eq!(stage.death(id), "attempts_spent");
        stage.store().revive(q(), Selection::Ids(vec![id]), When::Now).unwrap();
        let standing = stage.get(id).standing;
        assert_eq!((standing.attempts, standing.counts.revives), (0, round));
    }
}

pub fn revive_of_what_is_not_dead_is_refused_singly(factory: &Factory) {
    let stage = Stage::open(factory);
    let gone = stage.put(message("m")).id;
    stage.cancel(Target::Id(gone));
    let ready = stage.put(message("m").after_ms(50)).id;
    stage.put(message("m"));
    let dead = stage.bury_head();
    let ids = vec![gone, ready, dead];
    let refused = vec![(gone, Error::MessageNotFound { queue: q() }), (ready, Error::NotDead { id: ready })];
    let swept = stage.store().revive(q(), Selection::Ids(ids.clone()), When::AfterMs(9)).unwrap();
    assert_eq!(swept, BulkOutcome { done: 1, refused: refused.clone(), refused_in_all: 2 });
    assert_eq!(code(stage.store().revive(q(), Selection::All, When::AfterMs(u64::MAX))), "due_out_of_range");
    assert_eq!(code(stage.store().revive(q(), Selection::All, When::Level(1))), "unknown_level");
    let swept = stage.store().discard(q(), Selection::Ids(vec![gone, ready])).unwrap();
    assert_eq!(swept, BulkOutcome { done: 0, refused, refused_in_all: 2 });
}

pub fn discard_removes_dead_messages_only(factory: &Factory) {
    let stage = Stage::open(factory);
    stage.put(keyed("k", "dead"));
    let dead = stage.bury_head();
    stage.put(message("held"));
    let held = stage.taken();
    let ready = stage.put(message("ready")).id;
    let scheduled = stage.put(message("scheduled").after_ms(50)).id;
    assert_eq!(stage.store().discard(q(), Selection::All), Ok(done(1)));
    assert_eq!(code(stage.try_get(Target::Id(dead))), "message_not_found");
    let states = [held.message.id, ready, scheduled].map(|id| stage.state(id));
    assert_eq!(states, [StateKind::Leased, StateKind::Ready, StateKind::Scheduled]);
    stage.settle(&held.receipt, bury("later")).unwrap();
    assert_eq!(stage.stats().counts.dead, 1, "who dies later is not concerned");
}

pub fn discard_removes_one_many_and_all_oldest_first(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let ids: [_; 5] = buried(&mut stage);
    let gone = (ids[4], Error::MessageNotFound { queue: q() });
    let swept = stage.store().discard(q(), Selection::Ids(vec![ids[4], ids[4]])).unwrap();
    assert_eq!(
        swept,
        BulkOutcome { done: 1, refused: vec![gone], refused_in_all: 1 },
        "named twice, there once"
    );
    assert_eq!(stage.store().discard(q(), Selection::Oldest(2)), Ok(done(2)));
    let left: Vec<_> = ids.into_iter().filter(|&id| stage.try_get(Target::Id(id)).is_ok()).collect();
    assert_eq!(left, ids[2..4]);
    assert_eq!(stage.store().discard(q(), Selection::All), Ok(done(2)));
    assert_eq!(stage.store().discard(q(), Selection::All), Ok(done(0)));
}
