//! The Rust side of Redisson's delayed queue on a real Redis, without Java. For tests with Java see `tests/java`.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

mod cluster;
mod consumer;
mod doctor;
mod element;
mod failover;
mod foreign_values;
mod full;
mod large;
mod mover;
mod offer;
mod queue;
mod repeats;
mod waiting;
mod watch;
mod weight;

use std::future::Future;
use std::time::Duration;

use dwell_redis::Link;
use dwell_redisson::codec::Text;
use dwell_redisson::{DelayedQueue, Keys, Mover, MoverOptions, When};
use dwell_testkit::redis::Server;
use redis::Value;

/// A queue of strings on a separate server.
struct Fixture {
    server: Server,
    link: Link,
    keys: Keys,
    queue: DelayedQueue<Text>,
}

impl Fixture {
    async fn new() -> Fixture {
        let server = Server::start();
        let link = Link::open(server.address()).await.expect("the server was started");
        let keys = Keys::new("orders").expect("it is a name");
        let queue = DelayedQueue::new(link.clone(), keys.clone(), Text);
        Fixture { server, link, keys, queue }
    }

    fn mover(&self) -> Mover {
        Mover::new(self.link.clone(), self.keys.clone(), MoverOptions::default())
    }

    /// Stores an element of any bytes with any score, as a broken client might.
    async fn plant(&self, packed: &[u8], score: &str) {
        self.send(redis::cmd("ZADD").arg(self.keys.timeouts()).arg(score).arg(packed)).await;
        self.send(redis::cmd("RPUSH").arg(self.keys.pending()).arg(packed)).await;
    }

    async fn send(&self, command: &redis::Cmd) -> Value {
        self.link.send(command).await.unwrap_or_else(|error| panic!("{error}"))
    }

    async fn now_ms(&self) -> i64 {
        let time: (i64, i64) = self.link.ask(&redis::cmd("TIME")).await.expect("it has a clock");
        time.0 * 1000 + time.1 / 1000
    }

    /// All payloads at the destination, in order.
    async fn ready(&self) -> Vec<String> {
        self.link.ask(redis::cmd("LRANGE").arg(self.keys.ready()).arg(0).arg(-1)).await.expect("it is a list")
    }

    async fn offer(&self, value: &str, delay_ms: u64) {
        self.queue.offer(&value.to_owned(), When::In(delay_ms)).await.expect("it can be offered");
    }
}

/// Runs a test, for at most a minute.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let within = async { tokio::time::timeout(Duration::from_secs(60), test).await };
    runtime.block_on(within).expect("the test ends within a minute");
}

const HOUR_MS: u64 = 60 * 60 * 1000;

fn text(value: &str) -> String {
    value.to_owned()
}
