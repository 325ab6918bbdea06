//! The limit on bodies of requests and answers, and which clients wait for room.

use std::time::Duration;

use dwell_model::Limits;
use serde_json::json;
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;

use crate::slow::dripping;
use crate::support::{Answer, Connection, Running, soon, start_with, until};

/// The limit in bytes.
const ROOM: u64 = 1 << 20;

async fn server() -> Running {
    start_with(Limits::default(), |config| config.memory_bytes = ROOM).await
}

async fn held(server: &Running) -> f64 {
    let page = server.get("/metrics").await;
    let line = page.text().lines().find(|line| line.starts_with("dwell_held_bytes")).map(str::to_owned);
    line.unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

async fn until_held(server: &Running, what: &str, is: impl Fn(f64) -> bool) {
    until(what, || async { is(held(server).await) }).await;
}

/// Many clients that announce the maximum, and send next to nothing of it.
async fn announcers(server: &Running, target: &str, content_type: &str) -> Vec<Connection> {
    let mut open = Vec::new();
    for _ in 0..64 {
        let mut connection = Connection::open(server.address).await;
        let headers = [("content-type", content_type), ("content-length", "1000000")];
        connection.head("POST", target, &headers).await;
        connection.write(b"[").await;
        open.push(connection);
    }
    open
}

#[tokio::test]
async fn who_announces_much_and_sends_little_keeps_nobody_waiting() {
    let server = server().await;
    let json = announcers(&server, "/v1/messages:batch", "application/json").await;
    let raw = announcers(&server, "/v1/queues/q/messages", "text/plain").await;
    // The largest body for which there is room.
    server.put("", &vec![b'x'; 1_000_000]).await;
    drop((json, raw));
    server.stop().await;
}

#[tokio::test]
async fn streams_that_bring_an_item_now_and_then_hold_nothing() {
    let server = server().await;
    let mut streams = Vec::new();
    for _ in 0..64 {
        let mut stream = Connection::open(server.address).await;
        let headers = [("content-type", "application/x-ndjson"), ("transfer-encoding", "chunked")];
        stream.head("POST", "/v1/queues/q/messages:batch", &headers).await;
        stream.chunk(b"{\"body\":\"1\"}\n").await;
        assert_eq!(stream.answer_head().await.status, 200);
        assert!(!stream.answer_chunk().await.is_empty());
        streams.push(stream);
    }
    assert_eq!(held(&server).await, 0.0);
    server.put("", &vec![b'x'; 1_000_000]).await;
    for stream in &mut streams {
        stream.chunk(b"{\"body\":\"2\"}\n").await;
        assert!(!stream.answer_chunk().await.is_empty());
    }
    assert_eq!(server.count("ready").await, Some(129));
    server.stop().await;
}

/// A client that has sent everything but the end, so that all of it is held.
async fn all_but_the_end(server: &Running, bytes: usize) -> Connection {
    let mut connection = Connection::open(server.address).await;
    let len = bytes.to_string();
    connection.head("POST", "/v1/queues/q/messages", &[("content-length", &len)]).await;
    connection.write(&vec![b'x'; bytes - 1]).await;
    connection
}

/// A batch of `bytes` that keeps its room for some seconds: half of it arrives at once, so that room is set aside for
/// all of it, and the rest four times as fast as required while others wait.
async fn steady(server: &Running, bytes: usize) -> JoinHandle<Answer> {
    let mut connection = Connection::open(server.address).await;
    let len = bytes.to_string();
    let headers = [("content-type", "application/json"), ("content-length", &len)];
    connection.head("POST", "/v1/messages:batch", &headers).await;
    let half = bytes / 2 + 1;
    let item = r#"[{"queue":"steady","body":"x"}]"#;
    connection.write(format!("{item}{}", " ".repeat(half - item.len())).as_bytes()).await;
    tokio::spawn(async move {
        let mut left = bytes - half;
        while left > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let piece = left.min(50_000);
            connection.write(&vec![b' '; piece]).await;
            left -= piece;
        }
        connection.answer().await
    })
}

