//! Streams over a store that a test can block.

use std::sync::Mutex;
use std::time::Duration;

use dwell_wire::Removed;
use futures_util::Stream;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::*;
use crate::admission::Memory;
use crate::http::Hosts;
use crate::http::body::Timing;
use crate::http::connection::Unwritten;
use crate::http::tests::app;
use crate::json::object;
use crate::security::{Token, TokenDigest, Tokens};

impl ItemAnswer for Removed {}

/// An operation on numbers that blocks until the test lets a chunk pass.
struct Gated {
    gate: Arc<Semaphore>,
    done: Arc<Mutex<Vec<Vec<u64>>>>,
}

impl BatchOperation for Gated {
    type Item = u64;
    type Answer = Removed;

    fn read(&self, text: &str) -> Result<u64, Problem> {
        object(text)
    }

    async fn run(&self, items: Vec<u64>) -> Vec<Result<Removed, Problem>> {
        self.gate.acquire().await.unwrap().forget();
        self.done.lock().unwrap().push(items.clone());
        items.into_iter().map(|removed| Ok(Removed { removed })).collect()
    }
}

struct Flow {
    stream: BatchStream<Gated>,
    gate: Arc<Semaphore>,
    done: Arc<Mutex<Vec<Vec<u64>>>>,
    drain: watch::Sender<bool>,
}

/// A stream of the numbers from 0 to `count`, ten to a piece of the body, at most 25 to a chunk.
fn flow(count: u64) -> Flow {
    flow_of(stream::iter((0..count).step_by(10).map(move |from| piece(from, count.min(from + 10)))), app())
}

/// The numbers of `from` to `to`, a line each.
fn piece(from: u64, to: u64) -> Result<String, Infallible> {
    Ok((from..to).map(|number| format!("{number}\n")).collect())
}

fn flow_of(pieces: impl Stream<Item = Result<String, Infallible>> + Send + 'static, app: App) -> Flow {
    let (drain, draining) = watch::channel(false);
    let app = App { draining, ..app };
    let lines = Lines::new(Body::from_stream(pieces), 100, Timing::new(&app));
    let (gate, done) = (Arc::new(Semaphore::new(0)), Arc::default());
    let operation = Gated { gate: Arc::clone(&gate), done: Arc::clone(&done) };
    let to_do = RestOfAnswer::of(Arc::new(Unwritten::new(app.returns.clone())));
    let app = Arc::new(app);
    let stream = BatchStream {
        app,
        caller: Caller::Anybody,
        operation,
        lines,
        chunk: ItemChunk::default(),
        max_items: 25,
        over: false,
        to_do,
    };
    Flow { stream, gate, done, drain }
}

impl Flow {
    /// The next answers: numbers, or codes of refusals; empty at the end.
    async fn next(&mut self) -> Vec<Value> {
        let next = timeout(Duration::from_secs(10), self.stream.next_answers()).await.unwrap();
        let text = String::from_utf8(next.unwrap_or_default()).unwrap();
        let answer = |line| {
            let mut answer: Value = serde_json::from_str(line).unwrap();
            if answer["removed"].is_null() {
                answer["error"]["code"].take()
            } else {
                answer["removed"].take()
            }
        };
        text.lines().map(answer).collect()
    }
}

#[tokio::test]
async fn a_busy_store_gets_full_chunks_and_no_more_is_held() {
    let mut flow = flow(1_000);
    assert!(
        timeout(Duration::from_millis(20), flow.stream.next_answers()).await.is_err(),
        "the gate is shut"
    );
    assert_eq!(flow.stream.chunk.slots.len(), 25, "the next chunk was read meanwhile, and no further");
    // The chunk in progress is lost with its future, as when a connection closes.
    flow.gate.add_permits(1_000);
    let mut answered = Vec::new();
    loop {
        let answers = flow.next().await;
        if answers.is_empty() {
            break;
        }
        answered.extend(answers.iter().map(|answer| answer.as_u64().unwrap()));
    }
    assert_eq!(*answered.last().unwrap(), 999);
    assert!(answered.is_sorted());
    let done = flow.done.lock().unwrap();
    assert!(done.iter().all(|chunk| chunk.len() <= 25));
    assert_eq!(answered, done.concat());
}

