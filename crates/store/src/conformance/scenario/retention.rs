//! Retention of dead messages, and dropping of messages that expire.

use std::collections::BTreeSet;

use dwell_model::{MessageId, OnExpiry, Setting, SettingChange, SettingName, StateKind};

use super::super::stage::*;
use crate::{
    BulkOutcome, Cancelled, Error, LeaseTerms, Put, Rescheduled, Result, Selection, Settled, Target, When,
};

/// The number of calls in which a store discards some thousand messages, even if it reads a few of them at a
/// time.
const SLICES: u32 = 20_000;

/// Puts a message and buries it; then one second passes.
fn bury_one(stage: &mut Stage, name: &str) -> MessageId {
    let id = stage.put(keyed(name, name)).id;
    let taken = stage.store().take_id(q(), id, LeaseTerms::default()).unwrap();
    stage.settle(&taken.receipt, bury("x")).unwrap();
    stage.advance(1_000);
    id
}

fn is_gone(stage: &Stage, id: MessageId) -> bool {
    stage.try_get(Target::Id(id)) == Err(Error::MessageNotFound { queue: q() })
}

/// The list of dead messages, by due and id.
fn listed(stage: &Stage) -> Vec<MessageId> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let Ok(page) = stage.store().list(q(), StateKind::Dead, after, 3) else { return ids };
        ids.extend(page.messages.iter().map(|message| message.id));
        after = page.next;
        if after.is_none() {
            return ids;
        }
    }
}

/// Those that can be read by id.
fn kept(stage: &Stage, ids: &[MessageId]) -> Vec<MessageId> {
    ids.iter().copied().filter(|id| !is_gone(stage, *id)).collect()
}

pub fn what_is_dead_stays_dead_where_no_retention_is_set(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let ids = ["a", "b", "c"].map(|name| bury_one(&mut stage, name));
    stage.advance(10 * 365 * 86_400_000);
    assert_eq!(kept(&stage, &ids), ids);
    assert_eq!((listed(&stage).len(), stage.stats().counts.dead), (3, 3));
}

pub fn a_dead_message_is_gone_when_its_time_is_over(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.set(Setting::DeadTtlMs(10_000));
    let ids = ["a", "b", "c", "d", "e"].map(|name| bury_one(&mut stage, name));
    // It keeps the queue.
    stage.put(message("later").after_ms(3_600_000));
    stage.advance(4_999);
    assert_eq!(kept(&stage, &ids), ids, "a millisecond is left of the first");
    stage.advance(1);
    assert!(is_gone(&stage, ids[0]));
    assert_eq!(code(stage.try_get_dead("a")), "message_not_found");
    assert_eq!(stage.cancel(Target::Id(ids[0])), Cancelled::NotFound);
    assert_eq!(stage.reschedule(Target::Id(ids[0]), When::Now), Rescheduled::NotFound);
    let taken = stage.store().take_id(q(), ids[0], LeaseTerms::default());
    assert_eq!(code(taken.map(|taken| taken.receipt)), "message_not_found");
    let gone = |id| (id, Error::MessageNotFound { queue: q() });
    let revived = stage.store().revive(q(), Selection::Ids(vec![ids[0], ids[1]]), When::AfterMs(9_999_999));
    assert_eq!(revived, Ok(BulkOutcome { done: 1, refused: vec![gone(ids[0])], refused_in_all: 1 }));
    stage.advance(1_000);
    // The second was revived, the third is past its retention, two are left.
    stage.advance(1_000);
    assert_eq!(stage.store().peek(q(), StateKind::Dead).unwrap().map(|first| first.id), Some(ids[3]));
    let revived = stage.store().revive(q(), Selection::Oldest(1), When::AfterMs(9_999_999));
    assert_eq!(
        revived,
        Ok(BulkOutcome { done: 1, ..BulkOutcome::default() }),
        "those whose time is over are not the oldest"
    );
    assert_eq!(kept(&stage, &ids), [ids[1], ids[3], ids[4]]);
    stage.advance(60_000);
    assert_eq!(listed(&stage), [], "a list follows within a minute");
    assert_eq!(stage.stats().counts.dead, 0, "and so do the counts");
    assert_eq!(stage.store().discard(q(), Selection::All), Ok(BulkOutcome::default()));
    // An expiry counts from its own instant, whenever it is noticed.
    let expired = stage.put(Put { expires: Some(stage.at(1_000)), ..message("m") }).id;
    stage.advance(10_999);
    assert_eq!(stage.death(expired), "expired");
    stage.advance(1);
    assert!(is_gone(&stage, expired));
    // And a lapse counts from the deadline.
    let lapsed = stage.put(Put { max_attempts: Some(attempts(1)), ..message("m") }).id;
    stage.taken_for(5_000);
    stage.advance(15_000);
    assert!(is_gone(&stage, lapsed), "its time was over when it was noticed");
}