#[tokio::test]
async fn a_large_body_without_room_is_told_to_come_again_and_a_small_one_passes() {
    let server = start_with(Limits::default(), |config| config.memory_bytes = 16 * ROOM).await;
    // What is left is too little for any large body.
    let first = steady(&server, 16_750_000).await;
    until_held(&server, "the first is held", |held| held == 16_750_000.0).await;
    let (large, items) = (vec![b'x'; 1_000_000], json!([{"queue": "q", "body": "y".repeat(1_000_000)}]));
    let (raw, batch) = tokio::join!(
        server.send("POST", "/v1/queues/q/messages", &[], &large),
        server.post_json("/v1/messages:batch", &items),
    );
    for refused in [raw, batch] {
        assert_eq!(refused.problem(), (503, "overloaded".to_owned()));
    }
    assert_eq!(server.count("ready").await, None, "neither has changed anything");
    server.put("", b"small").await;

    assert_eq!(soon("the first is done", first).await.unwrap().status, 200);
    until_held(&server, "all is free", |held| held == 0.0).await;
    server.put("", &large).await;
    server.stop().await;
}

/// Slow bytes are enough while nothing waits for room.
#[tokio::test]
async fn a_body_that_comes_slowly_or_not_at_all_gives_way_to_others() {
    let server = start_with(Limits::default(), |config| {
        config.memory_bytes = ROOM;
        config.http.body_rate = 1;
    })
    .await;
    for drips in [false, true] {
        let mut slow = Connection::open(server.address).await;
        slow.head("POST", "/v1/queues/q/messages", &[("content-length", "1000000")]).await;
        slow.write(&[b'x'; 600_000]).await;
        until_held(&server, "it is held", |held| held > 600_000.0).await;
        let drip = dripping(slow, async |slow| if drips { slow.try_write(b"x").await } else { Ok(()) });
        let (refused, _) = tokio::join!(drip, server.put("", &[b'y'; 500_000]));
        assert_eq!(refused.problem(), (503, "overloaded".to_owned()), "it drips: {drips}");
    }
    until_held(&server, "all is free", |held| held == 0.0).await;
    server.stop().await;
}

#[tokio::test]
async fn a_line_that_comes_slowly_or_not_at_all_gives_way_to_others() {
    let server = start_with(Limits::default(), |config| {
        config.memory_bytes = ROOM;
        config.http.body_rate = 1;
    })
    .await;
    for drips in [false, true] {
        let mut slow = Connection::open(server.address).await;
        let headers = [("content-type", "application/x-ndjson"), ("transfer-encoding", "chunked")];
        slow.head("POST", "/v1/queues/q/messages:batch", &headers).await;
        slow.chunk(format!("{{\"body\":\"1\"}}\n{{\"body\":\"{}", "x".repeat(500_000)).as_bytes()).await;
        until_held(&server, "half the line is held", |held| held > 500_000.0).await;
        let drip = dripping(slow, async |slow| if drips { slow.try_chunk(b"x").await } else { Ok(()) });
        let (answer, _) = tokio::join!(drip, server.put("", &[b'y'; 600_000]));
        let answers = answer.lines();
        assert_eq!((answers[0]["status"].as_u64(), answers.len()), (Some(201), 2), "it drips: {drips}");
        assert_eq!(answers[1]["error"]["code"], "overloaded", "it drips: {drips}");
    }
    until_held(&server, "all is free", |held| held == 0.0).await;
    server.stop().await;
}

