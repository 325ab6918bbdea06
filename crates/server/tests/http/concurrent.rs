//! Many clients at once, on a runtime of several threads.

use std::collections::BTreeSet;

use tokio::task::JoinSet;

use crate::support::{Connection, soon, start};

const PRODUCERS: usize = 8;
const EACH: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_message_reaches_one_consumer() {
    let server = start().await;
    let address = server.address;
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        producers.spawn(async move {
            let mut connection = Connection::open(address).await;
            for at in 0..EACH {
                let body = format!("{producer}-{at}");
                connection.request("POST", "/v1/queues/q/messages", &[], body.as_bytes()).await;
                assert_eq!(connection.answer().await.status, 201);
            }
        });
    }
    let mut consumers = JoinSet::new();
    for _ in 0..PRODUCERS {
        consumers.spawn(async move {
            let mut connection = Connection::open(address).await;
            let mut bodies = Vec::new();
            while bodies.len() < EACH {
                let max = (EACH - bodies.len()).min(7);
                let target = format!("/v1/queues/q/take?wait=30s&max={max}");
                connection.request("POST", &target, &[], b"").await;
                let taken = connection.answer().await.json();
                for message in taken["messages"].as_array().unwrap() {
                    bodies.push(message["body"].as_str().unwrap().to_owned());
                    let target = format!("/v1/receipts/{}/ack", message["receipt"].as_str().unwrap());
                    connection.request("POST", &target, &[], b"").await;
                    assert_eq!(connection.answer().await.status, 200);
                }
            }
            bodies
        });
    }
    while let Some(done) = soon("producers end", producers.join_next()).await {
        done.unwrap();
    }
    let mut seen = BTreeSet::new();
    while let Some(bodies) = soon("consumers end", consumers.join_next()).await {
        for body in bodies.unwrap() {
            assert!(seen.insert(body.clone()), "{body} came twice");
        }
    }
    assert_eq!(seen.len(), PRODUCERS * EACH);
    assert_eq!(server.get("/v1/queues/q").await.status, 404, "nothing is left");
    server.stop().await;
}
