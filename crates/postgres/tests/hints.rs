//! Hints between processes: a take is woken by a change that another process has made.
//!
//! The listening store's clock stands still, so that it never polls by itself: whatever wakes its takes is a hint.

mod support;

use std::sync::Arc;

use dwell_model::{Limits, QueueName, Timestamp};
use dwell_postgres::{Address, PostgresStore};
use dwell_store::{Action, Delivery, Put, Result, Settle, Store as _, Take};
use dwell_testkit::postgres::{Bouncer, Server};
use dwell_testkit::{until_async, within};
use dwell_time::{Clock, ManualClock, SystemClock};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use support::{RUNTIME, connect, installed, run};

fn orders() -> QueueName {
    "orders".parse().expect("it is a name")
}

async fn open(url: &str, clock: Arc<dyn Clock>) -> Arc<PostgresStore> {
    let address: Address =
        format!("{url}?unsynced=allow&connections=1&listen=on").parse().expect("it is a URL");
    let opened = within("an opening", PostgresStore::open_for_test(address, Limits::default(), clock)).await;
    Arc::new(opened.expect("it can be opened"))
}

fn still() -> ManualClock {
    ManualClock::new(Timestamp::from_ms(1_795_000_000_000).expect("it is an instant"))
}

/// Waits until so many connections to this database listen.
async fn await_listening(client: &Client, wanted: i64) {
    until_async("the stores to listen", async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
            AND query LIKE 'LISTEN%' AND state = 'idle'";
        client.query_one(sql, &[]).await.expect("the server answers").get::<_, i64>(0) == wanted
    })
    .await;
}

/// A take that waits, after it has looked for messages by itself. Its statements and the ones here take turns on one connection, so
/// there was no message when it looked.
async fn waiting_take(store: &Arc<PostgresStore>) -> JoinHandle<Result<Vec<Delivery>>> {
    let taking = {
        let store = Arc::clone(store);
        tokio::spawn(async move { store.take(Take::from(orders()).wait_ms(600_000)).await })
    };
    until_async("the take to wait", async || {
        store.stats(orders()).await.is_ok_and(|stats| stats.waiting == 1)
    })
    .await;
    for _ in 0..20 {
        let stats = store.stats(orders()).await.expect("it is there");
        assert_eq!(stats.waiting, 1);
    }
    taking
}

async fn taken(taking: JoinHandle<Result<Vec<Delivery>>>) -> Delivery {
    let mut taken = within("the take", taking).await.expect("it did not panic").expect("it is served");
    taken.pop().expect("a message is due")
}

#[test]
fn a_take_is_woken_by_another_process_that_puts_or_gives_back() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let client = connect(&url).await;
        let (listening, other) =
            (open(&url, Arc::new(still())).await, open(&url, Arc::new(SystemClock::new())).await);
        await_listening(&client, 2).await;
        // A name that is known, so that a put makes no difference but the message.
        assert!(other.put(vec![Put::new(orders(), "first")]).await[0].is_ok());
        let first = other.take(Take::from(orders())).await.expect("it is due").remove(0);
        let taking = waiting_take(&listening).await;
        assert!(other.put(vec![Put::new(orders(), "put")]).await[0].is_ok());
        assert_eq!(&taken(taking).await.message.body[..], b"put");

        let taking = waiting_take(&listening).await;
        let release = Action::Release { after_ms: None, priority: None };
        assert!(other.settle(vec![Settle { receipt: first.receipt, action: release }]).await[0].is_ok());
        assert_eq!(&taken(taking).await.message.body[..], b"first");

        // A caller's own transaction hints if it asks for that, and then with its commit.
        let taking = waiting_take(&listening).await;
        run(&client, "SET dwell.hint = on; BEGIN; SELECT dwell.put('orders', 'by a caller')").await;
        assert!(!taking.is_finished());
        run(&client, "COMMIT").await;
        assert_eq!(&taken(taking).await.message.body[..], b"by a caller");
    });
}

#[test]
fn without_its_connection_a_take_is_found_by_the_sweep_and_later_hints_arrive_again() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let client = connect(&url).await;
        let clock = still();
        let listening = open(&url, Arc::new(clock.clone())).await;
        await_listening(&client, 1).await;
        let taking = waiting_take(&listening).await;
        // No hint is sent: this caller has not asked for one.
        run(&client, "SELECT dwell.put('orders', 'found')").await;
        clock.advance(250);
        assert_eq!(&taken(taking).await.message.body[..], b"found");

        let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
            WHERE datname = current_database() AND query LIKE 'LISTEN%'";
        assert_eq!(client.query_one(ended, &[]).await.expect("it may").get::<_, i64>(0), 1);
        await_listening(&client, 0).await;
        await_listening(&client, 1).await;
        let taking = waiting_take(&listening).await;
        run(&client, "SET dwell.hint = on; SELECT dwell.put('orders', 'heard')").await;
        assert_eq!(&taken(taking).await.message.body[..], b"heard");
    });
}

#[test]
fn a_schema_with_a_long_name_has_a_channel_too() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let client = connect(&url).await;
        let schema = "s".repeat(63);
        let address: Address =
            format!("{url}?unsynced=allow&listen=on&schema={schema}").parse().expect("it is a URL");
        let listening = PostgresStore::open_for_test(address, Limits::default(), Arc::new(still())).await;
        let listening = Arc::new(listening.expect("it can be opened"));
        await_listening(&client, 1).await;
        let taking = waiting_take(&listening).await;
        run(&client, &format!("SET dwell.hint = on; SELECT {schema}.put('orders', 'heard')")).await;
        assert_eq!(&taken(taking).await.message.body[..], b"heard");
    });
}

#[test]
fn behind_a_pool_of_transactions_the_sweep_does_without_hints() {
    RUNTIME.block_on(async {
        let server = tokio::task::spawn_blocking(Server::start).await.expect("a server starts");
        let (server, bouncer) = tokio::task::spawn_blocking(move || {
            let bouncer = Bouncer::start(&server);
            (server, bouncer)
        })
        .await
        .expect("PgBouncer starts");
        let store = open(&bouncer.url("postgres"), Arc::new(SystemClock::new())).await;
        let other = open(&server.url("postgres"), Arc::new(SystemClock::new())).await;
        for body in ["one", "two", "three"] {
            let taking = waiting_take(&store).await;
            assert!(other.put(vec![Put::new(orders(), body)]).await[0].is_ok());
            assert_eq!(&taken(taking).await.message.body[..], body.as_bytes());
        }
    });
}
