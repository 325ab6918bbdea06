//! `reserve`, `reserve-with-timeout`, `reserve-job`.

use dwell_model::{Limits, Setting};
use dwell_store::{Put, Store};

use crate::support::{now_ms, start, start_with};

#[tokio::test]
async fn the_most_urgent_due_job_of_all_watched_tubes_comes_first() {
    let server = start().await;
    let mut client = server.connect().await;
    let low = client.put(2_000, 0, 9, "low").await;
    client.ask("use other").await;
    let high = client.put(1, 0, 9, "high").await;
    client.put(0, 1_000, 9, "later").await;
    client.expect("watch other", "WATCHING 2").await;
    assert_eq!(client.job("reserve").await, ("RESERVED".to_owned(), high, "high".to_owned()));
    assert_eq!(client.job("reserve").await.1, low);
    client.expect("reserve-with-timeout 0", "TIMED_OUT").await;
    server.stop().await;
}

#[tokio::test]
async fn equal_priorities_go_by_the_instant_they_fell_due_and_then_by_their_ids() {
    let server = start().await;
    let mut client = server.connect().await;
    let ids =
        [client.put(5, 0, 9, "a").await, client.put(5, 0, 9, "b").await, client.put(5, 0, 9, "c").await];
    for id in ids {
        assert_eq!(client.reserve().await, id);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_reserve_waits_for_a_put_and_for_the_instant() {
    let server = start().await;
    let (mut worker, mut producer) = (server.connect().await, server.connect().await);
    worker.write("reserve\r\n").await;
    server.until_waiting(1).await;
    let id = producer.put(0, 0, 9, "x").await;
    assert_eq!(worker.next_job().await.1, id);
    let began = now_ms();
    let id = producer.put(0, 1, 9, "y").await;
    assert_eq!(worker.job("reserve-with-timeout 10").await.1, id);
    assert!(now_ms() - began >= 999);
    server.stop().await;
}

#[tokio::test]
async fn a_reserve_that_waits_in_vain_times_out() {
    let server = start().await;
    let mut client = server.connect().await;
    let began = now_ms();
    client.expect("reserve-with-timeout 1", "TIMED_OUT").await;
    assert!(now_ms() - began >= 999);
    server.stop().await;
}

#[tokio::test]
async fn nothing_behind_a_waiting_reserve_is_handled_before_it() {
    let server = start().await;
    let (mut worker, mut producer) = (server.connect().await, server.connect().await);
    worker.write("watch a\r\nreserve\r\nuse b\r\n").await;
    assert_eq!(worker.line().await, "WATCHING 2", "what came before is answered");
    server.until_waiting(1).await;
    assert_eq!(producer.map("stats").await["cmd-use"], "0");
    let id = producer.put(0, 0, 9, "x").await;
    assert_eq!(worker.next_job().await.1, id);
    assert_eq!(worker.line().await, "USING b");
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_sends_no_more_while_it_waits_is_told_and_the_connection_ends() {
    let server = start().await;
    let mut client = server.connect().await;
    client.write("reserve\r\n").await;
    server.until_waiting(1).await;
    client.half_close().await;
    assert_eq!(client.line().await, "TIMED_OUT");
    assert!(client.is_closed().await);
    assert!(server.store.stats("default".parse().unwrap()).await.is_err(), "nobody waits any more");
    server.stop().await;
}

#[tokio::test]
async fn the_last_second_of_a_lease_is_deadline_soon_unless_a_job_is_ready() {
    let server = start().await;
    let mut client = server.connect().await;
    let id = client.put(0, 0, 2, "x").await;
    assert_eq!(client.reserve().await, id);
    let began = now_ms();
    client.expect("reserve-with-timeout 10", "DEADLINE_SOON").await;
    let waited_ms = now_ms() - began;
    assert!((900..10_000).contains(&waited_ms), "{waited_ms}");
    client.expect("reserve", "DEADLINE_SOON").await;
    client.expect("reserve-with-timeout 0", "DEADLINE_SOON").await;
    let other = client.put(0, 0, 60, "y").await;
    assert_eq!(client.reserve().await, other, "a ready job is handed out even then");
    client.expect(&format!("touch {id}"), "TOUCHED").await;
    client.expect("reserve-with-timeout 0", "TIMED_OUT").await;
    server.stop().await;
}

#[tokio::test]
async fn a_lease_that_ran_out_makes_the_job_ready_for_others_and_not_found_for_its_holder() {
    let server = start().await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    let id = first.put(0, 0, 1, "x").await;
    assert_eq!(first.reserve().await, id);
    assert_eq!(second.job("reserve-with-timeout 10").await.1, id);
    for settle in ["release {} 0 0", "bury {} 0", "touch {}", "delete {}"] {
        first.expect(&settle.replace("{}", &id.to_string()), "NOT_FOUND").await;
    }
    assert_eq!(second.map(&format!("stats-job {id}")).await["timeouts"], "1");
    assert_eq!(second.map("stats").await["job-timeouts"], "1");
    second.expect(&format!("delete {id}"), "DELETED").await;
    server.stop().await;
}

#[tokio::test]
async fn reserve_job_takes_a_ready_a_delayed_and_a_buried_job_from_any_tube() {
    let server = start().await;
    let (mut client, mut other) = (server.connect().await, server.connect().await);
    client.ask("use elsewhere").await;
    let ready = client.put(0, 0, 9, "ready").await;
    let delayed = client.put(0, 1_000, 9, "delayed").await;
    let buried = client.put(0, 0, 9, "buried").await;
    client.job(&format!("reserve-job {buried}")).await;
    client.expect(&format!("bury {buried} 0"), "BURIED").await;
    client.expect("pause-tube elsewhere 60", "PAUSED").await;
    for (id, body) in [(ready, "ready"), (delayed, "delayed"), (buried, "buried")] {
        let job = other.job(&format!("reserve-job {id}")).await;
        assert_eq!(job, ("RESERVED".to_owned(), id, body.to_owned()));
        client.expect(&format!("reserve-job {id}"), "NOT_FOUND").await;
        other.expect(&format!("reserve-job {id}"), "NOT_FOUND").await;
        other.expect(&format!("delete {id}"), "DELETED").await;
    }
    for none in ["0", "4242", "18446744073709551615"] {
        client.expect(&format!("reserve-job {none}"), "NOT_FOUND").await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_message_put_another_way_is_reserved_with_its_queues_lease() {
    let server = start().await;
    let answers = server.store.put(vec![Put::new("default".parse().unwrap(), "over HTTP")]).await;
    let number = answers[0].as_ref().unwrap().number.get();
    let mut client = server.connect().await;
    assert_eq!(client.job("reserve").await, ("RESERVED".to_owned(), number, "over HTTP".to_owned()));
    assert_eq!(client.map(&format!("stats-job {number}")).await["ttr"], "30");
    server.stop().await;
}

#[tokio::test]
async fn past_the_cap_of_leases_a_reserve_says_that_memory_is_out() {
    let server = start_with(Limits { leased: 1, ..Limits::default() }).await;
    let mut client = server.connect().await;
    let first = client.put(0, 0, 9, "x").await;
    client.put(1, 0, 9, "y").await;
    assert_eq!(client.reserve().await, first);
    client.expect("reserve-with-timeout 0", "OUT_OF_MEMORY").await;
    client.expect(&format!("delete {first}"), "DELETED").await;
    client.reserve().await;
    server.stop().await;
}

#[tokio::test]
async fn at_the_max_leased_of_its_tube_a_reserve_waits_until_a_job_is_settled() {
    let server = start().await;
    let (mut holder, mut worker) = (server.connect().await, server.connect().await);
    server.set(Setting::MaxLeased(1)).await;
    let (first, second) = (holder.put(0, 0, 60, "1").await, holder.put(0, 0, 60, "2").await);
    assert_eq!(holder.reserve().await, first);
    worker.expect("reserve-with-timeout 0", "TIMED_OUT").await;
    worker.expect(&format!("reserve-job {second}"), "OUT_OF_MEMORY").await;
    // Other tubes are not affected.
    worker.expect("use other", "USING other").await;
    worker.expect("watch other", "WATCHING 2").await;
    let other = worker.put(0, 0, 60, "other").await;
    assert_eq!(worker.reserve().await, other);
    worker.write("reserve\r\n").await;
    server.until_waiting(1).await;
    holder.expect(&format!("delete {first}"), "DELETED").await;
    assert_eq!(worker.next_job().await, ("RESERVED".to_owned(), second, "2".to_owned()));
    server.stop().await;
}
