//! `lateness-longpoll`: how late a message reaches a client that waits for it, on a server with nothing else
//! to do; and how often that server wakes up while nothing comes.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dwell_client::Client;
use dwell_model::QueueName;
use dwell_store::{Action, Put, Take};
use hdrhistogram::Histogram;

use super::Scenario;
use crate::Result;
use crate::run::Run;
use crate::server::Server;
use crate::stopwatch::{Stopwatch, pause, wall_us};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "lateness-longpoll",
    what: "lateness of a message due in 100 ms at a waiting HTTP long poll; wake-ups of an idle server",
    run,
};

const DELAY_MS: u64 = 100;
const WAIT_MS: u64 = 30_000;
const IDLE: Duration = Duration::from_secs(10);

fn run(run: &mut Run) -> Result<()> {
    let count = run.scaled(1_000);
    run.note(format!(
        "{count} messages one after the other, each put with a delay of {DELAY_MS} ms while a long poll waits"
    ));
    run.note(
        "lateness: when the answer was read, less due; client and server share the machine and its clock",
    );
    let server = Server::start(&run.empty_folder("server")?)?;
    idle(run, &server)?;

    let queue: QueueName = "lateness".parse()?;
    let (arrived, arrivals) = mpsc::channel();
    let consumer = {
        let (client, queue) = (Client::new(server.url())?, queue.clone());
        thread::spawn(move || consume(&client, &queue, count, &arrived))
    };
    let client = Client::new(server.url())?;
    let mut micros = Histogram::<u64>::new(3)?;
    let bar = run.progress("lateness", count);
    for _ in 0..count {
        client.put_one(Put::new(queue.clone(), "x").after_ms(DELAY_MS))?;
        let late_us: i64 = arrivals.recv_timeout(Duration::from_millis(WAIT_MS))?;
        if late_us < 0 {
            return Err(format!("a message came {} us before its instant", -late_us).into());
        }
        micros.record(late_us.unsigned_abs())?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    consumer.join().expect("the consumer does not panic")?;
    run.latencies("lateness, one waiting long poll", &micros);
    Ok(())
}

/// Takes and acks `count` messages; tells how late each came, in microseconds.
fn consume(
    client: &Client,
    queue: &QueueName,
    count: u64,
    arrived: &mpsc::Sender<i64>,
) -> std::result::Result<(), dwell_client::Error> {
    let mut left = count;
    while left > 0 {
        for delivery in client.take(&Take::from(queue.clone()).wait_ms(WAIT_MS))? {
            let late_us = wall_us() - delivery.message.due.as_ms() * 1_000;
            client.settle_one(delivery.receipt, Action::Ack)?;
            left -= 1;
            if arrived.send(late_us).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// What a server does while a take waits and nothing comes.
fn idle(run: &mut Run, server: &Server) -> Result<()> {
    let (client, queue) = (Client::new(server.url())?, "idle".parse::<QueueName>()?);
    let waiter = thread::spawn({
        let (client, queue) = (Client::new(server.url())?, queue.clone());
        move || client.take(&Take::from(queue).wait_ms(WAIT_MS))
    });
    let patience = Stopwatch::start();
    while client.stats(&queue).map_or(0, |stats| stats.waiting) == 0 {
        if patience.elapsed() > Duration::from_secs(10) {
            return Err("the take does not wait".into());
        }
    }
    // What connecting and asking set off has ended by then.
    pause(Duration::from_secs(1));
    let before = server.usage()?;
    pause(IDLE);
    let used = server.usage()?.since(&before);
    let seconds = IDLE.as_secs_f64();
    run.alone("idle, one take waiting", "wakeups_per_s", vec![used.switches as f64 / seconds]);
    run.alone("idle, one take waiting", "cpu_ms_per_s", vec![used.ticks as f64 * 10.0 / seconds]);
    client.put_one(Put::new(queue, "done"))?;
    waiter.join().expect("the waiter does not panic")?;
    Ok(())
}
