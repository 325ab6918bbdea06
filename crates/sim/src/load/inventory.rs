//! The inventory: reads back all messages that are left in the server at the end.

use std::io;
use std::sync::{Mutex, PoisonError};

use dwell_client::Client;
use dwell_model::{QueueName, StateKind};
use dwell_store::Error;

use super::ledger::{LoadLedger, SeenMessage};
use crate::jsonl::{QUEUES, queue_name};
use crate::server::Server;

/// The most messages in a page.
const PAGE: usize = 1_000;

/// Reads every message of every queue and records it in the ledger.
///
/// # Errors
/// If the server does not answer.
pub(super) fn read_back(server: &Server, ledger: &Mutex<LoadLedger>) -> io::Result<()> {
    let client = server.client()?;
    for queue in 0..QUEUES {
        let queue: QueueName = queue_name(queue).parse().expect("our queues have valid names");
        // Time moves messages only from an earlier of these states to a later
        // one. A message that is seen in two states is counted in the first.
        let mut seen = std::collections::HashSet::new();
        for state in [StateKind::Leased, StateKind::Scheduled, StateKind::Ready, StateKind::Dead] {
            read_state(&client, &queue, state, &mut seen, ledger)?;
        }
    }
    Ok(())
}

fn read_state(
    client: &Client,
    queue: &QueueName,
    state: StateKind,
    seen: &mut std::collections::HashSet<u128>,
    ledger: &Mutex<LoadLedger>,
) -> io::Result<()> {
    let mut before = std::mem::take(seen);
    let mut cursor = None;
    loop {
        let page = match client.blocking().list(queue.clone(), state, cursor, PAGE) {
            Ok(page) => page,
            Err(Error::UnknownQueue { .. }) => break,
            Err(error) => return Err(failed(&error)),
        };
        let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
        for message in &page.messages {
            let id = message.id.as_bits();
            seen.insert(id);
            if before.contains(&id) {
                continue;
            }
            ledger.found(&SeenMessage {
                id,
                queue: message.queue.as_str(),
                key: message.key.as_ref().map(|key| key.as_str()),
                body: &message.body,
                due: message.standing.due,
                created: message.created,
                attempt: message.standing.attempt(),
            });
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    seen.extend(before.drain());
    Ok(())
}

fn failed(error: &Error) -> io::Error {
    io::Error::other(format!("the server cannot be read back: {error}"))
}
