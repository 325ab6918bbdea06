//! Many calls that replicas are to confirm: the connections that they need.

use std::sync::Arc;

use dwell_store::Put;
use dwell_testkit::redis::Server;
use futures_util::future::join_all;

use super::{open, put, queue, within};

/// `wait=0` waits for no replica, but uses separate connections.
const CONFIRMED: &str = "?wait=0&retry_ms=2000";

fn message() -> Put {
    Put::new(queue("orders"), "m")
}

async fn put_at_once(store: &Arc<dwell_redis::RedisStore>, count: usize) {
    let puts = (0..count).map(|_| {
        let store = Arc::clone(store);
        tokio::spawn(async move { put(&store, message()).await })
    });
    for answer in within("puts", join_all(puts)).await {
        answer.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_broke_together_cost_one_try_and_not_one_each() {
    let server = Server::start();
    let store = Arc::new(open((server.url() + CONFIRMED).parse().unwrap()).await);
    put_at_once(&store, 200).await;
    for _ in 0..2 {
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        // More tries than fit into two seconds, if each met with one of them.
        for _ in 0..4 {
            within("a put", put(&store, message())).await.unwrap();
        }
        put_at_once(&store, 100).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_at_once_share_as_many_connections_as_there_may_be() {
    let server = Server::start();
    let url = server.url() + CONFIRMED + "&connections=1";
    let store = Arc::new(open(url.parse().unwrap()).await);
    put_at_once(&store, 200).await;
    let clients: usize = server.info("connected_clients").unwrap().parse().unwrap();
    // Sixteen for confirmed calls, one for the others, one that asks here.
    assert!(clients <= 16 + 1 + 1 + 2, "{clients} connections");
}
