//! The audit: reports all messages of an otherwise idle server, and all settings, to the oracle.

use std::io;

use dwell_client::Client;
use dwell_model::{Message, StateKind};
use dwell_store::Error;

use super::{KillShared, wire};
use crate::oracle::{StoreAnswer, StoreCall, ViolationKind};
use crate::workload::{QUEUES, queue_name};

/// The most messages in a page.
const PAGE: usize = 1_000;

/// Lists all messages of all queues and reads all settings.
///
/// # Errors
/// If the server does not answer.
pub(super) fn audit(shared: &KillShared, client: &Client) -> io::Result<()> {
    for queue in 0..QUEUES {
        let op = shared.oracle().begin(StoreCall::ListAll { queue }, shared.now());
        let mut sights = Vec::new();
        for state in [StateKind::Leased, StateKind::Scheduled, StateKind::Ready, StateKind::Dead] {
            for message in list(client, queue, state)? {
                match wire::sight(&message) {
                    Some(sight) => sights.push(sight),
                    None => shared.oracle().accuse(ViolationKind::WrongBytes, format!("{message:?}")),
                }
            }
        }
        shared.oracle().end(op, StoreAnswer::Listed(sights), shared.now());

        let op = shared.oracle().begin(StoreCall::ReadSettings { queue }, shared.now());
        let settings = match client.blocking().stats(queue_name(queue)) {
            Ok(stats) => wire::settings(&stats),
            Err(Error::UnknownQueue { .. }) => wire::no_settings(),
            Err(error) => return Err(failed(&error)),
        };
        shared.oracle().end(op, StoreAnswer::Settings(settings), shared.now());
    }
    Ok(())
}

fn list(client: &Client, queue: u32, state: StateKind) -> io::Result<Vec<Message>> {
    let mut messages = Vec::new();
    let mut cursor = None;
    loop {
        match client.blocking().list(queue_name(queue), state, cursor, PAGE) {
            Ok(page) => {
                messages.extend(page.messages);
                cursor = page.next;
            }
            Err(Error::UnknownQueue { .. }) => return Ok(messages),
            Err(error) => return Err(failed(&error)),
        }
        if cursor.is_none() {
            return Ok(messages);
        }
    }
}

fn failed(error: &Error) -> io::Error {
    io::Error::other(format!("the server cannot be audited: {error}"))
}
