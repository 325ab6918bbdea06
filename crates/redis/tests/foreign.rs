//! Foreign keys and values where ours lie, under a store that is open and in use: a typed error, nothing is changed,
//! and once they are removed everything is there.
//!
//! Each key of the layout is replaced by one of another type, and each operation is called on that: either it does
//! not use the key, or it is refused before it has written anything. `docs/redis.md` names the keys.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dwell_model::{
    AttemptLimit, Headers, Holder, IdempotencyKey, Key, Limits, MessageId, Number, QueueName, Receipt,
    Setting, SettingChange, StateKind, Timestamp,
};
use dwell_redis::{OpenError, RedisStore};
use dwell_store::{
    Action, Error, LeaseRef, LeaseTerms, OnConflict, Put, Selection, Settle, Settled, Store, Take, Target,
    When,
};
use dwell_testkit::redis::Server;
use dwell_time::{Clock, ManualClock};
use redis::Value;

const START_MS: i64 = 1_795_000_000_000;
const MINUTE_MS: u64 = 60_000;

/// A partition's keys that are sorted sets, and those that are hashes.
const SORTED_SETS: &str = "fnsuordxlyghT";
const HASHES: &str = "mNSBHktawZ";

fn queue() -> QueueName {
    QueueName::new("orders").unwrap()
}

fn message(body: &str) -> Put {
    Put::new(queue(), body.to_owned())
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

async fn one<T>(answers: impl Future<Output = Vec<Result<T, Error>>>) -> Result<T, Error> {
    answers.await.pop().unwrap()
}

/// A call that must end.
async fn within<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), call).await.expect("a call does not end")
}

/// All keys and their values, except for the directory's, which the heartbeats of processes change.
type KeyValues = BTreeMap<Vec<u8>, Vec<u8>>;

struct Redis {
    server: Server,
    connection: redis::Connection,
}

impl Redis {
    fn start() -> Redis {
        let server = Server::start();
        let connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        Redis { server, connection }
    }

    fn command<T: redis::FromRedisValue>(&mut self, words: &[&[u8]]) -> T {
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(*word);
        });
        command.query(&mut self.connection).unwrap()
    }

    fn all(&mut self) -> KeyValues {
        let keys: Vec<Vec<u8>> = self.command(&[b"KEYS", b"*"]);
        let mut dumps = redis::pipe();
        keys.iter().for_each(|key| {
            dumps.cmd("DUMP").arg(key);
        });
        let dumps: Vec<Vec<u8>> = dumps.query(&mut self.connection).unwrap();
        keys.into_iter().zip(dumps).collect()
    }

    fn held(&mut self) -> KeyValues {
        let mut all = self.all();
        all.retain(|key, _| !key.starts_with(b"{"));
        for (key, dump) in &mut all {
            // Fields of a hash have no order.
            if self.command::<String>(&[b"TYPE", key]) == "hash" {
                let fields: BTreeMap<Vec<u8>, Vec<u8>> = self.command(&[b"HGETALL", key]);
                *dump = format!("{fields:?}").into_bytes();
            }
        }
        all
    }

    /// Makes it hold exactly this.
    fn restore(&mut self, held: &KeyValues) {
        let mut commands = redis::pipe();
        commands.atomic().cmd("FLUSHALL").ignore();
        for (key, dump) in held {
            commands.cmd("RESTORE").arg(key).arg(0).arg(dump).ignore();
        }
        commands.exec(&mut self.connection).unwrap();
    }

    /// Puts a foreign key there, of a type that differs from ours, or that careless code takes for ours.
    fn spoil(&mut self, key: &str, looks_alike: bool) {
        self.command::<Value>(&[b"DEL", key.as_bytes()]);
        match looks_alike {
            true => self.command::<Value>(&[b"SADD", key.as_bytes(), b"mine"]),
            false => self.command::<Value>(&[b"SET", key.as_bytes(), b"mine"]),
        };
    }

    /// The prefix of the keys of the queue's partition.
    fn partition(&mut self) -> String {
        let keys: Vec<String> = self.command(&[b"KEYS", b"dwell:{*}:m"]);
        assert_eq!(keys.len(), 1);
        keys[0].strip_suffix('m').unwrap().to_owned()
    }
}

/// A queue with something under every key, and what operations need to know of it.
struct Stage {
    store: RedisStore,
    address: dwell_redis::Address,
    clock: Arc<dyn Clock>,
    fresh: MessageId,
    number: Number,
    scheduled: MessageId,
    dead: Vec<MessageId>,
    /// Leased messages: as put; in the long form; bound.
    held: Receipt,
    held_long: Receipt,
    bound: Option<Receipt>,
}

async fn open(address: dwell_redis::Address, clock: &Arc<dyn Clock>) -> Result<RedisStore, OpenError> {
    let store = RedisStore::open_for_test(address, Limits::default(), Arc::clone(clock)).await?;
    // A difference between before and after a call must come from the call alone.
    store.beat_no_more_for_test();
    Ok(store)
}

