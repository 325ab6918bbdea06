//! Room for bodies: when it is set aside, how long clients wait for it, and which clients lose it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::counting::{Counting, GATE};
use crate::support::{
    Client, Running, soon, start_configured_roomy, start_counting_roomy, start_counting_roomy_patient,
    start_roomy, start_roomy_patient, until,
};

const JOB: usize = 100_000;

/// A put of `len` bytes, of which `sent` are sent.
fn put(len: usize, sent: usize) -> Vec<u8> {
    [format!("put 0 0 60 {len}\r\n").as_bytes(), &b"x".repeat(sent)].concat()
}

/// A client that has sent a large part of a job, for which all its room is set aside.
async fn slow(server: &Running) -> Client {
    let before = server.held_bytes().await;
    let mut client = server.connect().await;
    client.write(put(JOB, SENT)).await;
    until("room is set aside", || async { server.held_bytes().await >= before + SENT as u64 }).await;
    client
}

const SENT: usize = JOB - 1_000;

/// A client whose job has arrived and keeps its room until a permit lets it through.
async fn at_the_gate(server: &Running) -> Client {
    let before = server.held_bytes().await;
    let mut client = server.connect().await;
    client.ask(&format!("use {GATE}")).await;
    client.write([put(JOB, JOB), b"\r\n".to_vec()].concat()).await;
    until("its room is set aside", || async { server.held_bytes().await >= before + JOB as u64 }).await;
    client
}

