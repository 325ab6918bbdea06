//! Tests with real Redisson: every direction, every listed release. Needs a JDK, and `mvn package` in
//! `interop/redisson`.

mod codecs;
mod directions;
mod java;
mod layouts;
mod movers;

use std::future::Future;
use std::time::Duration;

use dwell_redis::Link;
use dwell_redisson::codec::Text;
use dwell_redisson::{DelayedQueue, Event, Keys, Layout, Mover, MoverOptions};
use dwell_testkit::redis::Server;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A separate server, and a queue of ours on it.
struct Fixture {
    server: Server,
    link: Link,
}

impl Fixture {
    async fn new() -> Fixture {
        let server = Server::start();
        let link = Link::open(server.address()).await.expect("the server was started");
        Fixture { server, link }
    }

    fn queue(&self, name: &str) -> DelayedQueue<Text> {
        DelayedQueue::new(self.link.clone(), Keys::new(name).expect("it is a name"), Text)
    }

    /// Starts a mover of ours that runs until it is dropped.
    async fn mover(&self, name: &str, options: MoverOptions) -> Running {
        let mover = Mover::new(self.link.clone(), Keys::new(name).expect("it is a name"), options);
        let (stop, stopped) = oneshot::channel::<()>();
        let (told, mut events) = mpsc::unbounded_channel();
        let moving =
            tokio::spawn(mover.run(async { drop(stopped.await) }, move |event| drop(told.send(event))));
        assert_eq!(events.recv().await, Some(Event::Listening));
        Running { stop, moving, events }
    }

    async fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        self.link.ask(command).await.unwrap_or_else(|error| panic!("{error}"))
    }
}

/// A running mover of ours.
struct Running {
    stop: oneshot::Sender<()>,
    moving: JoinHandle<()>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Running {
    /// Stops it. Returns the number of elements that it moved.
    async fn stop(mut self) -> usize {
        drop(self.stop);
        self.moving.await.expect("a mover does not panic");
        let mut moved = 0;
        while let Some(event) = self.events.recv().await {
            if let Event::Moved(step) = event {
                moved += step.moved;
            }
        }
        moved
    }
}

fn for_layout(layout: Layout) -> MoverOptions {
    MoverOptions { layout: Some(layout), sweep_ms: 100, ..MoverOptions::default() }
}

/// Runs a test, for at most two minutes.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let within = async { tokio::time::timeout(Duration::from_secs(120), test).await };
    runtime.block_on(within).expect("the test ends within two minutes");
}

const HOUR_MS: u64 = 60 * 60 * 1000;

fn text(value: &str) -> String {
    value.to_owned()
}