impl Stage {
    async fn set(redis: &Redis, clock: &Arc<dyn Clock>, with_bound: bool) -> Stage {
        let address = redis.server.address::<dwell_redis::Address>().with_client("somebody");
        let store = open(address.clone(), clock).await.unwrap();
        let put = async |put| one(store.put(vec![put])).await.unwrap();
        let take = async |take: Take| store.take(take.lease_ms(8 * MINUTE_MS)).await.unwrap().pop().unwrap();
        let settle =
            async |receipt, action| one(store.settle(vec![Settle { receipt, action }])).await.unwrap();
        store.configure(queue(), vec![SettingChange::Set(Setting::LeaseMs(30_000))]).await.unwrap();
        let mut dead = Vec::new();
        for body in ["first dead", "second dead"] {
            let id = put(message(body).key(key(body))).await.id;
            let taken = store.take_id(queue(), id, LeaseTerms::default()).await.unwrap();
            settle(taken.receipt, Action::Bury { reason: Some("why not".into()), priority: None }).await;
            dead.push(id);
        }
        put(message("held")).await;
        let held = take(Take::from(queue())).await.receipt;
        let id = put(message("held in the long form").priority(3).key(key("held"))).await.id;
        let held_long = store.take_id(queue(), id, LeaseTerms::of_ms(8 * MINUTE_MS)).await.unwrap().receipt;
        let bound = match with_bound {
            true => {
                put(message("bound")).await;
                Some(take(Take::from(queue()).bound()).await.receipt)
            }
            false => None,
        };
        // A message that a take finds due is put into order: then `r` and `d` have it.
        for body in ["urgent", "urgent too"] {
            put(message(body).priority(7)).await;
        }
        let urgent = take(Take::from(queue())).await;
        settle(urgent.receipt, Action::Release { after_ms: None, priority: None }).await;
        put(message("urgent, and not in its order yet").priority(8)).await;
        put(message("idle").priority(4_000)).await;
        put(message("urgent later").priority(9).after_ms(MINUTE_MS)).await;
        let fresh = put(message("fresh")).await;
        put(message("fresh too")).await;
        put(message("fresh later").after_ms(10 * MINUTE_MS)).await;
        put(message("long").key(key("long"))).await;
        let headers = Headers::new([("content-type", "text/plain")]).unwrap();
        put(Put { headers, ..message("with headers").token(IdempotencyKey::new("token").unwrap()) }).await;
        let scheduled = put(message("scheduled").key(key("scheduled")).after_ms(5 * MINUTE_MS)).await.id;
        let expires = Timestamp::from_ms(START_MS + 2 * MINUTE_MS as i64).ok();
        put(Put { expires, ..message("expires").after_ms(1_000) }).await;
        // A take that waits leaves its mark in `w`.
        let mut waiting = redis::Client::open(redis.server.url()).unwrap().get_connection().unwrap();
        let partition: Vec<String> = redis::cmd("KEYS").arg("dwell:{*}:m").query(&mut waiting).unwrap();
        let waits = partition[0].strip_suffix('m').unwrap().to_owned() + "w";
        let at = (START_MS + 3_600_000).to_string();
        redis::cmd("HSET").arg(waits).arg("at").arg(at).exec(&mut waiting).unwrap();
        Stage {
            address,
            clock: Arc::clone(clock),
            fresh: fresh.id,
            number: fresh.number,
            scheduled,
            dead,
            held,
            held_long,
            bound,
            store,
        }
    }

    async fn settle(&self, receipt: &Receipt, action: Action) -> Result<(), Error> {
        one(self.store.settle(vec![Settle { receipt: receipt.clone(), action }])).await.map(drop)
    }

    async fn put(&self, put: Put) -> Result<(), Error> {
        one(self.store.put(vec![put])).await.map(drop)
    }

    async fn sweep(&self, swept: Result<dwell_store::BulkOutcome, Error>) -> Result<(), Error> {
        let mut swept = swept?;
        swept.refused.pop().filter(|_| swept.done == 0).map_or(Ok(()), |(_, refused)| Err(refused))
    }

    /// Applies all that time has brought about so far: what operations change then is their own effect.
    async fn come_to_rest(&self) {
        self.store.stats(queue()).await.unwrap();
        let first = self.store.take(Take::from(queue())).await.unwrap().pop().unwrap();
        assert!(first.message.standing.priority < 1_024);
        self.settle(&first.receipt, Action::Ack).await.unwrap();
    }

    /// All messages, with their states.
    async fn messages(&self) -> BTreeSet<(MessageId, &'static str)> {
        let mut all = BTreeSet::new();
        for (state, name) in [
            (StateKind::Scheduled, "scheduled"),
            (StateKind::Ready, "ready"),
            (StateKind::Leased, "leased"),
            (StateKind::Dead, "dead"),
        ] {
            let listed = self.store.list(queue(), state, None, 100).await.unwrap().messages;
            all.extend(listed.into_iter().map(|message| (message.id, name)));
        }
        all
    }
}

