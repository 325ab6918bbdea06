//! `pause-tube`.

use crate::support::{now_ms, start};

#[tokio::test]
async fn a_paused_tube_hands_nothing_out_until_its_pause_ends() {
    let server = start().await;
    let (mut client, mut worker) = (server.connect().await, server.connect().await);
    let began = now_ms();
    client.expect("pause-tube default 1", "PAUSED").await;
    let id = client.put(0, 0, 9, "x").await;
    worker.expect("reserve-with-timeout 0", "TIMED_OUT").await;
    let stats = client.map("stats-tube default").await;
    assert_eq!((stats["pause"].as_str(), stats["cmd-pause-tube"].as_str()), ("1", "1"));
    assert_eq!(worker.job("reserve-with-timeout 10").await.1, id);
    assert!(now_ms() - began >= 999);
    assert_eq!(client.map("stats-tube default").await["pause"], "0");
    server.stop().await;
}

#[tokio::test]
async fn a_pause_of_0_ends_a_pause() {
    let server = start().await;
    let (mut client, mut worker) = (server.connect().await, server.connect().await);
    client.expect("pause-tube default 100", "PAUSED").await;
    let left: u64 = client.map("stats-tube default").await["pause-time-left"].parse().unwrap();
    assert!((98..=100).contains(&left), "{left}");
    let id = client.put(0, 0, 9, "x").await;
    worker.write("reserve\r\n").await;
    server.until_waiting(1).await;
    client.expect("pause-tube default 0", "PAUSED").await;
    assert_eq!(worker.next_job().await.1, id);
    server.stop().await;
}

#[tokio::test]
async fn a_tube_that_is_not_there_cannot_be_paused() {
    let server = start().await;
    let mut client = server.connect().await;
    client.expect("pause-tube nowhere 5", "NOT_FOUND").await;
    client.expect("pause-tube default", "BAD_FORMAT").await;
    client.expect("pause-tube default x", "BAD_FORMAT").await;
    server.stop().await;
}

#[tokio::test]
async fn a_tube_that_has_been_gone_is_no_longer_paused() {
    let server = start().await;
    let mut client = server.connect().await;
    client.expect("use a", "USING a").await;
    client.expect("pause-tube a 100", "PAUSED").await;
    client.expect("use default", "USING default").await;
    client.expect("stats-tube a", "NOT_FOUND").await;
    client.expect("watch a", "WATCHING 2").await;
    client.expect("use a", "USING a").await;
    assert_eq!(client.map("stats-tube a").await["pause"], "0");
    let id = client.put(0, 0, 9, "x").await;
    assert_eq!(client.job("reserve-with-timeout 0").await.1, id);
    client.expect(&format!("delete {id}"), "DELETED").await;

    // While it has a job or a connection it stays, with its pause.
    client.expect("use b", "USING b").await;
    client.put(0, 0, 9, "y").await;
    client.expect("pause-tube b 100", "PAUSED").await;
    client.expect("use default", "USING default").await;
    client.expect("watch b", "WATCHING 3").await;
    client.expect("use b", "USING b").await;
    client.expect("reserve-with-timeout 0", "TIMED_OUT").await;
    assert_eq!(client.map("stats-tube b").await["pause"], "100");
    server.stop().await;
}
