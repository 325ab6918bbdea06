//! How the client reports a server that is absent, goes away, or is not a dwell server. A bare socket plays the server.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::future::Future as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use dwell_client::Client;
use dwell_model::{MessageId, QueueName, Receipt, Timestamp};
use dwell_store::{Blocking, Error, Put, Store, Take, Target};
use dwell_wire::{Limits, QueueSettings, ServerInfo};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(20);

/// What the fake server does with the first request of a connection.
enum Reply {
    /// Closes the connection.
    HangUp,
    /// Answers with this.
    Answer(&'static str, String),
    /// Answers with keep-alive, closes the connection, and announces that after the body.
    AnswerAndClose(String),
}

/// Plays a server that handles one connection after another by `replies`; returns its address and the bodies that it received.
fn play(replies: Vec<Reply>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, bodies) = channel();
    thread::spawn(move || {
        for reply in replies {
            let (stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            sender.send(read_request(&stream)).unwrap();
            let is_closed = matches!(reply, Reply::AnswerAndClose(_));
            let (status, close, body) = match reply {
                Reply::HangUp => continue,
                Reply::Answer(status, body) => (status, "Connection: close\r\n", body),
                Reply::AnswerAndClose(body) => ("200 OK", "", body),
            };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{close}\r\n", body.len());
            (&stream).write_all(format!("{head}{body}").as_bytes()).unwrap();
            if is_closed {
                drop(stream);
                let _ = sender.send("closed".to_owned());
            }
        }
    });
    (url, bodies)
}

fn read_request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

fn queue() -> QueueName {
    "q".parse().unwrap()
}

fn blocking(url: &str) -> Blocking<Client> {
    Client::new(url).unwrap().blocking()
}

fn patient(url: &str, patience_ms: u64) -> Blocking<Client> {
    Client::builder(url).patience_ms(patience_ms).build().unwrap().blocking()
}

/// The server's answer to a request for its limits.
fn limits() -> Reply {
    let limits = Limits {
        body_bytes: 1_048_576,
        batch: 1_000,
        leased: 1,
        leased_per_queue: 1,
        waiting_per_queue: 1,
        queues: 1,
        idempotency_keys: 1,
        idempotency_keys_per_queue: 1,
        take_queues: 1,
        wait_ms: 60_000,
        json_bytes: 1,
        line_bytes: 1,
    };
    let defaults = QueueSettings::from(&dwell_model::Settings::default());
    let info = ServerInfo { version: "0".into(), limits, defaults };
    Reply::Answer("200 OK", serde_json::to_string(&info).unwrap())
}

/// An address at which no server listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

const PUT_ANSWER: &str = "{\"status\":201,\"id\":\"00000000-0005-8001-8000-020000000003\",\"number\":1,\
     \"due\":\"1970-01-01T00:00:00.005Z\",\"outcome\":\"created\"}\n";

#[test]
fn nobody_there_is_unreachable_at_once_and_says_what_to_do() {
    let client = blocking(&nobody());
    let error = client.put_one(Put::new(queue(), "x")).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(error.is_retryable());
    assert!(error.to_string().contains("dwell serve"), "{error}");
    assert!(matches!(client.stats(queue()).unwrap_err(), Error::Unreachable { .. }));
    assert!(matches!(client.take(Take::from(queue())).unwrap_err(), Error::Unreachable { .. }));
}

#[test]
fn a_put_is_repeated_with_the_same_idempotency_key() {
    let (url, bodies) =
        play(vec![Reply::HangUp, Reply::HangUp, Reply::Answer("200 OK", PUT_ANSWER.to_owned())]);
    let answer = patient(&url, 20_000).put_one(Put::new(queue(), "x")).unwrap();
    assert_eq!(answer.number.get(), 1);
    let sent: Vec<String> = (0..3).map(|_| bodies.recv_timeout(PATIENCE).unwrap()).collect();
    assert!(sent[0].contains("\"idempotency_key\":\"once-"), "{}", sent[0]);
    assert_eq!(sent[0], sent[1]);
    assert_eq!(sent[0], sent[2]);
}

#[test]
fn patience_ends() {
    let (url, _bodies) = play(vec![Reply::HangUp]);
    let error = patient(&url, 0).put_one(Put::new(queue(), "x")).unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { needs_reopen: false, .. }), "{error:?}");
}

fn opening() -> Reply {
    let problem = r#"{"type":"/errors/unavailable","title":"t","status":503,"detail":"the store is being opened","code":"unavailable","retryable":true}"#;
    Reply::Answer("503 Service Unavailable", problem.to_owned())
}

/// A server that restarts answers so while it opens its store, which says nothing about what it did before.
#[test]
fn a_put_is_repeated_until_the_server_serves_again() {
    let (url, bodies) =
        play(vec![Reply::HangUp, opening(), opening(), Reply::Answer("200 OK", PUT_ANSWER.to_owned())]);
    let answer = patient(&url, 20_000).put_one(Put::new(queue(), "x")).unwrap();
    assert_eq!(answer.number.get(), 1);
    assert_eq!(bodies.try_iter().count(), 4);
}

#[test]
fn a_refusal_for_the_time_being_does_not_hide_that_the_outcome_is_unknown() {
    let (url, _bodies) = play(vec![Reply::HangUp, opening()]);
    // There is time for one more attempt.
    let error = patient(&url, 100).put_one(Put::new(queue(), "x")).unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
}

