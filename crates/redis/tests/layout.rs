//! The data in Redis: a store that an earlier version has written opens, and foreign data is refused and left as it
//! is.
//!
//! `fixtures/layout-N.redis` has the commands that make a store of layout N, one per line, words percent-encoded;
//! `fixtures/layout-N.txt` lists its contents. A change of the layout gets new fixtures beside the earlier ones, once
//! there is a release: `DWELL_WRITE_FIXTURE=1 cargo test -p dwell-redis --test layout` writes those of the current layout.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dwell_model::{
    Backoff, Headers, Holder, IdempotencyKey, Key, LapseBackoff, Limits, Message, OnExpiry, QueueName,
    Setting, SettingChange, State, StateKind, Timestamp,
};
use dwell_redis::{OpenError, RedisStore};
use dwell_store::{Action, Error, Put, Selection, Settle, Settled, Store, Take, Target, When};
use dwell_testkit::redis::Server;
use dwell_time::{Clock, ManualClock};
use redis::Value;

/// When the fixture was made, by its own clock.
const MADE_MS: i64 = 1_795_000_000_000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn name(text: &str) -> QueueName {
    QueueName::new(text).unwrap()
}

async fn open_at(server: &Server, ms: i64) -> RedisStore {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_ms(ms).unwrap()));
    RedisStore::open_for_test(server.address(), Limits::default(), clock).await.unwrap()
}

async fn put(store: &RedisStore, put: Put) -> Result<dwell_store::PutAnswer, Error> {
    store.put(vec![put]).await.pop().unwrap()
}

/// Writes something of each kind; returns what cannot be read back: receipts and answers to idempotency keys.
async fn fill(store: &RedisStore) -> String {
    let mut said = String::new();
    let orders = name("orders");
    let settings = [Setting::LeaseMs(60_000), Setting::Levels(vec![1_000, 5_000])];
    store.configure(orders.clone(), settings.map(SettingChange::Set).to_vec()).await.unwrap();
    store.configure(name("wide"), vec![SettingChange::Set(Setting::Partitions(3))]).await.unwrap();
    let of = |queue: &QueueName, body: &str| Put::new(queue.clone(), body.to_owned());
    let mut puts = vec![
        of(&orders, "ready"),
        of(&orders, "urgent").priority(7),
        of(&orders, "idle").priority(4_000).after_ms(100),
        of(&orders, "later").after_ms(3_600_000),
        Put { when: When::Level(2), ..of(&orders, "by level") },
        Put { expires: Timestamp::from_ms(MADE_MS + 7_200_000).ok(), ..of(&orders, "expires") },
        Put { lease_ms: Some(5_000), ..of(&orders, "has a lease of its own") },
        Put {
            headers: Headers::new([("content-type", "text/plain"), ("x", "y")]).unwrap(),
            ..of(&orders, "has headers")
        },
        of(&orders, "has a key").key(Key::new("customer 7").unwrap()).after_ms(60_000),
        of(&orders, "has an idempotency key").idempotency_key(IdempotencyKey::new("token-1").unwrap()),
    ];
    puts.extend((0..9).map(|n| of(&name("wide"), &n.to_string()).after_ms(n * 10)));
    for answer in store.put(puts).await {
        writeln!(said, "put {}", answer.unwrap().id).unwrap();
    }
    for (queue, body, action) in [
        ("held", "held", None),
        ("dead", "buried", Some(Action::Bury { reason: Some("why not".into()), priority: None })),
        (
            "retried",
            "retried",
            Some(Action::Retry { after_ms: Some(500), error: Some("once".into()), priority: None }),
        ),
    ] {
        put(store, of(&name(queue), body)).await.unwrap();
        let taken = store.take(Take::from(name(queue)).lease_ms(600_000)).await.unwrap().pop().unwrap();
        match action {
            None => writeln!(said, "receipt {}", taken.receipt).unwrap(),
            Some(action) => {
                store.settle(vec![Settle { receipt: taken.receipt, action }]).await.pop().unwrap().unwrap();
            }
        }
    }
    // New since earlier layouts: a holder, a key of a dead message, settings.
    let kept = name("kept");
    let settings = [
        Setting::DeadTtlMs(86_400_000),
        Setting::DeadMax(1_000),
        Setting::OnExpiry(OnExpiry::Drop),
        Setting::MaxLeased(10),
        Setting::LapseBackoff(LapseBackoff::Second),
        Setting::Backoff(Backoff { base_ms: 7_000, factor_percent: 200, cap_ms: 60_000, jitter_percent: 0 }),
    ];
    store.configure(kept.clone(), settings.map(SettingChange::Set).to_vec()).await.unwrap();
    put(store, of(&kept, "named").key(Key::new("customer 8").unwrap())).await.unwrap();
    let taken = store.take(Take::from(kept.clone())).await.unwrap().pop().unwrap();
    let action = Action::Bury { reason: None, priority: None };
    store.settle(vec![Settle { receipt: taken.receipt, action }]).await.pop().unwrap().unwrap();
    put(store, of(&kept, "held by somebody")).await.unwrap();
    let take = Take::from(kept).lease_ms(600_000).holder(Holder::new("worker 7").unwrap());
    store.take(take).await.unwrap().pop().unwrap();
    said
}

