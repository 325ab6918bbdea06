//! All connections are killed and all scripts flushed, over and over, while four tasks put, take and ack.

use std::time::Duration;

use dwell_testkit::redis::Server;

use super::ledger::Load;
use super::{open, over_partitions, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storms_of_killed_connections_and_forgotten_scripts_lose_and_repeat_nothing() {
    storms_over(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storms_over_a_queue_that_is_spread_lose_and_repeat_nothing() {
    storms_over(4).await;
}

async fn storms_over(partitions: u16) {
    let server = Server::start();
    over_partitions(&open(&server.url()).await, partitions).await;
    let load = Load::start(vec![open(&server.url()).await, open(&server.url()).await]);
    load.go_on(50).await;
    let mut storms = 0;
    let kills = async {
        loop {
            for command in [&["CLIENT", "KILL", "TYPE", "normal"][..], &["SCRIPT", "FLUSH"]] {
                // It may hit the connection of this very command.
                let _ = server.try_command(command);
            }
            storms += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        _ = load.go_on(600) => {}
        () = kills => {}
    }
    let plain = open(&server.url()).await;
    let told = within("the end", load.end(&plain)).await;
    let flushed = server.info("cmdstat_eval").unwrap_or_default();
    assert!(storms >= 5 && flushed.contains("calls="), "{storms} storms, {flushed}");
    println!("{storms} storms, {} put, {} acked", told.answered.len(), told.acked.len());
    assert_eq!(told.lost().len(), 0, "of {} that were answered", told.answered.len());
    assert_eq!(told.came_back.len(), 0, "of {} whose ack was answered", told.acked.len());
    assert!(told.answered.len() > 600 && told.acked.len() > 600);
}