#[test]
fn what_is_not_harmless_is_not_repeated() {
    let cancel = |client: &Blocking<Client>| {
        client.cancel(queue(), vec![Target::Key("k".parse().unwrap())]).remove(0).map(drop)
    };
    for call in [
        cancel,
        |client: &Blocking<Client>| client.take(Take::from(queue())).map(drop),
        |client: &Blocking<Client>| client.purge(queue()).map(drop),
    ] {
        let (url, bodies) = play(vec![Reply::HangUp, Reply::HangUp]);
        let error = call(&blocking(&url)).unwrap_err();
        assert_eq!(error.code(), "outcome_unknown");
        bodies.recv_timeout(PATIENCE).unwrap();
        assert!(bodies.try_recv().is_err(), "it was sent twice");
    }
}

/// The server may close an idle connection: that is not a lost answer.
#[test]
fn a_connection_that_was_closed_meanwhile_is_replaced() {
    let removed = || r#"{"removed":1}"#.to_owned();
    let (url, bodies) = play(vec![Reply::AnswerAndClose(removed()), Reply::Answer("200 OK", removed())]);
    let client = blocking(&url);
    assert_eq!(client.purge(queue()), Ok(1));
    bodies.recv_timeout(PATIENCE).unwrap();
    assert_eq!(bodies.recv_timeout(PATIENCE).unwrap(), "closed");
    assert_eq!(client.purge(queue()), Ok(1));
}

#[test]
fn an_answer_short_of_an_item_leaves_the_outcome_unknown() {
    let (url, _bodies) = play(vec![limits(), Reply::Answer("200 OK", PUT_ANSWER.to_owned())]);
    let answers = patient(&url, 0).put(vec![Put::new(queue(), "x"), Put::new(queue(), "y")]);
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap_err().code() == "outcome_unknown"));
}

/// A server that stops answers the items that it has done, refuses the next one, and does none after it.
#[test]
fn what_a_server_that_stops_has_answered_is_answered() {
    let refused = r#"{"status":503,"error":{"type":"/errors/shutting_down","title":"t","status":503,"detail":"d","code":"shutting_down","retryable":true}}"#;
    let (url, _bodies) = play(vec![limits(), Reply::Answer("200 OK", format!("{PUT_ANSWER}\n{refused}\n"))]);
    let answers = patient(&url, 0).put(["x", "y", "z"].map(|body| Put::new(queue(), body)).into());
    assert_eq!(answers.len(), 3);
    assert!(answers[0].is_ok(), "{answers:?}");
    assert!(answers[1..].iter().all(|answer| answer.as_ref().unwrap_err().is_retryable()), "{answers:?}");
}

#[test]
fn a_refusal_is_the_error_of_the_store() {
    let problem = r#"{"type":"/errors/unknown_queue","title":"t","status":404,"detail":"d","code":"unknown_queue","retryable":false,"queue":"q"}"#;
    let (url, _bodies) = play(vec![Reply::Answer("404 Not Found", problem.to_owned())]);
    assert_eq!(blocking(&url).stats(queue()), Err(Error::UnknownQueue { queue: queue() }));
}

#[test]
fn something_else_at_the_address_is_told() {
    let (url, _bodies) = play(vec![
        Reply::Answer("200 OK", "<html>".to_owned()),
        Reply::Answer("404 Not Found", "no".to_owned()),
        Reply::Answer("404 Not Found", "no".to_owned()),
    ]);
    let client = blocking(&url);
    assert_eq!(client.stats(queue()).unwrap_err().code(), "bad_answer");
    assert_eq!(client.stats(queue()).unwrap_err().code(), "bad_answer");
    assert_eq!(client.purge(queue()).unwrap_err().code(), "bad_answer");
}

/// A server may have accepted the change, or a proxy has lost its server during the request.
#[test]
fn an_answer_that_cannot_be_read_leaves_a_change_unknown() {
    for (status, body) in [("200 OK", "<html>"), ("502 Bad Gateway", "<html>"), ("500 Oh", "")] {
        let (url, _bodies) = play(vec![Reply::Answer(status, body.to_owned())]);
        assert_eq!(blocking(&url).purge(queue()).unwrap_err().code(), "outcome_unknown", "{status}");
    }
    let (url, _bodies) = play(vec![Reply::Answer("503 Not Now", "<html>".to_owned())]);
    assert_eq!(blocking(&url).purge(queue()).unwrap_err().code(), "bad_answer");
}

/// The server was answering when the caller was dropped: it has sent the messages, and cannot know that they will not be read.
#[test]
fn what_is_answered_to_a_take_whose_caller_has_gone_is_released() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let id = MessageId::new(Timestamp::MIN, 0, 0, 1);
    let receipt = Receipt { queue: queue(), id, token: dwell_model::LeaseToken(1) };
    let mut stream = {
        let mut taking = pin!(client.take(Take::from(queue())));
        assert!(taking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let stream = listener.accept().unwrap().0;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        read_request(&stream);
        stream
    };
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "only the end of what is sent");
    assert!(!client.is_quiet_for_test());
    let delivery = json!({
        "receipt": receipt.to_string(), "lease_until": "1970-01-01T00:00:01Z", "taken_at": "1970-01-01T00:00:00Z",
        "lateness_ms": 0, "id": id.to_string(), "number": 1, "queue": "q", "state": "leased", "body": "x", "size": 1,
        "due": "1970-01-01T00:00:00Z", "created": "1970-01-01T00:00:00Z", "priority": 0, "attempt": 1,
        "counts": {"takes": 1, "lapses": 0, "releases": 0, "buries": 0, "revives": 0},
    });
    let body = json!({ "messages": [delivery] }).to_string();
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    drop(stream);
    let settling = listener.accept().unwrap().0;
    settling.set_read_timeout(Some(PATIENCE)).unwrap();
    let released: serde_json::Value = serde_json::from_str(&read_request(&settling)).unwrap();
    assert_eq!(released, json!([{ "receipt": receipt.to_string(), "action": "release" }]));
}
