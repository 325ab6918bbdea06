//! Takes that wait: what wakes them, and what they ask of a Redis.

use std::sync::Arc;

use dwell_model::{Limits, Timestamp};
use dwell_redis::RedisStore;
use dwell_redis::testing::Server;
use dwell_store::{Action, Delivery, Put, Settle, Store as _, Take};
use dwell_time::ManualClock;
use tokio::task::JoinHandle;

use super::{put, queue, within};

struct Bed {
    server: Server,
    clock: ManualClock,
    store: Arc<RedisStore>,
}

impl Bed {
    async fn new() -> Bed {
        let (server, clock) =
            (Server::start(), ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap()));
        let shared = Arc::new(clock.clone());
        let store = RedisStore::open_for_test(server.address(), Limits::default(), shared).await.unwrap();
        Bed { server, clock, store: Arc::new(store) }
    }

    /// A take that waits, and that Redis knows of on so many partitions.
    async fn wait(&self, take: Take, partitions: usize) -> JoinHandle<Vec<Delivery>> {
        let store = Arc::clone(&self.store);
        let waiting = tokio::spawn(async move { store.take(take.wait_ms(3_600_000)).await.unwrap() });
        within("a take's beginning to wait", async {
            let noted = || -> Vec<String> {
                redis::from_redis_value(self.server.command(&["KEYS", "dwell:{*}:w"])).unwrap()
            };
            while noted().len() < partitions {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
        waiting
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_made_shorter_is_waited_for_no_longer() {
    let bed = Bed::new().await;
    let jobs = queue("jobs");
    put(&bed.store, Put::new(jobs.clone(), "m")).await.unwrap();
    let held = bed.store.take(Take::from(jobs.clone()).lease_ms(600_000)).await.unwrap().pop().unwrap();
    let waiting = bed.wait(Take::from(jobs), 1).await;
    let action = Action::Extend { lease_ms: Some(1_000) };
    bed.store.settle(vec![Settle { receipt: held.receipt, action }]).await.pop().unwrap().unwrap();
    // A sweep, which comes every ten seconds, would find it as well.
    bed.clock.advance(1_000);
    let again = within("the take", waiting).await.unwrap().pop().unwrap();
    assert_eq!((again.message.id, again.lateness_ms), (held.message.id, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_one_that_was_taken_by_its_id_is_waited_for() {
    let bed = Bed::new().await;
    let jobs = queue("jobs");
    let id = put(&bed.store, Put::new(jobs.clone(), "m").after_ms(3_600_000)).await.unwrap().id;
    let waiting = bed.wait(Take::from(jobs.clone()), 1).await;
    bed.store.take_id(jobs, id, Some(1_000), false).await.unwrap();
    bed.clock.advance(1_000);
    let again = within("the take", waiting).await.unwrap().pop().unwrap();
    assert_eq!((again.message.id, again.lateness_ms), (id, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_over_many_queues_asks_each_of_them_once_a_sweep() {
    const QUEUES: usize = 100;
    let bed = Bed::new().await;
    let calls = || -> usize {
        let told = bed.server.info("cmdstat_evalsha").unwrap_or_default();
        told.split(['=', ',']).nth(1).map_or(0, |calls| calls.parse().unwrap())
    };
    let name = |n: usize| queue(&format!("q{n}"));
    let waiting = bed.wait(Take::from_all((0..QUEUES).map(name)), QUEUES).await;
    // Until nothing more is asked for a while.
    let rest = async || {
        within("the asking", async {
            let mut before = usize::MAX;
            while std::mem::replace(&mut before, calls()) != calls() {
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            }
        })
        .await;
    };
    rest().await;
    assert!(calls() <= 8 * QUEUES, "it began with {} scripts", calls());
    bed.server.command(&["CONFIG", "RESETSTAT"]);
    for sweep in 1..=2 {
        bed.clock.advance(10_000);
        within("a sweep", async {
            while calls() < sweep * QUEUES {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
        rest().await;
    }
    assert!(calls() <= 4 * QUEUES, "two sweeps asked {} scripts", calls());
    bed.server.command(&["CONFIG", "RESETSTAT"]);
    let id = put(&bed.store, Put::new(name(57), "m")).await.unwrap().id;
    let taken = within("the take", waiting).await.unwrap();
    assert_eq!(taken.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), [id]);
    rest().await;
    assert!(calls() <= 4 * QUEUES, "one message took {} scripts", calls());
}