#[tokio::test]
async fn who_announces_much_and_sends_little_holds_up_nobody() {
    let server = start_roomy(2 * JOB as u64).await;
    let mut idle = Vec::new();
    for _ in 0..50 {
        let mut client = server.connect().await;
        client.write([b"list-tube-used\r\n".to_vec(), put(JOB, 1)].concat()).await;
        assert_eq!(client.line().await, "USING default");
        idle.push(client);
    }
    let mut other = server.connect().await;
    for _ in 0..3 {
        other.put(0, 0, 60, &"x".repeat(JOB)).await;
    }
    assert_eq!(server.held_bytes().await, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_job_that_finds_no_room_in_time_is_refused_and_its_connection_goes_on() {
    let (server, store) = start_counting_roomy(2 * JOB as u64).await;
    let (mut first, mut second) = (at_the_gate(&server).await, at_the_gate(&server).await);
    let (mut third, mut small) = (server.connect().await, server.connect().await);
    third.write([put(JOB, JOB), b"\r\nlist-tube-used\r\n".to_vec()].concat()).await;
    small.put(0, 0, 60, &"x".repeat(16 * 1024)).await;
    assert_eq!(third.line().await, "OUT_OF_MEMORY");
    assert_eq!(third.line().await, "USING default");
    assert_eq!(server.counts().await.ready, 1);
    store.gate.add_permits(2);
    assert!(first.line().await.starts_with("INSERTED "));
    assert!(second.line().await.starts_with("INSERTED "));
    third.put(0, 0, 60, &"x".repeat(JOB)).await;
    until("nothing is held", || async { server.held_bytes().await == 0 }).await;
    assert_eq!(small.map("stats").await["cmd-put"], "5");
    server.stop().await;
}

/// Slow bytes are enough while nothing waits for room.
#[tokio::test]
async fn a_job_that_comes_slowly_or_not_at_all_gives_way_to_others() {
    let server = start_configured_roomy(2 * JOB as u64, |config| config.read_rate = 1).await;
    for drips in [false, true] {
        let mut slow = slow(&server).await;
        let mut other = server.connect().await;
        other.write([put(2 * JOB, 2 * JOB), b"\r\n".to_vec()].concat()).await;
        let mut sent = SENT;
        let drip = async {
            // Far less than what is still to arrive.
            for _ in 0..(JOB - SENT) / 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                if drips {
                    slow.write("x").await;
                    sent += 1;
                }
            }
        };
        tokio::select! {
            reply = other.line() => assert!(reply.starts_with("INSERTED "), "{reply}, it drips: {drips}"),
            () = drip => panic!("it goes on for ever, it drips: {drips}"),
        }
        until("nothing is held", || async { server.held_bytes().await == 0 }).await;
        slow.write([&b"x".repeat(JOB - sent)[..], b"\r\n"].concat()).await;
        assert_eq!(slow.line().await, "OUT_OF_MEMORY", "it drips: {drips}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_job_waits_for_room() {
    let server = start_roomy(2 * JOB as u64).await;
    let (first, second) = (slow(&server).await, slow(&server).await);
    let mut third = server.connect().await;
    third.write([put(JOB, JOB), b"\r\n".to_vec()].concat()).await;
    drop(first);
    assert!(third.line().await.starts_with("INSERTED "));
    drop(second);
    server.stop().await;
}

#[tokio::test]
async fn a_job_that_waits_for_room_does_not_hold_up_a_server_that_stops() {
    let server = start_roomy_patient(2 * JOB as u64).await;
    let slow = (slow(&server).await, slow(&server).await);
    let mut third = server.connect().await;
    third.write([b"list-tube-used\r\n", &put(JOB, JOB)[..], b"\r\n"].concat()).await;
    assert_eq!(third.line().await, "USING default");
    let stopping = server.begin_stop();
    assert_eq!(third.line().await, "DRAINING");
    assert!(third.is_closed().await);
    drop(slow);
    soon("it stops", stopping).await.unwrap();
}

/// A server over its limit, since one job takes all room, until a permit lets it through.
async fn full() -> (Running, Arc<Counting>) {
    let (server, store) = start_counting_roomy_patient(JOB as u64 / 2).await;
    // It is put even though its client has disconnected.
    drop(at_the_gate(&server).await);
    (server, store)
}

#[tokio::test]
async fn a_reserve_waits_for_room_no_longer_than_it_may() {
    let (server, store) = full().await;
    let mut client = server.connect().await;
    let id = client.put(0, 0, 60, "x").await;
    client.expect("reserve-with-timeout 0", "TIMED_OUT").await;
    client.expect("reserve-with-timeout 1", "TIMED_OUT").await;
    client.write("list-tube-used\r\nreserve\r\n").await;
    assert_eq!(client.line().await, "USING default");
    store.gate.add_permits(1);
    assert_eq!(client.next_job().await.1, id);
    drop(client);
    server.stop().await;
}

#[tokio::test]
async fn a_reserve_that_waits_for_room_ends_with_its_connection_and_with_the_server() {
    let (server, store) = full().await;
    let mut client = server.connect().await;
    client.put(0, 0, 60, "x").await;
    for behind in [0, 5_000] {
        let mut gone = server.connect().await;
        gone.write(format!("list-tubes-watched\r\nreserve\r\n{}", "list-tube-used\r\n".repeat(behind))).await;
        assert!(gone.line().await.starts_with("OK "));
        drop(gone);
        // This one, and the one whose job is arriving.
        until("it is gone", async || client.map("stats").await["current-connections"] == "2").await;
    }
    client.write("list-tube-used\r\nreserve\r\n").await;
    assert_eq!(client.line().await, "USING default");
    let stopping = server.begin_stop();
    assert_eq!(client.line().await, "TIMED_OUT");
    assert!(client.is_closed().await);
    store.gate.add_permits(1);
    soon("it stops", stopping).await.unwrap();
}

#[tokio::test]
async fn what_is_looked_at_waits_for_room_too() {
    let (server, store) = full().await;
    let mut client = server.connect().await;
    let id = client.put(0, 0, 60, "x").await;
    client.write(format!("list-tube-used\r\npeek {id}\r\n")).await;
    assert_eq!(client.line().await, "USING default");
    store.gate.add_permits(1);
    assert_eq!(client.next_job().await, ("FOUND".to_owned(), id, "x".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn what_is_looked_at_and_finds_no_room_in_time_is_refused() {
    let (server, store) = full().await;
    let mut client = server.connect().await;
    let id = client.put(0, 0, 60, "x").await;
    let mut other = server.connect().await;
    other.write(format!("reserve-job {id}\r\n")).await;
    client.expect(&format!("peek {id}"), "OUT_OF_MEMORY").await;
    assert_eq!(other.line().await, "OUT_OF_MEMORY");
    assert_eq!(server.counts().await.ready, 1);
    client.expect(&format!("delete {id}"), "DELETED").await;
    store.gate.add_permits(1);
    server.stop().await;
}

/// They read jobs with their bodies, although their replies have none.
#[tokio::test]
async fn a_kick_and_what_tells_of_a_job_are_refused_where_there_is_no_room() {
    let (server, store) = full().await;
    let mut client = server.connect().await;
    let id = client.put(0, 1_000, 60, "x").await;
    let mut asking = Vec::new();
    for line in ["kick 1".to_owned(), format!("kick-job {id}"), format!("stats-job {id}")] {
        let mut one = server.connect().await;
        one.write(format!("{line}\r\n")).await;
        asking.push((line, one));
    }
    for (line, mut one) in asking {
        assert_eq!(one.line().await, "OUT_OF_MEMORY", "to {line}");
    }
    assert_eq!((server.counts().await.scheduled, server.counts().await.ready), (1, 0));
    store.gate.add_permits(1);
    client.expect("kick 5", "KICKED 1").await;
    server.stop().await;
}

/// The reserve has ended a delay, and is not refused any more.
#[tokio::test]
async fn a_job_that_was_reserved_by_its_number_is_told_of_though_there_is_no_room_by_then() {
    let (server, store) = start_counting_roomy(JOB as u64 / 2).await;
    let mut client = server.connect().await;
    let id = client.put(0, 1_000, 60, "x").await;
    store.holds_takes_by_id.store(true, Ordering::SeqCst);
    client.write(format!("reserve-job {id}\r\n")).await;
    until("it is handed out", async || store.takes_by_id.load(Ordering::SeqCst) == 1).await;
    let mut large = server.connect().await;
    large.write(put(JOB, SENT)).await;
    until("some of it is held", async || server.held_bytes().await > 0).await;
    store.gate.add_permits(1);
    assert_eq!(client.next_job().await, ("RESERVED".to_owned(), id, "x".to_owned()));
    drop(large);
    server.stop().await;
}

#[tokio::test]
async fn who_does_not_read_is_cut_off_while_others_wait() {
    const LARGE: usize = 512 * 1024;
    let server = start_roomy(2 * LARGE as u64).await;
    let mut client = server.connect().await;
    client.put(0, 0, 60, &"x".repeat(LARGE)).await;
    let mut hogs = Vec::new();
    for _ in 0..4 {
        let mut hog = server.connect_narrow().await;
        // More than the buffers of two sockets.
        hog.write("peek-ready\r\n".repeat(40)).await;
        hogs.push(hog);
    }
    // No more than that, eventually.
    until("they hold it all", async || server.held_bytes().await >= 2 * LARGE as u64).await;
    client.ask("watch small").await;
    client.ask("ignore default").await;
    client.ask("use small").await;
    let id = client.put(0, 0, 60, "y").await;
    assert_eq!(client.job("reserve-with-timeout 15").await.1, id);
    until("some are cut off", async || {
        let connections = client.map("stats").await["current-connections"].clone();
        connections.parse::<u64>().unwrap() <= 3
    })
    .await;
    drop(hogs);
    server.stop().await;
}

#[tokio::test]
async fn names_of_all_tubes_are_made_only_while_there_is_room() {
    const NAME: usize = 200;
    const TUBES: usize = 2_000;
    const ROOM: u64 = 1 << 20;
    let server = start_roomy(ROOM).await;
    let mut client = server.connect().await;
    for at in 0..TUBES {
        client.ask(&format!("use {at:0>NAME$}")).await;
        client.put(0, 0, 60, "x").await;
    }
    let mut hogs = Vec::new();
    for _ in 0..30 {
        let mut hog = server.connect_narrow().await;
        // More than the buffers of two sockets.
        hog.write("list-tubes\r\n".repeat(20)).await;
        hogs.push(hog);
    }
    until("they hold it all", async || server.held_bytes().await > ROOM).await;
    for _ in 0..50 {
        let held = server.held_bytes().await;
        assert!(held <= ROOM + ((TUBES + 1) * (NAME + 4)) as u64, "{held} bytes are held");
        tokio::task::yield_now().await;
    }
    // A client that does not read is disconnected, and others are served.
    until("there is room", async || client.ask("list-tubes").await.starts_with("OK ")).await;
    drop(hogs);
    server.stop().await;
}

/// It began before the limit was exceeded.
#[tokio::test]
async fn names_that_wait_for_room_keep_no_other_walk_waiting() {
    let (server, store) = start_counting_roomy(JOB as u64 / 2).await;
    let (mut names, mut other) = (server.connect().await, server.connect().await);
    store.holds_walks.store(true, Ordering::SeqCst);
    names.write("list-tubes\r\n").await;
    until("a walk has begun", async || store.walks.load(Ordering::SeqCst) == 1).await;
    store.holds_walks.store(false, Ordering::SeqCst);
    // Larger than the whole limit, it is admitted alone.
    let large = at_the_gate(&server).await;
    // The reply is complete when the next command has begun.
    other.write("use other\r\nstats\r\n").await;
    assert_eq!(other.line().await, "USING other");
    store.gate.add_permits(1);
    tokio::select! {
        biased;
        line = names.line() => panic!("{line} before the walk of another"),
        line = other.line() => assert!(line.starts_with("OK "), "{line}"),
    }
    drop(large);
    server.stop().await;
}
