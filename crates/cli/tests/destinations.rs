//! Sinks of a real server whose destinations fail: one is down while messages come in, one never answers.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::thread;

use common::receiver::{Receiver, header};
use common::shared::get;
use common::{Server, dwell, until};
use dwell_client::Client;
use dwell_model::{QueueName, Timestamp};
use dwell_store::{Error, Put, StateCounts};
use dwell_testkit::free_port;

/// A server with its data in `data`, and these sinks.
fn serve(data: &Path, sinks: &str) -> Server {
    let file = data.with_extension("toml");
    fs::write(&file, sinks).unwrap();
    let mut command = dwell();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).arg("--config").arg(&file);
    Server::spawn(command)
}

/// The table of a sink of the queue of the same name.
fn sink(queue: &str, to: SocketAddr) -> String {
    format!(
        "[[sinks]]\nname = \"{queue}\"\nqueues = [\"{queue}\"]\nkind = \"webhook\"\nurl = \"http://{to}/\"\n"
    )
}

fn client(server: &Server) -> Client {
    Client::builder(server.url()).build().unwrap()
}

fn queue(name: &str) -> QueueName {
    name.parse().unwrap()
}

fn counts(client: &Client, name: &str) -> StateCounts {
    match client.blocking().stats(queue(name)) {
        Ok(stats) => stats.counts,
        Err(Error::UnknownQueue { .. }) => StateCounts::default(),
        Err(error) => panic!("{error}"),
    }
}

/// The value of a metric without labels.
fn metric(server: &Server, name: &str) -> u64 {
    let page = get(server, "/metrics").1;
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse::<f64>().unwrap() as u64
}

/// Puts this many messages, a batch after the other, and calls `between` after each.
fn put_all(client: &Client, name: &str, batches: usize, mut between: impl FnMut(usize)) {
    for batch in 0..batches {
        let put = |number: usize| {
            Put::new(queue(name), format!("message {:06}", batch * BATCH + number).into_bytes())
        };
        let answers = client.blocking().put((0..BATCH).map(put).collect());
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        between(batch);
    }
}

const BATCH: usize = 10;

/// In place of two minutes: as long as these puts take. The breaker is open before they begin, and what it does is the
/// same after two minutes.
#[test]
fn while_a_receiver_is_down_puts_alone_are_written_and_no_attempt_is_spent() {
    const BATCHES: usize = 300;
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let server = serve(&folder.path().join("data"), &sink("hooks", SocketAddr::from(([127, 0, 0, 1], port))));
    let client_of = client(&server);
    put_all(&client_of, "hooks", 1, |_| {});
    let open = "dwell_sink_breaker{sink=\"hooks\",queue=\"hooks\",state=\"open\"} 1";
    let is_quiet = || get(&server, "/metrics").1.contains(open) && counts(&client_of, "hooks").leased == 0;
    until("the breaker is open", is_quiet);

    const WRITTEN: &str = "dwell_engine_write_bytes_sum";
    let before = metric(&server, WRITTEN);
    let mut most_leased = 0;
    put_all(&client_of, "hooks", BATCHES, |batch| {
        if batch % 10 == 0 {
            most_leased = most_leased.max(counts(&client_of, "hooks").leased);
        }
    });
    let grown = metric(&server, WRITTEN) - before;
    assert_eq!(most_leased, 0, "a message was leased while the receiver was down");
    assert_eq!(counts(&client_of, "hooks").ready as usize, (BATCHES + 1) * BATCH);
    assert!(is_quiet());

    // The same puts where nothing takes.
    let control = serve(&folder.path().join("control"), "");
    let client_of_control = client(&control);
    put_all(&client_of_control, "hooks", 1, |_| {});
    let before = metric(&control, WRITTEN);
    put_all(&client_of_control, "hooks", BATCHES, |_| {});
    let by_puts = metric(&control, WRITTEN) - before;
    assert!(
        by_puts > 0 && grown.abs_diff(by_puts) * 100 <= by_puts,
        "{grown} bytes, by puts alone {by_puts}"
    );
    drop(control);

    let receiver = Receiver::on(port);
    until("all are delivered", || counts(&client_of, "hooks") == StateCounts::default());
    let heard = receiver.heard();
    assert_eq!(heard.len(), (BATCHES + 1) * BATCH, "each came once");
    let again = heard.iter().find(|(head, _)| header(head, "dwell-attempt") != "1");
    assert_eq!(again, None, "an attempt was spent");
    assert!(server.stop_by("TERM").1.success());
}

/// A destination that accepts connections and never answers.
fn silent() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            kept.push(stream.unwrap());
        }
    });
    address
}

/// The lateness of 99 of 100 messages that are put one after the other, in milliseconds.
fn p99_ms(client: &Client, receiver: &Receiver) -> u64 {
    const MESSAGES: usize = 500;
    receiver.heard();
    for number in 0..MESSAGES {
        client.blocking().put_one(Put::new(queue("shop"), "order")).unwrap();
        until("it is delivered", || receiver.count() > number);
    }
    let late = |(head, at): (String, Timestamp)| at.ms_since(header(&head, "dwell-due").parse().unwrap());
    let mut late: Vec<u64> = receiver.heard().into_iter().map(late).collect();
    late.sort_unstable();
    late[MESSAGES * 99 / 100]
}

#[test]
fn a_destination_that_never_answers_delays_no_other_sink() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start();
    let server =
        serve(&folder.path().join("data"), &(sink("shop", receiver.address) + &sink("silent", silent())));
    let client = client(&server);
    let alone_ms = p99_ms(&client, &receiver);
    put_all(&client, "silent", 100, |_| {});
    until("the silent one holds what it may", || counts(&client, "silent").leased > 0);
    let beside_ms = p99_ms(&client, &receiver);
    let leased = counts(&client, "silent").leased;
    assert!(leased > 0, "the silent one was held all the time");
    // On a busy machine, what it takes alone says how slow that is.
    let most_ms = 10.max(3 * alone_ms);
    assert!(beside_ms <= most_ms, "p99 {beside_ms} ms beside a silent destination, {alone_ms} ms alone");
    assert!(counts(&client, "silent").dead == 0);
    // It is not waited for: its requests have twenty seconds.
    server.kill();
}
