//! A standby is promoted, or a copy of the disk goes on, while a store is open: no number is answered twice.

mod support;

use dwell_model::{Limits, QueueName};
use dwell_postgres::{Address, PostgresStore};
use dwell_store::{Put, Store as _};
use dwell_testkit::postgres::Server;
use dwell_testkit::{until_async, within};

use support::{RUNTIME, connect, run};

#[test]
fn an_open_store_gives_no_number_twice_where_an_asynchronous_standby_is_promoted() {
    let mut primary = Server::start();
    RUNTIME.block_on(async {
        let queue: QueueName = "orders".parse().expect("it is a name");
        let later = || Put::new(queue.clone(), "b").after_ms(3_600_000);
        let first = open(&primary.url("postgres")).await;
        assert!(first.put(vec![later()]).await[0].is_ok());
        drop(first);
        let standby = primary.start_standby();
        let (ports, url) = ((primary.port(), standby.port()), primary.url("postgres"));
        let store =
            open(&url.replace(&ports.0.to_string(), &format!("{},127.0.0.1:{}", ports.0, ports.1))).await;
        // What is put from here on does not reach the standby.
        let client = connect(&standby.url("postgres")).await;
        run(&client, "ALTER SYSTEM SET primary_conninfo = ''").await;
        run(&client, "SELECT pg_reload_conf()").await;
        until_async("the standby to be on its own", async || {
            let row = client.query_one("SELECT count(*) FROM pg_stat_wal_receiver", &[]).await;
            row.is_ok_and(|row| row.get::<_, i64>(0) == 0)
        })
        .await;
        // A sequence is logged 32 numbers ahead.
        let answers = within("puts", store.put((0..100).map(|_| later()).collect())).await;
        let lost = answers.into_iter().map(|answer| answer.expect("it is put").number).max();
        primary.kill();
        run(&client, "SELECT pg_promote()").await;
        let mut number = None;
        until_async("a put to the promoted standby", async || {
            number = store.put(vec![later()]).await[0].as_ref().ok().map(|answer| answer.number);
            number.is_some()
        })
        .await;
        assert!(number > lost, "{number:?} comes after {lost:?}, which was answered");
        assert_eq!(store.stats(queue.clone()).await.map(|stats| stats.counts.scheduled), Ok(2));
    });
}

/// The disk is set back to a snapshot: the server that goes on has the same place and timeline.
#[test]
fn an_open_store_gives_no_number_twice_where_a_copy_of_the_disk_goes_on() {
    let mut server = Server::start();
    let queue: QueueName = "orders".parse().expect("it is a name");
    let later = || Put::new(queue.clone(), "b").after_ms(3_600_000);
    let store = RUNTIME.block_on(open(&server.url("postgres")));
    let put = async |count: usize| {
        let mut answers = Vec::new();
        until_async("puts", async || {
            answers = store.put((0..count).map(|_| later()).collect()).await;
            answers.iter().all(Result::is_ok)
        })
        .await;
        answers.into_iter().map(|answer| answer.expect("it is put").number).max()
    };
    RUNTIME.block_on(put(1));
    let copy = server.kill_and_copy();
    server.start_again();
    // A sequence is logged 32 numbers ahead.
    let lost = RUNTIME.block_on(put(100));
    server.start_again_from(&copy);
    let number = RUNTIME.block_on(put(1));
    assert!(number > lost, "{number:?} comes after {lost:?}, which was answered");
    // So do those of callers who have no number that was lost.
    let caller = RUNTIME.block_on(async {
        let client = connect(&server.url("postgres")).await;
        let row = client.query_one("SELECT (dwell.try_put('orders', 'b'::bytea)).number", &[]).await;
        row.expect("it is put").get::<_, i64>(0)
    });
    assert!(caller as u64 > number.expect("it is put").get(), "{caller}");
}

async fn open(url: &str) -> PostgresStore {
    let address: Address = format!("{url}?unsynced=allow").parse().expect("it is a URL");
    within("an opening", PostgresStore::open(address, Limits::default())).await.expect("it can be opened")
}
