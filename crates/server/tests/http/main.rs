//! The HTTP interface over real sockets, with the memory store behind it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails by panicking")]

mod bad_input;
mod batch;
mod bind;
mod concurrent;
mod dead;
mod delivery;
mod foreign;
mod gone;
mod health;
mod leases;
mod limits;
mod messages;
mod metrics;
mod openapi;
mod opening;
mod outage;
mod overview;
mod page;
mod put;
mod queues;
mod reserved;
mod room;
mod scopes;
mod settle;
mod shutdown;
mod slow;
mod support;
mod take;
mod tls;
mod tokens;
mod unread;