type Called<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;
type Operation = (&'static str, for<'a> fn(&'a Stage) -> Called<'a>);

macro_rules! operations {
    ($($name:literal => |$at:ident| $call:expr,)*) => {
        [$(($name, |$at: &Stage| -> Called<'_> { Box::pin(async move { $call }) }),)*]
    };
}

const TWO_MINUTES_MS: u64 = 2 * MINUTE_MS;

/// All operations on a queue.
const OPERATIONS: &[Operation] = &operations! {
    "put" => |at| at.put(message("new")).await,
    "put many" => |at| {
        let answers = at.store.put((0..20).map(|n| message("new").after_ms(n)).collect()).await;
        answers.into_iter().try_for_each(|answer| answer.map(drop))
    },
    "put at an instant" => |at| {
        let due = Timestamp::from_ms(START_MS).unwrap();
        let answers = at.store.put((0..20).map(|_| message("new").at(due)).collect()).await;
        answers.into_iter().try_for_each(|answer| answer.map(drop))
    },
    "put with all" => |at| {
        let headers = Headers::new([("a", "b")]).unwrap();
        let expires = Timestamp::from_ms(START_MS + 3_600_000).ok();
        let token = IdempotencyKey::new("new").unwrap();
        at.put(Put { headers, expires, ..message("new").priority(5).key(key("new")).token(token) }).await
    },
    "put again" => |at| at.put(message("with headers").token(IdempotencyKey::new("token").unwrap())).await,
    "put in place of" => |at| {
        at.put(message("new").key(key("long")).on_conflict(OnConflict::Replace)).await
    },
    "put in place of what is held" => |at| {
        at.put(message("new").key(key("held")).on_conflict(OnConflict::Replace)).await
    },
    "put and keep" => |at| {
        at.put(message("new").key(key("scheduled")).on_conflict(OnConflict::Keep)).await
    },
    "take" => |at| at.store.take(Take::from(queue())).await.map(drop),
    "take many" => |at| at.store.take(Take::from(queue()).max(128)).await.map(drop),
    "take bound" => |at| at.store.take(Take::from(queue()).max(128).bound()).await.map(drop),
    "take with a holder" => |at| {
        let take = Take::from(queue()).max(128).holder(Holder::new("worker 7").unwrap());
        at.store.take(take).await.map(drop)
    },
    "take of several queues" => |at| {
        let queues = [queue(), QueueName::new("others").unwrap()];
        at.store.take(Take::from_all(queues).max(128)).await.map(drop)
    },
    "take the scheduled" => |at| {
        let terms = LeaseTerms { bound: true, ..LeaseTerms::default() };
        at.store.take_id(queue(), at.scheduled, terms).await.map(drop)
    },
    "take the fresh" => |at| at.store.take_id(queue(), at.fresh, LeaseTerms::default()).await.map(drop),
    "take the dead" => |at| at.store.take_id(queue(), at.dead[0], LeaseTerms::default()).await.map(drop),
    "ack" => |at| at.settle(&at.held, Action::Ack).await,
    "ack of the long form" => |at| at.settle(&at.held_long, Action::Ack).await,
    "ack of the bound" => |at| at.settle(at.bound.as_ref().unwrap_or(&at.held), Action::Ack).await,
    "ack of both" => |at| {
        let both = [&at.held, &at.held_long].map(|receipt| (receipt.clone(), Action::Ack));
        let both = both.map(|(receipt, action)| Settle { receipt, action });
        let answers = at.store.settle(both.to_vec()).await;
        // One of them may be acked, or have lost its lease.
        let refused: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
        let is_foreign = |refused: &Error| matches!(refused, Error::ForeignData { .. });
        if refused.len() == 2 && refused.iter().all(is_foreign) { Err(refused[0].clone()) } else { Ok(()) }
    },
    "retry" => |at| {
        at.settle(&at.held, Action::Retry { after_ms: None, error: Some("e".into()), priority: None }).await
    },
    "release" => |at| {
        at.settle(&at.held_long, Action::Release { after_ms: Some(5), priority: Some(4) }).await
    },
    "bury" => |at| at.settle(&at.held_long, Action::Bury { reason: None, priority: None }).await,
    "extend" => |at| at.settle(&at.held, Action::Extend { lease_ms: Some(MINUTE_MS) }).await,
    "end a lease" => |at| {
        let lease = LeaseRef { id: at.held_long.id, takes: 1 };
        one(at.store.expire_lease(queue(), vec![lease])).await.map(drop)
    },
    "cancel the fresh" => |at| one(at.store.cancel(queue(), vec![Target::Id(at.fresh)])).await.map(drop),
    "cancel by key" => |at| one(at.store.cancel(queue(), vec![Target::Key(key("long"))])).await.map(drop),
    "reschedule" => |at| {
        let moved = vec![(Target::Id(at.scheduled), When::AfterMs(1))];
        one(at.store.reschedule(queue(), moved)).await.map(drop)
    },
    "reschedule the fresh" => |at| {
        let moved = vec![(Target::Id(at.fresh), When::AfterMs(TWO_MINUTES_MS))];
        one(at.store.reschedule(queue(), moved)).await.map(drop)
    },
    "get" => |at| one(at.store.get(queue(), vec![Target::Id(at.fresh)], false)).await.map(drop),
    "get by key" => |at| one(at.store.get(queue(), vec![Target::Key(key("long"))], false)).await.map(drop),
    "get the dead by key" => |at| {
        one(at.store.get(queue(), vec![Target::Key(key("first dead"))], true)).await.map(drop)
    },
    "locate" => |at| one(at.store.locate(vec![at.number])).await.map(drop),
    "list the scheduled" => |at| at.store.list(queue(), StateKind::Scheduled, None, 100).await.map(drop),
    "list the ready" => |at| at.store.list(queue(), StateKind::Ready, None, 100).await.map(drop),
    "list the leased" => |at| at.store.list(queue(), StateKind::Leased, None, 100).await.map(drop),
    "list the dead" => |at| at.store.list(queue(), StateKind::Dead, None, 100).await.map(drop),
    "stats" => |at| at.store.stats(queue()).await.map(drop),
    "forecast" => |at| {
        let edges = vec![Timestamp::from_ms(START_MS + TWO_MINUTES_MS as i64).unwrap(), Timestamp::MAX];
        at.store.forecast(Some(vec![queue()]), edges).await.map(drop)
    },
    "configure" => |at| {
        at.store.configure(queue(), vec![SettingChange::Set(Setting::LeaseMs(7_000))]).await.map(drop)
    },
    "revive" => |at| {
        at.sweep(at.store.revive(queue(), Selection::Ids(at.dead.clone()), When::Now).await).await
    },
    "revive all" => |at| at.sweep(at.store.revive(queue(), Selection::All, When::AfterMs(1)).await).await,
    "discard" => |at| at.sweep(at.store.discard(queue(), Selection::Oldest(1)).await).await,
    "discard all" => |at| at.sweep(at.store.discard(queue(), Selection::All).await).await,
    "purge" => |at| at.store.purge(queue()).await.map(drop),
    "delete" => |at| at.store.delete_queue(queue()).await.map(drop),
    // Leases that the earlier process of this name has bound are freed.
    "open" => |at| match open(at.address.clone(), &at.clock).await {
        Ok(_) => Ok(()),
        Err(OpenError::Foreign { found }) => Err(Error::ForeignData { reason: found.into() }),
        Err(other) => panic!("{other}"),
    },
};

/// The keys whose value differs from before.
fn changed(before: &KeyValues, after: &KeyValues) -> Vec<String> {
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let changed = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
    changed.map(|key| String::from_utf8_lossy(key).into_owned()).collect()
}

#[track_caller]
fn assert_foreign(refused: &Error, named: &str, what: &str) {
    assert_eq!((refused.code(), refused.is_retryable()), ("foreign_data", false), "{what}: {refused}");
    assert!(refused.to_string().contains(named), "{what}: {refused}");
}

/// Calls each operation on a queue of which one key after the other is foreign.
async fn spoil_each_key(after_ms: u64, with_bound: bool, looks_alike: bool) {
    let mut redis = Redis::start();
    let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
    let stage = Stage::set(&redis, &(Arc::new(clock.clone()) as Arc<dyn Clock>), with_bound).await;
    clock.advance(after_ms);
    let whole = redis.all();
    let partition = redis.partition();
    let there = redis.held();
    for name in (SORTED_SETS.to_owned() + HASHES).chars() {
        let is_there = there.contains_key(format!("{partition}{name}").as_bytes());
        assert!(is_there || name == 'Z' || (name == 'y' && !with_bound), "nothing lies under {name}");
    }
    let expected = stage.messages().await;
    for name in (SORTED_SETS.to_owned() + HASHES).chars() {
        let key = format!("{partition}{name}");
        let mut spoiled = whole.clone();
        redis.restore(&whole);
        redis.spoil(&key, looks_alike);
        spoiled.insert(key.clone().into_bytes(), redis.all()[key.as_bytes()].clone());
        let mut refusing = Vec::new();
        for (operation, call) in OPERATIONS {
            let what = format!("{operation} while {name} is another's");
            redis.restore(&spoiled);
            let before = redis.held();
            match within(call(&stage)).await {
                Err(refused) => {
                    assert_foreign(&refused, &key, &what);
                    let changed = changed(&before, &redis.held());
                    assert!(changed.is_empty(), "{what}: {changed:?} changed although {refused}");
                    refusing.push((operation, call));
                }
                Ok(()) => assert_eq!(redis.held()[key.as_bytes()], before[key.as_bytes()], "{what}"),
            }
        }
        assert!(!refusing.is_empty(), "{name} matters to nobody");
        // The calls are refused one after the other; then the key is restored.
        redis.restore(&spoiled);
        for (operation, call) in refusing {
            assert!(within(call(&stage)).await.is_err(), "{operation} while {name} is another's");
        }
        redis.command::<Value>(&[b"DEL", key.as_bytes()]);
        if let Some(dump) = whole.get(key.as_bytes()) {
            redis.command::<Value>(&[b"RESTORE", key.as_bytes(), b"0", dump]);
        }
        assert_eq!(stage.messages().await, expected, "{name} was another's");
        let taken = stage.store.take(Take::from(queue()).max(128)).await.unwrap();
        let mut delivered: Vec<_> = taken.iter().map(|delivery| delivery.message.id).collect();
        let ready = expected.iter().filter(|(_, state)| *state == "ready").map(|(id, _)| *id);
        delivered.sort();
        assert_eq!(delivered, ready.collect::<Vec<_>>(), "{name} was another's");
        for delivery in taken {
            assert_eq!(
                one(stage.store.settle(vec![Settle { receipt: delivery.receipt, action: Action::Ack }]))
                    .await,
                Ok(Settled::Gone)
            );
        }
    }
}

#[tokio::test]
async fn a_key_of_another_type_refuses_what_needs_it_and_nothing_is_changed() {
    spoil_each_key(0, false, false).await;
}

#[tokio::test]
async fn a_key_that_looks_like_ours_refuses_what_needs_it_and_nothing_is_changed() {
    spoil_each_key(0, true, true).await;
}

/// Leases have run out, expiries have come, and no script has seen it yet.
#[tokio::test]
async fn a_key_of_another_type_refuses_what_time_brings_about_and_nothing_is_changed() {
    spoil_each_key(11 * MINUTE_MS, true, false).await;
}

/// Calls each operation on what is spoilt: it works as always, or is refused and has changed nothing.
async fn call_each(redis: &mut Redis, stage: &Stage, what: &str) -> usize {
    let spoiled = redis.all();
    let mut refusals = 0;
    for (operation, call) in OPERATIONS {
        redis.restore(&spoiled);
        let before = redis.held();
        if let Err(refused) = within(call(stage)).await
            // A message that is no longer found is reported as missing.
            && !matches!(refused, Error::MessageNotFound { .. } | Error::LeaseLost)
        {
            let what = format!("{operation} while {what}");
            assert_foreign(&refused, "", &what);
            let changed = changed(&before, &redis.held());
            assert!(changed.is_empty(), "{what}: {changed:?} changed although {refused}");
            refusals += 1;
        }
    }
    refusals
}

#[tokio::test]
async fn a_field_that_nobody_of_us_has_written_is_refused_and_nothing_is_changed() {
    let mut redis = Redis::start();
    let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
    let stage = Stage::set(&redis, &(Arc::new(clock.clone()) as Arc<dyn Clock>), true).await;
    let partition = redis.partition();
    for after_ms in [0, 9 * MINUTE_MS] {
        clock.advance(after_ms);
        stage.come_to_rest().await;
        let whole = redis.all();
        for name in HASHES.chars() {
            let key = format!("{partition}{name}");
            let fields: Vec<Vec<u8>> = redis.command(&[b"HKEYS", key.as_bytes()]);
            let mut refusals = 0;
            for field in &fields {
                for value in [&b"mine"[..], b"\xc1", b"\x80", b"\x04mine", b""] {
                    redis.restore(&whole);
                    redis.command::<Value>(&[b"HSET", key.as_bytes(), field, value]);
                    let what = format!("{} of {name} is {value:?}", String::from_utf8_lossy(field));
                    refusals += call_each(&mut redis, &stage, &what).await;
                }
            }
            // Bodies and headers belong to the callers; what `N` and `w` hold may be wrong.
            assert!(refusals > 0 || "BHNwZ".contains(name), "nobody reads {name}");
            redis.restore(&whole);
        }
    }
}

#[tokio::test]
async fn a_member_that_nobody_of_us_has_written_is_refused_and_nothing_is_changed() {
    let mut redis = Redis::start();
    let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
    let stage = Stage::set(&redis, &(Arc::new(clock.clone()) as Arc<dyn Clock>), true).await;
    stage.come_to_rest().await;
    let whole = redis.all();
    let partition = redis.partition();
    for name in SORTED_SETS.chars() {
        let key = format!("{partition}{name}");
        let mut refusals = 0;
        for member in [&b"mine"[..], b"sixteen letters:", b"longer than any id, and as long as a message"] {
            for score in [&b"1"[..], b"253402300799999"] {
                redis.restore(&whole);
                redis.command::<Value>(&[b"ZADD", key.as_bytes(), score, member]);
                let what = format!("{} lies in {name}", String::from_utf8_lossy(member));
                refusals += call_each(&mut redis, &stage, &what).await;
            }
        }
        // Unused blocks of numbers, tokens and processes are skipped.
        assert!(refusals > 0 || "nTy".contains(name), "nobody reads {name}");
    }
}

/// The record of a leased message was overwritten: as put, and in the long form.
#[tokio::test]
async fn a_leased_record_that_was_damaged_is_refused_at_each_settlement_and_when_its_lease_runs_out() {
    for damage in [&b"mine"[..], b"\xc1", b"\x80", b"\x04", b""] {
        for is_long in [false, true] {
            let mut redis = Redis::start();
            let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
            let shared: Arc<dyn Clock> = Arc::new(clock.clone());
            let store = open(redis.server.address(), &shared).await.unwrap();
            let body = if is_long { message("damaged").priority(7) } else { message("damaged") };
            let id = one(store.put(vec![body])).await.unwrap().id;
            let damaged = store.take(Take::from(queue()).lease_ms(30_000)).await.unwrap().pop().unwrap();
            one(store.put(vec![message("whole").priority(9)])).await.unwrap();
            let whole = store.take(Take::from(queue()).lease_ms(60_000)).await.unwrap().pop().unwrap();
            let records = redis.partition() + "S";
            let field = id.as_bits().to_be_bytes()[8..].to_vec();
            let record: Vec<u8> = redis.command(&[b"HGET", records.as_bytes(), &field]);
            redis.command::<Value>(&[b"HSET", records.as_bytes(), &field, damage]);
            let before = redis.held();
            let settle = |receipt: &Receipt, action| vec![Settle { receipt: receipt.clone(), action }];
            let refused =
                async |action| one(store.settle(settle(&damaged.receipt, action))).await.unwrap_err();
            let retry = Action::Retry { after_ms: Some(1), error: Some("e".into()), priority: None };
            for action in [
                Action::Extend { lease_ms: None },
                retry,
                Action::Release { after_ms: None, priority: None },
                Action::Bury { reason: None, priority: None },
            ] {
                assert_foreign(&refused(action).await, &records, "a settlement");
            }
            if is_long {
                assert_foreign(&refused(Action::Ack).await, &records, "an ack");
            }
            assert_foreign(
                &store.take_id(queue(), id, LeaseTerms::default()).await.unwrap_err(),
                &records,
                "a take",
            );
            assert_foreign(
                &one(store.get(queue(), vec![Target::Id(id)], false)).await.unwrap_err(),
                &records,
                "a get",
            );
            assert_eq!(changed(&before, &redis.held()), [""; 0], "{damage:?}");
            // The lease runs out: each call reports it, and does nothing.
            clock.advance(31_000);
            for refused in [
                store.stats(queue()).await.map(drop),
                store.take(Take::from(queue())).await.map(drop),
                one(store.put(vec![message("new")])).await.map(drop),
                one(store.settle(settle(&whole.receipt, Action::Ack))).await.map(drop),
            ] {
                assert_foreign(&refused.unwrap_err(), &records, "a call after the deadline");
            }
            assert_eq!(changed(&before, &redis.held()), [""; 0], "{damage:?}");
            // Once repaired, it is what it was: its lease has run out, and the other one is still leased.
            redis.command::<Value>(&[b"HSET", records.as_bytes(), &field, &record]);
            assert_eq!(one(store.settle(settle(&whole.receipt, Action::Ack))).await, Ok(Settled::Gone));
            assert_eq!(one(store.settle(settle(&damaged.receipt, Action::Ack))).await, Err(Error::LeaseLost));
            let again = store.take(Take::from(queue())).await.unwrap().pop().unwrap();
            assert_eq!((again.message.id, &again.message.body[..]), (id, &b"damaged"[..]));
        }
    }
}

/// A record that is a table of fields, as ours are, one of which has a type or a value that we never write.
#[tokio::test]
async fn a_record_with_a_field_of_another_type_is_refused_and_nothing_is_changed() {
    let mut redis = Redis::start();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_ms(START_MS).unwrap()));
    let store = open(redis.server.address(), &clock).await.unwrap();
    let headers = Headers::new([("content-type", "text/plain")]).unwrap();
    let damaged = || Put { headers: headers.clone(), ..message("damaged").priority(7).key(key("k")) };
    let id = one(store.put(vec![damaged()])).await.unwrap().id;
    one(store.put(vec![message("whole").priority(9)])).await.unwrap();
    let records = redis.partition() + "S";
    let field = id.as_bits().to_be_bytes()[8..].to_vec();
    let counts = ["'x'", "{}", "-1", "1.5", "true", "0/0"];
    let instants = ["'x'", "{}", "-1", "253402300800000"];
    let mut wrong: Vec<(&str, &str)> = Vec::new();
    for name in ["a", "t", "l", "r", "b", "v", "M", "L", "E"] {
        wrong.extend(counts.iter().map(|value| (name, *value)));
    }
    for name in ["d", "c", "x", "y"] {
        wrong.extend(instants.iter().map(|value| (name, *value)));
    }
    wrong.extend([("p", "4294967296"), ("p", "'x'"), ("s", "1"), ("s", "'x'"), ("d", "nil"), ("c", "nil")]);
    wrong.extend([
        ("k", "7"),
        ("k", "{}"),
        ("k", "''"),
        ("k", "string.rep('k', 513)"),
        ("e", "7"),
        ("e", "{}"),
    ]);
    wrong.extend([("h", "'x'"), ("h", "7"), ("K", "'x'"), ("i", "string.sub(r.i, 1, 15)"), ("i", "7")]);
    wrong.extend([("i", "string.rep('x', 8) .. string.sub(r.i, 9)")]);
    // Leased or dead, and without the fields that this needs.
    wrong.extend([("s", "2"), ("s", "3")]);
    let write = "local r = cmsgpack.unpack(redis.call('HGET', KEYS[1], ARGV[1])) \
                 r[ARGV[2]] = loadstring('local r = ... return ' .. ARGV[3])(r) \
                 redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack(r))";
    let whole = redis.all();
    for (name, value) in wrong {
        let what = format!("{name} is {value}");
        redis.restore(&whole);
        let words = [
            &b"EVAL"[..],
            write.as_bytes(),
            b"1",
            records.as_bytes(),
            &field,
            name.as_bytes(),
            value.as_bytes(),
        ];
        redis.command::<Value>(&words);
        let before = redis.held();
        let target = || Target::Key(key("k"));
        for refused in [
            store.take(Take::from(queue())).await.map(drop),
            store.take(Take::from(queue()).max(10)).await.map(drop),
            store.take_id(queue(), id, LeaseTerms::default()).await.map(drop),
            one(store.get(queue(), vec![Target::Id(id)], false)).await.map(drop),
            one(store.cancel(queue(), vec![target()])).await.map(drop),
            one(store.reschedule(queue(), vec![(target(), When::Now)])).await.map(drop),
            one(store.put(vec![damaged()])).await.map(drop),
        ] {
            assert_foreign(&refused.expect_err(&what), &records, &what);
        }
        let after = redis.held();
        // A take finds what is due, and puts it into order before any of it is read.
        let changed: Vec<_> =
            changed(&before, &after).into_iter().filter(|key| !key.ends_with(['u', 'r', 'd'])).collect();
        assert_eq!(changed, [""; 0], "{what}");
    }
    redis.restore(&whole);
    let taken = store.take(Take::from(queue()).max(10)).await.unwrap();
    assert_eq!((taken.len(), taken[0].message.id, &taken[0].message.headers), (2, id, &headers));
}

/// Damage that no script sees, such as invalid UTF-8: the message is not handed out, and the others of its batch are.
#[tokio::test]
async fn a_message_that_cannot_be_read_dies_of_it_and_keeps_nobody_from_the_others() {
    let mut redis = Redis::start();
    let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let store = open(redis.server.address(), &shared).await.unwrap();
    let headers = Headers::new([("a", "b")]).unwrap();
    let max_attempts = Some(AttemptLimit::At(3.try_into().unwrap()));
    let damaged = Put { headers, max_attempts, ..message("damaged") };
    let id = one(store.put(vec![damaged])).await.unwrap().id;
    let field = id.as_bits().to_be_bytes()[8..].to_vec();
    let headers = redis.partition() + "H";
    redis.command::<Value>(&[b"HSET", headers.as_bytes(), &field, b"\0\x01a\0\x01\xff"]);
    one(store.put(vec![message("whole")])).await.unwrap();
    let taken = store.take(Take::from(queue()).max(10).lease_ms(60_000)).await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(&taken[0].message.body[..], b"whole");
    let ack = Settle { receipt: taken[0].receipt.clone(), action: Action::Ack };
    assert_eq!(store.settle(vec![ack]).await, [Ok(Settled::Gone)]);
    for _ in 0..2 {
        clock.advance(60_000);
        let refused = store.take(Take::from(queue()).lease_ms(60_000)).await.unwrap_err();
        assert_foreign(&refused, "orders", "a take");
    }
    clock.advance(60_000);
    assert!(store.take(Take::from(queue())).await.unwrap().is_empty());
    let counts = store.stats(queue()).await.unwrap().counts;
    assert_eq!((counts.ready, counts.leased, counts.dead), (0, 0, 1));
}

/// One of five messages has an overwritten record, or headers that are not text: a list names it and shows the
/// others.
#[tokio::test]
async fn a_message_that_cannot_be_read_is_named_in_lists_and_the_others_are_shown() {
    let mut redis = Redis::start();
    let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let store = open(redis.server.address(), &shared).await.unwrap();
    for state in [StateKind::Scheduled, StateKind::Ready, StateKind::Leased, StateKind::Dead] {
        redis.command::<Value>(&[b"FLUSHALL"]);
        let after_ms = if state == StateKind::Scheduled { MINUTE_MS } else { 0 };
        let mut ids = Vec::new();
        for n in 0..5 {
            let headers = Headers::new([("a", "b")]).unwrap();
            let put = Put { headers, ..message("m").priority(7).after_ms(after_ms + n) };
            ids.push(one(store.put(vec![put])).await.unwrap().id);
        }
        clock.advance(10);
        if matches!(state, StateKind::Leased | StateKind::Dead) {
            for id in &ids {
                let receipt =
                    store.take_id(queue(), *id, LeaseTerms::of_ms(8 * MINUTE_MS)).await.unwrap().receipt;
                if state == StateKind::Dead {
                    let action = Action::Bury { reason: None, priority: None };
                    assert!(one(store.settle(vec![Settle { receipt, action }])).await.is_ok());
                }
            }
        }
        let whole = redis.all();
        let field = ids[2].as_bits().to_be_bytes()[8..].to_vec();
        let partition = redis.partition();
        for (name, value) in [("S", &b"mine"[..]), ("H", b"\0\x01a\0\x01\xff")] {
            redis.restore(&whole);
            redis.command::<Value>(&[b"HSET", (partition.clone() + name).as_bytes(), &field, value]);
            for max in [1, 2, 100] {
                let what = format!("{state:?}, {name}, pages of {max}");
                let (mut shown, mut unread, mut after) = (Vec::new(), Vec::new(), None);
                for _ in 0..=ids.len() {
                    let page = within(store.list(queue(), state, after, max)).await;
                    let page = page.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert!(page.messages.len() + page.unread.len() <= max, "{what}");
                    shown.extend(page.messages.iter().map(|message| message.id));
                    unread.extend(page.unread);
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
                assert_eq!(after, None, "{what}");
                assert_eq!(shown, [ids[0], ids[1], ids[3], ids[4]], "{what}");
                assert_eq!(unread.len(), 1, "{what}");
                assert_eq!(unread[0].0, ids[2], "{what}");
                assert_foreign(&unread[0].1, "", &what);
            }
        }
    }
}

/// The same where the others lie in another queue.
#[tokio::test]
async fn a_message_that_cannot_be_read_costs_no_other_queue_an_attempt() {
    let mut redis = Redis::start();
    let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let store = open(redis.server.address(), &shared).await.unwrap();
    let headers = Headers::new([("a", "b")]).unwrap();
    let id = one(store.put(vec![Put { headers, ..message("damaged") }])).await.unwrap().id;
    let field = id.as_bits().to_be_bytes()[8..].to_vec();
    let headers = redis.partition() + "H";
    redis.command::<Value>(&[b"HSET", headers.as_bytes(), &field, b"\0\x01a\0\x01\xff"]);
    let good = QueueName::new("good").unwrap();
    one(store.put(vec![Put::new(good.clone(), "whole")])).await.unwrap();
    let taken = store.take(Take::from_all([queue(), good.clone()]).max(10)).await.unwrap();
    let bodies: Vec<_> =
        taken.iter().map(|one| (&one.message.body[..], one.message.standing.attempt())).collect();
    assert_eq!(bodies, [(&b"whole"[..], 1)]);
    let ack = Settle { receipt: taken[0].receipt.clone(), action: Action::Ack };
    assert_eq!(store.settle(vec![ack]).await, [Ok(Settled::Gone)]);
}

/// One queue that is out of order, and others.
#[tokio::test]
async fn what_is_wrong_with_a_queue_is_nobody_elses_trouble() {
    let mut redis = Redis::start();
    let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let address = redis.server.address::<dwell_redis::Address>().with_client("somebody");
    let store = open(address.clone(), &shared).await.unwrap();
    one(store.put(vec![message("bad"), message("bad too")])).await.unwrap();
    let leases = redis.partition() + "l";
    let good = QueueName::new("good").unwrap();
    let put = async |body: &'static str| one(store.put(vec![Put::new(good.clone(), body)])).await.unwrap().id;
    let held = Take::from_all([queue(), good.clone()]).max(3).bound();
    put("bound").await;
    assert_eq!(store.take(held.clone()).await.unwrap().len(), 3);
    for name in [queue(), good.clone()] {
        one(store.put(vec![Put::new(name, "later").after_ms(10 * MINUTE_MS)])).await.unwrap();
    }
    redis.spoil(&leases, false);
    let id = put("good").await;
    // A process opens: it frees what the earlier one of its name had bound, where it can.
    let other = open(address.clone(), &shared).await.unwrap();
    assert_foreign(&other.take(Take::from(queue())).await.unwrap_err(), &leases, "the queue itself");
    let taken = other.take(Take::from(good.clone()).max(10)).await.unwrap();
    assert_eq!(taken.len(), 2, "one that was bound, and one that was there");
    let give_back = |delivery: dwell_store::Delivery| {
        let action = Action::Release { after_ms: None, priority: None };
        Settle { receipt: delivery.receipt, action }
    };
    other.settle(taken.into_iter().map(give_back).collect()).await;
    let both = Take::from_all([queue(), good.clone()]).max(10);
    assert_eq!(other.take(both.clone()).await.unwrap().len(), 2, "of several queues the others");
    assert_foreign(&other.take(both).await.unwrap_err(), &leases, "there is nothing else");
    let listed = other.queues(None, 10).await.unwrap();
    let names: Vec<_> = listed.iter().map(|stats| (stats.name.as_str(), stats.counts.leased)).collect();
    assert_eq!(names, [("good", 2), ("orders", 0)]);
    assert_eq!(listed[0].unread, None);
    assert_foreign(listed[1].unread.as_ref().unwrap(), &leases, "the queue itself, in a list");
    let due = other.forecast(None, vec![Timestamp::MAX]).await.unwrap();
    assert_eq!((due.scheduled, due.due_by), (1, vec![1]), "of all queues it is left out");
    let refused = other.forecast(Some(vec![good.clone(), queue()]), vec![Timestamp::MAX]).await.unwrap_err();
    assert_foreign(&refused, &leases, "the queue itself, of several");
    let found = one(other.get(good.clone(), vec![Target::Id(id)], false)).await.unwrap();
    assert_eq!(found.standing.state.kind(), StateKind::Leased);
    // Background work goes on for the other queues: a process that was silent for long is dead.
    drop((store, other));
    let third = open(redis.server.address(), &shared).await.unwrap();
    third.put(vec![Put::new(good.clone(), "bound").priority(3)]).await.pop().unwrap().unwrap();
    let bound = third.take(Take::from(good.clone()).max(1).lease_ms(8 * MINUTE_MS).bound()).await.unwrap();
    assert_eq!(bound.len(), 1);
    drop(third);
    clock.advance(20_000);
    let fourth = open(redis.server.address(), &shared).await.unwrap();
    // No process sent a heartbeat meanwhile: its silence is counted from now on.
    let mut freed = None;
    for _ in 0..4 {
        clock.advance(5_000);
        within(fourth.beat_for_test()).await.unwrap();
        freed = freed.or(fourth.take(Take::from(good.clone()).max(10)).await.unwrap().pop());
    }
    assert_eq!(freed.unwrap().message.standing.attempt(), 2);
}

/// Numbers are used in blocks, each by many queues.
#[tokio::test]
async fn a_queue_that_is_out_of_order_keeps_no_other_from_being_found_by_number() {
    let mut redis = Redis::start();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_ms(START_MS).unwrap()));
    let store = open(redis.server.address(), &clock).await.unwrap();
    let bad = one(store.put(vec![message("bad")])).await.unwrap();
    let leases = redis.partition() + "l";
    let good = QueueName::new("good").unwrap();
    let mut put = Vec::new();
    for _ in 0..20 {
        put.push(one(store.put(vec![Put::new(good.clone(), "m")])).await.unwrap());
    }
    redis.spoil(&leases, false);
    let elsewhere = Number::new(100_000).unwrap();
    let mut numbers: Vec<Number> = put.iter().map(|put| put.number).collect();
    numbers.extend([bad.number, elsewhere]);
    let mut located = store.locate(numbers).await;
    assert_eq!(located.pop().unwrap(), Ok(None), "nobody has numbers of that block");
    assert_foreign(&located.pop().unwrap().unwrap_err(), &leases, "the message of the queue itself");
    let places: Vec<_> = put.iter().map(|put| Ok(Some((good.clone(), put.id)))).collect();
    assert_eq!(located, places);
    assert_eq!(one(store.locate(vec![put[0].number])).await, places[0].clone(), "alone");
    // If it is not among those that can be read, it may still exist.
    one(store.cancel(good, vec![Target::Id(put[0].id)])).await.unwrap();
    assert_foreign(&one(store.locate(vec![put[0].number])).await.unwrap_err(), &leases, "one that is gone");
}

/// The names in an error do not decide its kind.
#[tokio::test]
async fn a_prefix_that_reads_like_an_error_is_no_error() {
    for prefix in ["ROOM", "LOADING", "READONLY"] {
        let mut redis = Redis::start();
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_ms(START_MS).unwrap()));
        let address = redis.server.address::<dwell_redis::Address>().with_prefix(prefix);
        let store = open(address, &clock).await.unwrap();
        one(store.put(vec![message("m")])).await.unwrap();
        let keys: Vec<String> = redis.command(&[b"KEYS", format!("{prefix}:{{*}}:m").as_bytes()]);
        let leases = keys[0].strip_suffix('m').unwrap().to_owned() + "l";
        // A script that finds it reports it with the key's name.
        let keys = leases.strip_suffix('l').unwrap().to_owned() + "k";
        redis.spoil(&keys, false);
        let put = one(store.put(vec![message("m").priority(3)])).await;
        assert_foreign(&put.unwrap_err(), &keys, "a put");
        redis.command::<Value>(&[b"DEL", keys.as_bytes()]);
        // The server reports it, without the name.
        redis.spoil(&leases, false);
        let put = one(store.put(vec![message("m").priority(3)])).await;
        assert_foreign(&put.unwrap_err(), &leases, "a put");
        assert_foreign(&within(store.take(Take::from(queue()))).await.unwrap_err(), &leases, "a take");
        assert_foreign(&store.stats(queue()).await.unwrap_err(), &leases, "stats");
    }
}

