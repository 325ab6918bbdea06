//! Bytes that an engine wrote, as seeds for fuzzers.

use dwell_model::{Key, Message, QueueName, Setting, SettingChange, Timestamp};
use dwell_store::{Action, OnConflict, Put, Selection, Settle, Store as _, Take, Target, When};

use super::driven::{Driven, dir, segment_path, start};
use super::script;
use crate::disk::{Crash, MemoryDisk};
use crate::journal::format::BatchHeader;

/// A seed: its entry point, a name, its bytes.
pub type Seed = (&'static str, String, Vec<u8>);

/// A few hundred bytes for each entry, some of them damaged.
pub fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let closed = closed();
    let (killed, _) = killed();
    let torn = killed.copied();
    let last = script::segments(&killed).len() as u64;
    let mut bytes = torn.read_file(&segment_path(last)).expect("it is the last");
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    bytes.truncate(end - 1);
    torn.put_file(&segment_path(last), bytes);

    for (name, disk) in [("closed", &closed), ("killed", &killed), ("torn", &torn)] {
        seeds.push(("recovery", name.to_owned(), script::describe(disk)));
        let mut manifest = vec![1];
        manifest.extend(disk.read_file(&dir().join(crate::manifest::FILE)).expect("it is there"));
        seeds.push(("manifest", name.to_owned(), manifest));
    }
    for (name, bytes, header) in script::segments(&closed).into_iter().chain(script::segments(&killed)) {
        let disk = MemoryDisk::new();
        disk.put_file(&dir().join(name.file_name()), bytes.clone());
        for batch in script::batches(&disk, name, &header) {
            let records = &bytes[batch.at + BatchHeader::LEN..batch.end];
            let now = &bytes[batch.at + 24..batch.at + 32];
            let mut seed = vec![0, 0];
            seed.extend_from_slice(&header.incarnation.to_le_bytes());
            seed.extend_from_slice(now);
            seed.extend_from_slice(records);
            let label = format!("{}-{}-{}", header.incarnation, name.segment, batch.sequence);
            seeds.push(("records", label, seed));
        }
    }
    seeds.extend(segments());
    seeds.extend(damages());
    seeds.extend(super::manifest::seeds());
    seeds.extend(super::sealed::seeds());
    seeds.sort();
    seeds.dedup_by(|a, b| a.0 == b.0 && a.2 == b.2);
    seeds
}

/// Sequences of pieces as `segment` reads them.
fn segments() -> Vec<Seed> {
    let batch = |sequence: u8, synced: i8, records: &[u8]| {
        let mut piece = vec![1, sequence, synced as u8, 0];
        piece.extend_from_slice(&start().as_ms().to_le_bytes());
        piece.extend_from_slice(&(records.len() as u16).to_le_bytes());
        piece.extend_from_slice(records);
        piece.extend_from_slice(&1u32.to_le_bytes());
        piece
    };
    let two = [batch(0, -1, b"records"), batch(0, -1, b"")].concat();
    let seed = |name: &str, pieces: &[&[u8]]| ("segment", name.to_owned(), pieces.concat());
    vec![
        seed("two", &[&[255], &two]),
        seed("two-zeros-one", &[&[9], &two, &[2, 200, 0], &batch(0, -1, b"behind")]),
        seed("flipped", &[&[0], &two, &[3, 50, 0, 1], &batch(0, -1, b"behind")]),
        seed("a-header-across-windows", &[&[51], &[2, 80, 0], &batch(0, 0, b"across"), &[2, 0, 1]]),
        seed("a-header-in-a-body", &[&[100], &batch(0, -1, b"DWLBDWLB"), &[0, 8], b"DWLBxxxx"]),
        seed("many-windows", &[&[0], &two, &[2, 0, 7], &batch(0, -1, b"far behind"), &[2, 1, 1]]),
    ]
}

/// Changes as `damage` reads them.
fn damages() -> Vec<Seed> {
    let seed = |name: &str, changes: &[u8]| ("damage", name.to_owned(), changes.to_vec());
    vec![
        seed("none", &[]),
        seed("flip-in-the-first-header", &[0, 0, 30, 0, 1]),
        seed("flip-in-a-batch-header", &[0, 0, 80, 0, 4]),
        seed("flip-in-a-body", &[0, 0, 160, 0, 4]),
        seed("cut-the-first", &[0, 1, 0, 1]),
        seed("cut-the-second", &[1, 1, 150, 0]),
        seed("empty-the-second", &[1, 1, 0, 0]),
        seed("zeros-in-the-second", &[1, 2, 200, 0, 90]),
        seed("copy-within-the-second", &[1, 3, 200, 0, 72, 0, 120]),
        seed("two-flips", &[1, 0, 220, 0, 1, 1, 0, 44, 1, 1]),
        seed("flip-in-the-manifest", &[255, 0, 20, 0, 1]),
        seed("cut-the-manifest", &[255, 1, 63, 0]),
    ]
}

