//! `kick` and `kick-job`.

use dwell_model::Setting;

use crate::support::{Client, start};

/// A buried job in the tube `default`.
async fn buried(client: &mut Client, body: &str) -> u64 {
    let id = client.put(0, 0, 9, body).await;
    client.job(&format!("reserve-job {id}")).await;
    client.expect(&format!("bury {id} 0"), "BURIED").await;
    id
}

#[tokio::test]
async fn buried_jobs_are_kicked_oldest_first_and_delayed_ones_stay() {
    let server = start().await;
    let mut client = server.connect().await;
    let delayed = client.put(0, 100, 9, "d").await;
    let first = buried(&mut client, "1").await;
    // The store distinguishes deaths by their milliseconds.
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    let second = buried(&mut client, "2").await;
    client.expect("kick 1", "KICKED 1").await;
    assert_eq!(client.map(&format!("stats-job {first}")).await["state"], "ready");
    assert_eq!(client.map(&format!("stats-job {second}")).await["state"], "buried");
    client.expect("kick 100", "KICKED 1").await;
    assert_eq!(client.map(&format!("stats-job {delayed}")).await["state"], "delayed");
    assert_eq!(client.map(&format!("stats-job {second}")).await["kicks"], "1");
    server.stop().await;
}

#[tokio::test]
async fn without_buried_jobs_delayed_ones_are_kicked_soonest_first() {
    let server = start().await;
    let mut client = server.connect().await;
    let far = client.put(0, 1_000, 9, "far").await;
    let near = client.put(0, 100, 9, "near").await;
    client.expect("kick 0", "KICKED 0").await;
    client.expect("kick 1", "KICKED 1").await;
    assert_eq!(client.reserve().await, near);
    client.expect("kick 18446744073709551615", "KICKED 1").await;
    assert_eq!(client.reserve().await, far);
    client.expect("kick 5", "KICKED 0").await;
    server.stop().await;
}

#[tokio::test]
async fn kick_means_the_tube_in_use() {
    let server = start().await;
    let mut client = server.connect().await;
    buried(&mut client, "x").await;
    client.ask("use other").await;
    client.expect("kick 5", "KICKED 0").await;
    client.ask("use default").await;
    client.expect("kick 5", "KICKED 1").await;
    server.stop().await;
}

#[tokio::test]
async fn kick_job_kicks_a_buried_and_a_delayed_job_and_no_other() {
    let server = start().await;
    let mut client = server.connect().await;
    let one = buried(&mut client, "x").await;
    let two = client.put(0, 100, 9, "y").await;
    client.ask("use elsewhere").await;
    for id in [one, two] {
        client.expect(&format!("kick-job {id}"), "KICKED").await;
        client.expect(&format!("kick-job {id}"), "NOT_FOUND").await;
    }
    let held = client.reserve().await;
    client.expect(&format!("kick-job {held}"), "NOT_FOUND").await;
    server.stop().await;
}

#[tokio::test]
async fn a_kick_passes_max_pending_which_refuses_puts_alone() {
    let server = start().await;
    let mut client = server.connect().await;
    let one = buried(&mut client, "1").await;
    let two = buried(&mut client, "2").await;
    client.put(0, 0, 9, "ready").await;
    server.set(Setting::MaxPending(1)).await;
    client.expect("put 0 0 9 1\r\nx", "OUT_OF_MEMORY").await;
    client.expect("kick 1", "KICKED 1").await;
    client.expect(&format!("kick-job {two}"), "KICKED").await;
    for id in [one, two] {
        assert_eq!(client.map(&format!("stats-job {id}")).await["state"], "ready");
    }
    assert_eq!(server.counts().await.ready, 3);
    client.expect("put 0 0 9 1\r\nx", "OUT_OF_MEMORY").await;
    server.stop().await;
}