#[tokio::test]
async fn a_stream_without_room_says_so_and_what_came_before_is_done() {
    let server = start_with(Limits::default(), |config| config.memory_bytes = 16 * ROOM).await;
    // What is left is too little for any large body.
    let first = steady(&server, 16_750_000).await;
    until_held(&server, "the first is held", |held| held == 16_750_000.0).await;
    let mut stream = Connection::open(server.address).await;
    let headers = [("content-type", "application/x-ndjson"), ("transfer-encoding", "chunked")];
    stream.head("POST", "/v1/queues/q/messages:batch", &headers).await;
    let large = format!("{{\"body\":\"1\"}}\n{{\"body\":\"{}", "x".repeat(400_000));
    let _ = stream.try_chunk(large.as_bytes()).await;
    let answers = stream.answer().await.lines();
    assert_eq!(answers[0]["status"], 201);
    assert_eq!(answers[1]["error"]["code"], "overloaded");
    assert_eq!((answers.len(), server.count("ready").await), (2, Some(1)));
    first.abort();
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_closes_gives_its_room_back() {
    let server = server().await;
    let first = all_but_the_end(&server, 900_000).await;
    until_held(&server, "it is held", |held| held == 900_000.0).await;
    drop(first);
    until_held(&server, "it is free", |held| held == 0.0).await;
    server.stop().await;
}

#[tokio::test]
async fn nothing_is_looked_at_or_taken_while_too_much_is_held() {
    let server = server().await;
    server.put("?key=k", b"x").await;
    let number = server.get("/v1/queues/q/keys/k").await.json()["number"].as_u64().unwrap();
    // Larger than the whole limit, it is admitted alone.
    let large = steady(&server, ROOM as usize * 8).await;
    until_held(&server, "it is held", |held| held > ROOM as f64).await;
    let by_number = format!("/v1/numbers/{number}");
    for target in ["/v1/queues/q/messages?state=ready", "/v1/queues/q/keys/k", &by_number] {
        assert_eq!(server.get(target).await.problem(), (503, "overloaded".to_owned()), "{target}");
    }
    let taken = server.post("/v1/queues/q/take").await;
    assert_eq!(taken.problem(), (503, "overloaded".to_owned()));
    large.abort();
    until_held(&server, "there is room again", |held| held == 0.0).await;
    assert_eq!(server.get(&by_number).await.status, 200);
    server.stop().await;
}

/// For requests of any size: the answer may be a hundred times as large.
#[tokio::test]
async fn no_batch_and_no_list_of_queues_is_answered_while_too_much_is_held() {
    const ITEMS: usize = 4_096;
    let server = server().await;
    // Larger than the whole limit, it is admitted alone.
    let large = steady(&server, 16 * ROOM as usize).await;
    until_held(&server, "it is held", |held| held > ROOM as f64).await;
    let (batch, lines) = (json!(vec![1; ITEMS]).to_string(), "1\n".repeat(ITEMS));
    let (json, ndjson) = ([("content-type", "application/json")], [("content-type", "application/x-ndjson")]);
    let (batch, lines, queues) = tokio::join!(
        server.send("POST", "/v1/messages:batch", &json, batch.as_bytes()),
        server.send("POST", "/v1/messages:batch", &ndjson, lines.as_bytes()),
        server.get("/v1/queues?max=1000"),
    );
    for (refused, what) in [(batch, "an array"), (queues, "a list")] {
        assert_eq!((refused.status, refused.body.len() < 4_096), (503, true), "{what}");
        assert_eq!(refused.problem(), (503, "overloaded".to_owned()), "{what}");
    }
    let lines = lines.lines();
    assert_eq!((lines.len(), &lines[0]["error"]["code"]), (1, &json!("overloaded")), "a stream");
    // Requests with small answers succeed meanwhile.
    server.put("", b"small").await;
    large.abort();
    until_held(&server, "there is room again", |held| held == 0.0).await;
    let batch = json!([{"queue": "q", "body": "x"}]);
    assert_eq!(server.post_json("/v1/messages:batch", &batch).await.status, 200);
    assert_eq!(server.get("/v1/queues").await.status, 200);
    server.stop().await;
}

/// Alone they hold more than the limit.
#[tokio::test]
async fn a_batch_larger_than_all_there_is_goes_alone() {
    let server = server().await;
    let mut items = vec![json!({"queue": "q", "body": "x"})];
    items.push(json!({"queue": "q", "body": "y".repeat(1_000_000)}));
    items.push(items[1].clone());
    let lines: String = items.iter().map(|item| format!("{item}\n")).collect();
    assert_eq!(server.post_json("/v1/messages:batch", &items.into()).await.status, 200);
    let ndjson = [("content-type", "application/x-ndjson")];
    let answers = server.send("POST", "/v1/messages:batch", &ndjson, lines.as_bytes()).await.lines();
    assert!(answers.len() == 3 && answers.iter().all(|answer| answer["status"] == 201), "{answers:?}");
    server.until_count("ready", 6).await;
    server.stop().await;
}

/// Long before the usual timeout of an unread answer.
#[tokio::test]
async fn an_unread_answer_is_counted_and_cut_off_when_others_need_its_room() {
    let server = start_with(Limits::default(), |config| {
        config.memory_bytes = 4 * ROOM;
        config.http.write_ms = 3_600_000;
    })
    .await;
    for _ in 0..8 {
        server.put("", &vec![b'x'; 1 << 20]).await;
    }
    let mut unread = Connection::open(server.address).await;
    unread.request("GET", "/v1/queues/q/messages?state=ready&max=8", &[], b"").await;
    assert_eq!(unread.answer_head().await.status, 200);
    until("others have their room", || async {
        server.post("/v1/queues/q/take?max_bytes=1").await.status == 200 && held(&server).await == 0.0
    })
    .await;
    let got = unread.read_to_end().await.len();
    assert!(got < 8 << 20, "it was cut off, and got all of its answer");
    server.stop().await;
}

/// Each requests more than the whole limit, and does not read its answer.
#[tokio::test]
async fn many_takes_at_once_are_handed_no_more_than_there_is_room_for() {
    let room = (64 * ROOM) as f64;
    let server = start_with(Limits::default(), |config| config.memory_bytes = 64 * ROOM).await;
    for _ in 0..110 {
        server.put("", &vec![b'x'; ROOM as usize]).await;
    }
    let mut takes = Vec::new();
    for _ in 0..16 {
        let mut unread = Connection::open(server.address).await;
        unread.request("POST", "/v1/queues/q/take?max=60&max_bytes=67108864", &[], b"").await;
        takes.push(unread);
    }
    until_held(&server, "much is held", |held| held > room / 2.0).await;
    for _ in 0..50 {
        let held = held(&server).await;
        assert!(held < room * 1.15, "{held} bytes are held, an answer has {}", room / 8.0);
    }
    drop(takes);
    until_held(&server, "all is free", |held| held == 0.0).await;
    server.stop().await;
}

/// An answer of the maximum size, and no larger.
#[tokio::test]
async fn a_take_is_handed_an_eighth_of_the_room_at_most() {
    let server = start_with(Limits::default(), |config| config.memory_bytes = 8 * ROOM).await;
    for _ in 0..5 {
        server.put("", &vec![b'x'; ROOM as usize / 2]).await;
    }
    for (query, messages) in [("max=5&max_bytes=67108864", 2), ("max=5", 2), ("max=5", 1)] {
        let taken = server.post(&format!("/v1/queues/q/take?{query}")).await.json();
        assert_eq!(taken["messages"].as_array().unwrap().len(), messages, "{query}");
    }
    server.stop().await;
}

/// The store counts bodies alone, and these have next to none.
#[tokio::test]
async fn headers_count_towards_what_a_take_is_handed() {
    const LEN: usize = 16_000;
    let server = start_with(Limits::default(), |config| config.memory_bytes = 8 * ROOM).await;
    let item = |at: usize| json!({"queue": "q", "body": at.to_string(), "headers": {"x": "y".repeat(LEN)}});
    let put = server.post_json("/v1/messages:batch", &(0..200).map(item).collect()).await;
    assert_eq!(put.status, 200);
    let (mut left, mut takes) = (200, 0);
    while left > 0 {
        let taken = server.post("/v1/queues/q/take?max=200").await;
        assert!(taken.body.len() < ROOM as usize * 5 / 4, "{} bytes", taken.body.len());
        let taken = taken.json();
        let taken = taken["messages"].as_array().unwrap();
        assert_eq!(taken[0]["body"], (200 - left).to_string(), "none is taken out of turn");
        left -= taken.len() as u64;
        takes += 1;
        server.until_count("ready", left).await;
    }
    assert_eq!(takes, 200_usize.div_ceil(ROOM as usize / LEN));
    server.stop().await;
}

/// A client that requests a message as often as a batch allows, and reads no more than the head of the answer. Returns
/// it and the number of bytes of the request's text; the answers are made sixteen at a time, each time too few to count
/// by themselves.
async fn unread_gets(server: &Running) -> (Connection, usize) {
    let key = "k".repeat(500);
    server.put(&format!("?key={key}&on_conflict=replace"), b"").await;
    let item = format!("{{\"key\":\"{key}\"}},");
    let items = item.repeat(16_384);
    let text = format!("[{}]", items.trim_end_matches(','));
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 * 1024).unwrap();
    let stream = soon("connect", socket.connect(server.address)).await.unwrap();
    let mut unread = Connection::over(stream, server.address);
    let json = [("content-type", "application/json")];
    unread.request("POST", "/v1/queues/q/messages:get", &json, text.as_bytes()).await;
    assert_eq!(unread.answer_head().await.status, 200);
    (unread, text.len())
}

