//! Opening any directory: it is refused unchanged, or opened, used, closed and opened again.

use dwell_model::{Key, Number, Receipt};
use dwell_store::{Action, OnConflict, Put, Selection, Settle, Store as _, Take, Target, When};

use super::driven::Driven;
use super::script;
use crate::OpenError;
use crate::disk::MemoryDisk;

/// The directory is the one that `data` describes as a script.
pub fn recovery(data: &[u8]) {
    let disk = script::build(data);
    let before = disk.changes();
    let mut store = match Driven::open(&disk) {
        Ok(store) => store,
        Err(error) => {
            assert!(matches!(error.code(), "damaged" | "newer_format" | "exhausted"), "{error}");
            assert_eq!(disk.changes(), before, "a refusal changes nothing: {error}");
            return;
        }
    };
    let found = store.dump();
    let messages = store.engine.report().messages;
    if found.iter().all(Result::is_ok) {
        assert_eq!(found.len() as u64, messages, "all that was recovered is listed");
    }
    store.close();
    let Some(mut store) = reopened(&disk) else { return };
    assert_eq!(store.dump(), found, "what was opened is there when it is opened again");
    use_all(&mut store);
    let left = store.dump();
    store.close();
    let Some(mut store) = reopened(&disk) else { return };
    store.clock.advance(USED_MS);
    let numbers: Vec<Number> = left.iter().flatten().map(|message| message.number).collect();
    let engine = store.engine.clone();
    let located = store.run(engine.locate(numbers.clone()));
    for (number, place) in numbers.into_iter().zip(located) {
        let place = place.expect("a store that is open answers");
        assert!(place.is_some(), "message {number} was there, and is gone when it is opened again");
    }
    drop(store.dump());
    store.close();
}

fn reopened(disk: &MemoryDisk) -> Option<Driven> {
    match Driven::open(disk) {
        Ok(store) => Some(store),
        Err(OpenError::Exhausted { .. }) => None,
        Err(error) => panic!("what was opened cannot be opened again: {error}"),
    }
}

const DAY_MS: u64 = 86_400_000;
/// The time that [`use_all`] lets pass, in ms.
const USED_MS: u64 = 2 * DAY_MS;

/// Makes every kind of call on everything in the store. Any call may be refused.
fn use_all(store: &mut Driven) {
    let engine = store.engine.clone();
    let queues = store.queues();
    for round in 0..2 {
        store.clock.advance(DAY_MS);
        for queue in &queues {
            let take = Take::from(queue.clone()).max(100);
            let taken = store.run(engine.take(take)).unwrap_or_default();
            let receipts = taken.into_iter().map(|delivery| delivery.receipt);
            let settles = receipts.enumerate().map(|(i, receipt)| settle(i + round, receipt)).collect();
            drop(store.run(engine.settle(settles)));
            let targets: Vec<Target> =
                store.dump().into_iter().flatten().map(|message| Target::Id(message.id)).collect();
            drop(store.run(engine.get(queue.clone(), targets.clone(), false)));
            let moves = targets.into_iter().step_by(2).map(|target| (target, When::AfterMs(1_000))).collect();
            drop(store.run(engine.reschedule(queue.clone(), moves)));
            drop(store.run(engine.revive(queue.clone(), Selection::All, When::Level(1))));
            drop(store.run(engine.revive(queue.clone(), Selection::Oldest(3), When::Now)));
            let key = Key::new("k").expect("it is one");
            let put = Put::new(queue.clone(), "more").key(key).on_conflict(OnConflict::Replace);
            drop(store.run(engine.put(vec![put])));
            drop(store.run(engine.stats(queue.clone())));
        }
    }
    if let Some(queue) = queues.first() {
        drop(store.run(engine.purge(queue.clone())));
        drop(store.run(engine.discard(queue.clone(), Selection::All)));
    }
}

fn settle(i: usize, receipt: Receipt) -> Settle {
    let action = match i % 5 {
        0 => Action::Retry { after_ms: None, error: Some("again".into()), priority: None },
        1 => Action::Ack,
        2 => Action::Bury { reason: None, priority: Some(7) },
        3 => Action::Extend { lease_ms: None },
        _ => Action::Release { after_ms: None, priority: None },
    };
    Settle { receipt, action }
}