/// All queues are counted, whatever the size of a page of a list.
#[tokio::test]
async fn leases_are_counted_in_all_queues() {
    let redis = Redis::start();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_ms(START_MS).unwrap()));
    let limits = Limits { batch: 4, leased: 10, ..Limits::default() };
    let open = async || {
        RedisStore::open_for_test(redis.server.address(), limits.clone(), Arc::clone(&clock)).await.unwrap()
    };
    let store = open().await;
    for n in 0..11 {
        let name = QueueName::new(&format!("q{n}")).unwrap();
        one(store.put(vec![Put::new(name.clone(), "m")])).await.unwrap();
        let taken = open().await.take(Take::from(name)).await;
        assert_eq!(taken.as_ref().map_or(0, Vec::len), usize::from(n < 10), "{n}: {taken:?}");
        assert!(n < 10 || matches!(taken, Err(Error::TooManyLeased { limit: 10 })), "{taken:?}");
    }
}

/// An ack of a message as put reads the lease alone; and in a batch, a damaged one fails alone.
#[tokio::test]
async fn a_leased_record_that_was_damaged_fails_alone_in_a_batch() {
    let mut redis = Redis::start();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_ms(START_MS).unwrap()));
    let store = open(redis.server.address(), &clock).await.unwrap();
    for long in [false, true, false, true] {
        let put = if long { message("m").priority(7) } else { message("m") };
        one(store.put(vec![put])).await.unwrap();
    }
    let taken = store.take(Take::from(queue()).max(4)).await.unwrap();
    let (long, fresh): (Vec<_>, Vec<_>) =
        taken.into_iter().partition(|delivery| delivery.message.standing.priority == 7);
    let records = redis.partition() + "S";
    for delivery in [&long[0], &fresh[0]] {
        let field = delivery.message.id.as_bits().to_be_bytes()[8..].to_vec();
        redis.command::<Value>(&[b"HSET", records.as_bytes(), &field, b"mine"]);
    }
    let extend =
        |receipt: &Receipt| Settle { receipt: receipt.clone(), action: Action::Extend { lease_ms: None } };
    let ack = |receipt: &Receipt| Settle { receipt: receipt.clone(), action: Action::Ack };
    let all = [&long[0], &long[1], &fresh[0], &fresh[1]].map(|delivery| &delivery.receipt);
    let extended = store.settle(all.map(extend).to_vec()).await;
    assert!(extended[1].is_ok() && extended[3].is_ok(), "{extended:?}");
    for refused in [&extended[0], &extended[2]] {
        assert_foreign(refused.as_ref().unwrap_err(), &records, "an extension");
    }
    let acked = store.settle(all.map(ack).to_vec()).await;
    assert_foreign(acked[0].as_ref().unwrap_err(), &records, "an ack");
    assert_eq!((&acked[1], &acked[3]), (&Ok(Settled::Gone), &Ok(Settled::Gone)));
    // Together with leases in the long form its record is read, and found to be damaged; alone it is acked.
    assert_foreign(acked[2].as_ref().unwrap_err(), &records, "an ack beside others");
    assert_eq!(store.settle(vec![ack(all[2])]).await, [Ok(Settled::Gone)]);
}

