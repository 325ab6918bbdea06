//! Faults of PostgreSQL are reported as the contract's errors; and the
//! effects of callers' own transactions and of other processes.

mod support;

use std::sync::Arc;
use std::time::Duration;

use dwell_model::{IdempotencyKey, Key, Limits, QueueName};
use dwell_postgres::{Address, OpenError, PostgresStore};
use dwell_store::{Action, Error, Put, Settle, Settled, Store as _, Take};
use dwell_testkit::{free_port, until_async, within};

use support::{RUNTIME, address, connect, database, installed, run};

fn orders() -> QueueName {
    "orders".parse().expect("it is a name")
}

fn put(body: &'static str) -> Put {
    Put::new(orders(), body)
}

fn keyed(key: &str, body: &'static str) -> Put {
    put(body).key(Key::new(key).expect("it is a key"))
}

async fn open(url: &str) -> PostgresStore {
    PostgresStore::open(address(url), Limits::default()).await.expect("it can be opened")
}

async fn refused(url: &str) -> OpenError {
    let address: Address = url.parse().expect("it is a URL");
    match within("an opening", PostgresStore::open(address, Limits::default())).await {
        Ok(_) => panic!("{url} can be opened"),
        Err(error) => error,
    }
}

#[test]
fn what_cannot_be_used_is_said_at_open() {
    RUNTIME.block_on(async {
        let url = installed().await;
        assert_eq!(refused(&url).await.code(), "postgres_unsynced", "the server of tests has fsync off");
        let nobody = format!("postgres://postgres@127.0.0.1:{}/x", free_port());
        let error = refused(&nobody).await;
        assert_eq!((error.code(), error.is_retryable()), ("unreachable", true));
        let client = connect(&url).await;
        let allowed = format!("{url}?unsynced=allow");
        run(&client, "CREATE SCHEMA theirs; CREATE TABLE theirs.layout (x int)").await;
        assert_eq!(refused(&format!("{allowed}&schema=theirs")).await.code(), "foreign_data");
        run(&client, "UPDATE dwell.layout SET version = 99").await;
        assert_eq!(refused(&allowed).await.code(), "newer_format");
        run(&client, "UPDATE dwell.layout SET version = 1; DROP FUNCTION dwell.leased_1, dwell.purge_1")
            .await;
        let error = refused(&allowed).await;
        assert!(error.code() == "foreign_data" && error.to_string().contains("purge_1"), "{error}");
        run(&client, "CREATE ROLE guest LOGIN; REVOKE CREATE ON SCHEMA dwell FROM PUBLIC").await;
        let guest = allowed.replace("postgres@", "guest@");
        assert_eq!(refused(&format!("{guest}&schema=mine")).await.code(), "not_granted");
        run(
            &client,
            "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'",
        )
        .await;
        let (server, _) = url.rsplit_once('/').expect("it has a path");
        assert_eq!(refused(&format!("{server}/latin?unsynced=allow")).await.code(), "postgres_encoding");
    });
}

#[test]
fn an_empty_database_is_installed_once_by_many_at_a_time() {
    RUNTIME.block_on(async {
        let url = database(None).await;
        let opened = futures_util::future::join_all((0..3).map(|_| open(&url)));
        let stores = within("the installation", opened).await;
        assert!(stores[0].put(vec![put("one")]).await[0].is_ok());
        assert_eq!(stores[2].take(Take::from(orders())).await.expect("it is there").len(), 1);
    });
}

#[test]
fn a_key_that_an_open_transaction_holds_is_busy_for_its_item_alone() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let (store, client) = (open(&url).await, connect(&url).await);
        run(&client, "BEGIN; SELECT dwell.put('orders', 'theirs', key => 'k')").await;
        let answers = within("the puts", store.put(vec![keyed("k", "ours"), keyed("l", "ours")])).await;
        let busy = answers[0].as_ref().expect_err("somebody holds it");
        assert_eq!((busy.code(), busy.is_retryable()), ("busy", true));
        assert!(answers[1].is_ok(), "{answers:?}");
        run(&client, "ROLLBACK").await;
        assert!(store.put(vec![keyed("k", "ours")]).await[0].is_ok());
    });
}

