//! Takes: how far several at the same time exceed the cap of a queue, and what they pass over.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dwell_model::{AttemptLimit, Limits, OnExpiry, QueueName, Receipt, Setting, SettingChange};
use dwell_postgres::PostgresStore;
use dwell_store::conformance::Harness as _;
use dwell_store::{Action, Put, Settle, Store, Take};
use dwell_testkit::within;

use support::{PostgresHarness, RUNTIME, address, cap_slack, connect, installed, run};

const PARTITIONS: u16 = 4;

fn orders() -> QueueName {
    "orders".parse().expect("it is a name")
}

async fn open(url: &str) -> Arc<PostgresStore> {
    let opened = within("an opening", PostgresStore::open(address(url), Limits::default())).await;
    Arc::new(opened.expect("it can be opened"))
}

async fn set(store: &dyn Store, settings: impl IntoIterator<Item = Setting>) {
    let changes = settings.into_iter().map(SettingChange::Set).collect();
    store.configure(orders(), changes).await.expect("the settings are good");
}

async fn put(store: &dyn Store, puts: Vec<Put>) {
    assert!(store.put(puts).await.iter().all(Result::is_ok));
}

/// Takes whose transactions are open at the same time, which is the most that they can differ in what they see.
#[test]
fn takes_that_do_not_see_each_other_exceed_the_max_leased_by_as_much_as_all_but_one_of_them_take() {
    const TAKES: usize = 4;
    const MAX: u64 = 3;
    RUNTIME.block_on(async {
        let url = installed().await;
        let store = open(&url).await;
        set(&*store, [Setting::Partitions(PARTITIONS), Setting::MaxLeased(MAX)]).await;
        put(&*store, (0..100).map(|n| Put::new(orders(), n.to_string())).collect()).await;
        let take = "SELECT count(id) FROM dwell.take_1(ARRAY['orders'], 3, NULL, 600000, NULL, NULL, NULL, NULL, false, NULL)";
        let mut taken = 0;
        let mut clients = Vec::new();
        for _ in 0..TAKES {
            let client = connect(&url).await;
            run(&client, "BEGIN").await;
            taken += client.query_one(take, &[]).await.expect("it answers").get::<_, i64>(0) as u64;
            clients.push(client);
        }
        for client in &clients {
            run(client, "COMMIT").await;
        }
        assert_eq!(taken, MAX + cap_slack(TAKES as u64, MAX));
        let leased = store.stats(orders()).await.expect("it is there").counts.leased;
        assert_eq!(leased, taken);
        for client in &clients {
            let more = client.query_one(take, &[]).await.expect("it answers").get::<_, i64>(0);
            assert_eq!(more, 0, "each sees the leases of the others by now");
        }
    });
}

