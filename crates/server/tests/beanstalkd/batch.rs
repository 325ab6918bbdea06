//! Commands that arrive together: answered in order, with few calls to the store.

use std::sync::atomic::Ordering;

use crate::support::{start, start_counting};

#[tokio::test]
async fn commands_that_come_together_are_answered_in_their_order() {
    let server = start().await;
    let mut client = server.connect().await;
    let mut all = String::new();
    for i in 0..300 {
        all.push_str(&format!(
            "use t{i}\r\nput {i} 0 60 3\r\n{i:03}\r\nfoo\r\nput 0 0 x 0\r\nlist-tube-used\r\n"
        ));
    }
    client.write(all).await;
    let mut last = 0;
    for i in 0..300 {
        assert_eq!(client.line().await, format!("USING t{i}"));
        let id: u64 = client.line().await.strip_prefix("INSERTED ").unwrap().parse().unwrap();
        assert!(id > last);
        last = id;
        assert_eq!(client.line().await, "UNKNOWN_COMMAND");
        assert_eq!(client.line().await, "BAD_FORMAT");
        assert_eq!(client.line().await, format!("USING t{i}"));
    }
    server.stop().await;
}

#[tokio::test]
async fn deletes_that_come_together_find_held_ready_delayed_buried_and_gone_jobs() {
    let server = start().await;
    let mut client = server.connect().await;
    let held = client.put(0, 0, 60, "held").await;
    client.reserve().await;
    let ready = client.put(0, 0, 60, "ready").await;
    let delayed = client.put(0, 60, 60, "delayed").await;
    client.ask("use elsewhere").await;
    let buried = client.put(0, 0, 60, "buried").await;
    client.job(&format!("reserve-job {buried}")).await;
    client.expect(&format!("bury {buried} 0"), "BURIED").await;
    let mut other = server.connect().await;
    let others = client.put(0, 0, 60, "other's").await;
    other.job(&format!("reserve-job {others}")).await;
    let ids = [held, 0, ready, delayed, others, buried, ready, held];
    client.write(ids.map(|id| format!("delete {id}\r\n")).concat()).await;
    let expected =
        ["DELETED", "NOT_FOUND", "DELETED", "DELETED", "NOT_FOUND", "DELETED", "NOT_FOUND", "NOT_FOUND"];
    for (id, word) in ids.iter().zip(expected) {
        assert_eq!(client.line().await, word, "{id}");
    }
    server.stop().await;
}

#[tokio::test]
async fn reserves_that_come_together_each_get_a_job_and_the_rest_time_out() {
    let server = start().await;
    let mut client = server.connect().await;
    let ids = [client.put(1, 0, 60, "a").await, client.put(2, 0, 60, "b").await];
    client.write("reserve-with-timeout 0\r\n".repeat(4)).await;
    for id in ids {
        assert_eq!(client.next_job().await.1, id);
    }
    assert_eq!(client.line().await, "TIMED_OUT");
    assert_eq!(client.line().await, "TIMED_OUT");
    server.stop().await;
}

#[tokio::test]
async fn reserves_that_wait_together_are_served_one_by_one() {
    let server = start().await;
    let (mut worker, mut producer) = (server.connect().await, server.connect().await);
    worker.write("reserve\r\n".repeat(3)).await;
    for _ in 0..3 {
        server.until_waiting(1).await;
        let id = producer.put(0, 0, 60, "x").await;
        assert_eq!(worker.next_job().await.1, id);
    }
    server.stop().await;
}

#[tokio::test]
async fn commands_that_come_together_share_calls_to_the_store() {
    const JOBS: usize = 512;
    let (server, store) = start_counting().await;
    let mut client = server.connect().await;
    // All of it has arrived when the first command is read: one write smaller than a socket's buffer, to a server that
    // shares its only thread with this test.
    client.write("put 0 0 60 3\r\nabc\r\n".repeat(JOBS)).await;
    let mut ids = Vec::new();
    for _ in 0..JOBS {
        ids.push(client.line().await.strip_prefix("INSERTED ").unwrap().to_owned());
    }
    client.write("reserve\r\n".repeat(JOBS)).await;
    for id in &ids {
        assert_eq!(client.next_job().await.1.to_string(), *id);
    }
    client.write(ids.iter().map(|id| format!("delete {id}\r\n")).collect::<String>()).await;
    for _ in 0..JOBS {
        assert_eq!(client.line().await, "DELETED");
    }
    // The kernel may split the data into a few pieces.
    for (what, calls) in [("puts", &store.puts), ("takes", &store.takes), ("settles", &store.settles)] {
        let calls = calls.load(Ordering::SeqCst);
        assert!((1..=8).contains(&calls), "{what}: {calls} calls for {JOBS}");
    }
    server.stop().await;
}

#[tokio::test]
async fn settlements_of_different_jobs_that_come_together_share_calls_to_the_store() {
    const JOBS: usize = 300;
    let (server, store) = start_counting().await;
    let mut client = server.connect().await;
    let mut ids = Vec::new();
    for _ in 0..JOBS {
        client.put(0, 0, 60, "x").await;
        ids.push(client.reserve().await);
    }
    let said: String = ids
        .iter()
        .enumerate()
        .map(|(at, id)| match at % 3 {
            0 => format!("touch {id}\r\n"),
            1 => format!("bury {id} 7\r\n"),
            _ => format!("release {id} 7 100\r\n"),
        })
        .collect();
    let before = store.settles.load(Ordering::SeqCst);
    client.write(said).await;
    for at in 0..JOBS {
        assert_eq!(client.line().await, ["TOUCHED", "BURIED", "RELEASED"][at % 3]);
    }
    let calls = store.settles.load(Ordering::SeqCst) - before;
    assert!((1..=8).contains(&calls), "{calls} calls for {JOBS}");
    // A job that is named twice is settled twice, in the order of the commands; one that is not held is not found.
    let first = ids[0];
    client.write(format!("touch {first}\r\nbury {first} 1\r\ntouch {first}\r\nrelease 9999 1 1\r\n")).await;
    for reply in ["TOUCHED", "BURIED", "NOT_FOUND", "NOT_FOUND"] {
        assert_eq!(client.line().await, reply);
    }
    assert_eq!(server.counts().await.scheduled, (JOBS / 3) as u64);
    server.stop().await;
}
