//! The cost of finding messages in tables: reads, and the number of files to search.

use dwell_engine::Options;
use dwell_engine::disk::{Crash, MemoryDisk};
use dwell_engine::offline::check;
use dwell_model::MessageId;
use dwell_store::{Action, Put, Settle, Store, Take, Target};
use dwell_time::ManualClock;

use crate::support::{Driven, dir, options, queue, start};

const HOUR_MS: u64 = 3_600_000;

/// Memory for about a hundred messages.
fn small(disk: &MemoryDisk, clock: &ManualClock) -> Options {
    Options { memory_limit: 64 * 1024, segment_bytes: 64 * 1024, ..options(disk, clock) }
}

fn open(disk: MemoryDisk, clock: ManualClock) -> Driven {
    let options = small(&disk, &clock);
    Driven::open(disk, clock, options).unwrap()
}

/// Message `number` is due at some time within two hours.
fn nth(number: u64) -> Put {
    let put = Put::new(queue("q"), format!("{number:0100}"));
    put.after_ms(1 + number * 7_919 % (2 * HOUR_MS)).key(format!("key {number}").parse().unwrap())
}

/// A store with `count` messages, nearly all of them in tables; and their ids.
fn filled(count: u64) -> (Driven, Vec<MessageId>) {
    let mut store = open(MemoryDisk::new(), ManualClock::new(start()));
    let ids = (0..count).map(|number| store.put(nth(number)).unwrap().id).collect();
    assert!(store.engine.counters().cold > count / 2);
    (store, ids)
}

fn again(store: Driven) -> Driven {
    let (disk, clock) = store.close();
    open(disk, clock)
}

fn reads(store: &Driven) -> u64 {
    store.engine.counters().disk.reads
}

#[test]
fn the_first_take_after_an_opening_reads_what_it_hands_out() {
    let (mut store, _) = filled(3_000);
    store.advance(HOUR_MS);
    let mut store = again(store);
    store.advance(0);
    let files = store.engine.counters().tables;
    assert!(files > 8, "{files} files");
    let before = reads(&store);
    let taken = store.take(Take::from(queue("q"))).unwrap().pop().unwrap();
    assert!(reads(&store) - before <= 3, "{} reads for one of {files} files", reads(&store) - before);
    let first = (0..3_000).min_by_key(|number| 1 + number * 7_919 % (2 * HOUR_MS)).unwrap();
    assert_eq!(taken.message.body, format!("{first:0100}"), "it is the first of all");
}

#[test]
fn a_message_as_it_was_put_is_found_by_its_id_without_the_runs() {
    let (store, ids) = filled(2_000);
    let mut store = again(store);
    let engine = store.engine.clone();
    let before = reads(&store);
    for (number, id) in ids.iter().enumerate() {
        let found = store.run(engine.get(queue("q"), vec![Target::Id(*id)], false)).pop().unwrap().unwrap();
        assert_eq!(found.body, format!("{number:0100}"));
    }
    // They are in few blocks. Only messages that were moved into a file with many others are looked up, with a read
    // each.
    assert!(reads(&store) - before < ids.len() as u64 / 2, "{} reads", reads(&store) - before);
    // A message that was moved is found too, and one that is gone is not.
    let when = dwell_store::When::At(start().saturating_after(5 * HOUR_MS));
    let moved = store.run(engine.reschedule(queue("q"), vec![(Target::Id(ids[3]), when)]));
    assert!(moved.iter().all(Result::is_ok));
    let gone = store.run(engine.cancel(queue("q"), vec![Target::Id(ids[4])]));
    assert!(gone.iter().all(Result::is_ok));
    for number in 2_000..3_000 {
        store.put(nth(number)).unwrap();
    }
    let mut store = again(store);
    let engine = store.engine.clone();
    let asked = [ids[3], ids[4], ids[5]].map(Target::Id).to_vec();
    let found = store.run(engine.get(queue("q"), asked, false));
    assert_eq!(found.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
}

/// Takes `count` messages that are due, and acks them.
fn ack(store: &mut Driven, count: u64) {
    let mut acked = 0;
    while acked < count {
        for taken in store.take(Take::from(queue("q")).max(50)).unwrap() {
            store.settle(Settle { receipt: taken.receipt, action: Action::Ack }).unwrap();
            acked += 1;
        }
    }
}

#[test]
fn acks_of_messages_in_tables_are_read_back_together() {
    let (store, _) = filled(3_000);
    let (disk, clock) = store.close();
    // So that the journal may have thousands of records.
    let options = Options { memory_limit: 1024 * 1024, ..small(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    store.advance(HOUR_MS);
    ack(&mut store, 600);
    let left = store.numbers();
    let files = store.engine.counters().tables + store.engine.counters().runs;
    let (disk, clock) = store.kill();
    disk.power_on(Crash::Keep);
    let mut store = open(disk, clock);
    assert!(store.engine.report().records > 600, "{:?}", store.engine.report());
    let opening = reads(&store);
    assert!(opening < 4 * files + 300, "{opening} reads for {files} files and 600 acks");
    assert_eq!(store.numbers(), left);
}

#[test]
fn the_journal_has_few_records_to_read_back_however_many_messages_in_tables_are_acked() {
    let (mut store, _) = filled(3_000);
    store.advance(HOUR_MS);
    let allowed = 64 * 1024 / 256;
    for _ in 0..6 {
        ack(&mut store, 200);
        let flushes = store.engine.counters().flushes;
        let (disk, clock) = store.kill();
        disk.power_on(Crash::Keep);
        store = open(disk, clock);
        // In addition to what is allowed, there is what came during the flush.
        let records = store.engine.report().records;
        assert!(flushes > 0 && records < 3 * allowed, "{records} records, {flushes} checkpoints");
    }
}

#[test]
fn runs_are_merged_while_messages_are_put_and_lose_what_is_gone() {
    let (mut store, ids) = filled(4_000);
    let runs = store.engine.counters().runs;
    assert!(runs <= 40, "{runs} runs of {} flushes", store.engine.counters().flushes);
    let engine = store.engine.clone();
    for (number, id) in ids.iter().enumerate().filter(|(number, _)| number % 20 > 0) {
        let answer = store.run(engine.cancel(queue("q"), vec![Target::Id(*id)])).pop().unwrap();
        assert!(answer.is_ok(), "{number}");
    }
    for _ in 0..2_000 {
        store.advance(1);
    }
    // The manifest names merged runs when the next flush is done.
    for number in 0..300 {
        store.put(nth(4_000 + number)).unwrap();
    }
    for _ in 0..2_000 {
        store.advance(1);
    }
    let (disk, _) = store.close();
    let report = check(&disk, dir()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    // A pair of each kind for each, twice over, and as many as a generation has.
    assert!(report.pairs <= 4 * report.live + 400, "{report:?}");
}
