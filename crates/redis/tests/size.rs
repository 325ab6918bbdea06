//! No script blocks Redis for long, whatever its call: bodies are read and written in bounded scripts, what was set
//! aside is freed in slices by any process, and what processes leave behind does not pile up.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

use std::sync::Arc;
use std::time::Duration;

use dwell_model::{Headers, Key, Limits, QueueName, Setting, SettingChange, State, StateKind, Timestamp};
use dwell_redis::RedisStore;
use dwell_store::{
    Action, Cancelled, Error, LeaseTerms, Page, Put, PutAnswer, PutOutcome, Selection, Settle, Store, Take,
    Target, When,
};
use dwell_testkit::redis::Server;
use dwell_time::{Clock, ManualClock};
use redis::Value;

fn queue() -> QueueName {
    QueueName::new("orders").unwrap()
}

fn message(body: impl Into<Vec<u8>>) -> Put {
    Put::new(queue(), body.into())
}

async fn open(server: &Server) -> RedisStore {
    RedisStore::open(server.address(), Limits::default()).await.unwrap()
}

async fn put_all(store: &RedisStore, puts: Vec<Put>) -> Vec<PutAnswer> {
    store.put(puts).await.into_iter().map(Result::unwrap).collect()
}

/// Waits until it holds, while the store runs.
async fn comes_true(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..300 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("waited in vain: {what}");
}

/// The number of scripts that the server has run by their hashes.
fn scripts(server: &Server) -> u64 {
    let said = server.info("cmdstat_evalsha").unwrap_or_default();
    let calls = said.split(',').find_map(|field| field.strip_prefix("calls="));
    calls.map_or(0, |calls| calls.parse().unwrap())
}

fn sent(server: &Server) -> usize {
    server.info("total_net_output_bytes").unwrap().parse().unwrap()
}

fn keys(server: &Server, pattern: &str) -> Vec<String> {
    redis::from_redis_value(server.command(&["KEYS", pattern])).unwrap()
}

fn int(reply: Value) -> i64 {
    redis::from_redis_value(reply).unwrap()
}

/// The maximum bytes of bodies that one script may read or write.
const BODIES: usize = 256 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_script_reads_or_writes_more_than_so_many_bytes_of_bodies() {
    let server = Server::start();
    let store = open(&server).await;
    const COUNT: usize = 24;
    let (length, least) = (100_000, (COUNT * 100_000 / BODIES) as u64);
    // The server has the scripts before they are counted.
    put_all(&store, vec![message(vec![0; 2_000])]).await;
    let warm = store.take(Take::from(queue())).await.unwrap().pop().unwrap();
    store.list(queue(), StateKind::Leased, None, 10).await.unwrap();
    store.settle(vec![Settle { receipt: warm.receipt, action: Action::Ack }]).await.pop().unwrap().unwrap();

    let mut before = scripts(&server);
    let mut needs = |what: &str| {
        let now = scripts(&server);
        assert!(now - before >= least, "{what}: {} scripts, at least {least} are needed", now - before);
        before = now;
    };
    let puts = (0..COUNT).map(|n| message(vec![n as u8; length])).collect();
    let answers = put_all(&store, puts).await;
    needs("a put");
    let page = store.list(queue(), StateKind::Ready, None, 1_000).await.unwrap();
    let bodies = |page: &Page| {
        let first = |message: &dwell_model::Message| (message.body.len(), message.body[0]);
        page.messages.iter().map(first).collect::<Vec<_>>()
    };
    let expected: Vec<_> = (0..COUNT).map(|n| (length, n as u8)).collect();
    assert_eq!((bodies(&page), page.next), (expected.clone(), None));
    needs("a list of ready ones");
    let targets = answers.iter().map(|answer| Target::Id(answer.id)).collect();
    let got = store.get(queue(), targets, false).await.into_iter().map(Result::unwrap);
    assert_eq!(got.map(|message| (message.body.len(), message.body[0])).collect::<Vec<_>>(), expected);
    needs("a get");
    let taken = store.take(Take::from(queue()).max(COUNT)).await.unwrap();
    assert_eq!(taken.len(), COUNT);
    needs("a take");
    let page = store.list(queue(), StateKind::Leased, None, 1_000).await.unwrap();
    assert_eq!((bodies(&page), page.next), (expected, None));
    needs("a list of leased ones");
}

