//! Limits on connections, on slow clients, and on lengths.

use std::time::Duration;

use dwell_model::Limits;

use crate::support::{soon, start, start_configured, start_roomy, start_with, until};

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
        // It may be refused and closed before it has sent anything.
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
async fn a_connection_that_has_said_nothing_yet_may_stay() {
    let server = start_configured(|config| config.read_ms = 100).await;
    let mut silent = server.connect().await;
    // A later connection that has begun a command is closed by its timeout, by which time the silent one was accepted.
    let mut slow = server.connect().await;
    slow.write(b"reser").await;
    assert!(slow.is_closed().await);
    silent.expect("use a", "USING a").await;
    server.stop().await;
}

#[tokio::test]
async fn a_connection_whose_commands_just_filled_what_is_read_at_once_may_stay() {
    let server = start_configured(|config| config.read_ms = 100).await;
    const LINE: &[u8] = b"list-tube-used\r\n";
    let mut idle = server.connect().await;
    // One write of 64 KiB, before the server, which shares this thread, reads.
    let commands = 64 * 1024 / LINE.len();
    idle.write(LINE.repeat(commands)).await;
    for _ in 0..commands {
        assert_eq!(idle.line().await, "USING default");
    }
    let mut slow = server.connect().await;
    slow.write(b"reser").await;
    assert!(slow.is_closed().await);
    idle.expect("use a", "USING a").await;
    server.stop().await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_idle_and_closed_where_that_is_wished() {
    let server = start_configured(|config| config.idle_ms = Some(100)).await;
    let mut silent = server.connect().await;
    assert!(silent.is_closed().await);
    server.stop().await;
}

#[tokio::test]
async fn what_a_large_job_was_given_room_for_is_free_once_it_has_come() {
    const JOB: usize = 100_000;
    let server = start_roomy(3 * JOB as u64).await;
    let mut clients = Vec::new();
    // Each puts a large job and has half a command after it: the room of three is enough for ten of them.
    for _ in 0..10 {
        let mut client = server.connect().await;
        client.write(format!("put 0 0 60 {JOB}\r\n").as_bytes()).await;
        client.write([&b"x".repeat(JOB)[..], b"\r\nuse "].concat()).await;
        assert!(client.line().await.starts_with("INSERTED "));
        clients.push(client);
    }
    for mut client in clients {
        client.write(b"a\r\n").await;
        assert_eq!(client.line().await, "USING a");
    }
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

/// A fast beginning does not allow the rest to take hours.
#[tokio::test]
async fn a_command_most_of_which_came_at_once_may_not_come_slowly_from_then_on() {
    let server = start_configured(|config| {
        config.read_ms = 200;
        config.read_rate = 1_024;
    })
    .await;
    let mut slow = server.connect().await;
    slow.write(format!("put 0 0 60 1000000\r\n{}", "x".repeat(900_000))).await;
    soon("it is closed", async {
        while slow.try_write(b"x").await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
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

#[tokio::test]
async fn beyond_sixteen_tubes_each_what_all_watch_is_bounded_and_free_again_when_it_is_over() {
    // Room for 256 more, all together.
    let server = start_roomy(1 << 20).await;
    let (mut one, mut other) = (server.connect().await, server.connect().await);
    // The default tube is one of sixteen.
    for at in 0..15 + 256 {
        one.expect(&format!("watch a{at}"), &format!("WATCHING {}", at + 2)).await;
    }
    one.expect("watch b", "OUT_OF_MEMORY").await;
    one.expect("watch a0", "WATCHING 272").await;
    for at in 0..15 {
        other.expect(&format!("watch a{at}"), &format!("WATCHING {}", at + 2)).await;
    }
    other.expect("watch a15", "OUT_OF_MEMORY").await;
    one.expect("ignore a0", "WATCHING 271").await;
    other.expect("watch a15", "WATCHING 17").await;
    drop(other);
    until("its place is free", async || one.ask("watch a0").await == "WATCHING 272").await;
    server.stop().await;
}

#[tokio::test]
async fn a_connection_holds_no_more_than_it_leaves_to_others() {
    let server = start_with(Limits { leased: 400, ..Limits::default() }).await;
    let mut putter = server.connect().await;
    for _ in 0..400 {
        putter.put(0, 0, 600, "x").await;
    }
    let mut greedy = Vec::new();
    for most in [200, 100] {
        let mut client = server.connect().await;
        let mut held = Vec::new();
        client.write("reserve-with-timeout 0\r\n".repeat(300)).await;
        for _ in 0..300 {
            let line = client.line().await;
            if line == "OUT_OF_MEMORY" {
                continue;
            }
            client.body(&line).await;
            held.push(line.split(' ').nth(1).unwrap().to_owned());
        }
        assert_eq!(held.len(), most);
        greedy.push((client, held));
    }
    // A few are always allowed, and more once others have finished.
    let mut modest = server.connect().await;
    for _ in 0..64 {
        modest.reserve().await;
    }
    modest.expect("reserve-with-timeout 0", "OUT_OF_MEMORY").await;
    drop(greedy.pop());
    until("others have given back", async || {
        let reply = modest.ask("reserve-with-timeout 0").await;
        let is_reserved = reply.starts_with("RESERVED ");
        if is_reserved {
            modest.body(&reply).await;
        }
        is_reserved
    })
    .await;
    server.stop().await;
}
