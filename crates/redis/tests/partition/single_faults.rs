//! One fault at a time on the link, and its outcome.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dwell_model::{Key, Limits, QueueName, Setting, SettingChange};
use dwell_redis::RedisStore;
use dwell_store::{Action, Cancelled, Delivery, Error, Put, Settled, Store as _, Take, Target, When};
use dwell_testkit::redis::Server;
use dwell_testkit::redis::proxy::{Link, Proxy};

use super::{idempotency_key, is_unavailable, is_unknown, message, open, put, queue, settle, take, within};

/// The store itself repeats nothing.
const ONCE: &str = "connections=1&timeout_ms=400&retry_ms=0";
/// The store repeats what failed, for as long as it takes.
const AGAIN: &str = "connections=1&timeout_ms=400&retry_ms=20000";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_is_unknown_and_what_is_repeated_is_harmless() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let (store, plain) = (open(&proxy.url(ONCE)).await, open(&server.url()).await);
    let counts = async || plain.stats(queue()).await.unwrap().counts;
    // The queue is registered, leases are counted and the server has the scripts, so that each call is one script.
    put(&store, message("first")).await.unwrap();
    let first = take(&store, 0, 60_000).await.unwrap().unwrap();
    let release = Action::Release { after_ms: None, priority: None };
    settle(&store, first.receipt, release).await.unwrap();
    let nobody = Target::Key(Key::new("nobody").unwrap());
    assert_eq!(store.cancel(queue(), vec![nobody]).await, [Ok(Cancelled::NotFound)]);

    proxy.lose_next_reply();
    let named = || message("second").idempotency_key(idempotency_key("t"));
    assert!(is_unknown(&put(&store, named()).await));
    let (once, twice) = (put(&store, named()).await.unwrap(), put(&store, named()).await.unwrap());
    assert_eq!((once == twice, counts().await.ready), (true, 2), "it was put, and once");

    proxy.lose_next_reply();
    let lost = take(&store, 0, 500).await;
    assert!(is_unknown(&lost), "{lost:?}");
    assert_eq!(counts().await.leased, 1, "it was handed to nobody");
    let other = take(&store, 0, 60_000).await.unwrap().unwrap();
    let back = within("the lease", take(&plain, 20_000, 60_000)).await.unwrap().unwrap();
    assert_eq!((back.message.standing.attempt(), back.message.id != other.message.id), (2, true), "{back:?}");

    proxy.lose_next_reply();
    assert!(is_unknown(&settle(&store, back.receipt.clone(), Action::Ack).await));
    assert_eq!(settle(&store, back.receipt, Action::Ack).await, Err(Error::LeaseLost), "it was acked");
    let retry = Action::Retry { after_ms: Some(60_000), error: None, priority: None };
    proxy.lose_next_reply();
    assert!(is_unknown(&settle(&store, other.receipt.clone(), retry.clone()).await));
    assert_eq!(settle(&store, other.receipt, retry).await, Err(Error::LeaseLost), "and counted once");
    let target = Target::Id(other.message.id);
    let kept = plain.get(queue(), vec![target.clone()], false).await.pop().unwrap().unwrap();
    assert_eq!(kept.standing.attempt(), 1);

    proxy.lose_next_reply();
    let moved =
        store.reschedule(queue(), vec![(target.clone(), When::AfterMs(120_000))]).await.pop().unwrap();
    assert!(is_unknown(&moved));
    proxy.lose_next_reply();
    let gone = store.cancel(queue(), vec![target.clone()]).await.pop().unwrap();
    assert!(is_unknown(&gone));
    let again = store.cancel(queue(), vec![target.clone()]).await.pop().unwrap();
    assert_eq!(again, Ok(Cancelled::NotFound), "it was cancelled");
    let left = plain.stats(queue()).await;
    assert!(matches!(left, Err(Error::UnknownQueue { .. })), "nothing is left: {left:?}");
    proxy.lose_next_reply();
    let read = store.stats(queue()).await;
    assert!(is_unavailable(&read) || matches!(read, Err(Error::UnknownQueue { .. })), "{read:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_is_fetched_again_and_nothing_happens_twice() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let (store, plain) = (open(&proxy.url(AGAIN)).await, open(&server.url()).await);
    put(&store, message("first")).await.unwrap();
    for round in 1..=20 {
        let connections = proxy.connections();
        proxy.lose_next_reply();
        // Without an idempotency key: the number of the call makes it happen once.
        let answer = put(&store, message("more")).await.unwrap();
        proxy.lose_next_reply();
        let delivery = take(&store, 0, 60_000).await.unwrap().unwrap();
        proxy.lose_next_reply();
        assert_eq!(settle(&store, delivery.receipt, Action::Ack).await, Ok(Settled::Gone), "round {round}");
        assert!(proxy.connections() >= connections + 3, "three connections were lost");
        let counts = plain.stats(queue()).await.unwrap().counts;
        assert_eq!((counts.ready, counts.leased), (1, 0), "round {round}, after {answer:?}");
    }
    for after in 0..4 {
        proxy.lose_reply_after(after);
        let lease_ms = 70_000 + after as u64;
        let changes = vec![SettingChange::Set(Setting::LeaseMs(lease_ms))];
        assert_eq!(store.configure(queue(), changes).await.unwrap().settings.lease_ms, lease_ms);
    }
}