#[tokio::test]
async fn what_a_batch_still_has_to_do_counts_until_it_is_done() {
    let server = start_with(Limits::default(), |config| config.memory_bytes = 256 * ROOM).await;
    let mut unread = Vec::new();
    let mut bytes = 0;
    for _ in 0..4 {
        let (one, len) = unread_gets(&server).await;
        unread.push(one);
        bytes += len;
    }
    let held = held(&server).await;
    assert!(held >= bytes as f64, "{held} are held, and {bytes} bytes of requests are under way");
    // It continues where it is read.
    let mut last = unread.pop().unwrap();
    let mut pieces = 0;
    while !last.answer_chunk().await.is_empty() {
        pieces += 1;
    }
    assert_eq!(pieces, 16_384 / 16);
    drop((last, unread));
    until_held(&server, "all is free", |held| held == 0.0).await;
    server.stop().await;
}

/// For any number of bodies per step, and any length of them.
#[tokio::test]
async fn many_are_looked_at_an_eighth_of_the_room_at_a_time() {
    let server = start_with(Limits::default(), |config| config.memory_bytes = 8 * ROOM).await;
    let mut items = Vec::new();
    for at in 0..16 {
        server.put(&format!("?key=k{at}"), &vec![b'x'; 1_000_000]).await;
        items.push(json!({"key": format!("k{at}")}));
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 * 1024).unwrap();
    let stream = soon("connect", socket.connect(server.address)).await.unwrap();
    let mut unread = Connection::over(stream, server.address);
    let json = [("content-type", "application/json")];
    let text = serde_json::Value::from(items).to_string();
    unread.request("POST", "/v1/queues/q/messages:get", &json, text.as_bytes()).await;
    assert_eq!(unread.answer_head().await.status, 200);
    let held = held(&server).await;
    assert!(held < 3e6, "{held} bytes are held");
    let mut bytes = 0;
    loop {
        let piece = unread.answer_chunk().await;
        if piece.is_empty() {
            break;
        }
        bytes += piece.len();
    }
    assert!(bytes > 16_000_000);
    server.stop().await;
}

