//! Faults of PostgreSQL are reported as the contract's errors; and the
//! effects of callers' own transactions and of other processes.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dwell_model::{IdempotencyKey, Key, Limits, QueueName, Timestamp};
use dwell_postgres::{Address, OpenError, PostgresStore};
use dwell_store::{Action, Error, Put, Settle, Settled, Store as _, Take};
use dwell_testkit::{free_port, until_async, within};
use dwell_time::{Clock, ManualClock};

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
                let idempotency_key =
                    IdempotencyKey::new(&format!("t{round}")).expect("it is an idempotency key");
                store.put(vec![put("after").idempotency_key(idempotency_key)]).await[0].is_ok()
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
            // The first call's time ends a little before that of the second, which then has some left for a connection.
            assert!(["overloaded", "unavailable", "outcome_unknown"].contains(&error.code()), "{error}");
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

#[test]
fn a_host_that_does_not_answer_hides_no_other() {
    RUNTIME.block_on(async {
        let url = installed().await;
        // It accepts connections, and says nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = silent.local_addr().expect("it has an address").port();
        let hosts = url.replacen("127.0.0.1", &format!("127.0.0.1:{port},127.0.0.1"), 1);
        let address: Address =
            format!("{hosts}?unsynced=allow&timeout_ms=20000").parse().expect("it is a URL");
        let opened = within("an opening", PostgresStore::open(address, Limits::default())).await;
        let store = opened.expect("the second host is used");
        assert!(store.put(vec![put("b")]).await[0].is_ok());
        let nobody = free_port();
        let neither = format!("postgres://postgres@127.0.0.1:{port},127.0.0.1:{nobody}/x?timeout_ms=900");
        let text = refused(&neither).await.to_string();
        for (port, reason) in [(port, "does not answer within 300 ms"), (nobody, "refused")] {
            assert!(text.contains(&format!("127.0.0.1:{port}")) && text.contains(reason), "{text}");
        }
    });
}

#[test]
fn heartbeats_go_on_while_maintenance_is_held_up() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let (store, client, other) = (open(&url).await, connect(&url).await, connect(&url).await);
        assert!(store.put(vec![put("b")]).await[0].is_ok());
        let taken = store.take(Take::from(orders()).session().lease_ms(600_000)).await;
        assert_eq!(taken.map(|taken| taken.len()), Ok(1));
        // Each second leases are counted, which waits for this lock.
        run(&client, "BEGIN; LOCK TABLE dwell.tally IN ACCESS EXCLUSIVE MODE").await;
        let beat = async || -> i64 {
            let row = other.query_one("SELECT max(alive_until) FROM dwell.session", &[]).await;
            row.expect("the server answers").get(0)
        };
        let mut beats = vec![beat().await];
        until_async("three heartbeats", async || {
            let next = beat().await;
            if beats.last() != Some(&next) {
                beats.push(next);
            }
            beats.len() > 3
        })
        .await;
        let gaps: Vec<_> = beats.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|ms| *ms < 10_000), "a session lives for 15 s: {gaps:?}");
        run(&client, "ROLLBACK").await;
        assert!(store.leave().await);
    });
}

