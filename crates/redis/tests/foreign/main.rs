//! Foreign keys and values where ours lie, under a store that is open and in use: a typed error, nothing is changed,
//! and once they are removed everything is there.
//!
//! Each key of the layout is replaced by one of another type, and each operation is called on that: either it does
//! not use the key, or it is refused before it has written anything. `docs/redis.md` names the keys.
//!
//! - `keys`: each key, field and member of the layout
//! - `records`: records of messages that are damaged
//! - `queues`: queues and a directory that are out of order

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

mod keys;
mod queues;
mod records;

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
const SORTED_SETS: [&str; 13] = [
    "due",
    "due-index-until",
    "pending",
    "pending-urgent",
    "pending-later",
    "ready",
    "ready-by-due",
    "expiries",
    "leases",
    "session-leases",
    "dead",
    "dead-by-due",
    "idempotency-until",
];
const HASHES: [&str; 10] = [
    "meta",
    "due-index",
    "records",
    "bodies",
    "headers",
    "keys",
    "idempotency",
    "calls",
    "waiters",
    "purged",
];

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
        let keys: Vec<String> = self.command(&[b"KEYS", b"dwell:{*}:meta"]);
        assert_eq!(keys.len(), 1);
        keys[0].strip_suffix("meta").unwrap().to_owned()
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
    /// Leased messages: as put; in the long form; of a session.
    held: Receipt,
    held_long: Receipt,
    session: Option<Receipt>,
}

async fn open(address: dwell_redis::Address, clock: &Arc<dyn Clock>) -> Result<RedisStore, OpenError> {
    let store = RedisStore::open_for_test(address, Limits::default(), Arc::clone(clock)).await?;
    // A difference between before and after a call must come from the call alone.
    store.beat_no_more_for_test();
    Ok(store)
}

impl Stage {
    async fn set(redis: &Redis, clock: &Arc<dyn Clock>, with_session: bool) -> Stage {
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
        let session = match with_session {
            true => {
                put(message("bound")).await;
                Some(take(Take::from(queue()).session()).await.receipt)
            }
            false => None,
        };
        // A message that a take finds due is put into order: then `ready` and `ready-by-due` have it.
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
        put(Put {
            headers,
            ..message("with headers").idempotency_key(IdempotencyKey::new("token").unwrap())
        })
        .await;
        let scheduled = put(message("scheduled").key(key("scheduled")).after_ms(5 * MINUTE_MS)).await.id;
        let expires = Timestamp::from_ms(START_MS + 2 * MINUTE_MS as i64).ok();
        put(Put { expires, ..message("expires").after_ms(1_000) }).await;
        // A take that waits leaves its mark in `waiters`.
        let mut waiting = redis::Client::open(redis.server.url()).unwrap().get_connection().unwrap();
        let partition: Vec<String> = redis::cmd("KEYS").arg("dwell:{*}:meta").query(&mut waiting).unwrap();
        let waits = partition[0].strip_suffix("meta").unwrap().to_owned() + "waiters";
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
            session,
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
        let idempotency_key = IdempotencyKey::new("new").unwrap();
        at.put(Put { headers, expires, ..message("new").priority(5).key(key("new")).idempotency_key(idempotency_key) }).await
    },
    "put again" => |at| at.put(message("with headers").idempotency_key(IdempotencyKey::new("token").unwrap())).await,
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
    "take session" => |at| at.store.take(Take::from(queue()).max(128).session()).await.map(drop),
    "take with a holder" => |at| {
        let take = Take::from(queue()).max(128).holder(Holder::new("worker 7").unwrap());
        at.store.take(take).await.map(drop)
    },
    "take of several queues" => |at| {
        let queues = [queue(), QueueName::new("others").unwrap()];
        at.store.take(Take::from_all(queues).max(128)).await.map(drop)
    },
    "take the scheduled" => |at| {
        let terms = LeaseTerms { session: true, ..LeaseTerms::default() };
        at.store.take_id(queue(), at.scheduled, terms).await.map(drop)
    },
    "take the fresh" => |at| at.store.take_id(queue(), at.fresh, LeaseTerms::default()).await.map(drop),
    "take the dead" => |at| at.store.take_id(queue(), at.dead[0], LeaseTerms::default()).await.map(drop),
    "ack" => |at| at.settle(&at.held, Action::Ack).await,
    "ack of the long form" => |at| at.settle(&at.held_long, Action::Ack).await,
    "ack of the session lease" => |at| at.settle(at.session.as_ref().unwrap_or(&at.held), Action::Ack).await,
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