/// The directory: names, numbers, processes. What is reserved before it is used may stay reserved.
#[tokio::test]
async fn a_key_of_another_type_in_the_directory_refuses_what_needs_it_and_no_message_is_touched() {
    let mut redis = Redis::start();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_ms(START_MS).unwrap()));
    let address = redis.server.address::<dwell_redis::Address>().with_client("somebody");
    let store = open(address.clone(), &clock).await.unwrap();
    one(store.put(vec![message("m")])).await.unwrap();
    let held = store.take(Take::from(queue()).bound()).await.unwrap().pop().unwrap();
    let whole = redis.all();
    let mut directory: Vec<String> = redis.command(&[b"KEYS", b"{dwell}:[^p]*"]);
    directory.sort();
    let all = ["{dwell}:B", "{dwell}:b:0", "{dwell}:c", "{dwell}:h", "{dwell}:m", "{dwell}:q", "{dwell}:r"];
    assert_eq!(directory, all);
    let other = QueueName::new("others").unwrap();
    for key in directory {
        for looks_alike in [false, true] {
            if looks_alike && key.contains(":b:") {
                continue;
            }
            redis.restore(&whole);
            redis.spoil(&key, looks_alike);
            let before = redis.held();
            let name = key.rsplit(':').next().unwrap();
            let mut refusals = 0;
            // A batch that needs numbers; a name; names; a number; a process that opens.
            let many = (0..600).map(|_| Put::new(other.clone(), "new")).collect();
            let put = store.put(many).await.into_iter().find_map(Result::err);
            let listed = store.queues(None, 10).await.err();
            let located = one(store.locate(vec![held.message.number])).await.err();
            let opened = match open(address.clone(), &clock).await {
                Ok(_) => None,
                Err(OpenError::Foreign { found }) => Some(Error::ForeignData { reason: found.into() }),
                Err(refused) => panic!("{refused}"),
            };
            let is_open = opened.is_none();
            for refused in [put, listed, located, opened].into_iter().flatten() {
                assert_foreign(&refused, &key, name);
                refusals += 1;
            }
            assert!(refusals > 0, "nobody needs {key}");
            let after = redis.held();
            let touched = before.iter().filter(|(key, value)| after.get(*key) != Some(value)).count();
            // A process that opens under the name of another one ends the leases that this one had bound.
            assert!(touched == 0 || is_open, "{touched} keys of messages changed while {key} is another's");
            assert_eq!(redis.all()[key.as_bytes()], {
                redis.restore(&whole);
                redis.spoil(&key, looks_alike);
                redis.all()[key.as_bytes()].clone()
            });
        }
    }
    redis.restore(&whole);
    assert_eq!(
        one(store.settle(vec![Settle { receipt: held.receipt, action: Action::Ack }])).await,
        Ok(Settled::Gone)
    );
}
