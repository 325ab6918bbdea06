//! Retention of thousands of dead messages: no reader sees those past it, and they are discarded in short scripts.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

use std::sync::Arc;

use dwell_model::{
    AttemptLimit, Key, Limits, MessageId, OnExpiry, QueueName, Setting, SettingChange, StateKind, Timestamp,
};
use dwell_redis::RedisStore;
use dwell_store::{
    Action, BulkOutcome, DiscardCounts, Error, LeaseTerms, Put, QueueDeaths, Selection, Settle, Store, Take,
    Target, When,
};
use dwell_testkit::redis::Server;
use dwell_time::{Clock, ManualClock};
use redis::Value;

const START_MS: i64 = 1_795_000_000_000;
/// More than a few scripts discard along the way.
const MANY: usize = 2_000;

fn queue() -> QueueName {
    QueueName::new("orders").unwrap()
}

async fn open(server: &Server, clock: &ManualClock) -> RedisStore {
    let clock: Arc<dyn Clock> = Arc::new(clock.clone());
    let store = RedisStore::open_for_test(server.address(), Limits::default(), clock).await.unwrap();
    store.beat_no_more_for_test();
    store
}

fn manual() -> ManualClock {
    ManualClock::new(Timestamp::from_ms(START_MS).unwrap())
}

async fn set(store: &RedisStore, settings: &[Setting]) {
    let changes = settings.iter().cloned().map(SettingChange::Set).collect();
    store.configure(queue(), changes).await.unwrap();
}

/// Puts many that expire after a second, each with a key, and lets them; one message that stays keeps the queue.
async fn many_expired(store: &RedisStore, clock: &ManualClock) -> Vec<MessageId> {
    store.put(vec![Put::new(queue(), "stays").after_ms(86_400_000)]).await.pop().unwrap().unwrap();
    let expires = clock.now().wall.after(1_000).ok();
    let mut ids = Vec::new();
    for first in (0..MANY).step_by(500) {
        let put = |n: usize| Put {
            expires,
            ..Put::new(queue(), n.to_string()).key(Key::new(&format!("key {n}")).unwrap())
        };
        let puts = (first..first + 500).map(put).collect();
        ids.extend(store.put(puts).await.into_iter().map(|answer| answer.unwrap().id));
    }
    clock.advance(1_000);
    ids
}

/// The prefix of the keys of the only partition.
fn prefix(server: &Server) -> String {
    let keys: Vec<String> = redis::from_redis_value(server.command(&["KEYS", "dwell:{*}:meta"])).unwrap();
    keys[0].strip_suffix("meta").unwrap().to_owned()
}

/// The number of members or fields of one of the partition's keys.
fn size(server: &Server, name: &str) -> i64 {
    let key = prefix(server) + name;
    let command = if matches!(name, "records" | "bodies" | "headers") { "HLEN" } else { "ZCARD" };
    match server.command(&[command, &key]) {
        Value::Int(size) => size,
        other => panic!("{other:?}"),
    }
}

