//! A server that is there and does not serve: it loads, it is a replica, it is blocked by a foreign script, it has
//! dropped the scripts that are called.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dwell_model::{MessageId, QueueName, Setting, SettingChange};
use dwell_store::{Action, Delivery, Error, Put, Selection, Settle, Settled, Store as _, Take, When};
use dwell_testkit::redis::Server;
use dwell_testkit::redis::proxy::Proxy;
use dwell_testkit::until;

use super::{is_unavailable, message, open, put, queue, settle, take, within};

const BRIEF: &str = "?retry_ms=100&timeout_ms=2000";
const PATIENT: &str = "?retry_ms=30000&timeout_ms=2000";

/// More dead messages than one script revives or discards.
const DEAD: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_is_waited_for_or_said() {
    let uncompressed = ["--appendonly", "yes", "--appendfsync", "always", "--rdbcompression", "no"];
    let mut server = Server::start_with(&uncompressed);
    let (brief, patient) = (open(&(server.url() + BRIEF)).await, open(&(server.url() + PATIENT)).await);
    put(&patient, message("first")).await.unwrap();
    // A server that loads answers clients at intervals, after a number of bytes read.
    let kilobytes = "x".repeat(8_192);
    for n in 0..300 {
        server.command(&["SET", &format!("ballast{n}"), &kilobytes]);
    }
    // The file becomes a snapshot, whose keys can be made to load slowly.
    server.command(&["BGREWRITEAOF"]);
    until("the file is rewritten", || {
        server.info("aof_rewrite_in_progress").as_deref() == Some("0")
            && server.info("aof_rewrite_scheduled").as_deref() == Some("0")
    });
    let slow = ["--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024"];
    server.begin_again(&slow);
    until("it says that it loads", || {
        let said = server.try_command(&["GET", "ballast1"]);
        said.is_err_and(|error| error.to_string().to_lowercase().contains("loading"))
    });
    let refused = brief.stats(queue()).await;
    assert!(is_unavailable(&refused), "{refused:?}");
    let refused = put(&brief, message("n")).await;
    assert!(refused.as_ref().is_err_and(dwell_store::Error::is_retryable), "{refused:?}");
    within("a put", put(&patient, message("second"))).await.unwrap();
    assert_eq!(patient.stats(queue()).await.unwrap().counts.ready, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_became_a_replica_is_said_and_nothing_is_changed() {
    let server = Server::start();
    let (brief, patient) = (open(&(server.url() + BRIEF)).await, open(&(server.url() + PATIENT)).await);
    put(&brief, message("first")).await.unwrap();
    let held = take(&brief, 0, 60_000).await.unwrap().unwrap();
    // Of a primary that cannot be reached, so that it keeps its data.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let refused = put(&brief, message("n")).await;
    assert!(is_unavailable(&refused), "{refused:?}");
    let said = refused.unwrap_err().to_string().to_lowercase();
    assert!(said.contains("read only") || said.contains("readonly"), "{said}");
    let refused = settle(&brief, held.receipt.clone(), Action::Ack).await;
    assert!(is_unavailable(&refused), "{refused:?}");
    let waits = tokio::spawn(async move { put(&patient, message("second")).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    within("a put", waits).await.unwrap().unwrap();
    assert_eq!(settle(&brief, held.receipt, Action::Ack).await, Ok(Settled::Gone));
    assert_eq!(brief.stats(queue()).await.unwrap().counts.ready, 1, "the refused one is not there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_elses_script_that_does_not_end_is_waited_for_or_said() {
    let server = Server::start_with(&["--busy-reply-threshold", "50"]);
    let (brief, patient) = (open(&(server.url() + BRIEF)).await, open(&(server.url() + PATIENT)).await);
    put(&brief, message("first")).await.unwrap();
    let url = server.url();
    let endless = std::thread::spawn(move || {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let killed: redis::RedisResult<()> =
            redis::cmd("EVAL").arg("while true do end").arg(0).query(&mut connection);
        killed.unwrap_err().to_string()
    });
    until("it is busy", || {
        server.try_command(&["PING"]).is_err_and(|error| error.to_string().contains("BUSY"))
    });
    let refused = put(&brief, message("n")).await;
    assert!(is_unavailable(&refused), "{refused:?}");
    let waits = tokio::spawn(async move { put(&patient, message("second")).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.command(&["SCRIPT", "KILL"]);
    assert!(endless.join().unwrap().contains("killed"));
    within("a put", waits).await.unwrap().unwrap();
    assert_eq!(brief.stats(queue()).await.unwrap().counts.ready, 2, "the refused one is not there");
}

/// Calls of several scripts, each interrupted after each of its scripts in turn by a server that takes no more
/// writes: where something was done, no error says that nothing was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_broken_off_half_way_is_unknown() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let store = Arc::new(open(&proxy.url("connections=1&timeout_ms=5000&retry_ms=0")).await);
    let plain = open(&server.url()).await;
    let dead = async |queue: &QueueName| -> Vec<MessageId> {
        let puts = (0..DEAD).map(|_| Put::new(queue.clone(), "m")).collect();
        assert!(plain.put(puts).await.iter().all(Result::is_ok));
        let taken = plain.take(Take::from(queue.clone()).max(DEAD)).await.unwrap();
        let bury = |one: &Delivery| Settle {
            receipt: one.receipt.clone(),
            action: Action::Bury { reason: None, priority: None },
        };
        assert!(plain.settle(taken.iter().map(bury).collect()).await.iter().all(Result::is_ok));
        taken.into_iter().map(|one| one.message.id).collect()
    };
    let mut half_way = HashSet::new();
    for what in ["revive", "revive ids", "discard oldest", "discard all", "purge", "configure"] {
        for after in 0..7 {
            let queue = QueueName::new(&format!("{}-{after}", what.replace(' ', "-"))).unwrap();
            let partitions = if ["discard all", "purge", "configure"].contains(&what) { 3 } else { 1 };
            let partitions = SettingChange::Set(Setting::Partitions(partitions));
            plain.configure(queue.clone(), vec![partitions]).await.unwrap();
            let ids = dead(&queue).await;
            if what == "purge" {
                let puts = (0..DEAD).map(|_| Put::new(queue.clone(), "m")).collect();
                assert!(plain.put(puts).await.iter().all(Result::is_ok));
            }
            // Its keys have been checked.
            let before = store.stats(queue.clone()).await.unwrap();
            proxy.stop_request_after(after);
            let calling = {
                let (store, queue) = (Arc::clone(&store), queue.clone());
                tokio::spawn(async move {
                    match what {
                        "revive" => store.revive(queue, Selection::All, When::Now).await.map(drop),
                        "revive ids" => store.revive(queue, Selection::Ids(ids), When::Now).await.map(drop),
                        "discard oldest" => store.discard(queue, Selection::Oldest(99)).await.map(drop),
                        "discard all" => store.discard(queue, Selection::All).await.map(drop),
                        "purge" => store.purge(queue).await.map(drop),
                        _ => {
                            let changes = vec![SettingChange::Set(Setting::LeaseMs(7_000))];
                            store.configure(queue, changes).await.map(drop)
                        }
                    }
                })
            };
            let stopped = tokio::time::timeout(Duration::from_millis(500), proxy.stopped()).await.is_ok();
            server.command(&["REPLICAOF", "127.0.0.1", "1"]);
            proxy.stop_request_after(-1);
            proxy.go_on();
            let answer = within(what, calling).await.unwrap();
            server.command(&["REPLICAOF", "NO", "ONE"]);
            let then = plain.stats(queue).await.unwrap();
            let changed = (then.counts, then.settings.lease_ms) != (before.counts, before.settings.lease_ms);
            match &answer {
                Ok(()) => {}
                Err(Error::OutcomeUnknown { .. }) if changed => {
                    half_way.insert(what);
                }
                Err(error) => {
                    assert!(stopped && !changed, "{what}, after {after}: {error}, and something was done");
                }
            }
        }
    }
    assert_eq!(half_way.len(), 6, "{half_way:?}");
}