/// All that can be read of a store.
async fn described(store: &RedisStore) -> String {
    let mut text = String::new();
    for stats in store.queues(None, 100).await.unwrap() {
        let counts = stats.counts;
        let own: Vec<String> = stats.own.iter().map(|setting| format!("{setting:?}")).collect();
        writeln!(
            text,
            "queue {}: {} scheduled, {} ready ({} urgent), {} leased, {} dead; {}",
            stats.name,
            counts.scheduled,
            counts.ready,
            counts.ready_urgent,
            counts.leased,
            counts.dead,
            own.join(" ")
        )
        .unwrap();
        for state in [StateKind::Scheduled, StateKind::Ready, StateKind::Leased, StateKind::Dead] {
            for message in store.list(stats.name.clone(), state, None, 100).await.unwrap().messages {
                describe(&message, &mut text);
                let located = store.locate(vec![message.number]).await;
                assert_eq!(located, [Ok(Some((stats.name.clone(), message.id)))]);
            }
        }
    }
    text
}

fn describe(message: &Message, text: &mut String) {
    let standing = &message.standing;
    let state = match &standing.state {
        State::Leased(lease) => format!("leased until {}", lease.deadline),
        other => format!("{:?}", other.kind()).to_lowercase(),
    };
    write!(text, "  {} number {} {state}", message.id, message.number).unwrap();
    write!(text, " due {} priority {}", standing.due, standing.priority).unwrap();
    write!(text, " attempts {} created {}", standing.attempts, message.created).unwrap();
    let mut maybe = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            write!(text, " {name} {value}").unwrap();
        }
    };
    maybe("key", message.key.as_ref().map(ToString::to_string));
    maybe("lease", message.lease_ms.map(|ms| ms.to_string()));
    maybe("expires", standing.expires.map(|at| at.to_string()));
    maybe("holder", standing.holder.as_ref().map(ToString::to_string));
    maybe("error", standing.last_error.as_ref().map(ToString::to_string));
    let headers: Vec<String> =
        message.headers.iter().map(|(name, value)| format!("{name}={value}")).collect();
    maybe("headers", Some(headers.join(",")).filter(|text| !text.is_empty()));
    writeln!(text, ": {}", String::from_utf8_lossy(&message.body)).unwrap();
}

/// The commands that recreate a server's data.
fn dumped(server: &Server) -> String {
    let words = |reply: Value| -> Vec<Vec<u8>> { redis::from_redis_value(reply).unwrap() };
    let mut keys = words(server.command(&["KEYS", "*"]));
    keys.sort();
    let mut text = String::new();
    for key in keys {
        let key = String::from_utf8(key).unwrap();
        let kind = redis::from_redis_value::<String>(server.command(&["TYPE", &key])).unwrap();
        let (add, mut rest) = match kind.as_str() {
            "hash" => ("HSET", words(server.command(&["HGETALL", &key]))),
            "zset" => ("ZADD", words(server.command(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]))),
            "set" => ("SADD", words(server.command(&["SMEMBERS", &key]))),
            "string" => ("SET", vec![redis::from_redis_value(server.command(&["GET", &key])).unwrap()]),
            other => panic!("{key} is a {other}, and no key of the layout is"),
        };
        match add {
            // Score before member.
            "ZADD" => rest.chunks_mut(2).for_each(|pair| pair.swap(0, 1)),
            "SADD" => rest.sort(),
            "HSET" => {
                let pairs: BTreeMap<_, _> =
                    rest.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
                rest = pairs.into_iter().flat_map(|(field, value)| [field, value]).collect();
            }
            _ => {}
        }
        let line: Vec<String> = [add.as_bytes(), key.as_bytes()]
            .into_iter()
            .chain(rest.iter().map(Vec::as_slice))
            .map(|word| {
                percent_encoding::percent_encode(word, percent_encoding::NON_ALPHANUMERIC).to_string()
            })
            .collect();
        writeln!(text, "{}", line.join(" ")).unwrap();
    }
    text
}