async fn discarded(store: &RedisStore) -> DiscardCounts {
    let all: Vec<QueueDeaths> = store.deaths().await.unwrap();
    all.into_iter().find(|one| one.queue == Some(queue())).unwrap().discarded
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_past_its_time_is_seen_by_nobody_and_goes_in_short_scripts() {
    let (server, clock) = (Server::start(), manual());
    let store = open(&server, &clock).await;
    let ids = many_expired(&store, &clock).await;
    assert_eq!(store.stats(queue()).await.unwrap().counts.dead, MANY as u64);
    set(&store, &[Setting::DeadTtlMs(60_000)]).await;
    clock.advance(59_999);
    assert_eq!(store.stats(queue()).await.unwrap().counts.dead, MANY as u64);
    clock.advance(1);
    let stats = store.stats(queue()).await.unwrap();
    assert_eq!((stats.counts.dead, stats.counts.scheduled), (0, 1));
    let left = size(&server, "dead");
    assert!(left >= (MANY - 256) as i64, "one script discards a few by the way, {left} are left");
    let page = store.list(queue(), StateKind::Dead, None, 100).await.unwrap();
    assert_eq!((page.messages.len(), page.unread.len()), (0, 0));
    let last = *ids.last().unwrap();
    for target in [Target::Id(last), Target::Key(Key::new(&format!("key {}", MANY - 1)).unwrap())] {
        let found = store.get(queue(), vec![target], true).await.pop().unwrap();
        assert_eq!(found, Err(Error::MessageNotFound { queue: queue() }));
    }
    let revived = store.revive(queue(), Selection::Oldest(5), When::Now).await;
    assert_eq!(revived, Ok(BulkOutcome::default()), "they are none of the oldest");
    assert!(size(&server, "dead") > 0, "all of this has left some");
    store.beat_for_test().await.unwrap();
    let sizes = ["dead", "dead-by-due", "dead-keys", "records", "bodies"].map(|name| size(&server, name));
    // The one that stays lies in `due`.
    assert_eq!(sizes, [0; 5], "whoever came upon them does the rest when it has time");
    let expected = DiscardCounts { dead_ttl: MANY as u64, ..DiscardCounts::default() };
    assert_eq!(discarded(&store).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_most_that_is_lowered_far_goes_in_slices_the_oldest_first() {
    let (server, clock) = (Server::start(), manual());
    let store = open(&server, &clock).await;
    let ids = many_expired(&store, &clock).await;
    assert_eq!(store.stats(queue()).await.unwrap().counts.dead, MANY as u64);
    set(&store, &[Setting::DeadMax(3)]).await;
    assert!(size(&server, "dead") > 3);
    store.beat_for_test().await.unwrap();
    let mut youngest = ids.clone();
    youngest.sort();
    let mut kept = Vec::new();
    for message in store.list(queue(), StateKind::Dead, None, 100).await.unwrap().messages {
        kept.push(message.id);
    }
    kept.sort();
    assert_eq!(kept, youngest[MANY - 3..]);
    assert_eq!((size(&server, "dead"), size(&server, "dead-keys"), size(&server, "records")), (3, 3, 3));
    let expected = DiscardCounts { dead_max: MANY as u64 - 3, ..DiscardCounts::default() };
    assert_eq!(discarded(&store).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_dropped_leaves_nothing_but_a_count() {
    let (server, clock) = (Server::start(), manual());
    let store = open(&server, &clock).await;
    set(&store, &[Setting::OnExpiry(OnExpiry::Drop)]).await;
    many_expired(&store, &clock).await;
    let counts = store.stats(queue()).await.unwrap().counts;
    assert_eq!((counts.ready, counts.scheduled, counts.dead), (0, 1, 0));
    let sizes =
        ["dead", "dead-by-due", "dead-keys", "records", "bodies", "expiries"].map(|name| size(&server, name));
    assert_eq!(sizes, [0; 6]);
    let expected = DiscardCounts { on_expiry: MANY as u64, ..DiscardCounts::default() };
    assert_eq!(discarded(&store).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_process_counts_what_its_calls_have_brought_about() {
    let (server, clock) = (Server::start(), manual());
    let (first, second) = (open(&server, &clock).await, open(&server, &clock).await);
    for store in [&first, &second] {
        store.put(vec![Put::new(queue(), "m")]).await.pop().unwrap().unwrap();
        let taken = store.take(Take::from(queue())).await.unwrap().pop().unwrap();
        let action = Action::Bury { reason: None, priority: None };
        store.settle(vec![Settle { receipt: taken.receipt, action }]).await.pop().unwrap().unwrap();
    }
    assert_eq!(second.discard(queue(), Selection::All).await.unwrap().done, 2);
    let counted = async |store: &RedisStore| {
        let one = store.deaths().await.unwrap().pop().unwrap();
        (one.deaths.buried, one.discarded.asked)
    };
    assert_eq!((counted(&first).await, counted(&second).await), ((1, 0), (1, 2)));
}

/// The record of the youngest was removed, since it was damaged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_message_whose_record_was_removed_hides_no_older_one_of_its_key() {
    const REMOVE: &str = "
        local youngest = redis.call('ZRANGE', KEYS[1] .. 'dead', -1, -1)[1]
        return redis.call('HDEL', KEYS[1] .. 'records', string.sub(youngest, 9))
    ";
    let (server, clock) = (Server::start(), manual());
    let store = open(&server, &clock).await;
    let (key, mut ids) = (Key::new("order 7").unwrap(), Vec::new());
    for _ in 0..2 {
        store.put(vec![Put::new(queue(), "m").key(key.clone())]).await.pop().unwrap().unwrap();
        let taken = store.take(Take::from(queue())).await.unwrap().pop().unwrap();
        ids.push(taken.message.id);
        let action = Action::Bury { reason: None, priority: None };
        store.settle(vec![Settle { receipt: taken.receipt, action }]).await.pop().unwrap().unwrap();
        clock.advance(1);
    }
    let by_key = async || {
        let found = store.get(queue(), vec![Target::Key(key.clone())], true).await.pop().unwrap();
        found.map(|message| message.id)
    };
    assert_eq!(by_key().await, Ok(ids[1]));
    assert_eq!(server.command(&["EVAL", REMOVE, "1", &prefix(&server)]), Value::Int(1));
    assert_eq!(by_key().await, Ok(ids[0]));
}

/// Takes all that is there, one attempt each, and lets the leases run out.
async fn many_lapsed(store: &RedisStore, clock: &ManualClock, count: usize) {
    let puts = (0..count).map(|n| Put::new(queue(), n.to_string())).collect();
    assert!(store.put(puts).await.iter().all(Result::is_ok));
    let mut taken = 0;
    while taken < count {
        taken += store.take(Take::from(queue()).max(500).lease_ms(1_000)).await.unwrap().len();
    }
    clock.advance(1_000);
}

/// While a take by id looks for the owner of the message's key, the owner dies, and `dead_max` discards the message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_message_that_goes_for_the_owner_of_its_key_is_not_handed_out() {
    let (server, clock) = (Server::start(), manual());
    let store = open(&server, &clock).await;
    set(&store, &[Setting::DeadMax(1)]).await;
    let key = Key::new("order 7").unwrap();
    let dead = store.put(vec![Put::new(queue(), "dead").key(key.clone())]).await.pop().unwrap().unwrap().id;
    let taken = store.take(Take::from(queue())).await.unwrap().pop().unwrap();
    let action = Action::Bury { reason: None, priority: None };
    store.settle(vec![Settle { receipt: taken.receipt, action }]).await.pop().unwrap().unwrap();
    // Its expiry lies behind more leases that have run out than all calls of one take by id look after.
    let expires = clock.now().wall.after(1_000).ok();
    let owner = Put { expires, ..Put::new(queue(), "owner").key(key).after_ms(500) };
    store.put(vec![owner]).await.pop().unwrap().unwrap();
    many_lapsed(&store, &clock, 500).await;
    let found = store.take_id(queue(), dead, LeaseTerms::default()).await;
    assert_eq!(
        found.map(|delivery| delivery.message.body.len()),
        Err(Error::MessageNotFound { queue: queue() })
    );
    let expected = DiscardCounts { dead_max: 1, ..DiscardCounts::default() };
    assert_eq!(discarded(&store).await, expected);
    assert_eq!(store.stats(queue()).await.unwrap().counts.dead, 1);
}

/// Each partition has more that goes away than one script removes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_over_several_partitions_hands_out_all_that_is_ready_behind_what_goes_away() {
    const LIVE: usize = 200;
    for on_expiry in [OnExpiry::Drop, OnExpiry::Dead] {
        let (server, clock) = (Server::start(), manual());
        let store = open(&server, &clock).await;
        let retention = [Setting::DeadTtlMs(500), Setting::DeadMax(8)];
        set(&store, &retention).await;
        set(&store, &[Setting::Partitions(4), Setting::OnExpiry(on_expiry)]).await;
        // These die when their leases run out.
        let once = AttemptLimit::At(1.try_into().unwrap());
        let put = Put { max_attempts: Some(once), ..Put::new(queue(), "lapses") };
        assert!(store.put(vec![put; MANY / 2]).await.iter().all(Result::is_ok));
        let mut leased = 0;
        while leased < MANY / 2 {
            let taken = store.take(Take::from(queue()).max(500).lease_ms(1_000)).await.unwrap();
            assert!(!taken.is_empty());
            leased += taken.len();
        }
        let expires = clock.now().wall.after(1_000).ok();
        for _ in 0..MANY / 500 {
            let expiring = Put { expires, ..Put::new(queue(), "expires") };
            assert!(store.put(vec![expiring; 500]).await.iter().all(Result::is_ok));
        }
        assert!(store.put(vec![Put::new(queue(), "live"); LIVE]).await.iter().all(Result::is_ok));
        clock.advance(1_500);
        let taken = store.take(Take::from(queue()).max(LIVE)).await.unwrap();
        assert!(taken.iter().all(|delivery| &delivery.message.body[..] == b"live"));
        assert_eq!(taken.len(), LIVE, "{on_expiry:?}");
        let counts = store.stats(queue()).await.unwrap().counts;
        assert_eq!((counts.leased, counts.ready, counts.scheduled, counts.dead), (LIVE as u64, 0, 0, 0));
        store.beat_for_test().await.unwrap();
        let discarded = discarded(&store).await;
        let on_expiry_count = if on_expiry == OnExpiry::Drop { MANY as u64 } else { 0 };
        assert_eq!(discarded.on_expiry, on_expiry_count);
        let gone = discarded.on_expiry + discarded.dead_ttl + discarded.dead_max;
        assert_eq!(gone, (MANY + MANY / 2) as u64, "{discarded:?}");
    }
}
