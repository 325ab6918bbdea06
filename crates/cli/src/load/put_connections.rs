//! Lanes: each sends chunks of lines to the server, one request at a time.
//!
//! A request without an answer is sent again unchanged, which its idempotency keys make harmless. So is an item that
//! the server refuses for now. Both end when nothing has succeeded within the run's retry time.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

use dwell_client::{Client, Pauses};
use dwell_store::{Error, PutAnswer};
use pollster::block_on;

use super::item::LoadItem;
use super::ledger::{LineLedger, LineNumber, LineOutcome, Reason};
use super::waits::RetryWaits;
use crate::exit::Failure;

/// The maximum number of items in a chunk.
const CHUNK_ITEMS: usize = 1_000;
/// The maximum bytes of a chunk with more than one item.
const CHUNK_BYTES: usize = 1024 * 1024;

/// Lines that are sent together.
#[derive(Default)]
struct LineChunk {
    items: Vec<(LineNumber, Vec<u8>)>,
    bytes: usize,
}

/// All lanes, and the chunk that is gathered for each.
pub(crate) struct PutConnections<'a> {
    lanes: Vec<(SyncSender<LineChunk>, LineChunk)>,
    ledger: &'a LineLedger<'a>,
}

impl<'a> PutConnections<'a> {
    /// Starts this many lanes.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, 'a>,
        count: usize,
        client: &'a Client,
        waits: &'a RetryWaits<'a>,
        ledger: &'a LineLedger<'a>,
    ) -> PutConnections<'a> {
        let lanes = (0..count)
            .map(|_| {
                let (sender, chunks) = sync_channel(1);
                let lane = PutConnection { client, waits, ledger };
                scope.spawn(move || lane.run(&chunks));
                (sender, LineChunk::default())
            })
            .collect();
        PutConnections { lanes, ledger }
    }

    /// Adds an item to its queue's lane.
    pub(crate) fn add(&mut self, place: LineNumber, item: LoadItem) {
        let mut hasher = DefaultHasher::new();
        item.queue.hash(&mut hasher);
        let lane = (hasher.finish() % self.lanes.len() as u64) as usize;
        let (_, chunk) = &mut self.lanes[lane];
        chunk.bytes += item.json.len();
        chunk.items.push((place, item.json));
        if chunk.items.len() >= CHUNK_ITEMS || chunk.bytes >= CHUNK_BYTES {
            self.send(lane);
        }
    }

    /// Sends all gathered chunks.
    pub(crate) fn send_all(&mut self) {
        (0..self.lanes.len()).for_each(|lane| self.send(lane));
    }

    /// Sends all gathered chunks, and lets the lanes end after them.
    pub(crate) fn finish(mut self) {
        self.send_all();
    }

    fn send(&mut self, lane: usize) {
        let (sender, chunk) = &mut self.lanes[lane];
        let chunk = std::mem::take(chunk);
        // A lane ends early only when the run has failed.
        if !chunk.items.is_empty() && sender.send(chunk).is_err() {
            assert!(self.ledger.is_failed(), "a lane ended and nothing failed");
        }
    }
}

struct PutConnection<'a> {
    client: &'a Client,
    waits: &'a RetryWaits<'a>,
    ledger: &'a LineLedger<'a>,
}

impl PutConnection<'_> {
    fn run(&self, chunks: &Receiver<LineChunk>) {
        while let Ok(chunk) = chunks.recv() {
            if self.ledger.is_failed() {
                return;
            }
            if let Err(failure) = self.put(chunk.items) {
                self.ledger.fail(failure);
                return;
            }
        }
    }

    /// Puts items until each has a final answer.
    fn put(&self, mut items: Vec<(LineNumber, Vec<u8>)>) -> Result<(), Failure> {
        let mut pauses = Pauses::within_ms(self.waits.patience_ms());
        loop {
            let error = match block_on(self.client.put_lines(lines(&items), items.len())) {
                Ok(answers) => {
                    self.waits.answered();
                    let before = items.len();
                    let last = self.settle(&mut items, answers);
                    let Some(error) = last else { return Ok(()) };
                    if items.len() < before {
                        pauses = Pauses::within_ms(self.waits.patience_ms());
                    }
                    error
                }
                Err(error) if error.is_retryable() => error,
                Err(error) => return Err(error.into()),
            };
            self.waits.for_want_of(&error);
            if self.ledger.is_failed() || !pauses.pause() {
                return Err(error.into());
            }
        }
    }

    /// Records the final answers, keeps the items of the others, and returns the reason of one of them.
    fn settle(
        &self,
        items: &mut Vec<(LineNumber, Vec<u8>)>,
        answers: Vec<Result<PutAnswer, Error>>,
    ) -> Option<Error> {
        let mut later = None;
        let mut outcomes = Vec::with_capacity(items.len());
        let mut answers = answers.into_iter();
        items.retain(|(place, _)| match answers.next() {
            Some(Ok(answer)) => {
                outcomes.push((*place, LineOutcome::Put(answer.into())));
                false
            }
            // `leased` is retryable too, but may last as long as the holder's work does.
            Some(Err(error)) if error.is_retryable() && error.code() != "leased" => {
                later = Some(error);
                true
            }
            Some(Err(error)) => {
                outcomes.push((*place, LineOutcome::Refused(Reason::from(&error))));
                false
            }
            None => unreachable!("the client has counted the answers"),
        });
        self.ledger.settle(outcomes);
        later
    }
}

fn lines(items: &[(LineNumber, Vec<u8>)]) -> Vec<u8> {
    items.iter().flat_map(|(_, json)| json).copied().collect()
}
