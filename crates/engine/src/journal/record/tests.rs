//! Every record, encoded and decoded, and with damage.

use std::num::NonZeroU32;

use dwell_model::{
    AttemptLimit, Backoff, Counts, DEFAULT_PRIORITY, Death, DeathReason, Headers, IdempotencyKey, Key,
    LapseBackoff, Lease, LeaseToken, MessageId, Now, Number, OnExpiry, Pause, QueueName, Setting,
    SettingChange, SettingName, Standing, State, Timestamp,
};
use dwell_store::core::{IdempotencyRecord, PutRecord, Record};
use dwell_store::{PutAnswer, PutDigest, PutOutcome};

use super::{BatchContext, Decoder, Encoder, Fact, OLD_ANSWERED};
use crate::journal::encoding::Unreadable;
use crate::journal::format::SegmentName;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms).unwrap()
}

fn context() -> BatchContext {
    let salt = SegmentName { directory: 1, shard: 2, segment: 3 }.salt();
    BatchContext { shard: 2, incarnation: 7, now: at(1_795_000_000_000), salt }
}

fn plain_put(number: u64, due: Timestamp) -> PutRecord {
    PutRecord {
        id: MessageId::new(due, 2, 7, number + 100),
        number: Number::new(number).unwrap(),
        queue: "orders".parse().unwrap(),
        due,
        priority: DEFAULT_PRIORITY,
        created: context().now,
        key: None,
        headers: Headers::default(),
        lease_ms: None,
        max_attempts: None,
        expires: None,
        idempotency_key: None,
        replaces: None,
    }
}

fn full_put(number: u64) -> PutRecord {
    PutRecord {
        id: MessageId::new(at(5), 4, 3, number),
        queue: format!("q{number}").parse().unwrap(),
        priority: 0,
        created: at(77),
        key: Some(Key::new("ключ").unwrap()),
        headers: Headers::new([("content-type", "text/plain"), ("x", "é")]).unwrap(),
        lease_ms: Some(Setting::MAX_LEASE_MS),
        max_attempts: Some(AttemptLimit::Unlimited),
        expires: Some(Timestamp::MAX),
        idempotency_key: Some(IdempotencyRecord {
            idempotency_key: IdempotencyKey::new("t:1").unwrap(),
            until: at(9),
            digest: PutDigest::of(Some(&Key::new("ключ").unwrap()), b"body"),
        }),
        replaces: Some(MessageId::new(at(6), 1, 1, 1)),
        ..plain_put(number, Timestamp::MIN)
    }
}

fn standing(state: State) -> Standing {
    Standing {
        state,
        due: at(123),
        priority: u32::MAX,
        attempts: 3,
        expires: Some(at(456)),
        keyless: true,
        counts: Counts { takes: 1, lapses: 2, releases: 3, buries: 4, revives: u32::MAX },
        last_error: Some("no luck".into()),
        holder: None,
    }
}

fn lease() -> Lease {
    Lease {
        token: LeaseToken(u128::MAX - 1),
        lease_ms: 30_000,
        deadline_mono_ms: 0,
        deadline: at(1),
        session: true,
    }
}

fn all_records() -> Vec<Record> {
    let queue: QueueName = "orders".parse().unwrap();
    let number = Number::MAX;
    let plain = Standing::put(at(0), DEFAULT_PRIORITY, None, Now { wall: at(0), mono_ms: 0 });
    let death = |reason| State::Dead(Death { reason, at: at(99) });
    let held = Standing { holder: Some("worker 7".parse().unwrap()), ..standing(State::Leased(lease())) };
    let mut records = vec![
        Record::Stands { number, standing: standing(State::Scheduled) },
        Record::Stands { number, standing: plain },
        Record::Stands { number, standing: standing(State::Leased(lease())) },
        Record::Stands { number, standing: held },
        Record::Stands { number, standing: standing(death(DeathReason::AttemptsSpent)) },
        Record::Stands { number, standing: standing(death(DeathReason::Buried)) },
        Record::Stands { number, standing: standing(death(DeathReason::Expired)) },
        Record::Gone { number },
        Record::Purged { queue: queue.clone() },
        Record::Discarded { queue: queue.clone() },
        Record::Revived { queue: queue.clone(), due: at(8), wall: at(9) },
        Record::Deleted { queue: "other".parse().unwrap() },
        Record::Ripe { wall: at(7) },
    ];
    let id = MessageId::new(at(1), 0, 1, 2);
    for outcome in [PutOutcome::Created, PutOutcome::Replaced(id), PutOutcome::Kept] {
        let answer = PutAnswer { id, number, due: at(4), outcome };
        let idempotency_key = IdempotencyRecord {
            idempotency_key: IdempotencyKey::new("x").unwrap(),
            until: at(10),
            digest: PutDigest(u64::MAX),
        };
        records.push(Record::Answered { queue: queue.clone(), idempotency_key, answer });
    }
    let backoff = Backoff { base_ms: 1, factor_percent: 200, cap_ms: u64::MAX >> 20, jitter_percent: 100 };
    for setting in [
        Setting::LeaseMs(1),
        Setting::MaxAttempts(AttemptLimit::At(NonZeroU32::MAX)),
        Setting::MaxAttempts(AttemptLimit::Unlimited),
        Setting::Backoff(backoff),
        Setting::MaxPending(u64::MAX),
        Setting::Pause(Pause::Running),
        Setting::Pause(Pause::Until(at(3))),
        Setting::Pause(Pause::Indefinite),
        Setting::Levels(vec![0, 5_000]),
        Setting::Levels(Vec::new()),
        Setting::Partitions(1_024),
        Setting::IdempotencyMs(0),
        Setting::DeadTtlMs(u64::MAX),
        Setting::DeadMax(0),
        Setting::OnExpiry(OnExpiry::Dead),
        Setting::OnExpiry(OnExpiry::Drop),
        Setting::MaxLeased(1),
        Setting::LapseBackoff(LapseBackoff::Never),
        Setting::LapseBackoff(LapseBackoff::Second),
        Setting::LapseBackoff(LapseBackoff::First),
    ] {
        records.push(Record::Configured { queue: queue.clone(), change: SettingChange::Set(setting) });
    }
    for name in SettingName::ALL {
        records.push(Record::Configured { queue: queue.clone(), change: SettingChange::Reset(name) });
    }
    records
}