#[tokio::test]
async fn a_batch_that_is_left_unread_gives_way_to_others() {
    let server = start_with(Limits::default(), |config| {
        config.memory_bytes = 20 * ROOM;
        config.http.write_ms = 3_600_000;
    })
    .await;
    let (mut unread, len) = unread_gets(&server).await;
    assert!(len as u64 > 7 * ROOM);
    let large = json!([{"queue": "r", "body": "x".repeat(1_000_000)}]).to_string();
    let large = format!("{large}{}", " ".repeat(14 << 20));
    let json = [("content-type", "application/json")];
    let answer = server.send("POST", "/v1/messages:batch", &json, large.as_bytes()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let rest = unread.read_to_end().await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "it was cut off, and got all of its answer");
    server.stop().await;
}

/// What follows a large line is small; the memory that the line was read into is not.
#[tokio::test]
async fn a_stream_that_pauses_holds_no_more_than_has_come_of_its_next_item() {
    let server = start_with(Limits::default(), |config| config.memory_bytes = 64 * ROOM).await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = Connection::open(server.address).await;
        let headers = [("content-type", "application/x-ndjson"), ("transfer-encoding", "chunked")];
        stream.head("POST", "/v1/queues/q/messages:batch", &headers).await;
        let line =
            format!("{{\"body\":\"1\"{}}}\n{{\"body\":\"{}", " ".repeat(1_000_000), "x".repeat(500_000));
        stream.chunk(line.as_bytes()).await;
        assert_eq!(stream.answer_head().await.status, 200);
        assert!(!stream.answer_chunk().await.is_empty());
        streams.push(stream);
    }
    // Half a line, all of which has arrived: it counts, and at most twice as much is set aside.
    let half = 8.0 * 500_000.0;
    until_held(&server, "the half lines count", |held| held >= half && held <= 2.1 * half).await;
    for stream in &mut streams {
        stream.chunk(b"\"}\n").await;
        assert!(!stream.answer_chunk().await.is_empty());
    }
    until_held(&server, "nothing is left of them", |held| held == 0.0).await;
    server.stop().await;
}