#[test]
fn a_connection_that_says_nothing_any_more_costs_one_timeout_and_is_closed() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let (server, database) = url.rsplit_once('/').expect("it has a path");
        let server = server.rsplit_once('@').expect("it has a user").1.to_owned();
        let (hang, closed) = (tokio::sync::watch::channel(false).0, Arc::new(AtomicU64::new(0)));
        let proxy = {
            let (hang, closed) = (hang.clone(), Arc::clone(&closed));
            tokio::spawn(async move {
                loop {
                    let (mut client, _) = listener.accept().await.expect("a connection comes");
                    let (server, mut hangs, closed) = (server.clone(), hang.subscribe(), Arc::clone(&closed));
                    tokio::spawn(async move {
                        let mut server = tokio::net::TcpStream::connect(server).await.expect("it is there");
                        tokio::select! {
                            biased;
                            _ = hangs.wait_for(|hangs| *hangs) => {}
                            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
                        }
                        // It answers no more, and sees when the client closes.
                        let _ = tokio::io::copy(&mut client, &mut tokio::io::sink()).await;
                        closed.fetch_add(1, Ordering::Relaxed);
                    });
                }
            })
        };
        let url = format!("postgres://postgres@127.0.0.1:{port}/{database}?unsynced=allow&timeout_ms=1500");
        let address: Address = url.parse().expect("it is a URL");
        let store = PostgresStore::open(address, Limits::default()).await.expect("it can be opened");
        until_async("a put to succeed", async || store.put(vec![put("b")]).await[0].is_ok()).await;
        hang.send_replace(true);
        let clock = dwell_time::SystemClock::new();
        let before = clock.now().mono_ms;
        assert!(store.stats(orders()).await.is_err());
        let ms = clock.now().mono_ms - before;
        assert!((1_400..2_800).contains(&ms), "one timeout bounds the call and its repetition: {ms} ms");
        until_async("the connection to be closed", async || closed.load(Ordering::Relaxed) > 0).await;
        drop(store);
        proxy.abort();
    });
}

#[test]
fn callers_in_sql_have_the_defaults_that_a_server_publishes() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let client = connect(&url).await;
        let mut limits = Limits { body_len: 10, ..Limits::default() };
        limits.defaults.levels = vec![1_000, 3_600_000];
        let store = PostgresStore::open(address(&url), limits).await.expect("it can be opened");
        let refusal = async |sql: &str| -> String {
            let row =
                client.query_one(&format!("SELECT code FROM dwell.try_put('orders', {sql})"), &[]).await;
            row.expect("it does not fail").get(0)
        };
        assert_eq!(
            refusal("'b', level => 2").await,
            "unknown_level",
            "a library leaves the defaults of others alone"
        );
        within("a call", store.publish_defaults()).await.expect("they are published");
        assert_eq!(refusal("'b', level => 2").await, "");
        assert_eq!(refusal("'0123456789x'").await, "body_too_large");
        assert_eq!(store.stats(orders()).await.map(|stats| stats.counts.scheduled), Ok(1));
    });
}

#[test]
fn an_opening_that_waits_for_a_lock_ends_in_time() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let client = connect(&url).await;
        run(&client, "BEGIN; LOCK TABLE dwell.layout IN ACCESS EXCLUSIVE MODE").await;
        let error = refused(&format!("{url}?unsynced=allow&timeout_ms=500")).await;
        assert_eq!((error.code(), error.is_retryable()), ("unreachable", true), "{error}");
        assert!(error.to_string().contains("500 ms"), "{error}");
    });
}

#[test]
fn what_an_open_transaction_holds_is_busy_after_lock_ms_and_that_alone() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let client = connect(&url).await;
        let open = async |lock_ms: u64| {
            let url = format!("{url}?unsynced=allow&lock_ms={lock_ms}&timeout_ms=120000");
            let address: Address = url.parse().expect("it is a URL");
            PostgresStore::open(address, Limits::default()).await.expect("it can be opened")
        };
        let hasty = open(100).await;
        assert!(hasty.put(vec![keyed("a", "ours")]).await[0].is_ok());
        let taken = hasty.take(Take::from(orders())).await.expect("it is due");
        let receipt = taken[0].receipt.to_string();
        run(&client, "BEGIN; SELECT dwell.put('orders', 'theirs', key => 'k')").await;
        run(&client, &format!("SELECT dwell.ack('{receipt}')")).await;
        let clock = dwell_time::SystemClock::new();
        let before = clock.now().mono_ms;
        let puts = hasty.put(vec![keyed("k", "busy"), keyed("l", "free")]).await;
        let error = puts[0].as_ref().expect_err("the key is held");
        assert_eq!((error.code(), error.is_retryable()), ("busy", true));
        assert!(puts[1].is_ok(), "{:?}", puts[1]);
        let settle = Settle { receipt: taken[0].receipt.clone(), action: Action::Ack };
        let settled = hasty.settle(vec![settle]).await;
        assert_eq!(settled[0].as_ref().map_err(Error::code), Err("busy"));
        let ms = clock.now().mono_ms - before;
        run(&client, "ROLLBACK").await;
        assert!(ms >= 200, "both waited: {ms} ms");
    });
}

