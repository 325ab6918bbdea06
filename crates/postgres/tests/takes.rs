//! Takes: how far several at the same time exceed the cap of a queue.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dwell_model::{Limits, QueueName, Receipt, Setting, SettingChange};
use dwell_postgres::PostgresStore;
use dwell_store::{Action, Put, Settle, Store, Take};
use dwell_testkit::within;

use support::{RUNTIME, address, cap_slack, connect, installed, run};

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