/// Pseudorandom bytes, the same ones each time (Knuth's MMIX generator).
pub(super) fn made(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn queue(name: &str) -> QueueName {
    name.parse().expect("it is a name")
}

/// The commands of a short life, each as a step.
fn life(mut step: impl FnMut(&mut Driven), store: &mut Driven) {
    let engine = store.engine.clone();
    step(store);
    let key = || Key::new("order 7").expect("it is a key");
    for i in 0..3u64 {
        let body = format!("body {i} ").repeat(1 + i as usize * 2);
        let put = Put::new(queue("q"), body).after_ms(i * 1_000);
        store.run(engine.put(vec![put]));
        step(store);
    }
    let mut full = Put::new(queue("keyed"), "all that a put can have").key(key()).priority(3);
    full.headers = dwell_model::Headers::new([("content-type", "text/plain")]).expect("they are headers");
    full.lease_ms = Some(5_000);
    full.max_attempts = Some(dwell_model::AttemptLimit::Unlimited);
    full.expires = Some(Timestamp::MAX);
    full.idempotency_key = dwell_model::IdempotencyKey::new("token").ok();
    store.run(engine.put(vec![full.clone()]));
    step(store);
    full.idempotency_key = dwell_model::IdempotencyKey::new("token-2").ok();
    full.on_conflict = OnConflict::Keep;
    store.run(engine.put(vec![full]));
    step(store);
    let changes = vec![
        SettingChange::Set(Setting::LeaseMs(77_777)),
        SettingChange::Set(Setting::Levels(vec![1_000, 60_000])),
    ];
    store.run(engine.configure(queue("q"), changes)).expect("these are settings");
    step(store);
    let put = Put::new(queue("keyed"), "in its place").key(key()).on_conflict(OnConflict::Replace);
    store.run(engine.put(vec![put]));
    step(store);
    for action in [
        Action::Retry { after_ms: Some(500), error: Some("no luck".into()), priority: Some(9) },
        Action::Bury { reason: Some("broken".into()), priority: None },
        Action::Ack,
    ] {
        let take = Take::from_all([queue("q"), queue("keyed")]);
        let taken = store.run(engine.take(take)).expect("a take is answered");
        step(store);
        for delivery in taken {
            store.run(engine.settle(vec![Settle { receipt: delivery.receipt, action: action.clone() }]));
            step(store);
        }
    }
    store.run(engine.revive(queue("q"), Selection::All, When::AfterMs(10))).expect("it is answered");
    step(store);
    store.run(engine.reschedule(queue("q"), vec![(Target::Key(key()), When::Now)]));
    step(store);
    store.run(engine.purge(queue("keyed"))).expect("it is answered");
    step(store);
    store.run(engine.put(vec![Put::new(queue("other"), "last")]));
    step(store);
}

/// A directory that was closed cleanly.
fn closed() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let mut store = Driven::open(&disk).expect("an empty directory can be opened");
    life(|_| (), &mut store);
    store.close();
    disk
}

/// A directory of two segments whose process was killed, and the messages after each batch, from none on.
pub(super) fn killed() -> (MemoryDisk, Vec<Vec<Message>>) {
    let disk = MemoryDisk::new();
    let mut states: Vec<Vec<Message>> = vec![Vec::new()];
    let mut step = |store: &mut Driven| {
        // The messages that a copy of the directory holds when it is opened.
        let copy = store.disk.copied();
        let last = script::segments(&copy)
            .into_iter()
            .flat_map(|(name, _, header)| script::batches(&copy, name, &header))
            .last()
            .map_or(0, |batch| batch.sequence as usize);
        let mut opened = Driven::open(&copy).expect("a copy can be opened");
        let found = opened.dump().into_iter().map(|message| message.expect("its body is whole")).collect();
        let before = states.last().cloned().unwrap_or_default();
        states.truncate(last);
        // A batch of settings at the head of a segment comes before the command's own batch.
        states.resize(last, before);
        states.push(found);
    };
    let mut store = Driven::open(&disk).expect("an empty directory can be opened");
    life(&mut step, &mut store);
    store.close();
    let mut store = Driven::open(&disk).expect("it was closed");
    life(&mut step, &mut store);
    disk.power_off();
    drop(store);
    disk.power_on(Crash::Drop);
    (disk, states)
}