#[tokio::test]
async fn after_the_answer_that_ends_a_stream_nothing_is_done() {
    let mut flow = flow(1_000_000);
    let gate = Arc::clone(&flow.gate);
    let open_later = |permits| {
        let gate = Arc::clone(&gate);
        tokio::spawn(async move {
            // Enough turns for the stream to read ahead.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            gate.add_permits(permits);
        })
    };
    let opens = open_later(1);
    assert_eq!(flow.next().await.len(), 25, "what was at hand");
    opens.await.unwrap();
    assert_eq!(flow.stream.chunk.slots.len(), 25, "and what was read ahead");
    flow.drain.send_replace(true);
    let opens = open_later(1_000);
    let mut answered = Vec::new();
    loop {
        let answers = flow.next().await;
        if answers.is_empty() {
            break;
        }
        answered.extend(answers);
    }
    opens.await.unwrap();
    assert_eq!(answered.pop().unwrap(), "shutting_down");
    let done = flow.done.lock().unwrap().concat();
    assert_eq!((answered.len(), done.len()), (25, 50));
    assert!(answered.iter().all(Value::is_u64));
}

/// Crash story: 1. a store is slow, and what waits for it fills the memory of bodies. 2. The lines behind those that it
/// works on cannot be read for want of room: the next line is refused. 3. The stream goes on with the lines that have
/// arrived, and each answer from then on is that of the line before.
#[tokio::test]
async fn a_refusal_of_what_could_not_be_read_ahead_ends_the_stream() {
    const PATIENCE: Duration = Duration::from_millis(20);
    let (send, arrive) = tokio::sync::mpsc::unbounded_channel();
    let pieces = stream::unfold(arrive, |mut arrive| async { Some((arrive.recv().await?, arrive)) });
    let memory = Memory::with_patience(1_000_000, PATIENCE);
    let mut flow = flow_of(pieces, App { memory: Arc::clone(&memory), ..app() });
    flow.stream.max_items = 1_000;
    send.send(piece(0, 10)).unwrap();
    let gate = Arc::clone(&flow.gate);
    let others = tokio::spawn(async move {
        let held = memory.add(2_000_000);
        (10..2_000).step_by(10).for_each(|from| send.send(piece(from, from + 10)).unwrap());
        // Nothing tells when the stream has given up; where it has not by then, it does so next.
        tokio::time::sleep(10 * PATIENCE).await;
        gate.add_permits(1_000);
        held
    });
    assert_eq!(flow.next().await.len(), 10, "what had arrived");
    let mut answered = flow.next().await;
    assert_eq!(answered.pop().unwrap(), "overloaded");
    assert!(flow.next().await.is_empty());
    drop(others.await.unwrap());
    let done = flow.done.lock().unwrap().concat();
    assert_eq!(done, (0..10 + answered.len() as u64).collect::<Vec<_>>(), "and nothing behind the refusal");
}

/// Runs the stream until `condition` holds.
async fn while_next(flow: &mut Flow, condition: impl Fn(&App) -> bool) {
    let app = Arc::clone(&flow.stream.app);
    let holds = async {
        while !condition(&app) {
            tokio::task::yield_now().await;
        }
    };
    let next = flow.stream.next_answers();
    tokio::select! {
        holds = timeout(Duration::from_secs(10), holds) => holds.unwrap(),
        _ = next => panic!("the gate is shut"),
    }
}

/// Their text has four bytes each.
#[tokio::test]
async fn what_short_lines_are_read_into_counts() {
    let mut flow = flow(2_000);
    flow.stream.max_items = 1_000;
    // One chunk is in progress, and one has been read ahead.
    while_next(&mut flow, |app| app.memory.held() >= 2 * 1_000 * (ITEM_BYTES + 8) as u64).await;
    drop(std::mem::take(&mut flow.stream.chunk));
    assert_eq!(flow.stream.app.memory.held(), 0);
}

#[tokio::test]
async fn what_was_read_ahead_is_not_done_once_the_token_is_gone() {
    let mut flow = flow(1_000);
    let (gate, live) = (Arc::clone(&flow.gate), Arc::clone(&flow.stream.app.live));
    let goes = tokio::spawn(async move {
        // Enough turns for the stream to read ahead.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let (name, digest) = ("other".to_owned(), TokenDigest::of(b"other"));
        live.replace(Hosts::new(0, &[]), Tokens::new(vec![Token { name, digest, scopes: Vec::new() }]), None);
        gate.add_permits(1_000);
    });
    assert_eq!(flow.next().await.len(), 25, "what was under way");
    goes.await.unwrap();
    assert_eq!(flow.stream.chunk.slots.len(), 25, "and what was read ahead");
    assert_eq!(flow.next().await, ["token_unknown"]);
    assert!(flow.next().await.is_empty());
    assert_eq!(flow.done.lock().unwrap().concat(), (0..25).collect::<Vec<_>>());
}
