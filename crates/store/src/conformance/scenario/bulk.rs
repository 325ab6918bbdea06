//! Purge and delete.

use dwell_model::{Limits, Setting, SettingChange, Settings, StateKind};

use super::super::stage::*;
use crate::{Action, Put, Settled, Take, Target, When};

pub fn purge_leaves_leased_dead_and_later_messages_alone(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.put(message("dead"));
    let dead = stage.bury_head();
    stage.put(keyed("held", "held"));
    let held = stage.taken_for(60_000);
    for n in 0..50 {
        stage.put(keyed(&format!("k{n}"), "purged").after_ms(n % 3 * 1_000));
    }
    stage.put(Put::new(queue("other"), "other"));
    stage.advance(1_000);
    assert_eq!(stage.store().purge(q()), Ok(50));
    assert_eq!(stage.store().purge(q()), Ok(0));
    assert_eq!(stage.store().purge(queue("unknown")), Ok(0));
    assert_eq!(code(stage.try_get(by_key("k7"))), "message_not_found");
    stage.put(keyed("k7", "later"));
    stage.advance(10_000);
    assert_eq!(stage.drain(), ["later"]);
    assert_eq!([dead, held.message.id].map(|id| stage.state(id)), [StateKind::Dead, StateKind::Leased]);
    assert_eq!(code(stage.try_put(keyed("held", "x"))), "key_taken");
    assert_eq!(stage.settle(&held.receipt, RELEASE), Ok(Settled::Ready));
    assert_eq!(stage.drain(), ["held"]);
    assert_eq!(stage.take(Take::from(queue("other"))).len(), 1);
}

pub fn delete_queue_leaves_leased_messages_to_their_holders(factory: &Factory) {
    let mut stage = Stage::open(factory);
    for n in 0..5 {
        stage.put(keyed(&format!("held{n}"), "held"));
    }
    let held = stage.take(Take::from(q()).max(5).lease_ms(60_000));
    stage.put(message("dead"));
    stage.bury_head();
    stage.put(message("ready"));
    stage.put(message("scheduled").after_ms(100));
    assert_eq!(stage.store().delete_queue(q()), Ok(3));
    stage.advance(1_000);
    assert!(stage.take_one().is_none());
    let counts = stage.stats().counts;
    assert_eq!((counts.scheduled, counts.ready, counts.leased, counts.dead), (0, 0, 5, 0));
    assert_eq!(code(stage.try_put(keyed("held0", "x"))), "key_taken");
    stage.put(message("later"));
    assert_eq!(stage.settle(&held[0].receipt, Action::Ack), Ok(Settled::Gone));
    assert_eq!(stage.settle(&held[1].receipt, RELEASE), Ok(Settled::Ready));
    assert_eq!(stage.settle(&held[2].receipt, retry(10)), Ok(Settled::Scheduled(stage.at(10))));
    assert!(matches!(stage.settle(&held[3].receipt, bury("x")), Ok(Settled::Dead(_))));
    stage.advance(60_000);
    assert_eq!(stage.state(held[4].message.id), StateKind::Ready, "its lease ran out");
    assert_eq!(stage.drain().len(), 4, "they are messages of the queue as any other");
}

pub fn a_deleted_queue_leaves_the_listing_and_loses_its_settings(factory: &Factory) {
    let stage = Stage::open(factory);
    stage.set(Setting::LeaseMs(5));
    stage.set(Setting::Levels(vec![1_000]));
    let id = stage.put(keyed("k", "m")).id;
    assert_eq!(stage.store().delete_queue(q()), Ok(1));
    assert!(stage.store().queues(None, 10).unwrap().is_empty());
    assert_eq!(code(stage.store().stats(q())), "unknown_queue");
    assert_eq!(stage.store().delete_queue(q()), Ok(0));
    stage.put(keyed("k", "anew"));
    assert_eq!(stage.stats().settings, Settings::default());
    assert_eq!(code(stage.try_get(Target::Id(id))), "message_not_found");
}

pub fn a_deleted_queue_follows_the_defaults_until_it_is_configured_again(factory: &Factory) {
    let mut limits = Limits::default();
    limits.defaults.max_leased = Some(1);
    limits.defaults.lease_ms = 60_000;
    let stage = Stage::open_with(factory, limits);
    let own = || vec![Setting::MaxLeased(3), Setting::LeaseMs(5_000), Setting::Levels(vec![1_000])];
    let configure =
        || stage.store().configure(q(), own().into_iter().map(SettingChange::Set).collect()).unwrap();
    configure();
    for body in ["a", "b", "c"] {
        stage.put(message(body));
    }
    let held = stage.take(Take::from(q()).max(2));
    assert_eq!(stage.store().delete_queue(q()), Ok(1));
    // Those that are still leased count towards the default cap.
    let by_level = || Put { when: When::Level(1), ..message("level") };
    assert_eq!(code(stage.try_put(by_level())), "unknown_level");
    let between = ["d", "e", "f"].map(|body| stage.put(message(body)).id);
    assert!(stage.take_one().is_none(), "two are leased, and the default is one");
    stage.settle(&held[0].receipt, Action::Ack).unwrap();
    assert!(stage.take_one().is_none());
    stage.settle(&held[1].receipt, Action::Ack).unwrap();
    let taken = stage.taken();
    assert_eq!(taken.lease_until.ms_since(taken.taken_at), 60_000, "the default");
    assert_eq!((taken.message.id, stage.take_one().is_none()), (between[0], true));
    // Configured again, the settings hold for what was put meanwhile as well.
    assert_eq!(configure().own.iter().count(), 3);
    stage.put(by_level());
    let taken = stage.take(Take::from(q()).max(9));
    assert_eq!(taken.iter().map(|one| one.message.id).collect::<Vec<_>>(), between[1..]);
    assert!(taken.iter().all(|one| one.lease_until.ms_since(one.taken_at) == 5_000));
}

pub fn a_deleted_queue_keeps_its_partitions_while_messages_are_leased(factory: &Factory) {
    const SPREAD: u16 = 3;
    let stage = Stage::open(factory);
    stage.set(Setting::Partitions(SPREAD));
    stage.set(Setting::LeaseMs(60_000));
    // In whichever partition they are, each of them is found again.
    for n in 0..4 * SPREAD {
        stage.put(keyed(&format!("k{n}"), "held"));
    }
    let held = stage.take(Take::from(q()).max(usize::from(4 * SPREAD)));
    assert_eq!(held.len(), usize::from(4 * SPREAD));
    stage.put(message("ready"));
    assert_eq!(stage.store().delete_queue(q()), Ok(1));
    let own: Vec<Setting> = stage.stats().own.iter().cloned().collect();
    assert_eq!(own, [Setting::Partitions(SPREAD)], "what is not fixed is gone");
    let (acked, released) = held.split_at(5);
    for delivery in acked {
        assert_eq!(stage.settle(&delivery.receipt, Action::Ack), Ok(Settled::Gone));
    }
    for delivery in released {
        assert_eq!(stage.settle(&delivery.receipt, RELEASE), Ok(Settled::Ready));
    }
    assert_eq!(stage.store().delete_queue(q()), Ok(released.len() as u64));
    assert_eq!(code(stage.store().stats(q())), "unknown_queue");
    stage.put(message("anew"));
    assert_eq!(stage.stats().settings, Settings::default());
}