/// One copy is in memory, for any number of answers in progress.
#[tokio::test]
async fn the_document_of_the_api_is_not_counted_for_each_who_leaves_it_unread() {
    let server = server().await;
    let mut unread = Vec::new();
    for _ in 0..10 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 * 1024).unwrap();
        let stream = soon("connect", socket.connect(server.address)).await.unwrap();
        let mut one = Connection::over(stream, server.address);
        // More than the buffers of two sockets.
        for _ in 0..100 {
            one.head("GET", "/openapi.json", &[]).await;
        }
        assert_eq!(one.answer_head().await.status, 200);
        unread.push(one);
    }
    for _ in 0..50 {
        assert_eq!(held(&server).await, 0.0);
    }
    drop(unread);
    server.stop().await;
}

/// A head that holds far more memory than its text ends with its connection.
#[tokio::test]
async fn a_raw_answer_with_very_many_headers_closes_its_connection() {
    let server = server().await;
    let name = |at: usize| {
        let digits = b"0123456789abcdefghijklmnopqrstuvwxyz";
        let digit = |at: usize| char::from(digits[at % digits.len()]);
        [digit(at / 36 / 36), digit(at / 36), digit(at)].iter().collect::<String>()
    };
    let headers =
        |count: usize| (0..count).map(|at| (name(at), json!(""))).collect::<serde_json::Map<_, _>>();
    let items = json!([
        {"queue": "q", "key": "many", "body": "x", "headers": headers(5_000)},
        {"queue": "q", "key": "few", "body": "y", "headers": headers(50)},
    ]);
    assert_eq!(server.post_json("/v1/messages:batch", &items).await.status, 200);
    let raw = [("accept", "application/octet-stream")];
    let mut connection = Connection::open(server.address).await;
    connection.request("GET", "/v1/queues/q/keys/few", &raw, b"").await;
    assert_eq!(connection.answer().await.header("connection"), None);
    for (method, target) in [("GET", "/v1/queues/q/keys/many"), ("POST", "/v1/queues/q/take")] {
        connection.request(method, target, &raw, b"").await;
        let answer = connection.answer().await;
        assert_eq!((answer.status, answer.text()), (200, "x"));
        assert!(answer.headers.len() > 5_000);
        assert_eq!(answer.header("connection"), Some("close"), "{method}");
        assert!(connection.is_closed().await);
        connection = Connection::open(server.address).await;
    }
    until_held(&server, "all is free", |held| held == 0.0).await;
    server.stop().await;
}

/// Texts too small to count, of items that are not, each with an answer too small to count.
#[tokio::test]
async fn what_short_items_are_read_into_counts_until_it_is_done() {
    const ITEMS: usize = 1_300;
    // The number of bodies of the maximum length that are read at a time: one.
    let server = start_with(Limits::default(), |config| config.memory_bytes = 8 * ROOM).await;
    server.put("?key=a", &[b'x'; 14_000]).await;
    let text = json!(vec![json!({"key": "a"}); ITEMS]).to_string();
    assert!(text.len() < 16 * 1024);
    let mut unread = Vec::new();
    for _ in 0..4 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 * 1024).unwrap();
        let stream = soon("connect", socket.connect(server.address)).await.unwrap();
        let mut one = Connection::over(stream, server.address);
        let json = [("content-type", "application/json")];
        one.request("POST", "/v1/queues/q/messages:get", &json, text.as_bytes()).await;
        assert_eq!(one.answer_head().await.status, 200);
        unread.push(one);
    }
    let all = held(&server).await;
    assert!(all >= (4 * ITEMS * 100) as f64, "{all} are held");
    let mut last = unread.pop().unwrap();
    while !last.answer_chunk().await.is_empty() {}
    until_held(&server, "a quarter of it is done", |held| held == all * 0.75).await;
    drop((last, unread));
    until_held(&server, "all is free", |held| held == 0.0).await;
    server.stop().await;
}
