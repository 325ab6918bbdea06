//! How many connections there are, how slow a client may be, and what is too long.

use std::time::Duration;

use crate::support::{start, start_configured, until};

#[tokio::test]
async fn a_connection_too_many_is_told_so_and_the_next_has_its_place() {
    let server = start_configured(|config| config.max_connections = 1).await;
    let mut first = server.connect().await;
    first.expect("use a", "USING a").await;
    let mut second = server.connect().await;
    assert_eq!(second.line().await, "OUT_OF_MEMORY");
    assert!(second.is_closed().await);
    drop(first);
    until("the place is free", || async {
        let mut next = server.connect().await;
        // It may be refused and closed before it has said anything.
        next.try_write(b"use b\r\n").await && next.line().await == "USING b"
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn a_command_that_stands_still_ends_the_connection_and_an_idle_one_may_stay() {
    let server = start_configured(|config| config.read_ms = 100).await;
    let mut idle = server.connect().await;
    idle.expect("use a", "USING a").await;
    for half in ["put 0 0 60 5\r\nhel", "reser", "put 0 0 60 99999999\r\nx"] {
        let mut slow = server.connect().await;
        slow.write(half.as_bytes()).await;
        assert!(slow.is_closed().await);
    }
    assert_eq!(server.counts().await.ready, 0, "half a job is none");
    idle.expect("use b", "USING b").await;
    server.stop().await;
}

#[tokio::test]
async fn a_command_that_comes_ever_so_slowly_ends_the_connection() {
    let server = start_configured(|config| {
        config.read_ms = 200;
        config.read_rate = 1 << 20;
    })
    .await;
    let mut slow = server.connect().await;
    slow.write(b"put 0 0 60 100000\r\n").await;
    while slow.try_write(b"x").await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(server.counts().await.ready, 0);
    server.stop().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_where_that_is_wished_and_its_jobs_are_ready() {
    let server = start_configured(|config| config.idle_ms = Some(100)).await;
    let mut idle = server.connect().await;
    idle.put(0, 0, 60, "x").await;
    idle.reserve().await;
    assert!(idle.is_closed().await);
    until("it is ready", || async { server.counts().await.ready == 1 }).await;
    let mut waiting = server.connect().await;
    waiting.write(b"watch b\r\nignore default\r\nreserve-with-timeout 1\r\n").await;
    assert_eq!(waiting.line().await, "WATCHING 2");
    assert_eq!(waiting.line().await, "WATCHING 1");
    assert_eq!(waiting.line().await, "TIMED_OUT");
    server.stop().await;
}

#[tokio::test]
async fn long_lines_endless_input_and_garbage_harm_nobody() {
    let server = start().await;
    let mut long = server.connect().await;
    long.write(&b"a".repeat(1 << 20)).await;
    long.write(b"\r\nuse a\r\n").await;
    assert_eq!(long.line().await, "BAD_FORMAT");
    assert_eq!(long.line().await, "USING a");
    for garbage in [vec![0; 100_000], (0..=255).cycle().take(70_000).collect::<Vec<u8>>()] {
        let mut client = server.connect().await;
        client.try_write(&garbage).await;
    }
    long.expect("use b", "USING b").await;
    server.stop().await;
}