pub fn each_death_beyond_the_most_discards_the_oldest(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.set(Setting::DeadMax(2));
    let mut ids = Vec::new();
    for name in ["a", "b", "c", "d"] {
        ids.push(bury_one(&mut stage, name));
        let youngest = ids.len().saturating_sub(2);
        assert_eq!(kept(&stage, &ids), ids[youngest..], "after {name}");
        assert_eq!(stage.stats().counts.dead, ids.len().min(2) as u64);
    }
    // Whatever they die of, and many at a time.
    let expires = Some(stage.at(500));
    let expiring = ["e", "f"].map(|name| stage.put(Put { expires, ..keyed(name, name) }).id);
    let lapsing = stage.put(Put { max_attempts: Some(attempts(1)), priority: 0, ..keyed("g", "g") }).id;
    stage.taken_for(1_000);
    stage.advance(60_000);
    ids.extend(expiring);
    ids.push(lapsing);
    assert_eq!(stage.stats().counts.dead, 2);
    assert_eq!(kept(&stage, &ids), [expiring[1], lapsing], "of one instant the lower id is the older");
    let mut dead = listed(&stage);
    dead.sort();
    let mut expected = vec![expiring[1], lapsing];
    expected.sort();
    assert_eq!(dead, expected);
    // A revived message makes room.
    stage.store().revive(q(), Selection::Ids(vec![lapsing]), When::AfterMs(9_999)).unwrap();
    let another = bury_one(&mut stage, "h");
    assert_eq!(kept(&stage, &[expiring[1], another]), [expiring[1], another]);
    // With a maximum of 0 none is kept, and the settlement still reports what has happened to it.
    stage.set(Setting::DeadMax(0));
    assert_eq!(kept(&stage, &[expiring[1], another]), []);
    let id = stage.put(keyed("i", "i").priority(0)).id;
    let receipt = stage.taken().receipt;
    assert_eq!(stage.settle(&receipt, bury("x")), Ok(Settled::Dead(dwell_model::DeathReason::Buried)));
    assert!(is_gone(&stage, id));
    assert_eq!(stage.put(keyed("i", "again")).outcome, crate::PutOutcome::Created, "its key is free");
}

pub fn a_call_that_names_what_goes_for_a_death_that_it_notices_finds_nothing(factory: &Factory) {
    for by_lapse in [false, true] {
        for is_taken in [false, true] {
            let mut stage = Stage::open(factory);
            stage.set(Setting::DeadMax(1));
            let dead = bury_one(&mut stage, "k");
            // The next owner of its key dies, and the call by id is the first to notice.
            let expires = (!by_lapse).then(|| stage.at(1_000));
            let owner = Put { expires, max_attempts: Some(attempts(1)), ..keyed("k", "owner") };
            let owner = stage.put(owner).id;
            if by_lapse {
                stage.taken_for(1_000);
            }
            stage.advance(1_000);
            let not_found = Error::MessageNotFound { queue: q() };
            if is_taken {
                let taken = stage.store().take_id(q(), dead, LeaseTerms::default());
                assert_eq!(taken.map(|taken| taken.message.id), Err(not_found));
            } else {
                let swept = stage.store().revive(q(), Selection::Ids(vec![dead]), When::Now).unwrap();
                assert_eq!((swept.done, swept.refused), (0, vec![(dead, not_found)]));
            }
            assert_eq!(kept(&stage, &[dead, owner]), [owner]);
            let counts = stage.stats().counts;
            assert_eq!((counts.dead, counts.ready, counts.leased), (1, 0, 0));
            let another = bury_one(&mut stage, "l");
            assert_eq!((kept(&stage, &[owner, another]), stage.stats().counts.dead), (vec![another], 1));
        }
    }
}

