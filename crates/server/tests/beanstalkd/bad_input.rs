//! Refusals, and that they change nothing. The parser's own tests have the longer list.

use crate::support::start;

#[tokio::test]
async fn a_refused_line_changes_nothing_and_the_connection_goes_on() {
    let server = start().await;
    let mut client = server.connect().await;
    let id = client.put(5, 0, 60, "x").await;
    assert_eq!(client.reserve().await, id);
    let before = but_for_the_clock(&client.yaml(&format!("stats-job {id}")).await);
    for (line, reply) in [
        ("", "UNKNOWN_COMMAND"),
        ("put", "UNKNOWN_COMMAND"),
        ("put ", "BAD_FORMAT"),
        ("put 1 2 3", "BAD_FORMAT"),
        ("delete", "UNKNOWN_COMMAND"),
        ("delete ", "BAD_FORMAT"),
        ("release 1", "BAD_FORMAT"),
        (&format!("release {id} 0 x"), "BAD_FORMAT"),
        (&format!("release {id} 4294967296 0"), "BAD_FORMAT"),
        (&format!("bury {id} -1"), "BAD_FORMAT"),
        (&format!("touch {id} 1"), "BAD_FORMAT"),
        ("put 0 -1 60 1", "BAD_FORMAT"),
        ("put 0 1h 60 1", "BAD_FORMAT"),
        ("put 0 4294967296 60 1", "BAD_FORMAT"),
        ("put -1 0 60 1", "BAD_FORMAT"),
        ("put 0 0 60 1 1", "BAD_FORMAT"),
        (&format!("release {id} 0 -1"), "BAD_FORMAT"),
        (&format!("release {id} 0 4294967296"), "BAD_FORMAT"),
        ("pause-tube default -1", "BAD_FORMAT"),
        ("pause-tube default 4294967296", "BAD_FORMAT"),
        ("reserve-with-timeout soon", "BAD_FORMAT"),
        ("delete 1 2", "BAD_FORMAT"),
        ("delete -1", "BAD_FORMAT"),
        ("delete 18446744073709551616", "BAD_FORMAT"),
        ("kick-job x", "BAD_FORMAT"),
        ("use a b", "BAD_FORMAT"),
        (&format!("watch {}", "x".repeat(201)), "BAD_FORMAT"),
        ("kick -1", "BAD_FORMAT"),
        ("quit foo", "BAD_FORMAT"),
        ("DELETE", "UNKNOWN_COMMAND"),
        (&"x".repeat(100_000), "BAD_FORMAT"),
        ("stats\0", "BAD_FORMAT"),
        ("\u{fe0f}", "UNKNOWN_COMMAND"),
    ] {
        client.expect(line, reply).await;
    }
    assert_eq!(but_for_the_clock(&client.yaml(&format!("stats-job {id}")).await), before);
    client.expect(&format!("delete {id}"), "DELETED").await;
    server.stop().await;
}

/// A job's fields without those that count seconds.
fn but_for_the_clock(stats: &str) -> Vec<String> {
    let counts_seconds = |line: &&str| line.starts_with("age:") || line.starts_with("time-left:");
    stats.lines().filter(|line| !counts_seconds(line)).map(str::to_owned).collect()
}

#[tokio::test]
async fn http_closes_the_connection_and_what_follows_is_not_read() {
    let server = start().await;
    for method in ["GET", "POST", "OPTIONS", "PUT"] {
        let mut client = server.connect().await;
        client.write(format!("{method} / HTTP/1.1\r\nHost: localhost\r\n\r\nput 0 0 1 1\r\nx\r\n")).await;
        assert!(client.is_closed().await, "{method}");
    }
    assert_eq!(server.counts().await.ready, 0);
    server.stop().await;
}

#[tokio::test]
async fn garbage_is_refused_line_by_line_or_waits_for_its_end() {
    let server = start().await;
    let mut client = server.connect().await;
    let garbage: Vec<u8> = (0..100_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let lines = garbage.windows(2).filter(|window| window == b"\r\n").count();
    client.write(&garbage).await;
    client.write("\r\n").await;
    for _ in 0..=lines {
        let reply = client.line().await;
        assert!(["BAD_FORMAT", "UNKNOWN_COMMAND"].contains(&reply.as_str()), "{reply}");
    }
    client.expect("list-tube-used", "USING default").await;
    server.stop().await;
}

/// Debian's beanstalkd does not answer these.
#[tokio::test]
async fn a_carriage_return_alone_ends_no_line_and_belongs_to_no_name() {
    let server = start().await;
    let mut client = server.connect().await;
    client.expect("use a\rb", "BAD_FORMAT").await;
    client.expect("list-tube-used\r", "BAD_FORMAT").await;
    client.expect("li\rst-tube-used", "UNKNOWN_COMMAND").await;
    client.expect("reserve-with-timeout 4294967296", "BAD_FORMAT").await;
    client.expect("list-tube-used", "USING default").await;
    server.stop().await;
}