/// The lengths of all names and values under keys of each kind, which is the word at their end, in the partitions
/// that `of` chooses by their hash tags.
fn lengths(dump: &str, of: impl Fn(&str) -> bool) -> BTreeMap<String, Vec<Vec<usize>>> {
    let mut kinds: BTreeMap<String, Vec<Vec<usize>>> = BTreeMap::new();
    for line in dump.lines() {
        let words: Vec<Vec<u8>> =
            line.split(' ').map(|word| percent_encoding::percent_decode_str(word).collect()).collect();
        let key = String::from_utf8(words[1].clone()).unwrap();
        let (tag, kind) = key.split_once("}:").unwrap();
        if of(tag) {
            let pairs = words[2..].chunks(2).map(|pair| pair.iter().map(Vec::len).collect());
            kinds.entry(kind.to_owned()).or_default().extend(pairs);
        }
    }
    kinds.values_mut().for_each(|lengths| lengths.sort());
    kinds
}

/// Sends the commands of these lines to a server.
fn replay(server: &Server, lines: &str) {
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    for line in lines.lines() {
        let mut command = redis::Cmd::new();
        for word in line.split(' ') {
            command.arg(percent_encoding::percent_decode_str(word).collect::<Vec<u8>>());
        }
        command.query::<Value>(&mut connection).unwrap();
    }
}

/// The current layout.
const LAYOUT: &str = "1";

/// Removes what only the process that wrote it asks for: answers to its calls, and its takes that wait.
fn forget_processes(server: &Server) {
    for name in ["calls", "waiters"] {
        let pattern = format!("dwell:{{*}}:{name}");
        for key in redis::from_redis_value::<Vec<String>>(server.command(&["KEYS", &pattern])).unwrap() {
            server.command(&["DEL", &key]);
        }
    }
}

