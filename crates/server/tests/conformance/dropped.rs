//! Takes whose callers disconnect, beyond what the contract tests for all stores: with many messages in one answer,
//! over several long polls, and as the last call of a program.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};

use dwell_model::{Limits, QueueName, StateKind};
use dwell_store::conformance::{Harness, await_true};
use dwell_store::{Put, Store, Take};
use pollster::block_on;

use crate::over::Over;
use crate::stores::Memory;

fn queue() -> QueueName {
    "q".parse().unwrap()
}

fn open() -> Over<Memory> {
    Over::new(Memory::open(Limits::default()))
}

/// The number of ready messages in the store behind the server.
fn ready(store: &impl Store) -> u64 {
    block_on(store.stats(queue())).map_or(0, |stats| stats.counts.ready)
}

#[test]
fn a_large_answer_that_is_on_its_way_goes_back_whole() {
    let over = open();
    let client = over.client();
    // Far more than socket buffers hold: the server has to be writing when the caller disconnects.
    let puts = (0..64).map(|_| Put::new(queue(), vec![b'x'; 256 * 1024])).collect();
    for answer in block_on(client.put(puts)) {
        answer.unwrap();
    }
    let take = Take::from(queue()).max(64).max_bytes(32 * 1024 * 1024).lease_ms(600_000);
    {
        let mut taking = pin!(client.take(take));
        let mut context = Context::from_waker(Waker::noop());
        assert!(taking.as_mut().poll(&mut context).is_pending());
        await_true("the messages are handed out", || ready(client) == 0);
    }
    over.quiesce();
    await_true("all are ready again", || ready(client) == 64);
    let page = block_on(client.list(queue(), StateKind::Ready, None, 100)).unwrap();
    assert!(page.messages.iter().all(|message| message.standing.attempts == 0));
}

#[test]
fn a_take_that_is_dropped_with_its_client_gives_back() {
    let over = open();
    let gone = dwell_client::Client::new(over.client().server()).unwrap();
    {
        let mut taking = pin!(gone.take(Take::from(queue()).wait_ms(60_000).lease_ms(600_000)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(taking.as_mut().poll(&mut context).is_pending());
        let waiting = || block_on(over.client().stats(queue())).map_or(0, |stats| stats.waiting);
        await_true("it waits", || waiting() == 1);
        block_on(over.client().put(vec![Put::new(queue(), "m")])).pop().unwrap().unwrap();
    }
    drop(gone);
    await_true("the message is ready again", || ready(over.client()) == 1);
}
