//! Counts of deaths and discards.

use dwell_model::{OnExpiry, QueueName, Setting, SettingChange};

use super::super::stage::*;
use crate::{DeathCounts, DiscardCounts, LeaseTerms, Put, QueueDeaths, Selection, Take};

fn of(stage: &Stage, name: QueueName) -> (DeathCounts, DiscardCounts) {
    let all = stage.store().deaths().unwrap();
    let names: Vec<_> = all.iter().map(|one| one.queue.clone()).collect();
    assert!(names.is_sorted(), "{names:?}");
    let found: Option<QueueDeaths> = all.into_iter().find(|one| one.queue.as_ref() == Some(&name));
    found.map(|found| (found.deaths, found.discarded)).unwrap_or_default()
}

pub fn deaths_and_discards_are_counted_by_queue_and_reason(factory: &Factory) {
    let mut stage = Stage::open(factory);
    assert_eq!(stage.store().deaths(), Ok(vec![]));
    let once = |body: &str| Put { max_attempts: Some(attempts(1)), ..message(body) };
    stage.put(once("attempts"));
    let receipt = stage.taken().receipt;
    stage.settle(&receipt, retry(0)).unwrap();
    for _ in 0..2 {
        stage.put(once("lapse"));
    }
    stage.taken_for(1_000);
    let ended = stage.taken_for(60_000);
    let lease = crate::LeaseRef { id: ended.message.id, takes: 1 };
    stage.store().expire_lease(q(), vec![lease]).pop().unwrap().unwrap();
    stage.put(Put { expires: Some(stage.at(500)), ..message("expiry") });
    stage.advance(1_000);
    stage.put(message("buried"));
    stage.bury_head();
    let id = stage.put(message("buried, revived and buried")).id;
    for _ in 0..2 {
        let taken = stage.store().take_id(q(), id, LeaseTerms::default()).unwrap();
        stage.settle(&taken.receipt, bury("x")).unwrap();
    }
    stage.advance(60_000);
    assert_eq!(stage.stats().counts.dead, 6);
    let died = DeathCounts { attempts: 1, lapse: 2, expiry: 1, buried: 3 };
    assert_eq!(of(&stage, q()), (died, DiscardCounts::default()), "a revive takes nothing back");
    stage.store().discard(q(), Selection::Ids(vec![id])).unwrap();
    stage.store().discard(q(), Selection::Oldest(1)).unwrap();
    stage.set(Setting::DeadMax(3));
    stage.advance(60_000);
    stage.stats();
    stage.set(Setting::DeadTtlMs(1));
    stage.advance(60_000);
    assert_eq!(stage.stats().counts.dead, 0);
    let discarded = DiscardCounts { asked: 2, dead_max: 1, dead_ttl: 3, on_expiry: 0 };
    assert_eq!(of(&stage, q()), (died, discarded));
    // A dropped message was never dead, and is counted although its queue was removed.
    let fleeting = queue("fleeting");
    let drop = SettingChange::Set(Setting::OnExpiry(OnExpiry::Drop));
    stage.store().configure(fleeting.clone(), vec![drop]).unwrap();
    for _ in 0..2 {
        stage.put(Put { expires: Some(stage.at(500)), ..Put::new(fleeting.clone(), "m") });
    }
    stage.advance(60_000);
    assert!(stage.take(Take::from(fleeting.clone())).is_empty());
    stage.store().delete_queue(fleeting.clone()).unwrap();
    let dropped = DiscardCounts { on_expiry: 2, ..DiscardCounts::default() };
    assert_eq!(of(&stage, fleeting), (DeathCounts::default(), dropped));
    // The same for messages that are removed with their queue.
    let deleted = queue("deleted");
    let id = stage.put(Put::new(deleted.clone(), "m")).id;
    let taken = stage.store().take_id(deleted.clone(), id, LeaseTerms::default()).unwrap();
    stage.settle(&taken.receipt, bury("x")).unwrap();
    stage.store().delete_queue(deleted.clone()).unwrap();
    assert_eq!(of(&stage, deleted).1, DiscardCounts { asked: 1, ..DiscardCounts::default() });
}
