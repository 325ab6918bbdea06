//! `put`.

use dwell_model::{AttemptLimit, Limits, Number};
use dwell_store::{Store, Target};

use crate::support::{start, start_with};

#[tokio::test]
async fn a_job_is_a_message_with_its_number_priority_lease_and_no_limit_of_attempts() {
    let server = start().await;
    let mut client = server.connect().await;
    client.expect("use emails", "USING emails").await;
    let id = client.put(7, 100, 25, "hel\r\nlo").await;
    let (queue, message) =
        server.store.locate(vec![Number::new(id).unwrap()]).await.remove(0).unwrap().unwrap();
    assert_eq!(queue.as_str(), "emails");
    let message = server.store.get(queue, vec![Target::Id(message)], false).await.remove(0).unwrap();
    assert_eq!(&message.body[..], b"hel\r\nlo");
    assert_eq!(message.standing.priority, 7);
    assert_eq!(message.standing.due.ms_since(message.created), 100_000);
    assert_eq!(message.lease_ms, Some(25_000));
    assert_eq!(message.max_attempts, Some(AttemptLimit::Unlimited));
    server.stop().await;
}

#[tokio::test]
async fn the_largest_numbers_are_taken_and_a_ttr_of_0_is_1() {
    let server = start().await;
    let mut client = server.connect().await;
    let id = client.put(u32::MAX, u32::MAX, u32::MAX, "").await;
    let stats = client.map(&format!("stats-job {id}")).await;
    assert_eq!((stats["pri"].as_str(), stats["delay"].as_str()), ("4294967295", "4294967295"));
    assert_eq!(stats["ttr"], "4294967295");
    let id = client.put(0, 0, 0, "x").await;
    assert_eq!(client.map(&format!("stats-job {id}")).await["ttr"], "1");
    server.stop().await;
}

#[tokio::test]
async fn a_body_at_the_limit_is_taken_and_a_longer_one_is_read_and_refused() {
    let server = start_with(Limits { body_len: 1_000, ..Limits::default() }).await;
    let mut client = server.connect().await;
    client.put(0, 0, 1, &"x".repeat(1_000)).await;
    client.expect(&format!("put 0 0 1 1001\r\n{}", "x".repeat(1_001)), "JOB_TOO_BIG").await;
    client.expect("list-tube-used", "USING default").await;
    client.expect("put 0 0 1 4294967296", "BAD_FORMAT").await;
    assert_eq!(server.counts().await.ready, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_arrives_byte_by_byte_is_taken_whole() {
    let server = start().await;
    let mut client = server.connect().await;
    for byte in b"put 0 0 1 4\r\na\r\nb\r\n" {
        client.write([*byte]).await;
        tokio::task::yield_now().await;
    }
    assert!(client.line().await.starts_with("INSERTED "));
    assert_eq!(client.job("reserve").await.2, "a\r\nb");
    server.stop().await;
}

#[tokio::test]
async fn a_body_longer_than_it_said_is_refused_and_puts_nothing() {
    let server = start().await;
    let mut client = server.connect().await;
    client.expect("put 0 0 1 3\r\nabcdelist-tube-used", "EXPECTED_CRLF").await;
    assert_eq!(client.line().await, "USING default");
    assert_eq!(server.counts().await.ready, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_full_store_says_that_memory_is_out_and_takes_what_comes_later() {
    let mut limits = Limits::default();
    limits.defaults.max_pending = Some(1);
    let server = start_with(limits).await;
    let mut client = server.connect().await;
    let id = client.put(0, 0, 1, "x").await;
    client.expect("put 0 0 1 1\r\nx", "OUT_OF_MEMORY").await;
    client.expect(&format!("delete {id}"), "DELETED").await;
    client.put(0, 0, 1, "x").await;
    server.stop().await;
}