pub fn each_partition_keeps_its_share_of_the_most_dead_rounded_up(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.set(Setting::Partitions(4));
    stage.set(Setting::DeadMax(5));
    let partitions = u64::from(stage.partitions(4));
    // Enough messages that each partition has more than its share.
    let ids: Vec<MessageId> = (0..100).map(|n| bury_one(&mut stage, &n.to_string())).collect();
    stage.advance(60_000);
    let shares = partitions * 5_u64.div_ceil(partitions);
    assert_eq!((stage.stats().counts.dead, listed(&stage).len() as u64), (shares, shares));
    let kept = kept(&stage, &ids);
    assert_eq!(kept.len() as u64, shares);
    // The youngest of each.
    for shard in kept.iter().map(|id| id.shard()).collect::<BTreeSet<_>>() {
        let of_shard: Vec<_> = ids.iter().filter(|id| id.shard() == shard).collect();
        let share = kept.iter().filter(|id| id.shard() == shard).count();
        assert!(of_shard[of_shard.len() - share..].iter().all(|id| kept.contains(id)), "of {shard}");
    }
}

pub fn a_lowered_retention_discards_what_is_past_it(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let ids = ["a", "b", "c", "d", "e"].map(|name| bury_one(&mut stage, name));
    stage.set(Setting::DeadMax(4));
    stage.advance(60_000);
    assert_eq!((kept(&stage, &ids), stage.stats().counts.dead), (ids[1..].to_vec(), 4));
    stage.set(Setting::DeadTtlMs(62_500));
    assert_eq!(kept(&stage, &ids), ids[3..], "by id at once");
    stage.advance(60_000);
    assert_eq!((kept(&stage, &ids), listed(&stage)), (vec![], vec![]));
    // More than one slice, and back to none.
    let reset = [SettingName::DeadMax, SettingName::DeadTtl].map(SettingChange::Reset);
    stage.put(message("later").after_ms(3_600_000_000));
    stage.store().configure(q(), reset.to_vec()).unwrap();
    for _ in 0..5 {
        let puts: Vec<Put> = (0..500).map(|_| Put { expires: Some(stage.at(10)), ..message("m") }).collect();
        assert!(stage.store().put(puts).iter().all(Result::is_ok));
        stage.advance(1_000);
    }
    stage.advance(60_000);
    assert_eq!(stage.stats().counts.dead, 2_500);
    stage.set(Setting::DeadMax(3));
    stage.advance(60_000);
    // In slices, between which other calls are served.
    let goes_on = |_: &u32| stage.stats().counts.dead > 3;
    assert!((0..SLICES).take_while(goes_on).count() < SLICES as usize, "it comes to its end");
    assert_eq!((stage.stats().counts.dead, listed(&stage).len()), (3, 3));
}

pub fn retention_goes_on_after_a_restart(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    stage.set(Setting::DeadTtlMs(10_000));
    stage.set(Setting::DeadMax(2));
    let ids = ["a", "b", "c"].map(|name| bury_one(&mut stage, name));
    stage.restart();
    assert_eq!(kept(&stage, &ids), ids[1..], "one that was discarded does not come back");
    stage.advance(8_000);
    assert_eq!(kept(&stage, &ids), ids[2..]);
    stage.restart();
    assert_eq!(kept(&stage, &ids), ids[2..]);
    let younger = ["d", "e"].map(|name| bury_one(&mut stage, name));
    assert_eq!(kept(&stage, &ids), []);
    assert_eq!(kept(&stage, &younger), younger);
    stage.advance(60_000);
    stage.restart();
    assert_eq!((kept(&stage, &younger), listed(&stage)), (vec![], vec![]));
}

pub fn revive_passes_the_most_pending(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let ids = ["a", "b"].map(|name| bury_one(&mut stage, name));
    stage.set(Setting::MaxPending(1));
    stage.put(message("m").after_ms(9_000));
    assert_eq!(
        code(stage.try_put(message("n"))),
        "queue_full",
        "the dead do not count, what is pending does"
    );
    let revived = stage.store().revive(q(), Selection::All, When::AfterMs(9_000));
    assert_eq!(revived, Ok(BulkOutcome { done: 2, ..BulkOutcome::default() }));
    assert_eq!((stage.stats().counts.scheduled, stage.stats().counts.dead), (3, 0));
    assert_eq!(ids.map(|id| stage.state(id)), [StateKind::Scheduled; 2]);
}

