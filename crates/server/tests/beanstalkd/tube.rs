//! `use`, `watch`, `ignore`, and the lists of tubes.

use dwell_model::Limits;

use crate::support::{soon, start, start_with};

#[tokio::test]
async fn a_connection_begins_with_default() {
    let server = start().await;
    let mut client = server.connect().await;
    client.expect("list-tube-used", "USING default").await;
    assert_eq!(client.list("list-tubes-watched").await, ["default"]);
    assert_eq!(client.list("list-tubes").await, ["default"]);
    server.stop().await;
}

#[tokio::test]
async fn watching_and_ignoring_and_the_last_one_stays() {
    let server = start().await;
    let mut client = server.connect().await;
    client.expect("watch b", "WATCHING 2").await;
    client.expect("watch a", "WATCHING 3").await;
    client.expect("watch a", "WATCHING 3").await;
    assert_eq!(client.list("list-tubes-watched").await, ["default", "b", "a"]);
    client.expect("ignore never-watched", "WATCHING 3").await;
    client.expect("ignore default", "WATCHING 2").await;
    client.expect("ignore b", "WATCHING 1").await;
    client.expect("ignore b", "WATCHING 1").await;
    client.expect("ignore a", "NOT_IGNORED").await;
    assert_eq!(client.list("list-tubes-watched").await, ["a"]);
    server.stop().await;
}

#[tokio::test]
async fn a_tube_is_there_while_it_has_jobs_or_connections() {
    let server = start().await;
    let (mut client, mut other) = (server.connect().await, server.connect().await);
    other.expect("use a", "USING a").await;
    other.expect("watch b", "WATCHING 2").await;
    client.ask("use c").await;
    let id = client.put(0, 100, 9, "x").await;
    client.ask("use default").await;
    assert_eq!(client.list("list-tubes").await, ["a", "b", "c", "default"]);
    client.expect("stats-tube d", "NOT_FOUND").await;
    drop(other);
    client.expect(&format!("delete {id}"), "DELETED").await;
    soon("the tubes are gone", async { while client.list("list-tubes").await != ["default"] {} }).await;
    server.stop().await;
}

#[tokio::test]
async fn names_have_up_to_200_bytes_of_the_alphabet() {
    let server = start().await;
    let mut client = server.connect().await;
    let long = "x".repeat(200);
    client.expect(&format!("use {long}"), &format!("USING {long}")).await;
    client.expect("use a-+/;.$_()Z9", "USING a-+/;.$_()Z9").await;
    for bad in ["use -a", "use a,b", "use a b", "watch  a", "ignore ", "stats-tube -", "pause-tube a,b 1"] {
        client.expect(bad, "BAD_FORMAT").await;
    }
    client.expect(&format!("use {long}x"), "BAD_FORMAT").await;
    client.expect("list-tube-used", "USING a-+/;.$_()Z9").await;
    server.stop().await;
}

#[tokio::test]
async fn no_more_tubes_are_watched_than_a_batch_may_have() {
    let server = start_with(Limits { batch: 3, ..Limits::default() }).await;
    let mut client = server.connect().await;
    client.expect("watch a", "WATCHING 2").await;
    client.expect("watch b", "WATCHING 3").await;
    client.expect("watch c", "OUT_OF_MEMORY").await;
    assert_eq!(client.list("list-tubes-watched").await, ["default", "a", "b"]);
    client.expect("watch a", "WATCHING 3").await;
    client.expect("ignore a", "WATCHING 2").await;
    client.expect("watch c", "WATCHING 3").await;
    server.stop().await;
}