/// A take of many messages with large headers ends when these have as many bytes as it asked for bodies, or soon
/// after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_bound_a_take_as_bodies_do() {
    const COUNT: usize = 300;
    let server = Server::start();
    let store = open(&server).await;
    // As many bytes in one header, or in very many: each costs memory in addition to its text.
    let long = "v".repeat(16_000);
    let one = Headers::new([("h", long.as_str())]).unwrap();
    let names: Vec<_> = (0..2_000).map(|n| format!("n{n}")).collect();
    let many = Headers::new(names.iter().map(|name| (name.as_str(), ""))).unwrap();
    for (name, headers, most) in [("one", one, 128), ("many", many, 32)] {
        let queue = QueueName::new(name).unwrap();
        let put = || Put { headers: headers.clone(), ..Put::new(queue.clone(), "") };
        let put: Vec<_> =
            put_all(&store, (0..COUNT).map(|_| put()).collect()).await.iter().map(|put| put.id).collect();
        let mut taken = Vec::new();
        while taken.len() < COUNT {
            let take = Take::from(queue.clone()).max(COUNT).max_bytes(1 << 20);
            let some = store.take(take).await.unwrap();
            assert!((1..=most).contains(&some.len()), "{} messages with {name}", some.len());
            taken.extend(some.into_iter().map(|delivery| delivery.message.id));
        }
        assert_eq!(taken, put);
        // A take without a limit of bytes gets all messages.
        let again = QueueName::new(&format!("{name}-again")).unwrap();
        let put = || Put { headers: headers.clone(), ..Put::new(again.clone(), "") };
        put_all(&store, (0..COUNT).map(|_| put()).collect()).await;
        assert_eq!(store.take(Take::from(again.clone()).max(COUNT)).await.unwrap().len(), COUNT);
    }
}

/// A page ends where its bodies are too many; those behind it are not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_leased_messages_reads_no_body_that_it_does_not_hold() {
    let server = Server::start();
    let store = open(&server).await;
    const COUNT: usize = 24;
    put_all(&store, (0..COUNT).map(|n| message(vec![n as u8; 1 << 20])).collect()).await;
    assert_eq!(store.take(Take::from(queue()).max(COUNT)).await.unwrap().len(), COUNT);
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let before = sent(&server);
        let page = store.list(queue(), StateKind::Leased, after, 1_000).await.unwrap();
        let bytes = sent(&server) - before;
        assert!(bytes < Page::MAX_BYTES + (1 << 20), "{bytes} bytes were read for a page");
        assert!(page.messages.len() <= Page::MAX_BYTES >> 20);
        seen.extend(page.messages.iter().map(|message| message.body[0]));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, (0..COUNT as u8).collect::<Vec<_>>());
}