/// Puts, all other records and a close, as one batch.
fn batch() -> (Vec<u8>, Vec<PutRecord>) {
    let mut out = Vec::new();
    let mut encoder = Encoder::default();
    encoder.begin_batch();
    let mut puts = vec![plain_put(9, at(1_795_000_060_000)), plain_put(10, at(3))];
    puts.extend((11..31).map(full_put));
    puts.push(plain_put(31, Timestamp::MAX));
    for put in &puts {
        encoder.put(&mut out, context(), put, b"body");
    }
    for record in all_records() {
        encoder.record(&mut out, context(), &record);
    }
    encoder.closed(&mut out);
    (out, puts)
}

#[test]
fn every_record_survives_with_all_that_it_says() {
    let (bytes, puts) = batch();
    let mut decoder = Decoder::new(&bytes, context());
    for put in puts {
        let Some(Fact::Put { record, body_at, body_len }) = decoder.next().unwrap() else {
            panic!("a put was written");
        };
        assert_eq!(record, put);
        let stored = &bytes[body_at as usize..][..4 + body_len as usize];
        assert_eq!(&stored[4..], b"body");
        let checksum = context().salt.body_checksum(put.number.get(), b"body");
        assert_eq!(stored[..4], checksum.to_le_bytes());
    }
    for record in all_records() {
        assert_eq!(decoder.next(), Ok(Some(Fact::Record(record))));
    }
    assert_eq!(decoder.next(), Ok(Some(Fact::Closed)));
    assert_eq!(decoder.next(), Ok(None));
}

/// An answer from before digests were stored: today's record without the eight bytes after the idempotency key.
#[test]
fn an_answer_of_which_nobody_knows_what_it_was_for_is_read() {
    let (queue, idempotency_key): (QueueName, _) = ("q".parse().unwrap(), IdempotencyKey::new("x").unwrap());
    let id = MessageId::new(at(1), 0, 1, 2);
    let answer = PutAnswer { id, number: Number::new(7).unwrap(), due: at(4), outcome: PutOutcome::Kept };
    let record = |digest| Record::Answered {
        queue: queue.clone(),
        idempotency_key: IdempotencyRecord {
            idempotency_key: idempotency_key.clone(),
            until: at(10),
            digest,
        },
        answer,
    };
    let mut bytes = Vec::new();
    Encoder::default().record(&mut bytes, context(), &record(PutDigest(u64::from_le_bytes([0xd1; 8]))));
    let digest = bytes.windows(8).position(|bytes| bytes == [0xd1; 8]).unwrap();
    bytes.drain(digest..digest + 8);
    bytes[0] = OLD_ANSWERED;
    let read = Decoder::new(&bytes, context()).next();
    assert_eq!(read, Ok(Some(Fact::Record(record(PutDigest::UNKNOWN)))));
}

#[test]
fn a_plain_put_costs_few_bytes() {
    let mut encoder = Encoder::default();
    let mut out = Vec::new();
    encoder.put(&mut out, context(), &plain_put(1_000_000, at(1_795_086_400_000)), &[0; 128]);
    out.clear();
    encoder.put(&mut out, context(), &plain_put(1_000_001, at(1_795_086_400_000)), &[0; 128]);
    assert_eq!(out.len() - 128, 15);
}

#[test]
fn a_lease_that_was_just_granted_costs_few_bytes() {
    let now = Now { wall: context().now, mono_ms: 9 };
    let due = at(context().now.as_ms() - 43_200_000);
    let number = Number::new(1_000_000).unwrap();
    let len = |incarnation: u128, later_ms: i64| {
        let token = LeaseToken(incarnation << 80 | 2 << 64 | 1_000_000);
        let granted = Lease::granted(token, 30_000, false, now);
        let deadline = at(granted.deadline.as_ms() + later_ms);
        let lease = Lease { deadline, deadline_mono_ms: 0, ..granted };
        let mut standing = Standing::put(due, DEFAULT_PRIORITY, None, now);
        (standing.state, standing.counts.takes) = (State::Leased(lease), 1);
        let (mut out, record) = (Vec::new(), Record::Stands { number, standing });
        Encoder::default().record(&mut out, context(), &record);
        assert_eq!(Decoder::new(&out, context()).next(), Ok(Some(Fact::Record(record))));
        out.len()
    };
    assert_eq!(len(7, 0), 20);
    assert_eq!(len(6, 0), 38, "a token of an incarnation before is written whole, with its deadline");
    assert_eq!(len(7, 1), 24, "a deadline that is another is written");
}

#[test]
fn nothing_read_from_damaged_bytes_panics() {
    let (bytes, _) = batch();
    let read = |bytes: &[u8]| {
        let mut decoder = Decoder::new(bytes, context());
        while let Ok(Some(_)) = decoder.next() {}
    };
    for at in 0..bytes.len() {
        read(&bytes[..at]);
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            read(&damaged);
        }
    }
}

#[test]
fn a_kind_from_the_future_is_no_damage() {
    assert!(matches!(Decoder::new(&[200], context()).next(), Err(Unreadable::Newer(_))));
    assert!(matches!(Decoder::new(&[0], context()).next(), Err(Unreadable::Malformed(_))));
}
