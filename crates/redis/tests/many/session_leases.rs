//! Processes that bind leases: which of them are dead and which are not, whatever Redis and its clock do.

use std::sync::Arc;

use dwell_model::{Limits, Timestamp};
use dwell_redis::RedisStore;
use dwell_store::{Action, Delivery, Put, Settle, Settled, Store as _, Take};
use dwell_testkit::redis::Server;
use dwell_time::{Clock as _, ManualClock};

use super::{put, queue};

const LEASE_MS: u64 = 12 * 3_600_000;
const BEAT_MS: u64 = 5_000;

/// The number of beats within which a dead process must be found: 15 seconds of silence, and the beat after.
const FOUND_OUT: usize = 4;

struct Fixture {
    server: Server,
    clock: ManualClock,
}

impl Fixture {
    fn new() -> Fixture {
        let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
        Fixture { server: Server::start(), clock }
    }

    async fn process(&self) -> RedisStore {
        let clock = Arc::new(self.clock.clone());
        RedisStore::open_for_test(self.server.address(), Limits::default(), clock).await.unwrap()
    }

    async fn step(&self, processes: &[&RedisStore]) {
        self.clock.advance(BEAT_MS);
        for process in processes {
            process.beat_for_test().await.unwrap();
        }
    }

    /// These processes send heartbeats, for as long as it takes to find dead ones.
    async fn live(&self, processes: &[&RedisStore]) {
        for _ in 0..FOUND_OUT {
            self.step(processes).await;
        }
    }

    /// Puts a message and takes it with a session lease.
    async fn hold(&self, process: &RedisStore) -> Delivery {
        let id = put(process, Put::new(queue("jobs"), "m")).await.unwrap().id;
        let held = take(process).await.unwrap();
        assert_eq!(held.message.id, id);
        held
    }
}

/// A take of session leases; no lease of the test ends by itself.
async fn take(process: &RedisStore) -> Option<Delivery> {
    process.take(Take::from(queue("jobs")).lease_ms(LEASE_MS).session()).await.unwrap().pop()
}

async fn leased(process: &RedisStore) -> u64 {
    process.stats(queue("jobs")).await.unwrap().counts.leased
}

async fn ack(process: &RedisStore, held: Delivery) {
    let acked = Settle { receipt: held.receipt, action: Action::Ack };
    assert_eq!(process.settle(vec![acked]).await.pop().unwrap(), Ok(Settled::Gone));
}