#[test]
fn a_put_that_may_wait_for_long_goes_on_when_its_key_is_free() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let (client, watch) = (connect(&url).await, connect(&url).await);
        let patient: Address =
            format!("{url}?unsynced=allow&lock_ms=100000&timeout_ms=120000").parse().expect("it is a URL");
        let patient = PostgresStore::open(patient, Limits::default()).await.expect("it can be opened");
        let patient = Arc::new(patient);
        for end in ["ROLLBACK", "COMMIT"] {
            run(&client, &format!("BEGIN; SELECT dwell.put('orders', 'theirs', key => '{end}')")).await;
            let putting = {
                let patient = Arc::clone(&patient);
                tokio::spawn(async move { patient.put(vec![keyed(end, "ours"), put("plain")]).await })
            };
            until_async("the put to wait", async || {
                let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                    AND wait_event_type = 'Lock'";
                watch.query_one(sql, &[]).await.expect("the server answers").get::<_, i64>(0) > 0
            })
            .await;
            run(&client, end).await;
            let answers = within("the put", putting).await.expect("it did not panic");
            let first = answers[0].as_ref().map(|_| ()).map_err(Error::code);
            assert_eq!(first, if end == "COMMIT" { Err("key_taken") } else { Ok(()) });
            assert!(answers[1].is_ok(), "{answers:?}");
        }
    });
}

#[test]
fn a_put_that_a_purge_has_spared_is_taken_before_the_maintenance_runs() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let client = connect(&url).await;
        // The maintenance first runs when a second has passed on this clock.
        let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).expect("it is an instant"));
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let store = PostgresStore::open_for_test(address(&url), Limits::default(), shared).await;
        let store = store.expect("it can be opened");
        for round in 0..2 {
            assert!(store.put(vec![put("purged")]).await[0].is_ok());
            run(&client, "BEGIN; SELECT dwell.put('orders', 'spared')").await;
            assert_eq!(store.purge(orders()).await, Ok(1), "round {round}");
            run(&client, "COMMIT").await;
            assert!(store.take(Take::from(orders())).await.expect("it answers").is_empty(), "round {round}");
            clock.advance(250);
            within("the maintenance that is due", store.await_upkeep()).await;
            let taken = store.take(Take::from(orders())).await.expect("it answers");
            assert_eq!(taken.len(), 1, "round {round}");
            assert_eq!(&taken[0].message.body[..], b"spared");
        }
    });
}

#[test]
fn a_deletion_that_waits_has_removed_nothing() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let store = Arc::new(open(&url).await);
        assert!(store.put(vec![put("dead")]).await[0].is_ok());
        let receipt = store.take(Take::from(orders())).await.expect("it is due").remove(0).receipt;
        let bury = Action::Bury { reason: None, priority: None };
        assert!(store.settle(vec![Settle { receipt, action: bury }]).await[0].is_ok());
        assert!(store.put(vec![put("ready")]).await[0].is_ok());
        let (client, watch) = (connect(&url).await, connect(&url).await);
        // An open purge holds the next home of the queue.
        run(&client, "BEGIN; SELECT dwell.purge_1('orders', NULL)").await;
        let deleting = {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.delete_queue(orders()).await })
        };
        until_async("the deletion to wait", async || {
            let sql = "SELECT count(*) FROM pg_stat_activity \
                WHERE datname = current_database() AND wait_event_type = 'Lock'";
            watch.query_one(sql, &[]).await.expect("the server answers").get::<_, i64>(0) == 1
        })
        .await;
        let counts = store.stats(orders()).await.expect("it is there").counts;
        assert_eq!((counts.ready, counts.dead), (1, 1), "all of it goes together");
        run(&client, "ROLLBACK").await;
        assert_eq!(within("the deletion", deleting).await.expect("it does not panic"), Ok(2));
    });
}