/// Each taker keeps what it has until a take returns nothing, and gives all of it back then. Without a cap that would be when
/// all messages are leased.
#[test]
fn several_processes_exceed_the_max_leased_by_no_more_than_the_stated_slack() {
    const PROCESSES: usize = 3;
    const TAKERS: usize = 3;
    const MAX: u64 = 2;
    const MOST: u64 = 6;
    const MESSAGES: u64 = 200;
    RUNTIME.block_on(async {
        let url = installed().await;
        let mut stores = Vec::new();
        for _ in 0..PROCESSES {
            stores.push(open(&url).await);
        }
        set(&*stores[0], [Setting::Partitions(PARTITIONS), Setting::MaxLeased(MOST)]).await;
        put(&*stores[0], (0..MESSAGES).map(|n| Put::new(orders(), n.to_string())).collect()).await;
        let slack = cap_slack((PROCESSES * TAKERS) as u64, MAX);
        assert!(MOST + slack + MAX < MESSAGES, "there are enough messages to exceed it");
        let (held, highest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let takers = stores.iter().flat_map(|store| [store; TAKERS]).map(|store| {
            let (store, held, highest) = (Arc::clone(store), Arc::clone(&held), Arc::clone(&highest));
            tokio::spawn(async move {
                let mut own: Vec<Receipt> = Vec::new();
                for _ in 0..40 {
                    let take = Take::from(orders()).max(MAX as usize).lease_ms(600_000);
                    let taken = store.take(take).await.expect("it is served");
                    let count = taken.len() as u64;
                    // What is held at the same time is leased at the same time.
                    highest.fetch_max(held.fetch_add(count, Ordering::SeqCst) + count, Ordering::SeqCst);
                    let leased = store.stats(orders()).await.expect("it is there").counts.leased;
                    highest.fetch_max(leased, Ordering::SeqCst);
                    own.extend(taken.into_iter().map(|delivery| delivery.receipt));
                    if count == 0 {
                        held.fetch_sub(own.len() as u64, Ordering::SeqCst);
                        let release = Action::Release { after_ms: None, priority: None };
                        let settle = |receipt| Settle { receipt, action: release.clone() };
                        let settled = store.settle(own.drain(..).map(settle).collect()).await;
                        assert!(settled.iter().all(Result::is_ok), "{settled:?}");
                    }
                }
            })
        });
        for taker in takers.collect::<Vec<_>>() {
            within("a taker", taker).await.expect("it does not panic");
        }
        let highest = highest.load(Ordering::SeqCst);
        assert!((MOST..=MOST + slack).contains(&highest), "{highest} were leased of {MOST}");
        // One after the other they stop at the cap, and not before.
        for store in stores.iter().cycle().take(20) {
            store.take(Take::from(orders()).max(MAX as usize)).await.expect("it is served");
        }
        let leased = stores[0].stats(orders()).await.expect("it is there").counts.leased;
        assert!((MOST..=MOST + slack).contains(&leased), "{leased} are leased of {MOST}");
    });
}

/// More goes away under a take than it looks at together: what a take lapses, kills and discards makes it no shorter.
#[test]
fn a_take_that_meets_what_is_dropped_or_discarded_hands_out_all_that_is_ready_behind_it() {
    const EACH: usize = 60;
    for on_expiry in [OnExpiry::Drop, OnExpiry::Dead] {
        let harness = PostgresHarness::open(Limits::default());
        let store = harness.store();
        let expires = harness.now().after(1_000).ok();
        RUNTIME.block_on(async {
            let retention = [Setting::DeadTtlMs(500), Setting::DeadMax(2)];
            let settings = [Setting::Partitions(PARTITIONS), Setting::OnExpiry(on_expiry)];
            set(&*store, settings.into_iter().chain(retention)).await;
            let once = Put {
                max_attempts: Some(AttemptLimit::At(1.try_into().expect("it is not 0"))),
                ..Put::new(orders(), "once")
            };
            put(&*store, vec![once; EACH]).await;
            let held =
                store.take(Take::from(orders()).max(EACH).lease_ms(1_000)).await.expect("it is served");
            assert_eq!(held.len(), EACH);
            // Of both orders: of the default priority, and of others.
            let expiring = |priority| Put { expires, priority, ..Put::new(orders(), "expires") };
            let default = Put::new(orders(), "").priority;
            put(&*store, [default, 7].iter().flat_map(|priority| vec![expiring(*priority); EACH]).collect())
                .await;
            let live = |n: usize| Put { priority: [default, 9][n % 2], ..Put::new(orders(), "live") };
            put(&*store, (0..EACH).map(live).collect()).await;
        });
        // Calls alone bring about what time has changed.
        harness.advance_unattended(1_500);
        RUNTIME.block_on(async {
            let taken = store.take(Take::from(orders()).max(EACH)).await.expect("it is served");
            assert!(taken.iter().all(|delivery| &delivery.message.body[..] == b"live"));
            assert_eq!(taken.len(), EACH, "{on_expiry:?}");
            let counts = store.stats(orders()).await.expect("it is there").counts;
            assert_eq!((counts.leased, counts.ready, counts.scheduled), (EACH as u64, 0, 0));
        });
    }
}