/// The client library calls that an error of its parser, not of the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_whose_connection_ends_in_its_middle_is_fetched_again() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let again = open(&proxy.url(AGAIN)).await;
    let body = "m".repeat(10_000);
    put(&again, message(&body)).await.unwrap();
    put(&again, message(&body)).await.unwrap();
    proxy.cut_next_reply();
    let delivery = take(&again, 0, 60_000).await.unwrap().unwrap();
    assert_eq!(delivery.message.standing.attempt(), 1);
    proxy.cut_next_reply();
    assert_eq!(settle(&again, delivery.receipt, Action::Ack).await, Ok(Settled::Gone));
    let proxy = Proxy::to(server.port()).await;
    let once = open(&proxy.url(ONCE)).await;
    // The server has the scripts, so that each call is one.
    put(&once, message(&body)).await.unwrap();
    take(&once, 0, 60_000).await.unwrap().unwrap();
    proxy.cut_next_reply();
    let lost = take(&once, 0, 60_000).await;
    assert!(is_unknown(&lost), "{:?}", lost.map(|_| "a delivery"));
}

/// A take whose answer is lost is repeated when more leases have run out than one script brings back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_that_is_made_again_gets_what_it_was_handed_out_whatever_time_has_brought_about() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let (store, plain) =
        (open(&proxy.url("connections=1&timeout_ms=3000&retry_ms=30000")).await, open(&server.url()).await);
    put(&store, message("first")).await.unwrap();
    take(&store, 0, 600_000).await.unwrap().unwrap();
    for _ in 0..5 {
        put(&plain, message("others")).await.unwrap();
    }
    let mut several: Vec<_> = (0..100).map(|_| message("m").priority(7)).collect();
    several.extend((0..100).map(|_| message("m")));
    assert!(plain.put(several).await.iter().all(Result::is_ok));
    let short = plain.take(Take::from(queue()).max(200).lease_ms(1_000)).await.unwrap();
    assert_eq!(short.len(), 200);
    proxy.set(Link::Mute);
    let lost = tokio::spawn(async move { take(&store, 0, 600_000).await });
    let keys: Vec<String> = redis::from_redis_value(server.command(&["KEYS", "dwell:{*}:leases"])).unwrap();
    // It has been handed out, and the other leases have run out: no call has processed them meanwhile.
    let leased = || -> i64 { redis::from_redis_value(server.command(&["ZCARD", &keys[0]])).unwrap() };
    within("the take", async {
        while leased() < 202 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let until = short.iter().map(|delivery| delivery.lease_until.as_ms()).max().unwrap();
        let now = || -> Vec<i64> { redis::from_redis_value(server.command(&["TIME"])).unwrap() };
        while now()[0] * 1_000 <= until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(leased(), 202);
    proxy.set(Link::Whole);
    let answered = within("the take, made again", lost).await.unwrap().unwrap().unwrap();
    let counts = plain.stats(queue()).await.unwrap().counts;
    assert_eq!(counts.leased, 2, "one before, and what the take was handed out: {counts:?}");
    assert_eq!(answered.message.standing.attempt(), 1, "none of those whose leases had run out");
    assert_eq!(settle(&plain, answered.receipt, Action::Ack).await, Ok(Settled::Gone));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_cut_is_waited_for_or_said() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let (once, again) = (open(&proxy.url(ONCE)).await, open(&proxy.url(AGAIN)).await);
    let first = put(&once, message("first").idempotency_key(idempotency_key("t"))).await.unwrap();
    proxy.set(Link::Cut);
    // Whatever passes before the link is cut, answer and all, has happened.
    let mut passed = 0;
    let cut_off = loop {
        match put(&once, message("n")).await.map(drop) {
            Ok(()) => passed += 1,
            refused => break refused,
        }
    };
    // This one had passed, or it had not: only its answer surely had not.
    let may_be_there = u64::from(is_unknown(&cut_off));
    for refused in [cut_off, take(&once, 0, 60_000).await.map(drop), once.stats(queue()).await.map(drop)] {
        assert!(is_unknown(&refused) || is_unavailable(&refused), "{refused:?}");
    }
    let waits = tokio::spawn(async move { put(&again, message("second")).await });
    // It has tried, in vain, by then.
    let before = proxy.connections();
    within("another try", async {
        while proxy.connections() < before + 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    proxy.set(Link::Whole);
    within("the put", waits).await.unwrap().unwrap();
    assert_eq!(put(&once, message("first").idempotency_key(idempotency_key("t"))).await.unwrap(), first);
    let counts = once.stats(queue()).await.unwrap().counts;
    // The take may have passed too.
    let there = counts.ready + counts.leased;
    assert!((2 + passed..=2 + passed + may_be_there).contains(&there), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_links_are_left_and_made_anew() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let (once, again) = (open(&proxy.url(ONCE)).await, open(&proxy.url(AGAIN)).await);
    put(&once, message("first")).await.unwrap();
    for (link, puts) in [(Link::Deaf, 0), (Link::Mute, 1)] {
        let before = again.stats(queue()).await.unwrap().counts.ready;
        proxy.set(link);
        let named = || message("named").idempotency_key(idempotency_key(&format!("{link:?}")));
        assert!(is_unknown(&put(&once, named()).await), "{link:?}");
        assert!(is_unavailable(&once.stats(queue()).await), "{link:?}");
        proxy.set(Link::Whole);
        // What the dead link swallowed has not happened; what it only did not answer has.
        assert_eq!(again.stats(queue()).await.unwrap().counts.ready, before + puts, "{link:?}");
        within("the put", async { while put(&once, named()).await.is_err() {} }).await;
        assert_eq!(again.stats(queue()).await.unwrap().counts.ready, before + 1, "{link:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takes_that_wait_on_a_half_open_link_end_in_time_and_go_on_behind_it() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let (store, plain) = (open(&proxy.url(ONCE)).await, open(&server.url()).await);
    for link in [Link::Deaf, Link::Mute, Link::Stalled] {
        proxy.set(link);
        // A short lease: a stalled take may be served after all, without a caller.
        let waited = within("a take", take(&store, 1_000, 500)).await;
        assert!(waited.is_err() || waited == Ok(None), "{link:?}: {waited:?}");
        proxy.set(Link::Whole);
        put(&plain, message("m")).await.unwrap();
        let delivery = within("a take", async {
            loop {
                match take(&store, 20_000, 60_000).await {
                    Ok(delivery) => break delivery.unwrap(),
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
            }
        })
        .await;
        assert_eq!(settle(&store, delivery.receipt, Action::Ack).await, Ok(Settled::Gone), "{link:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_that_are_lost_cost_at_most_a_sweep() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let (store, plain) = (open(&proxy.url("")).await, open(&server.url()).await);
    // The stats of other processes report the waiting takes of a queue that is not empty.
    put(&plain, message("later").after_ms(600_000)).await.unwrap();
    let waiting = tokio::spawn(async move { take(&store, 30_000, 60_000).await });
    within("the take waits", async {
        while plain.stats(queue()).await.map_or(0, |stats| stats.waiting) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    proxy.set(Link::NoHints);
    put(&plain, message("m")).await.unwrap();
    let delivery = within("the take", waiting).await.unwrap().unwrap().unwrap();
    let late_ms = delivery.lateness_ms;
    // A sweep is every 10 seconds; the machine may be busy.
    assert!(late_ms < 20_000, "{late_ms} ms late");
}

/// Calls of one lane that arrive out of order: the proxy holds up the first one while the second, over a new
/// connection, passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_made_again_is_not_done_twice_when_the_first_comes_late() {
    let server = Server::start();
    let (slow, plain) = (Proxy::to(server.port()).await, open(&server.url()).await);
    let store = open(&slow.url(AGAIN)).await;
    put(&store, message("first")).await.unwrap();
    let mut ids = HashSet::new();
    for round in 1..=5 {
        slow.hold_connections();
        // The first try hangs, is given up, and is repeated over a new connection.
        for body in ["second", "third"] {
            assert!(ids.insert(put(&store, message(body)).await.unwrap().id));
        }
        let before = plain.stats(queue()).await.unwrap().counts.ready;
        assert_eq!(before, 1 + 2 * round, "round {round}");
        within("what was held", slow.release()).await;
        let after = plain.stats(queue()).await.unwrap().counts.ready;
        assert_eq!(after, before, "round {round}: what came late was done again");
    }
}

/// A take that hung, was repeated and found nothing: its first try hands nothing out when it arrives, for its caller
/// is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_that_found_nothing_and_comes_late_leases_nothing() {
    let server = Server::start();
    let (slow, plain) = (Proxy::to(server.port()).await, open(&server.url()).await);
    let store = open(&slow.url(AGAIN)).await;
    // The server has the scripts, and leases were counted: a take is one script.
    put(&store, message("before")).await.unwrap();
    let before = take(&store, 0, 60_000).await.unwrap().unwrap();
    settle(&store, before.receipt, Action::Ack).await.unwrap();
    slow.hold_connections();
    assert_eq!(within("the take", take(&store, 0, 60_000)).await, Ok(None));
    let id = put(&plain, message("m")).await.unwrap().id;
    within("what was held", slow.release()).await;
    let taken = take(&plain, 0, 60_000).await.unwrap().expect("nobody holds it");
    assert_eq!((taken.message.id, taken.message.standing.attempt()), (id, 1));
}

/// The same, where the first try has found nothing and its answer is lost: what was put meanwhile is handed out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_that_is_made_again_after_it_found_nothing_has_what_came_meanwhile() {
    let server = Server::start();
    let (proxy, plain) = (Proxy::to(server.port()).await, open(&server.url()).await);
    let limits = Limits { batch: 1, ..Limits::default() };
    let store = Arc::new(RedisStore::open(proxy.url(AGAIN).parse().unwrap(), limits).await.unwrap());
    put(&store, message("before")).await.unwrap();
    let before = take(&store, 0, 60_000).await.unwrap().unwrap();
    settle(&store, before.receipt, Action::Ack).await.unwrap();
    let takes = || calls_of(&server, "evalsha");
    let before = takes();
    proxy.set(Link::Mute);
    let taking = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { take(&store, 0, 60_000).await })
    };
    within("the first try", async {
        while takes() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let id = put(&plain, message("m")).await.unwrap().id;
    proxy.set(Link::Whole);
    let taken = within("the take", taking).await.unwrap().unwrap().expect("it is due");
    assert_eq!((taken.message.id, taken.message.standing.attempt()), (id, 1));
    assert_eq!(settle(&store, taken.receipt, Action::Ack).await, Ok(Settled::Gone));
}

/// How many times the server has carried out a command.
fn calls_of(server: &Server, command: &str) -> u64 {
    let said = server.info(&format!("cmdstat_{command}")).unwrap_or_default();
    let calls = said.strip_prefix("calls=").and_then(|said| said.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

/// What the second take of a store finds is for the first one, which came before it and whose call is on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_that_comes_while_another_one_asks_for_the_first_time_is_served_after_it() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let store = Arc::new(open(&proxy.url("connections=2&timeout_ms=20000")).await);
    let plain = open(&server.url()).await;
    // The server has the scripts, and leases were counted: a take is one script.
    for _ in 0..2 {
        put(&store, message("before")).await.unwrap();
        let before = take(&store, 0, 60_000).await.unwrap().unwrap();
        settle(&store, before.receipt, Action::Ack).await.unwrap();
    }
    proxy.stop_request_after(0);
    let waits = |store: &Arc<RedisStore>| {
        let store = Arc::clone(store);
        tokio::spawn(async move { take(&store, 30_000, 60_000).await })
    };
    let first = waits(&store);
    within("the first question", proxy.stopped()).await;
    put(&plain, message("first")).await.unwrap();
    let mut second = waits(&store);
    let early = tokio::time::timeout(Duration::from_millis(300), &mut second).await;
    assert!(early.is_err(), "the second take went before the first: {early:?}");
    proxy.go_on();
    let body = |taken: Result<Option<Delivery>, Error>| taken.unwrap().unwrap().message.body;
    assert_eq!(&body(within("the first take", first).await.unwrap())[..], b"first");
    put(&plain, message("second")).await.unwrap();
    assert_eq!(&body(within("the second take", second).await.unwrap())[..], b"second");
}

/// A repeated call is refused by a server that has done it before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_done_and_is_refused_when_it_is_made_again_is_unknown() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let plain = open(&server.url()).await;
    let refusals: [(&[&str], &[&str]); 2] = [
        (&["min-replicas-to-write", "1"], &["min-replicas-to-write", "0"]),
        (&["maxmemory", "1"], &["maxmemory", "0"]),
    ];
    let set = |words: &[&str]| server.command(&[&["CONFIG", "SET"], words].concat());
    let ready = async || plain.stats(queue()).await.unwrap().counts.ready;
    let brief = Arc::new(open(&proxy.url("connections=1&timeout_ms=400&retry_ms=1500")).await);
    let patient = Arc::new(open(&proxy.url(AGAIN)).await);
    put(&brief, message("first")).await.unwrap();
    put(&patient, message("second")).await.unwrap();
    for (refuse, allow) in refusals {
        let before = ready().await;
        proxy.set(Link::Mute);
        let lost = {
            let brief = Arc::clone(&brief);
            tokio::spawn(async move { put(&brief, message("m")).await })
        };
        within("the put", async { while ready().await == before {} }).await;
        set(refuse);
        proxy.set(Link::Whole);
        let answer = within("the put", lost).await.unwrap();
        assert!(answer.is_ok() || is_unknown(&answer), "{refuse:?}: {answer:?}");
        set(allow);
        assert_eq!(ready().await, before + 1, "{refuse:?}");
    }
    // A patient one gets its answer as soon as the server accepts calls.
    let before = ready().await;
    proxy.set(Link::Mute);
    let lost = {
        let patient = Arc::clone(&patient);
        tokio::spawn(async move { put(&patient, message("m")).await })
    };
    within("the put", async { while ready().await == before {} }).await;
    let refused = || server.info("errorstat_NOREPLICAS").unwrap_or_default();
    let refused_before = refused();
    set(&["min-replicas-to-write", "1"]);
    proxy.set(Link::Whole);
    within("a refusal", async {
        while refused() == refused_before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    set(&["min-replicas-to-write", "0"]);
    within("the put", lost).await.unwrap().unwrap();
    assert_eq!(ready().await, before + 1, "it was put once");
}

const PARTITIONS: u16 = 4;

/// Messages whose keys lie in one partition, and whose idempotency keys are remembered in another.
fn keyed_apart(count: usize) -> Vec<Put> {
    let of_text = |text: &str| {
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, fnv) % u64::from(PARTITIONS)
    };
    let some = |what: &str, part: u64| -> Vec<String> {
        let names = (0..1_000).map(|n| format!("{what}-{n}"));
        names.filter(|name| of_text(name) == part).take(count).collect()
    };
    let names = some("key", 1).into_iter().zip(some("token", 2));
    let puts = names.map(|(key, named)| {
        message("m").key(Key::new(&key).unwrap()).idempotency_key(idempotency_key(&named))
    });
    let puts: Vec<Put> = puts.collect();
    assert_eq!(puts.len(), count);
    puts
}

/// A queue that is spread, with something in each partition, so that putting under a key and an idempotency key is
/// three scripts: the lookup of the idempotency key, the put, and the storing of its answer.
async fn make_partitioned(store: &RedisStore) {
    let changes = vec![SettingChange::Set(Setting::Partitions(PARTITIONS))];
    store.configure(queue(), changes).await.unwrap();
    let puts = (0..16).map(|n| message(&n.to_string()).after_ms(3_600_000)).collect();
    assert!(store.put(puts).await.iter().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_is_there_is_answered_though_its_idempotency_key_cannot_be_remembered() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let store = Arc::new(open(&proxy.url(ONCE)).await);
    make_partitioned(&store).await;
    let named = keyed_apart(1).remove(0);
    proxy.stop_request_after(2);
    let putting = {
        let (store, named) = (Arc::clone(&store), named.clone());
        tokio::spawn(async move { put(&store, named).await })
    };
    within("the third script", proxy.stopped()).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    proxy.go_on();
    let answer = within("the put", putting).await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(store.stats(queue()).await.unwrap().counts.ready, 1, "it is there: {answer:?}");
    let answer = answer.unwrap();
    for _ in 0..2 {
        assert_eq!(put(&store, named.clone()).await, Ok(answer), "again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_batch_has_put_is_answered_though_it_is_refused_half_way() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let store = Arc::new(open(&proxy.url(ONCE)).await);
    make_partitioned(&store).await;
    let batch = keyed_apart(3);
    proxy.stop_request_after(4);
    let putting = {
        let (store, batch) = (Arc::clone(&store), batch.clone());
        tokio::spawn(async move { store.put(batch).await })
    };
    within("the second put", proxy.stopped()).await;
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    proxy.go_on();
    let answers = within("the puts", putting).await.unwrap();
    server.command(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(store.stats(queue()).await.unwrap().counts.ready, 1);
    assert!(answers[0].is_ok(), "it is there: {answers:?}");
    assert!(is_unavailable(&answers[1]) && is_unavailable(&answers[2]), "{answers:?}");
    let again = store.put(batch).await;
    assert!(again[0] == answers[0] && again.iter().all(Result::is_ok), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_under_way_when_the_runtime_of_its_store_ends_may_have_happened() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    // One thread, so that none of its tasks goes on while it ends. Shut down explicitly below: dropped in a task, it
    // would panic.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let address = proxy.url("connections=2&timeout_ms=20000").parse().unwrap();
    let store = runtime.spawn(RedisStore::open(address, Limits::default())).await.unwrap().unwrap();
    let store = Arc::new(store);
    for _ in 0..2 {
        put(&store, message("before")).await.unwrap();
    }
    proxy.stop_request_after(0);
    let putting = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { put(&store, message("m")).await })
    };
    within("the put", proxy.stopped()).await;
    runtime.shutdown_background();
    let answer = within("the answer", putting).await.unwrap();
    let Err(error @ Error::OutcomeUnknown { .. }) = answer else { panic!("{answer:?}") };
    assert!(error.needs_reopen() && !error.is_retryable(), "{error}");
    // A call that begins after that has not happened.
    let refused = within("the second put", put(&store, message("late"))).await;
    assert_eq!(refused.unwrap_err(), Error::Closed);
    proxy.go_on();
}

/// A process leaves while a take that waits is being handed something.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_waiting_take_is_handed_while_its_process_leaves_goes_back() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let store = Arc::new(open(&proxy.url("connections=2&timeout_ms=20000")).await);
    let plain = open(&server.url()).await;
    for _ in 0..2 {
        put(&store, message("before")).await.unwrap();
        let before = take(&store, 0, 60_000).await.unwrap().unwrap();
        settle(&store, before.receipt, Action::Ack).await.unwrap();
    }
    proxy.stop_request_after(0);
    let waiting = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { take(&store, 30_000, 3_600_000).await })
    };
    within("the question", proxy.stopped()).await;
    let id = put(&plain, message("m")).await.unwrap().id;
    let leaving = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.leave().await })
    };
    assert_eq!(within("the take", waiting).await.unwrap(), Ok(None));
    proxy.go_on();
    within("the leaving", leaving).await.unwrap().unwrap();
    let back = within("the message", take(&plain, 10_000, 60_000)).await.unwrap();
    let back = back.expect("nobody has it").message;
    assert_eq!((back.id, back.standing.attempt()), (id, 1));
}

/// A store that owns its thread is dropped while a take whose caller has gone is being handed something.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_take_is_handed_while_its_store_is_dropped_goes_back() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let address = proxy.url("connections=2&timeout_ms=20000").parse().unwrap();
    let store = RedisStore::open_with_thread_async(address, Limits::default()).await.unwrap();
    let store = Arc::new(store);
    let plain = open(&server.url()).await;
    for _ in 0..2 {
        put(&store, message("before")).await.unwrap();
        let before = take(&store, 0, 60_000).await.unwrap().unwrap();
        settle(&store, before.receipt, Action::Ack).await.unwrap();
    }
    let id = put(&plain, message("m")).await.unwrap().id;
    proxy.stop_request_after(0);
    let taking = tokio::spawn(async move { take(&store, 0, 3_600_000).await });
    within("the question", proxy.stopped()).await;
    // Its task has the only reference to the store.
    taking.abort();
    assert!(within("the end of the task", taking).await.unwrap_err().is_cancelled());
    // The take is carried out, and what it was handed is on its way back.
    proxy.stop_request_after(0);
    within("the way back", proxy.stopped()).await;
    assert_eq!(plain.stats(queue()).await.unwrap().counts.leased, 1);
    proxy.go_on();
    let back = within("the message", take(&plain, 10_000, 60_000)).await.unwrap();
    let back = back.expect("nobody has it").message;
    assert_eq!((back.id, back.standing.attempt()), (id, 1));
}

/// Between the look at the first messages and the take, another process takes the small ones: those behind them are
/// large.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_over_several_queues_keeps_to_its_bytes_though_others_are_served_in_between() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let (store, plain) = (Arc::new(open(&proxy.url("")).await), open(&server.url()).await);
    let queues = ["a", "b"].map(|name| QueueName::new(name).unwrap());
    for queue in &queues {
        for _ in 0..4 {
            plain.put(vec![Put::new(queue.clone(), "small")]).await.pop().unwrap().unwrap();
        }
        for _ in 0..4 {
            plain.put(vec![Put::new(queue.clone(), vec![0; 100_000])]).await.pop().unwrap().unwrap();
        }
    }
    // So that the keys of both have been checked, and leases were counted.
    let two = store.take(Take::from_all(queues.clone()).max(2)).await.unwrap();
    assert_eq!(two.len(), 2);
    // Two scripts look, and two take.
    proxy.stop_request_after(2);
    let taking = {
        let (store, queues) = (Arc::clone(&store), queues.clone());
        tokio::spawn(async move { store.take(Take::from_all(queues).max(6).max_bytes(1_000)).await })
    };
    within("a take", proxy.stopped()).await;
    for queue in &queues {
        plain.take(Take::from(queue.clone()).max(4)).await.unwrap();
    }
    proxy.go_on();
    let taken = within("the take", taking).await.unwrap().unwrap();
    let bytes: usize = taken.iter().map(|delivery| delivery.message.body.len()).sum();
    assert!(bytes <= 1_000 || taken.len() == 1, "{} messages of {bytes} bytes", taken.len());
}
