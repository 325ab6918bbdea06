//! What the client makes of a server that is not there, goes away, or is no dwell server: told by a bare
//! socket that plays the server.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use dwell_client::{Client, Error};
use dwell_model::QueueName;
use dwell_store::{Put, Take, Target};

const PATIENCE: Duration = Duration::from_secs(20);

/// What the played server does with one connection's first request.
enum Reply {
    /// Closes the connection.
    HangUp,
    /// Answers with this.
    Answer(&'static str, String),
}

/// Plays a server that treats one connection after the other as told; gives its address and the bodies that
/// it was sent.
fn play(replies: Vec<Reply>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, bodies) = channel();
    thread::spawn(move || {
        for reply in replies {
            let (stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            sender.send(read_request(&stream)).unwrap();
            if let Reply::Answer(status, body) = reply {
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                (&stream).write_all(format!("{head}{body}").as_bytes()).unwrap();
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

/// An address at which nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

const PUT_ANSWER: &str = "{\"status\":201,\"id\":\"00000000-0005-8001-8000-020000000003\",\"number\":1,\
     \"due\":\"1970-01-01T00:00:00.005Z\",\"outcome\":\"created\"}\n";

#[test]
fn nobody_there_is_unreachable_at_once_and_says_what_to_do() {
    let client = Client::new(&nobody()).unwrap();
    let error = client.put_one(Put::new(queue(), "x")).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(error.is_retryable());
    assert!(error.to_string().contains("dwell serve"), "{error}");
    assert!(matches!(client.stats(&queue()).unwrap_err(), Error::Unreachable { .. }));
}

#[test]
fn a_put_is_repeated_with_the_same_token() {
    let (url, bodies) =
        play(vec![Reply::HangUp, Reply::HangUp, Reply::Answer("200 OK", PUT_ANSWER.to_owned())]);
    let client = Client::builder(&url).patience_ms(20_000).build().unwrap();
    let answer = client.put_one(Put::new(queue(), "x")).unwrap();
    assert_eq!(answer.number, 1);
    let sent: Vec<String> = (0..3).map(|_| bodies.recv_timeout(PATIENCE).unwrap()).collect();
    assert!(sent[0].contains("\"token\":\"once-"), "{}", sent[0]);
    assert_eq!(sent[0], sent[1]);
    assert_eq!(sent[0], sent[2]);
}

#[test]
fn patience_ends() {
    let (url, _bodies) = play(vec![Reply::HangUp]);
    let client = Client::builder(&url).patience_ms(0).build().unwrap();
    let error = client.put_one(Put::new(queue(), "x")).unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
}

fn opening() -> Reply {
    let problem = r#"{"type":"/errors/unavailable","title":"t","status":503,"detail":"the store is being opened","code":"unavailable","retryable":true}"#;
    Reply::Answer("503 Service Unavailable", problem.to_owned())
}

/// A server that is started again says so while it opens its store, which tells nothing of what it did before.
#[test]
fn a_put_is_repeated_until_the_server_serves_again() {
    let (url, bodies) =
        play(vec![Reply::HangUp, opening(), opening(), Reply::Answer("200 OK", PUT_ANSWER.to_owned())]);
    let client = Client::builder(&url).patience_ms(20_000).build().unwrap();
    let answer = client.put_one(Put::new(queue(), "x")).unwrap();
    assert_eq!(answer.number, 1);
    assert_eq!(bodies.try_iter().count(), 4);
}

#[test]
fn a_refusal_for_the_time_being_does_not_hide_that_the_outcome_is_unknown() {
    let (url, _bodies) = play(vec![Reply::HangUp, opening()]);
    // There is time for one attempt more.
    let client = Client::builder(&url).patience_ms(100).build().unwrap();
    let error = client.put_one(Put::new(queue(), "x")).unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
}

#[test]
fn what_is_not_harmless_is_not_repeated() {
    for call in [
        |client: &Client| client.cancel(&queue(), &Target::Key("k".parse().unwrap())).map(drop),
        |client: &Client| client.take(&Take::from(queue())).map(drop),
        |client: &Client| client.purge(&queue()).map(drop),
    ] {
        let (url, bodies) = play(vec![Reply::HangUp, Reply::HangUp]);
        let error = call(&Client::new(&url).unwrap()).unwrap_err();
        assert_eq!(error.code(), "outcome_unknown");
        bodies.recv_timeout(PATIENCE).unwrap();
        assert!(bodies.try_recv().is_err(), "it was sent twice");
    }
}

#[test]
fn an_answer_short_of_an_item_leaves_the_outcome_unknown() {
    let (url, _bodies) = play(vec![Reply::Answer("200 OK", PUT_ANSWER.to_owned())]);
    let client = Client::builder(&url).patience_ms(0).build().unwrap();
    let answers = client.put(&[Put::new(queue(), "x"), Put::new(queue(), "y")]);
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap_err().code() == "outcome_unknown"));
}

#[test]
fn a_refusal_is_carried_whole() {
    let problem = r#"{"type":"/errors/unknown_queue","title":"t","status":404,"detail":"queue 'q' is unknown","code":"unknown_queue","retryable":false}"#;
    let (url, _bodies) = play(vec![Reply::Answer("404 Not Found", problem.to_owned())]);
    let error = Client::new(&url).unwrap().stats(&queue()).unwrap_err();
    assert_eq!((error.code(), error.status(), error.is_retryable()), ("unknown_queue", Some(404), false));
    assert_eq!(error.to_string(), "queue 'q' is unknown");
}

#[test]
fn something_else_at_the_address_is_told() {
    let (url, _bodies) = play(vec![
        Reply::Answer("200 OK", "<html>".to_owned()),
        Reply::Answer("404 Not Found", "no".to_owned()),
    ]);
    let client = Client::new(&url).unwrap();
    assert_eq!(client.stats(&queue()).unwrap_err().code(), "bad_answer");
    assert_eq!(client.stats(&queue()).unwrap_err().code(), "bad_answer");
}
