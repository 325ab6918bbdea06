//! A server that is there and does not serve: it loads, it is a replica, somebody's script holds it up, it is asked for
//! scripts that it has forgotten.

use std::time::Duration;

use dwell_redis::testing::{Server, eventually};
use dwell_store::{Action, Settled, Store as _};

use super::{is_unavailable, message, open, put, queue, settle, take, within};

const BRIEF: &str = "?retry_ms=100&timeout_ms=2000";
const PATIENT: &str = "?retry_ms=30000&timeout_ms=2000";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_is_waited_for_or_said() {
    let uncompressed = ["--appendonly", "yes", "--appendfsync", "always", "--rdbcompression", "no"];
    let mut server = Server::start_with(&uncompressed);
    let (brief, patient) = (open(&(server.url() + BRIEF)).await, open(&(server.url() + PATIENT)).await);
    put(&patient, message("first")).await.unwrap();
    // A server that loads looks up from it now and then, by the bytes that it has read.
    let kilobytes = "x".repeat(8_192);
    for n in 0..300 {
        server.command(&["SET", &format!("ballast{n}"), &kilobytes]);
    }
    // The file becomes a snapshot, whose keys can be made to take their time.
    server.command(&["BGREWRITEAOF"]);
    eventually("the file is rewritten", || {
        server.info("aof_rewrite_in_progress").as_deref() == Some("0")
            && server.info("aof_rewrite_scheduled").as_deref() == Some("0")
    });
    let slow = ["--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024"];
    server.begin_again(&slow);
    eventually("it says that it loads", || {
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
    // Of a primary that nobody can reach, so that it keeps what it has.
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
    eventually("it is busy", || {
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