#[test]
fn what_a_callers_transaction_puts_comes_with_its_commit_and_wakes_a_take() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let (store, client) = (Arc::new(open(&url).await), connect(&url).await);
        let waiting = {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.take(Take::from(orders()).wait_ms(60_000)).await })
        };
        until_async("the take to wait", async || {
            store.stats(orders()).await.is_ok_and(|stats| stats.waiting == 1)
        })
        .await;
        run(&client, "BEGIN; SELECT dwell.put('orders', 'rolled back'); ROLLBACK").await;
        run(&client, "BEGIN; SELECT dwell.put('orders', 'committed')").await;
        assert!(!waiting.is_finished());
        run(&client, "COMMIT").await;
        let taken = within("the take", waiting).await.expect("it did not panic").expect("it is served");
        assert_eq!(taken.len(), 1);
        assert_eq!(&taken[0].message.body[..], b"committed");
        // Acked together with the consumer's own data; the lease does not lapse while the ack is uncommitted.
        let receipt = taken[0].receipt.to_string();
        run(&client, &format!("BEGIN; SELECT dwell.ack('{receipt}'); COMMIT")).await;
        let late = Settle { receipt: taken[0].receipt.clone(), action: Action::Ack };
        assert_eq!(store.settle(vec![late]).await, [Err(Error::LeaseLost)]);
    });
}

#[test]
fn what_one_process_puts_wakes_takes_of_another() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let (here, there) = (Arc::new(open(&url).await), open(&url).await);
        let waiting = {
            let here = Arc::clone(&here);
            tokio::spawn(async move { here.take(Take::from(orders()).wait_ms(60_000)).await })
        };
        until_async("the take to wait", async || {
            here.stats(orders()).await.is_ok_and(|stats| stats.waiting == 1)
        })
        .await;
        assert!(there.put(vec![put("from there").after_ms(400)]).await[0].is_ok());
        let taken = within("the take", waiting).await.expect("it did not panic").expect("it is served");
        assert_eq!(taken.len(), 1);
        assert!(taken[0].taken_at >= taken[0].message.standing.due, "never early");
        let settle = Settle { receipt: taken[0].receipt.clone(), action: Action::Ack };
        assert_eq!(there.settle(vec![settle]).await, [Ok(Settled::Gone)]);
    });
}

#[test]
fn connections_that_were_ended_are_made_again() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let (store, client) = (open(&url).await, connect(&url).await);
        assert!(store.put(vec![put("before")]).await[0].is_ok());
        for round in 0..5 {
            let ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
            run(&client, ended).await;
            // A connection in use when the server ended may leave an unknown outcome; the next call gets a new connection.
            until_async("a put to succeed", async || {
                let token = IdempotencyKey::new(&format!("t{round}")).expect("it is a token");
                store.put(vec![put("after").token(token)]).await[0].is_ok()
            })
            .await;
        }
        assert_eq!(store.take(Take::from(orders()).max(9)).await.map(|taken| taken.len()), Ok(6));
    });
}

#[test]
fn who_finds_all_connections_busy_is_refused_and_has_done_nothing() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let client = connect(&url).await;
        let address: Address =
            format!("{url}?unsynced=allow&connections=1&timeout_ms=600").parse().expect("it is a URL");
        let store = Arc::new(PostgresStore::open(address, Limits::default()).await.expect("it can be opened"));
        // The functions are planned by then.
        until_async("a put to succeed", async || store.put(vec![put("first")]).await[0].is_ok()).await;
        run(&client, "BEGIN; SELECT dwell.put('orders', 'theirs', key => 'k')").await;
        // The put waits for the key for longer than the timeout of a call.
        let held_up = {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.put(vec![keyed("k", "held up")]).await })
        };
        until_async("the put to wait", async || {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
            client.query_one(sql, &[]).await.is_ok_and(|row| row.get::<_, i64>(0) == 1)
        })
        .await;
        let second = store.put(vec![put("second")]).await;
        let unknown = held_up.await.expect("it did not panic");
        assert_eq!(unknown[0].as_ref().expect_err("nobody knows").code(), "outcome_unknown");
        if let Err(error) = &second[0] {
            assert_eq!((error.code(), error.is_retryable()), ("overloaded", true));
        }
        run(&client, "ROLLBACK").await;
        tokio::time::timeout(Duration::from_secs(60), async {
            while store.put(vec![put("again")]).await[0].is_err() {}
        })
        .await
        .expect("it goes on");
    });
}

#[test]
fn a_statement_that_the_administrator_cuts_off_has_done_nothing() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let client = connect(&url).await;
        let (_, name) = url.rsplit_once('/').expect("it has a path");
        let store = open(&url).await;
        run(&client, "BEGIN; SELECT dwell.put('orders', 'theirs', key => 'k')").await;
        run(
            &client,
            &format!("ALTER ROLE postgres IN DATABASE {name} SET statement_timeout = '100ms'; COMMIT"),
        )
        .await;
        run(&client, "BEGIN; SELECT dwell.put('orders', 'theirs', key => 'l')").await;
        let other = open(&url).await;
        let cut = other.put(vec![keyed("l", "ours")]).await;
        let error = cut[0].as_ref().expect_err("it takes too long");
        assert_eq!((error.code(), error.is_retryable()), ("unavailable", true));
        run(&client, "ROLLBACK").await;
        assert_eq!(store.stats(orders()).await.map(|stats| stats.counts.ready), Ok(1));
    });
}