/// After an outage the scores of the processes look as after a step of the clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_or_a_step_of_the_clock_frees_nothing_of_those_who_live() {
    let bed = Fixture::new();
    let (one, other) = (bed.process().await, bed.process().await);
    let held = [bed.hold(&one).await, bed.hold(&other).await];
    bed.live(&[&one, &other]).await;
    for away_ms in [20_000, 8_000, 3_600_000] {
        bed.clock.advance(away_ms);
        for process in [&one, &other] {
            process.beat_for_test().await.unwrap();
            assert_eq!(leased(&one).await, 2, "away for {away_ms} ms");
        }
        bed.live(&[&one, &other]).await;
        assert_eq!(leased(&one).await, 2, "away for {away_ms} ms, a while ago");
    }
    for held in held {
        ack(&one, held).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_died_in_an_outage_is_found_out_once_it_is_over() {
    let bed = Fixture::new();
    let one = bed.process().await;
    for step_ms in [20_000, -3_600_000] {
        let other = bed.process().await;
        let held = bed.hold(&one).await;
        let lost = bed.hold(&other).await.message.id;
        bed.live(&[&one, &other]).await;
        drop(other);
        bed.clock.step_wall(Timestamp::from_ms(bed.clock.now().wall.as_ms() + step_ms).unwrap());
        one.beat_for_test().await.unwrap();
        assert_eq!(leased(&one).await, 2, "nobody can know yet");
        bed.live(&[&one]).await;
        assert_eq!(leased(&one).await, 1, "after a step of {step_ms} ms");
        // It is due again by the clock of its put.
        bed.clock.advance(3_600_000);
        let again = take(&one).await.unwrap();
        assert_eq!(again.message.id, lost);
        ack(&one, again).await;
        ack(&one, held).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_forgotten_and_lives_binds_leases_as_before() {
    let bed = Fixture::new();
    let (one, other) = (bed.process().await, bed.process().await);
    let lost = bed.hold(&other).await.message.id;
    // It is silent for this long; if a beat comes by itself, on a slow machine, the test starts again.
    for _ in 0..100 {
        bed.step(&[&one]).await;
        if leased(&one).await == 0 {
            break;
        }
    }
    // It does not know of that yet, and takes it once more.
    let again = take(&other).await.expect("it was freed");
    assert_eq!(again.message.id, lost);
    other.beat_for_test().await.unwrap();
    bed.live(&[&one, &other]).await;
    assert_eq!(leased(&one).await, 1, "it is there");
    drop(other);
    bed.live(&[&one]).await;
    assert_eq!(take(&one).await.expect("it was freed").message.id, lost);
}

/// The partitions in which processes are registered to bind leases.
fn known(bed: &Fixture) -> Vec<String> {
    let processes = bed.server.command(&["KEYS", "{dwell}:session:*"]);
    let processes: Vec<Vec<u8>> = redis::from_redis_value(processes).unwrap();
    let mut connection = redis::Client::open(bed.server.url()).unwrap().get_connection().unwrap();
    let known = processes.into_iter().map(|process| {
        let parts: Vec<String> = redis::cmd("SMEMBERS").arg(process).query(&mut connection).unwrap();
        parts
    });
    let mut known: Vec<String> = known.flatten().collect();
    known.sort();
    known
}

/// A consumer of ever other queues, each of which it asks for once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_were_asked_for_once_are_not_kept_for_ever() {
    const NAMES: usize = 600;
    let bed = Fixture::new();
    let process = bed.process().await;
    let held = bed.hold(&process).await;
    for some in (0..NAMES).collect::<Vec<_>>().chunks(200) {
        let names = some.iter().map(|n| queue(&format!("q{n}")));
        assert!(process.take(Take::from_all(names).session()).await.unwrap().is_empty());
    }
    assert_eq!(known(&bed).len(), NAMES + 1);
    let (_, before) = process.kept_for_test();
    // They are kept as long as the consumer may come back soon.
    bed.step(&[&process]).await;
    assert_eq!(known(&bed).len(), NAMES + 1);
    for _ in 0..12 {
        bed.step(&[&process]).await;
    }
    assert_eq!(known(&bed), ["0/jobs"], "where it holds something");
    let (_, after) = process.kept_for_test();
    assert!(after + NAMES <= before, "{before} places have become {after}");
    // A process that comes back is registered again, and its earlier lease there is still bound to it.
    let id = put(&process, Put::new(queue("q7"), "m")).await.unwrap().id;
    let again = process.take(Take::from(queue("q7")).lease_ms(LEASE_MS).session()).await.unwrap();
    assert_eq!(again[0].message.id, id);
    assert_eq!(known(&bed), ["0/jobs", "0/q7"]);
    drop(process);
    let other = bed.process().await;
    bed.live(&[&other]).await;
    assert_eq!(leased(&other).await, 0);
    assert_eq!(take(&other).await.unwrap().message.id, held.message.id);
    let freed = other.take(Take::from(queue("q7"))).await.unwrap();
    assert_eq!(freed[0].message.id, id);
}

/// The longest argument of a command since the slow log, which has all commands, was cleared.
fn longest_argument(bed: &Fixture) -> usize {
    let entries: Vec<redis::Value> =
        redis::from_redis_value(bed.server.command(&["SLOWLOG", "GET", "100000"])).unwrap();
    let arguments = entries.into_iter().flat_map(|entry| {
        let redis::Value::Array(mut parts) = entry else { panic!("an entry is a list") };
        redis::from_redis_value::<Vec<Vec<u8>>>(parts.swap_remove(3)).unwrap()
    });
    let len = |argument: Vec<u8>| {
        // An argument longer than 128 bytes ends with the number of further ones.
        let text = String::from_utf8_lossy(&argument);
        let more = text.rsplit_once("... (").and_then(|(_, more)| more.strip_suffix(" more bytes)"));
        more.map_or(argument.len(), |more| 128 + more.parse::<usize>().unwrap())
    };
    arguments.map(len).max().unwrap()
}

/// The directory has lost where a process binds leases, in more partitions than one script registers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_forgotten_of_a_process_is_said_again_by_and_by() {
    const NAMES: usize = 1_300;
    let bed = Fixture::new();
    let process = bed.process().await;
    for some in (0..NAMES).collect::<Vec<_>>().chunks(650) {
        let names = some.iter().map(|n| queue(&format!("q{n}")));
        process.take(Take::from_all(names).session()).await.unwrap();
    }
    let before = known(&bed);
    assert_eq!(before.len(), NAMES);
    let mut connection = redis::Client::open(bed.server.url()).unwrap().get_connection().unwrap();
    let keys: Vec<Vec<u8>> =
        redis::from_redis_value(bed.server.command(&["KEYS", "{dwell}:session:*"])).unwrap();
    let _: () = redis::cmd("DEL").arg(keys).query(&mut connection).unwrap();
    bed.server.command(&["CONFIG", "RESETSTAT"]);
    bed.server.command(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
    bed.server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    bed.server.command(&["SLOWLOG", "RESET"]);
    bed.step(&[&process]).await;
    let longest = longest_argument(&bed);
    assert!(longest < 6_000, "a script had {longest} bytes of arguments");
    assert_eq!(known(&bed), before);
    let saids = bed.server.info("cmdstat_sadd").unwrap();
    assert!(saids.starts_with(&format!("calls={NAMES},")), "{saids}");
    let scripts = bed.server.info("cmdstat_evalsha").unwrap();
    let scripts: usize = scripts.split(['=', ',']).nth(1).unwrap().parse().unwrap();
    assert!(scripts >= NAMES.div_ceil(512), "{scripts} scripts have said all of it");
}