/// Nothing that is stored has grown since the fixture was written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_stored_has_not_one_byte_more_than_in_the_fixture() {
    let before = std::fs::read_to_string(folder().join(format!("layout-{LAYOUT}.redis"))).unwrap();
    let server = Server::start();
    let store = open_at(&server, MADE_MS).await;
    fill(&store).await;
    forget_processes(&server);
    let in_a_partition = |tag: &str| tag != "{dwell";
    let (before, now) = (lengths(&before, in_a_partition), lengths(&dumped(&server), in_a_partition));
    assert!(before.values().flatten().count() > 50);
    for (kind, lengths) in &before {
        assert_eq!(now.get(kind), Some(lengths), "{kind}");
    }
    assert_eq!(before.len(), now.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fixture_of_layout_1_opens_and_is_good_for_everything() {
    let (dump, told) =
        (folder().join(format!("layout-{LAYOUT}.redis")), folder().join(format!("layout-{LAYOUT}.txt")));
    if std::env::var_os("DWELL_WRITE_FIXTURE").is_some() {
        let server = Server::start();
        let store = open_at(&server, MADE_MS).await;
        let said = fill(&store).await;
        let text = described(&store).await + &said;
        forget_processes(&server);
        std::fs::create_dir_all(folder()).unwrap();
        std::fs::write(&dump, dumped(&server)).unwrap();
        std::fs::write(&told, text).unwrap();
    }
    let (dump, told) = (std::fs::read_to_string(dump).unwrap(), std::fs::read_to_string(told).unwrap());
    let server = Server::start();
    replay(&server, &dump);
    let store = open_at(&server, MADE_MS).await;
    let (expected, said) = told.split_at(told.find("put ").unwrap());
    assert_eq!(described(&store).await, expected);

    // An idempotency key's answer, a key, a receipt, a dead message: all are unchanged.
    let words = |start: &str| said.lines().filter_map(|line| line.strip_prefix(start)).collect::<Vec<_>>();
    let ids = words("put ");
    let orders = name("orders");
    let under_idempotency_key = |body: &str| {
        Put::new(orders.clone(), body.to_owned()).idempotency_key(IdempotencyKey::new("token-1").unwrap())
    };
    assert_eq!(
        put(&store, under_idempotency_key("has an idempotency key")).await.unwrap().id.to_string(),
        ids[9]
    );
    let other = put(&store, under_idempotency_key("other")).await;
    assert!(matches!(other, Err(Error::IdempotencyMismatch { id }) if id.to_string() == ids[9]));
    let named = vec![Target::Key(Key::new("customer 8").unwrap())];
    let found = store.get(name("kept"), named, true).await.pop().unwrap().unwrap();
    assert_eq!(&found.body[..], b"named");
    let taken =
        put(&store, Put::new(orders.clone(), "x").key(Key::new("customer 7").unwrap())).await.unwrap_err();
    assert!(matches!(taken, Error::KeyTaken { id } if id.to_string() == ids[8]), "{taken}");
    let receipt = words("receipt ")[0].parse().unwrap();
    assert_eq!(store.settle(vec![Settle { receipt, action: Action::Ack }]).await, [Ok(Settled::Gone)]);
    assert_eq!(store.revive(name("dead"), Selection::All, When::Now).await.unwrap().done, 1);
    drop(store);

    // Later all of it is due and handed out in order, and no number is used again.
    let store = open_at(&server, MADE_MS + 3_600_000).await;
    let new = put(&store, Put::new(orders.clone(), "new")).await.unwrap();
    let mut bodies = Vec::new();
    for queue in ["orders", "wide", "dead", "retried"] {
        for delivery in store.take(Take::from(name(queue)).max(100)).await.unwrap() {
            assert!(delivery.message.id == new.id || delivery.message.number < new.number);
            bodies.push(String::from_utf8(delivery.message.body.to_vec()).unwrap());
            let settle = Settle { receipt: delivery.receipt, action: Action::Ack };
            assert_eq!(store.settle(vec![settle]).await, [Ok(Settled::Gone)]);
        }
    }
    let orders_first =
        ["urgent", "ready", "expires", "has a lease of its own", "has headers", "has an idempotency key"];
    assert_eq!(bodies[..6], orders_first);
    assert_eq!(bodies[6..11], ["by level", "has a key", "later", "new", "idle"]);
    bodies[11..20].sort();
    assert_eq!(bodies[11..20], ["0", "1", "2", "3", "4", "5", "6", "7", "8"]);
    assert_eq!(bodies[20..], ["buried", "retried"]);
}

/// The server's keys and values, to check that nothing has changed.
fn held(server: &Server) -> String {
    dumped(server)
}

#[tokio::test]
async fn a_layout_of_another_version_is_refused_at_open_and_later() {
    for version in ["2", "0", "x"] {
        let server = Server::start();
        let store = open_at(&server, MADE_MS).await;
        put(&store, Put::new(name("orders"), "m")).await.unwrap();
        let keys: Vec<String> = redis::from_redis_value(server.command(&["KEYS", "dwell:{*}:meta"])).unwrap();
        server.command(&["HSET", &keys[0], "v", version]);
        let before = held(&server);
        for refused in [
            put(&store, Put::new(name("orders"), "n")).await.map(drop),
            store.take(Take::from(name("orders"))).await.map(drop),
            store.stats(name("orders")).await.map(drop),
            store.purge(name("orders")).await.map(drop),
        ] {
            let refused = refused.unwrap_err();
            assert_eq!((refused.code(), refused.is_retryable()), ("foreign_data", false), "{refused}");
            assert!(refused.to_string().contains(&format!("layout {version} is not known")), "{refused}");
        }
        assert_eq!(held(&server), before);
        drop(store);
        server.command(&["HSET", "{dwell}:meta", "v", version]);
        let before = held(&server);
        let refused = RedisStore::open(server.address(), Limits::default()).await.err().unwrap();
        assert!(matches!(refused, OpenError::Layout { .. }), "{refused}");
        assert_eq!((refused.code(), held(&server)), ("newer_format", before));
    }
}

#[tokio::test]
async fn foreign_keys_where_the_directory_would_lie_are_refused_at_open() {
    for (key, command) in [
        ("{dwell}:meta", vec!["SET", "{dwell}:meta", "mine"]),
        ("{dwell}:queues", vec!["RPUSH", "{dwell}:queues", "mine"]),
        ("{dwell}:heartbeats", vec!["HSET", "{dwell}:heartbeats", "mine", "mine"]),
        ("{dwell}:clients", vec!["SADD", "{dwell}:clients", "mine"]),
    ] {
        let server = Server::start();
        server.command(&command);
        let refused = RedisStore::open(server.address(), Limits::default()).await.err().unwrap();
        assert!(
            matches!(refused, OpenError::Foreign { .. }) && refused.to_string().contains(key),
            "{refused}"
        );
        assert_eq!(server.command(&["DBSIZE"]), Value::Int(1), "nothing was written");
    }
}

#[tokio::test]
async fn keys_that_only_begin_like_ours_are_left_alone() {
    let server = Server::start();
    for key in ["dwell", "dwell:", "dwell:{x}:pending", "{dwell}:", "{dwell}:x", "dwell:orders"] {
        server.command(&["SET", key, "mine"]);
    }
    let store = open_at(&server, MADE_MS).await;
    put(&store, Put::new(name("orders"), "m")).await.unwrap();
    let taken = store.take(Take::from(name("orders"))).await.unwrap().pop().unwrap();
    store.settle(vec![Settle { receipt: taken.receipt, action: Action::Ack }]).await.pop().unwrap().unwrap();
    store.delete_queue(name("orders")).await.unwrap();
    for key in ["dwell", "dwell:", "dwell:{x}:pending", "{dwell}:", "{dwell}:x", "dwell:orders"] {
        assert_eq!(server.command(&["GET", key]), Value::BulkString(b"mine".to_vec()), "{key}");
    }
}

#[tokio::test]
async fn a_record_that_is_none_is_refused_and_what_is_beside_it_is_served_by_id() {
    let server = Server::start();
    let store = open_at(&server, MADE_MS).await;
    let ids = [put(&store, Put { lease_ms: Some(5_000), ..Put::new(name("orders"), "a") }).await.unwrap().id];
    let keys: Vec<String> = redis::from_redis_value(server.command(&["KEYS", "dwell:{*}:records"])).unwrap();
    let fields: Vec<Vec<u8>> = redis::from_redis_value(server.command(&["HKEYS", &keys[0]])).unwrap();
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut write = redis::cmd("HSET");
    write.arg(&keys[0]).arg(&fields[0]).arg(&b"\xc1nonsense"[..]).query::<Value>(&mut connection).unwrap();
    let before = held(&server);
    let target = Target::Id(ids[0]);
    for refused in [
        store.get(name("orders"), vec![target.clone()], false).await.pop().unwrap().map(drop),
        store.take(Take::from(name("orders"))).await.map(drop),
        store.cancel(name("orders"), vec![target]).await.pop().unwrap().map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!((refused.code(), refused.is_retryable()), ("foreign_data", false), "{refused}");
    }
    assert_eq!(held(&server), before);
    // Another queue is not affected.
    put(&store, Put::new(name("mails"), "b")).await.unwrap();
    assert_eq!(store.take(Take::from(name("mails"))).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_member_that_is_no_message_is_refused_and_nothing_is_changed() {
    for foreign in ["mine", "sixteen letters:", "longer than any id, and as long as a message"] {
        let server = Server::start();
        let store = open_at(&server, MADE_MS).await;
        let id = put(&store, Put::new(name("orders"), "a")).await.unwrap().id;
        let keys: Vec<String> = redis::from_redis_value(server.command(&["KEYS", "dwell:{*}:due"])).unwrap();
        server.command(&["ZADD", &keys[0], "1", foreign]);
        let before = held(&server);
        for refused in [
            store.take(Take::from(name("orders"))).await.map(drop),
            store.list(name("orders"), StateKind::Ready, None, 10).await.map(drop),
        ] {
            let refused = refused.unwrap_err();
            assert_eq!((refused.code(), refused.is_retryable()), ("foreign_data", false), "{refused}");
        }
        assert_eq!(held(&server), before);
        // Our data is there.
        assert_eq!(
            store.get(name("orders"), vec![Target::Id(id)], false).await.pop().unwrap().unwrap().id,
            id
        );
    }
}
