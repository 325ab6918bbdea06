//! When replies are written: before the connection waits, and no more often than that.

use std::sync::atomic::Ordering;

use crate::counting::GATE;
use crate::support::start_counting;

#[tokio::test]
async fn what_is_answered_goes_out_before_the_store_is_waited_for() {
    let (server, store) = start_counting().await;
    let mut client = server.connect().await;
    let put = "put 0 0 60 1\r\nx\r\n";
    client.write(format!("list-tube-used\r\n{put}use {GATE}\r\n{put}use b\r\n{put}")).await;
    assert_eq!(client.line().await, "USING default");
    assert_eq!(client.line().await, "INSERTED 1");
    assert_eq!(client.line().await, format!("USING {GATE}"));
    assert_eq!(store.puts.load(Ordering::SeqCst), 2, "nothing is begun behind the one that waits");
    store.gate.add_permits(1);
    assert_eq!(client.line().await, "INSERTED 2");
    assert_eq!(client.line().await, "USING b");
    assert_eq!(client.line().await, "INSERTED 3");
    server.stop().await;
}

#[tokio::test]
async fn what_was_reserved_is_told_before_what_is_behind_it() {
    let (server, store) = start_counting().await;
    let mut client = server.connect().await;
    let id = client.put(0, 0, 60, "x").await;
    for reserve in ["reserve-with-timeout 0".to_owned(), format!("reserve-job {id}"), "reserve".to_owned()] {
        client.write(format!("{reserve}\r\nuse {GATE}\r\nput 0 0 60 1\r\nx\r\n")).await;
        assert_eq!(client.next_job().await.1, id);
        assert_eq!(client.line().await, format!("USING {GATE}"));
        store.gate.add_permits(1);
        assert!(client.line().await.starts_with("INSERTED "));
        client.expect(&format!("release {id} 0 0"), "RELEASED").await;
    }
    server.stop().await;
}

#[tokio::test]
async fn what_is_answered_at_once_goes_out_before_the_last_command_is_done() {
    const PUTS: u64 = 2_000;
    let (server, store) = start_counting().await;
    let mut client = server.connect().await;
    // Less than one read.
    client.write("use a\r\nput 0 0 9 1\r\nx\r\n".repeat(PUTS as usize)).await;
    assert_eq!(client.line().await, "USING a");
    let puts = store.puts.load(Ordering::SeqCst);
    assert!(puts < PUTS, "all {puts} are done, and nothing was answered");
    for at in 1..=PUTS {
        assert_eq!(client.line().await, format!("INSERTED {at}"));
        if at < PUTS {
            assert_eq!(client.line().await, "USING a");
        }
    }
    server.stop().await;
}
