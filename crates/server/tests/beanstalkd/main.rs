//! beanstalkd's protocol over real sockets, with the memory store behind it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails by panicking")]

mod bad_input;
mod batch;
mod close;
mod counting;
mod fairness;
mod job;
mod kick;
mod limits;
mod pause;
mod peek;
mod put;
mod replies;
mod reserve;
mod reserved;
mod room;
mod server;
mod stats;
mod support;
mod tube;