pub fn an_expired_message_is_gone_and_its_key_is_free_where_its_queue_drops_what_expires(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.set(Setting::OnExpiry(OnExpiry::Drop));
    let expires = Some(stage.at(500));
    let ready = stage.put(Put { expires, ..keyed("k", "m") });
    let scheduled = stage.put(Put { expires, ..message("n").after_ms(499) }).id;
    stage.put(Put { expires: Some(stage.at(500)), ..Put::new(queue("bare"), "m") });
    stage
        .store()
        .configure(queue("bare"), vec![SettingChange::Set(Setting::OnExpiry(OnExpiry::Drop))])
        .unwrap();
    stage.advance(499);
    assert_eq!(stage.try_get(by_key("k")).unwrap().id, ready.id);
    stage.advance(1);
    assert!(stage.take_one().is_none());
    assert!(is_gone(&stage, ready.id) && is_gone(&stage, scheduled));
    assert_eq!(code(stage.try_get_dead("k")), "message_not_found", "it was never dead");
    assert_eq!(stage.put(keyed("k", "again")).outcome, crate::PutOutcome::Created);
    stage.advance(60_000);
    let counts = stage.stats().counts;
    assert_eq!((counts.ready, counts.scheduled, counts.dead), (1, 0, 0));
    assert_eq!(stage.store().locate(vec![ready.number]), [Ok(None)]);
    // A queue that nothing keeps any more leaves the listing.
    stage.store().configure(queue("bare"), vec![SettingChange::Reset(SettingName::OnExpiry)]).unwrap();
    assert_eq!(code(stage.store().stats(queue("bare"))), "unknown_queue");
    let names: Vec<_> = stage.store().queues(None, 9).unwrap().into_iter().map(|stats| stats.name).collect();
    assert_eq!(names, [q()]);
}

pub fn an_expired_message_that_is_given_back_is_gone_where_its_queue_drops_what_expires(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.set(Setting::OnExpiry(OnExpiry::Drop));
    let settled = |stage: &mut Stage, action| {
        let id = stage.put(Put { expires: Some(stage.at(500)), ..message("m") }).id;
        let taken = stage.taken_for(60_000);
        stage.advance(500);
        assert_eq!(stage.state(id), StateKind::Leased, "nobody takes it from its holder");
        (id, stage.settle(&taken.receipt, action))
    };
    for action in [retry(1_000), RELEASE] {
        let (id, answer) = settled(&mut stage, action);
        assert_eq!(answer, Ok(Settled::Gone));
        assert!(is_gone(&stage, id));
    }
    // A message that a consumer buries is dead by its decision.
    let (id, answer) = settled(&mut stage, bury("x"));
    assert_eq!(answer, Ok(Settled::Dead(dwell_model::DeathReason::Buried)));
    assert_eq!(stage.death(id), "buried");
    let id = stage.put(Put { expires: Some(stage.at(500)), ..message("m") }).id;
    stage.taken_for(1_000);
    stage.advance(1_000);
    assert!(is_gone(&stage, id), "a lease that runs out gives it back too");
}

pub fn the_setting_decides_when_an_expiry_is_noticed_and_what_is_dead_stays_dead(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let put = |stage: &Stage, ms| stage.put(Put { expires: Some(stage.at(ms)), ..message("m") }).id;
    let [before, after] = [500, 2_000].map(|ms| put(&stage, ms));
    stage.advance(1_000);
    stage.set(Setting::OnExpiry(OnExpiry::Drop));
    assert_eq!(stage.death(before), "expired", "it had expired before");
    stage.advance(1_000);
    assert!(is_gone(&stage, after));
    let dropped = put(&stage, 500);
    stage.advance(1_000);
    stage.set(Setting::OnExpiry(OnExpiry::Dead));
    assert!(is_gone(&stage, dropped), "and this before the setting was taken back");
    let dead = put(&stage, 500);
    stage.advance(1_000);
    assert_eq!(stage.death(dead), "expired");
    assert_eq!(stage.death(before), "expired");
}
