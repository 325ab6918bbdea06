//! `peek`, `peek-ready`, `peek-delayed`, `peek-buried`.

use crate::support::start;

#[tokio::test]
async fn peek_shows_a_job_in_any_state_and_tube() {
    let server = start().await;
    let (mut client, mut other) = (server.connect().await, server.connect().await);
    other.ask("use elsewhere").await;
    let id = client.put(0, 0, 9, "body").await;
    for _ in ["ready", "reserved", "buried"] {
        let found = other.job(&format!("peek {id}")).await;
        assert_eq!(found, ("FOUND".to_owned(), id, "body".to_owned()));
        client.write(format!("reserve-job {id}\r\nbury {id} 0\r\n")).await;
        assert_eq!(client.next_job().await.1, id);
        assert_eq!(client.line().await, "BURIED");
    }
    server.stop().await;
}

#[tokio::test]
async fn peek_ready_shows_what_a_reserve_would_get() {
    let server = start().await;
    let mut client = server.connect().await;
    client.expect("peek-ready", "NOT_FOUND").await;
    client.put(9, 0, 9, "low").await;
    let urgent = client.put(1, 0, 9, "urgent").await;
    client.put(0, 100, 9, "later").await;
    assert_eq!(client.job("peek-ready").await, ("FOUND".to_owned(), urgent, "urgent".to_owned()));
    assert_eq!(client.reserve().await, urgent);
    client.ask("use other").await;
    client.expect("peek-ready", "NOT_FOUND").await;
    server.stop().await;
}

/// For any number and length of jobs that are due before it.
#[tokio::test]
async fn peek_ready_shows_the_urgent_one_behind_many_and_large_ones() {
    let server = start().await;
    let mut client = server.connect().await;
    for _ in 0..12 {
        client.put(9, 0, 9, &"x".repeat(1_000_000)).await;
    }
    let urgent = client.put(1, 0, 9, "urgent").await;
    assert_eq!(client.job("peek-ready").await.1, urgent);
    assert_eq!(client.reserve().await, urgent);
    server.stop().await;
}

#[tokio::test]
async fn peek_delayed_shows_what_falls_due_next() {
    let server = start().await;
    let mut client = server.connect().await;
    client.put(0, 0, 9, "ready").await;
    client.expect("peek-delayed", "NOT_FOUND").await;
    client.put(0, 1_000, 9, "far").await;
    let near = client.put(9, 100, 9, "near").await;
    assert_eq!(client.job("peek-delayed").await.1, near);
    server.stop().await;
}

#[tokio::test]
async fn peek_buried_shows_what_was_buried_first() {
    let server = start().await;
    let mut client = server.connect().await;
    client.expect("peek-buried", "NOT_FOUND").await;
    let (one, two) = (client.put(0, 0, 9, "1").await, client.put(0, 0, 9, "2").await);
    for id in [two, one] {
        client.job(&format!("reserve-job {id}")).await;
        client.expect(&format!("bury {id} 0"), "BURIED").await;
        // The store distinguishes deaths by their milliseconds.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert_eq!(client.job("peek-buried").await.1, two);
    client.expect("kick 1", "KICKED 1").await;
    assert_eq!(client.job("peek-buried").await.1, one);
    server.stop().await;
}