/// A page of a queue with many partitions: each of them is asked for its share, and not for a page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_a_queue_that_is_spread_reads_little_more_than_it_holds() {
    let server = Server::start();
    let store = open(&server).await;
    let changes = vec![SettingChange::Set(Setting::Partitions(32))];
    store.configure(queue(), changes).await.unwrap();
    const COUNT: usize = 640;
    const LENGTH: usize = 10_000;
    put_all(&store, (0..COUNT).map(|_| message(vec![7; LENGTH]).after_ms(3_600_000)).collect()).await;
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let before = sent(&server);
        let page = store.list(queue(), StateKind::Scheduled, after, 20).await.unwrap();
        let bytes = sent(&server) - before;
        assert!(bytes < 130 * LENGTH, "{bytes} bytes were read for a page of {}", page.messages.len());
        assert_eq!(page.messages.len(), 20);
        seen.extend(page.messages.iter().map(|message| (message.standing.due, message.id)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert!(seen.is_sorted() && seen.len() == COUNT, "{} of {COUNT} were listed", seen.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_whose_process_has_ended_is_finished_by_another() {
    let server = Server::start();
    let store = open(&server).await;
    let puts = |n: usize| (0..n).map(|n| message(n.to_string()).priority(5).after_ms(3_600_000)).collect();
    put_all(&store, puts(600)).await;
    assert_eq!(store.purge(queue()).await.unwrap(), 600);
    drop(store);
    let records = |key: &String| int(server.command(&["HLEN", key]));
    let left = || keys(&server, "dwell:{*}:records").iter().map(records).sum::<i64>();
    assert!((1..600).contains(&left()), "{} records are left for somebody else", left());
    let other = open(&server).await;
    // Once to find and free it, and once to unregister the queue.
    for _ in 0..2 {
        other.beat_for_test().await.unwrap();
    }
    comes_true("nothing is left of the queue", || {
        left() == 0
            && int(server.command(&["ZCARD", "{dwell}:queues"])) == 0
            && keys(&server, "dwell:{*}:purged*").is_empty()
            && keys(&server, "dwell:{*}:meta").is_empty()
    })
    .await;
    // What is put meanwhile, or later, is not deleted.
    put_all(&other, puts(3)).await;
    assert_eq!(other.stats(queue()).await.unwrap().counts.scheduled, 3);
}

/// Two calls that do the same to all dead messages share them: neither skips one because of the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_revives_or_discards_at_the_same_time_as_others_leaves_none_out() {
    const COUNT: usize = 600;
    let server = Server::start();
    let stores = [open(&server).await, open(&server).await, open(&server).await];
    for (round, revives) in [true, true, false].into_iter().enumerate() {
        let queue = QueueName::new(&format!("dead-{round}")).unwrap();
        put_all(&stores[0], (0..COUNT).map(|n| Put::new(queue.clone(), n.to_string())).collect()).await;
        let taken = stores[0].take(Take::from(queue.clone()).max(COUNT)).await.unwrap();
        let bury = |receipt| Settle { receipt, action: Action::Bury { reason: None, priority: None } };
        let buries = taken.into_iter().map(|delivery| bury(delivery.receipt)).collect();
        stores[0].settle(buries).await.into_iter().for_each(|settled| _ = settled.unwrap());
        assert_eq!(stores[0].stats(queue.clone()).await.unwrap().counts.dead, COUNT as u64);
        let sweep = async |store: &RedisStore| match revives {
            true => store.revive(queue.clone(), Selection::All, When::AfterMs(3_600_000)).await.unwrap(),
            false => store.discard(queue.clone(), Selection::Oldest(COUNT as u64)).await.unwrap(),
        };
        let swept = tokio::join!(sweep(&stores[0]), sweep(&stores[1]), sweep(&stores[2]));
        let swept = [swept.0, swept.1, swept.2];
        assert_eq!(swept.iter().map(|swept| swept.done).sum::<u64>(), COUNT as u64, "{swept:?}");
        assert!(swept.iter().all(|swept| swept.refused_in_all == 0), "{swept:?}");
        let page = stores[0].list(queue.clone(), StateKind::Dead, None, 10).await;
        assert!(page.is_err() || page.unwrap().messages.is_empty(), "none is left dead");
    }
}

/// The answers that are kept for repeated calls of a process expire when it has made no call for a minute, also where
/// others do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_processes_that_have_ended_do_not_pile_up_in_the_directory() {
    const PROCESSES: i64 = 200;
    let server = Server::start();
    let named = |name: &str| {
        RedisStore::open(format!("{}?client={name}", server.url()).parse().unwrap(), Limits::default())
    };
    let stays = named("stays").await.unwrap();
    put_all(&stays, vec![message("m")]).await;
    let held = stays.take(Take::from(queue()).lease_ms(3_600_000).session()).await.unwrap();
    assert_eq!(held.len(), 1);
    for n in 0..PROCESSES {
        let store = named(&format!("process-{n}")).await.unwrap();
        store.leave().await.unwrap();
    }
    let names = int(server.command(&["HLEN", "{dwell}:clients"]));
    assert!(names < PROCESSES / 3, "{names} names of {PROCESSES} processes");
    // The living process is registered: another one of its name ends what is bound to it.
    let _second = named("stays").await.unwrap();
    let ack = Settle { receipt: held[0].receipt.clone(), action: Action::Ack };
    assert_eq!(stays.settle(vec![ack]).await, [Err(Error::LeaseLost)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_processes_that_have_ended_leave_with_a_queue_does_not_pile_up() {
    const PROCESSES: i64 = 70;
    let server = Server::start();
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let key = |name: &str| keys(&server, &format!("dwell:{{*}}:{name}")).pop().unwrap();
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    for generation in 0..2 {
        for _ in 0..PROCESSES {
            let shared: Arc<dyn Clock> = Arc::new(clock.clone());
            let store = RedisStore::open_for_test(server.address(), Limits::default(), shared).await.unwrap();
            put_all(&store, vec![message("m").after_ms(86_400_000)]).await;
            // The same call again gets its first answer: its lane is there.
            put_all(&store, vec![message("n").after_ms(86_400_000)]).await;
            clock.advance(61_000);
        }
        let names: Vec<Vec<u8>> = redis::cmd("HKEYS").arg(key("calls")).query(&mut connection).unwrap();
        let (fields, wide): (Vec<_>, Vec<_>) = names.iter().partition(|name| name.len() < 12);
        assert!(fields.len() < PROCESSES as usize, "{} fields of {PROCESSES} processes", fields.len());
        assert!(wide.len() < 100, "{} of 140 fields of wide names", wide.len());
        if generation == 0 {
            // As an earlier version has written them: without the instant.
            let all: Vec<(Vec<u8>, Vec<u8>)> =
                redis::cmd("HGETALL").arg(key("calls")).query(&mut connection).unwrap();
            for (field, called) in all.into_iter().filter(|(field, _)| field.len() == 10) {
                assert_eq!(called.len(), 14);
                redis::cmd("HSET")
                    .arg(key("calls"))
                    .arg(field)
                    .arg(&called[..8])
                    .query::<i64>(&mut connection)
                    .unwrap();
            }
            // As a process with very many concurrent calls has written them.
            for n in 0..PROCESSES as u8 {
                let (lane, answer) = ([n; 12], [n; 13]);
                let mut call = redis::cmd("HSET");
                call.arg(key("calls")).arg(&lane[..]).arg(&[0_u8; 14][..]).arg(&answer[..]).arg("");
                call.query::<i64>(&mut connection).unwrap();
            }
        }
    }

    // Takes that wait: of one living process, and of many that have ended.
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let store = RedisStore::open_for_test(server.address(), Limits::default(), shared).await.unwrap();
    let waiting = store.take(Take::from(queue()).wait_ms(60_000));
    let others = async {
        comes_true("the take waits", || !keys(&server, "dwell:{*}:waiters").is_empty()).await;
        let stale = |n: u8| {
            redis::cmd("HSET")
                .arg(key("waiters"))
                .arg([n; 8].as_slice())
                .arg(b"\x92\x01\x05".as_slice())
                .to_owned()
        };
        let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        (1..60).for_each(|n| stale(n).exec(&mut connection).unwrap());
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let other = RedisStore::open_for_test(server.address(), Limits::default(), shared).await.unwrap();
        tokio::spawn(async move { other.take(Take::from(queue()).wait_ms(60_000)).await });
        comes_true("those are forgotten", || int(server.command(&["HLEN", &key("waiters")])) == 3).await;
        clock.advance(60_000);
    };
    assert_eq!(tokio::join!(waiting, others).0.unwrap(), []);
}

/// When no lease may be granted, that is remembered for a while: not each take asks all queues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takes_that_are_refused_since_all_leases_are_granted_do_not_ask_all_queues_each() {
    const QUEUES: usize = 300;
    const TAKES: usize = 20;
    let server = Server::start();
    let limits = Limits { leased: 5, ..Limits::default() };
    let store = RedisStore::open(server.address(), limits).await.unwrap();
    let of = |n| QueueName::new(&format!("q{n}")).unwrap();
    put_all(&store, (0..QUEUES).map(|n| Put::new(of(n), "m").after_ms(3_600_000)).collect()).await;
    put_all(&store, (0..50).map(|n| message(n.to_string())).collect()).await;
    let mut held = store.take(Take::from(queue()).max(5)).await.unwrap();
    assert_eq!(held.len(), 5);
    let before = scripts(&server);
    for _ in 0..TAKES {
        let refused = store.take(Take::from(queue())).await.unwrap_err();
        assert_eq!(refused, Error::TooManyLeased { limit: 5 });
    }
    let asked = scripts(&server) - before;
    assert!(asked < (QUEUES * TAKES / 2) as u64, "{asked} scripts");
    // What is settled here makes room at once.
    let settle = Settle { receipt: held.pop().unwrap().receipt, action: Action::Ack };
    store.settle(vec![settle]).await.pop().unwrap().unwrap();
    assert_eq!(store.take(Take::from(queue()).max(5)).await.unwrap().len(), 1);
}

/// Thousands of expiries and lapses at one instant: the next call does its own work, exactly, and processes some of
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_calls_after_much_has_come_to_its_end_at_once_does_not_pay_for_all_of_it() {
    const COUNT: usize = 1_500;
    let server = Server::start();
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let store = RedisStore::open_for_test(server.address(), Limits::default(), shared).await.unwrap();
    let at = |ms: u64| clock.now().wall.after(ms).unwrap();
    // Half of them are leased, and the others expire when the leases run out.
    let held = Put::new(queue(), "held").priority(1);
    put_all(&store, (0..COUNT).map(|_| held.clone()).collect()).await;
    let taken = store.take(Take::from(queue()).max(COUNT).lease_ms(10_000)).await.unwrap();
    assert_eq!(taken.len(), COUNT);
    let key = |n: usize| Key::new(&format!("key {n}")).unwrap();
    let expiring = |n| Put { expires: Some(at(10_000)), ..message("expires").key(key(n)).after_ms(5_000) };
    let expiring = put_all(&store, (0..COUNT).map(expiring).collect()).await;
    clock.advance(10_000);

    let before = scripts(&server);
    let target = |answer: &PutAnswer| Target::Id(answer.id);
    // The messages that these name were not processed before: they come last.
    let settle = |n: usize, action| Settle { receipt: taken[n].receipt.clone(), action };
    let lost = store.settle(vec![settle(COUNT - 1, Action::Ack), settle(COUNT - 2, Action::Ack)]).await;
    assert_eq!(lost, [Err(Error::LeaseLost), Err(Error::LeaseLost)]);
    let asked = scripts(&server) - before;
    assert!(asked <= 12, "an ack took {asked} scripts");
    let lost = store.settle(vec![settle(COUNT - 3, Action::Extend { lease_ms: None })]).await;
    assert_eq!(lost, [Err(Error::LeaseLost)]);
    let again = store.take_id(queue(), taken[COUNT - 4].message.id, LeaseTerms::default()).await.unwrap();
    assert_eq!((again.message.standing.attempts, again.message.standing.counts.lapses), (1, 1));
    let last = expiring.last().unwrap();
    let got = store.get(queue(), vec![target(last)], false).await.pop().unwrap().unwrap();
    assert!(matches!(got.standing.state, State::Dead(_)), "{:?}", got.standing.state);
    let free = put_all(&store, vec![message("has the key now").key(key(COUNT - 2)).after_ms(60_000)]).await;
    assert_eq!(free[0].outcome, PutOutcome::Created);
    let of_free = store.get(queue(), vec![Target::Key(key(COUNT - 2))], false).await.pop().unwrap().unwrap();
    assert_eq!(of_free.id, free[0].id);
    let cancelled = store.cancel(queue(), vec![target(&expiring[COUNT - 3])]).await.pop().unwrap();
    assert_eq!(cancelled, Ok(Cancelled::Dead(expiring[COUNT - 3].id)));
    let by_key = store.cancel(queue(), vec![Target::Key(key(COUNT - 4))]).await.pop().unwrap();
    assert_eq!(by_key, Ok(Cancelled::NotFound));
    put_all(&store, vec![message("plain").after_ms(60_000)]).await;
    // At most nine each, and some for numbers.
    let asked = scripts(&server) - before;
    assert!(asked <= 9 * 9 + 6, "{asked} scripts");

    // Nothing that is handed out has expired, all lapsed messages come, and the counts are exact.
    let stats = store.stats(queue()).await.unwrap().counts;
    let lapsed = COUNT as u64 - 1;
    assert_eq!((stats.ready, stats.leased, stats.dead, stats.scheduled), (lapsed, 1, COUNT as u64, 2));
    let taken = store.take(Take::from(queue()).max(2 * COUNT)).await.unwrap();
    assert_eq!(taken.len() as u64, lapsed);
    assert!(taken.iter().all(|delivery| delivery.message.body == "held"));
}

/// The same for takes: the expired ones lie before all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_among_many_that_expire_hands_out_the_others_alone() {
    const COUNT: usize = 1_500;
    let server = Server::start();
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let store = RedisStore::open_for_test(server.address(), Limits::default(), shared).await.unwrap();
    let expires = Some(clock.now().wall.after(10_000).unwrap());
    // One in ten stays. They are due in turn, and are handed out in that order.
    let one = |n: usize| Put {
        expires: expires.filter(|_| !n.is_multiple_of(10)),
        ..message(n.to_string()).after_ms(n as u64)
    };
    put_all(&store, (0..COUNT).map(one).collect()).await;
    put_all(&store, (0..9).map(|n| message(n.to_string()).priority(2)).collect()).await;
    clock.advance(10_000);
    let mut bodies = Vec::new();
    loop {
        let taken = store.take(Take::from(queue()).max(40)).await.unwrap();
        if taken.is_empty() {
            break;
        }
        bodies.extend(
            taken.into_iter().map(|delivery| String::from_utf8(delivery.message.body.to_vec()).unwrap()),
        );
    }
    let expected = (0..9).chain((0..COUNT).step_by(10)).map(|n| n.to_string()).collect::<Vec<_>>();
    assert_eq!(bodies, expected);
    let counts = store.stats(queue()).await.unwrap().counts;
    assert_eq!(
        (counts.ready, counts.dead, counts.leased),
        (0, (COUNT - COUNT / 10) as u64, expected.len() as u64)
    );
}

/// Walks through all leased messages, a page by each of these stores in turn; returns the number of scripts of each
/// page, and the ids.
async fn walk(
    server: &Server,
    stores: &[&RedisStore],
    max: usize,
    mut between: impl AsyncFnMut(usize),
) -> (Vec<u64>, Vec<dwell_model::MessageId>) {
    let (mut after, mut ids, mut costs) = (None, Vec::new(), Vec::new());
    for number in 0.. {
        let before = scripts(server);
        let store = stores[number % stores.len()];
        let page = store.list(queue(), StateKind::Leased, after, max).await.unwrap();
        costs.push(scripts(server) - before);
        assert!(page.messages.len() <= max);
        ids.extend(page.messages.iter().map(|message| message.id));
        let places = page.messages.iter().map(|message| (message.standing.due, message.id));
        assert!(places.clone().is_sorted());
        between(number).await;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    (costs, ids)
}

/// Any number of leases is read once per walk, and not once per page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_leased_messages_costs_what_it_holds() {
    let server = Server::start();
    let (store, other) = (open(&server).await, open(&server).await);
    const COUNT: usize = 12_000;
    let mut held = Vec::new();
    while held.len() < COUNT {
        put_all(&store, (0..1_000).map(|_| message("m")).collect()).await;
        held.extend(store.take(Take::from(queue()).max(1_000).lease_ms(3_600_000)).await.unwrap());
    }
    let mut all: Vec<_> = held.iter().map(|delivery| delivery.message.id).collect();
    all.sort();
    let mut sorted = |mut ids: Vec<_>| {
        ids.sort();
        ids == all
    };
    let (costs, ids) = walk(&server, &[&store], 100, async |_| {}).await;
    assert!(sorted(ids), "each once");
    assert_eq!(costs.len(), COUNT / 100);
    // A page of a hundred is read by two scripts.
    let dear = costs[1..].iter().filter(|cost| **cost > 4).count();
    assert_eq!(dear, 0, "{costs:?}");
    // Another walk begins meanwhile, and each continues with what is remembered.
    let mut others = Vec::new();
    let (costs, ids) = walk(&server, &[&store], 1_000, async |number| {
        if number < 3 {
            others.push(walk(&server, &[&store], 5_000, async |_| {}).await.1);
        }
    })
    .await;
    assert!(sorted(ids), "each once");
    assert!(others.into_iter().all(&mut sorted), "each once");
    let dear = costs[1..].iter().filter(|cost| **cost > 24).count();
    assert_eq!(dear, 0, "{costs:?}");
    // Pages from several processes are as good, and each process reads all leases.
    let (_, ids) = walk(&server, &[&store, &other], 3_000, async |_| {}).await;
    assert!(sorted(ids), "each once");
}

/// The same where all of them have been settled since: no page looks at one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_leased_messages_that_are_gone_costs_few_scripts() {
    const COUNT: usize = 2_000;
    let server = Server::start();
    let store = open(&server).await;
    let mut held = Vec::new();
    while held.len() < COUNT {
        put_all(&store, (0..1_000).map(|_| message("m")).collect()).await;
        held.extend(store.take(Take::from(queue()).max(1_000).lease_ms(3_600_000)).await.unwrap());
    }
    let first = store.list(queue(), StateKind::Leased, None, 1).await.unwrap();
    assert_eq!(first.messages.len(), 1);
    // The last one stays.
    held.sort_by_key(|delivery| (delivery.message.standing.due, delivery.message.id));
    let last = held.pop().unwrap().message.id;
    for some in held.chunks(500) {
        let ack = |delivery: &dwell_store::Delivery| Settle {
            receipt: delivery.receipt.clone(),
            action: Action::Ack,
        };
        assert!(store.settle(some.iter().map(ack).collect()).await.iter().all(Result::is_ok));
    }
    let (mut after, mut found) = (first.next, Vec::new());
    while after.is_some() {
        let before = scripts(&server);
        let page = store.list(queue(), StateKind::Leased, after, 1).await.unwrap();
        let cost = scripts(&server) - before;
        assert!(cost < 100, "{cost} scripts");
        found.extend(page.messages.into_iter().map(|message| message.id));
        after = page.next;
    }
    assert_eq!(found, [last]);
}

/// Messages that change during a walk may be missing; the others are there once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_walk_through_leased_messages_that_change_shows_the_others_once() {
    let server = Server::start();
    let store = open(&server).await;
    const COUNT: usize = 600;
    let puts = |count| {
        (0..count).map(|n| match n % 3 {
            0 => message("fresh"),
            1 => message("urgent").priority(1),
            _ => message("keyed").key(Key::new(&format!("k{n}")).unwrap()),
        })
    };
    put_all(&store, puts(COUNT).collect()).await;
    let take = || Take::from(queue()).max(1_000).lease_ms(3_600_000);
    let held = store.take(take()).await.unwrap();
    assert_eq!(held.len(), COUNT);
    let mut held = held.into_iter();
    let mut changed = std::collections::HashSet::new();
    let (_, ids) = walk(&server, &[&store], 20, async |number| {
        // From the front and from the end: some of them were shown, and some are yet to come.
        let some: Vec<_> = held.by_ref().step_by(7).take(9).collect();
        for (n, delivery) in some.into_iter().enumerate() {
            changed.insert(delivery.message.id);
            let action = match n % 3 {
                0 => Action::Ack,
                1 => Action::Extend { lease_ms: Some(60_000) },
                _ => Action::Release { after_ms: Some(0), priority: None },
            };
            let settle = Settle { receipt: delivery.receipt, action };
            store.settle(vec![settle]).await.pop().unwrap().unwrap();
        }
        if number % 5 == 0 {
            for delivery in store.take(take()).await.unwrap() {
                changed.insert(delivery.message.id);
            }
            for answer in store.put(vec![message("new")]).await {
                changed.insert(answer.unwrap().id);
            }
        }
    })
    .await;
    let distinct: std::collections::HashSet<_> = ids.iter().copied().collect();
    assert_eq!(distinct.len(), ids.len(), "one was shown twice");
    assert!(changed.len() > 50, "{}", changed.len());
    let unchanged = store.list(queue(), StateKind::Leased, None, 1_000).await.unwrap().messages;
    let unchanged: Vec<_> =
        unchanged.into_iter().map(|message| message.id).filter(|id| !changed.contains(id)).collect();
    assert!(unchanged.len() > 100, "{}", unchanged.len());
    assert!(unchanged.iter().all(|id| distinct.contains(id)), "one that did not change was not shown");
}
