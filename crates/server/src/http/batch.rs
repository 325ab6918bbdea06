//! Many items in one request: as a JSON array, or streamed, one per line.
//!
//! Streamed items are gathered into chunks: those that arrive while the store executes the previous chunk, within
//! limits. So a fast stream costs few store calls, a slow one is answered item by item, and memory holds at most two
//! chunks for a stream of any length. The part of a chunk beyond a small size counts towards the memory limit: a stream
//! with an item now and then holds nothing. The parsed items count, which may be many times as large as the text of
//! short ones.
//!
//! Answers may be a hundred times as large as their requests. So while more is held than the limit, no more than a few
//! items are begun or read ahead.
//!
//! Once its caller's token is revoked, nothing more of a request is begun.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::body::Timing;
use super::call::{HttpCall, Media};
use super::connection::RestOfAnswer;
use super::ndjson::Lines;
use super::reply::{AnswerRoom, JSON, with_type};
use super::{App, HttpRefusal, Problem, overloaded, token_gone};
use crate::admission::{Growing, NoRoom, ReservedBytes, SMALL};
use crate::json::{ItemAnswer, items};
use crate::metrics::Metrics;
use crate::security::Caller;

/// One kind of items: how to parse and how to execute them.
pub(crate) trait BatchOperation: Send + Sync + 'static {
    /// A parsed item.
    type Item: Send + 'static;
    /// The answer to an item.
    type Answer: ItemAnswer;

    /// The maximum number of items per call: the store's batch, unless the answers are large.
    fn step(&self) -> usize {
        usize::MAX
    }

    /// The memory that an item holds in addition to its own size and its text, where that is much more than a name or
    /// two.
    fn beside(_: &Self::Item) -> usize {
        0
    }

    /// Parses one item.
    fn read(&self, text: &str) -> Result<Self::Item, Problem>;

    /// Executes all `items`, in order; one answer for each.
    fn run(&self, items: Vec<Self::Item>) -> impl Future<Output = Vec<Result<Self::Answer, Problem>>> + Send;
}

/// The maximum number of items in a chunk of a stream.
const CHUNK_ITEMS: usize = 4_096;
/// The bytes of items at which a chunk is full.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// The number of items whose answers are small.
const FEW: usize = 64;

/// The memory that an item or its refusal holds in addition to its own size and its text: a few short allocations, with
/// the allocator's overhead.
const ITEM_BYTES: usize = 128;

/// Executes all items of a request without a query.
pub(crate) async fn run<O: BatchOperation>(
    app: Arc<App>,
    call: HttpCall,
    operation: O,
) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    run_with_query(app, call, operation).await
}

/// Executes all items of a request whose query was parsed.
pub(crate) async fn run_with_query<O: BatchOperation>(
    app: Arc<App>,
    call: HttpCall,
    operation: O,
) -> Result<Response<Body>, Problem> {
    match call.media() {
        Media::Json => array(app, call, operation).await,
        Media::Ndjson => lines(app, call, operation).await,
        Media::Unsaid | Media::Other => Err(Problem::new(
            HttpRefusal::UnsupportedMediaType,
            "send a JSON array with `Content-Type: application/json`, or one item a line with \
             `Content-Type: application/x-ndjson`",
        )),
    }
}

async fn array<O: BatchOperation>(
    app: Arc<App>,
    call: HttpCall,
    operation: O,
) -> Result<Response<Body>, Problem> {
    let (unwritten, caller) = (call.unwritten(), call.caller());
    let text = call.text(&app).await?;
    // The number of commas is an upper bound of the number of items.
    if memchr::memchr_iter(b',', text.as_bytes()).nth(FEW).is_some() {
        let mut own = unwritten.take_held().unwrap_or_else(|| app.memory.add(0));
        app.wait_for_room(&mut own, &caller).await?;
        unwritten.hold(own);
    }
    let items: Vec<&RawValue> = items(&text, app.store.limits().batch)?;
    let (step, mut chunks) = (operation.step(), vec![ItemChunk::default()]);
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 && at % step == 0 {
            chunks.push(ItemChunk::default());
        }
        let item = item.get();
        chunks.last_mut().expect("there is one at least").push::<O>(operation.read(item), item.len());
    }
    // The parsed items count until all are answered.
    drop(text);
    let held = unwritten.take_held();
    let bytes: usize = chunks.iter().map(|chunk| chunk.bytes).sum();
    if bytes >= SMALL {
        let mut held = held.unwrap_or_else(|| app.memory.add(0));
        held.resize(bytes as u64);
        unwritten.hold(held);
    }
    // The first answers are made before the head of the answer, and the rest, if any, as the client reads them.
    let first = chunks.remove(0);
    let mut opening = b"{\"answers\":[".to_vec();
    first.run(&app.metrics, &operation, &mut opening, b",").await;
    if chunks.is_empty() {
        close_array(&mut opening);
        shrink(&mut opening);
        return Ok(with_type(StatusCode::OK, JSON, Body::from(opening)));
    }
    shrink(&mut opening);
    let room = (opening.len() >= SMALL).then(|| AnswerRoom(Arc::new(app.memory.add(opening.len() as u64))));
    let held = unwritten.take_held();
    let to_do = RestOfAnswer::of(unwritten);
    to_do.holds(held.as_ref().map_or(0, ReservedBytes::bytes));
    let rest =
        LateAnswers { chunks: chunks.into_iter(), operation, app, caller, is_over: false, held, to_do };
    let rest = stream::unfold(rest, |mut rest| async move {
        let piece = rest.next_answers().await?;
        Some((piece, rest))
    });
    let pieces = stream::once(std::future::ready(opening)).chain(rest).map(Ok::<_, Infallible>);
    let mut response = with_type(StatusCode::OK, JSON, Body::from_stream(pieces));
    room.map(|room| response.extensions_mut().insert(room));
    Ok(response)
}

/// The part of an array that is answered while the client reads.
struct LateAnswers<O: BatchOperation> {
    chunks: std::vec::IntoIter<ItemChunk<O::Item>>,
    operation: O,
    app: Arc<App>,
    /// The caller, whose token may be revoked.
    caller: Caller,
    is_over: bool,
    held: Option<ReservedBytes>,
    to_do: RestOfAnswer,
}

impl<O: BatchOperation> LateAnswers<O> {
    /// The answers to one more chunk; `None` once all items are answered.
    async fn next_answers(&mut self) -> Option<Vec<u8>> {
        let mut chunk = self.chunks.next()?;
        self.is_over |= !self.app.live.tokens().know(&self.caller);
        if self.is_over {
            chunk.refuse(token_gone);
        }
        let mut piece = Vec::new();
        chunk.run(&self.app.metrics, &self.operation, &mut piece, b",").await;
        if self.chunks.len() == 0 {
            close_array(&mut piece);
            self.held = None;
            self.to_do.holds(0);
        }
        shrink(&mut piece);
        Some(piece)
    }
}

/// A buffer that has doubled may be half empty, and would stay allocated.
fn shrink(answers: &mut Vec<u8>) {
    if answers.len() >= SMALL {
        answers.shrink_to_fit();
    }
}

/// Replaces the separator after the last answer by the array's end.
fn close_array(out: &mut Vec<u8>) {
    if out.ends_with(b",") {
        out.pop();
    }
    out.extend_from_slice(b"]}");
}

async fn lines<O: BatchOperation>(
    app: Arc<App>,
    call: HttpCall,
    operation: O,
) -> Result<Response<Body>, Problem> {
    let caller = call.caller();
    let to_do = RestOfAnswer::of(call.unwritten());
    let lines = Lines::new(call.into_body(), app.line_bytes(), Timing::new(&app));
    let max_items = CHUNK_ITEMS.min(operation.step()).min(app.store.limits().batch).max(1);
    let chunk = ItemChunk::default();
    let mut stream = BatchStream { app, caller, operation, lines, chunk, max_items, over: false, to_do };
    // A client that expects `100 Continue` must see it before the head of the answer.
    tokio::select! {
        filled = stream.lines.fill() => filled?,
        // The first answer says it.
        () = stream.app.drained() => {}
    }
    let answers = stream::unfold(stream, |mut stream| async move {
        let answers = stream.next_answers().await?;
        Some((Ok::<_, Infallible>(Bytes::from(answers)), stream))
    });
    let ndjson = HeaderValue::from_static("application/x-ndjson");
    Ok(with_type(StatusCode::OK, ndjson, Body::from_stream(answers)))
}

/// Parsed items that are to be executed, and the refusals among them, in the order of the request.
struct ItemChunk<T> {
    items: Vec<T>,
    slots: Vec<Result<(), Problem>>,
    bytes: usize,
    /// Room for its lines.
    room: Option<Growing>,
}

/// The maximum bytes of a chunk, as far as there is room.
fn most_bytes(app: &App) -> usize {
    CHUNK_BYTES + app.line_bytes()
}

impl<T> Default for ItemChunk<T> {
    fn default() -> ItemChunk<T> {
        ItemChunk { items: Vec::new(), slots: Vec::new(), bytes: 0, room: None }
    }
}

impl<T> ItemChunk<T> {
    /// Adds an item, or its refusal, whose text has this many bytes.
    fn push<O: BatchOperation<Item = T>>(&mut self, item: Result<T, Problem>, len: usize) {
        self.bytes += match &item {
            Ok(item) => len + size_of::<T>() + O::beside(item),
            Err(problem) => problem.detail().len(),
        };
        self.bytes += size_of::<Result<(), Problem>>() + ITEM_BYTES;
        self.slots.push(item.map(|item| self.items.push(item)));
    }

    /// Refuses every item instead of executing it.
    fn refuse(&mut self, why: impl Fn() -> Problem) {
        self.items = Vec::new();
        self.slots.iter_mut().for_each(|slot| *slot = Err(why()));
    }

    /// Drops all items without executing or answering them.
    fn forget(&mut self) {
        (self.items, self.slots, self.bytes) = (Vec::new(), Vec::new(), 0);
    }

    /// Counts the memory of its parsed lines.
    fn count(&mut self, app: &App, lines: &Lines) {
        if self.bytes >= SMALL {
            let room = self.room.get_or_insert_with(|| app.memory.growing(most_bytes(app)));
            room.at_least(self.bytes + lines.buffered());
        }
    }

    /// Waits for more of the body. Cancel safe.
    async fn fill(&mut self, app: &App, lines: &mut Lines) -> Result<(), Problem> {
        lines.fill().await?;
        if self.bytes + lines.buffered() < SMALL {
            self.room = None;
            return Ok(());
        }
        let room = self.room.get_or_insert_with(|| app.memory.growing(most_bytes(app)));
        if room.make_room(self.bytes + lines.buffered()).await { Ok(()) } else { Err(overloaded()) }
    }

    /// Waits for room for the answers to many lines that have arrived. Cancel safe.
    async fn wait_for_room(&mut self, app: &App) -> Result<(), Problem> {
        let room = self.room.get_or_insert_with(|| app.memory.growing(most_bytes(app)));
        room.room().await.map_err(|NoRoom| overloaded())
    }

    /// Takes this chunk; the next one begins with what has arrived of the next line.
    fn take(&mut self, lines: &Lines) -> ItemChunk<T> {
        let mut taken = std::mem::take(self);
        self.room = taken.room.as_mut().map(|room| room.split(lines.buffered()));
        taken
    }

    /// The bytes that it holds, as far as they count.
    fn held(&self) -> u64 {
        self.room.as_ref().map_or(0, Growing::bytes)
    }

    /// Executes the items and writes all answers into `out`, each followed by `separator`.
    async fn run<O: BatchOperation<Item = T>>(
        self,
        metrics: &Metrics,
        operation: &O,
        out: &mut Vec<u8>,
        separator: &[u8],
    ) {
        let len = self.items.len();
        let answers = if len == 0 { Vec::new() } else { operation.run(self.items).await };
        assert_eq!(answers.len(), len, "a store answers each item");
        let mut answers = answers.into_iter();
        for slot in self.slots {
            let answer = slot.and_then(|()| answers.next().expect("counted above"));
            if let Some(code) = answer.as_ref().err().and_then(Problem::uncounted) {
                metrics.refused(code);
            }
            write_answer(&answer, out);
            out.extend_from_slice(separator);
        }
    }
}

/// The answer to an item that was executed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Done{A}")]
pub(crate) struct Done<'a, A> {
    status: u16,
    #[serde(flatten)]
    answer: &'a A,
}

/// The answer to an item that was refused.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Refused")]
pub(crate) struct RefusedItem<'a> {
    status: u16,
    #[schemars(with = "dwell_wire::Problem<'a>")]
    error: &'a Problem,
}

fn write_answer<A: ItemAnswer>(answer: &Result<A, Problem>, out: &mut Vec<u8>) {
    let written = match answer {
        Ok(answer) => serde_json::to_writer(out, &Done { status: answer.status().as_u16(), answer }),
        Err(error) => serde_json::to_writer(out, &RefusedItem { status: error.status().as_u16(), error }),
    };
    written.expect("a Vec takes all, and answers have text for keys");
}

/// A streamed request in progress.
struct BatchStream<O: BatchOperation> {
    app: Arc<App>,
    /// The caller.
    caller: Caller,
    operation: O,
    lines: Lines,
    chunk: ItemChunk<O::Item>,
    max_items: usize,
    over: bool,
    to_do: RestOfAnswer,
}

impl<O: BatchOperation> BatchStream<O> {
    /// Lines of answers; `None` once all items are answered.
    async fn next_answers(&mut self) -> Option<Vec<u8>> {
        let (app, caller) = (Arc::clone(&self.app), self.caller.clone());
        if self.over {
            // What was read ahead of the refusal, and the refusal, may still have to be answered. Nothing else is read:
            // its answer would come in the place of another's.
            if !app.live.tokens().know(&caller) {
                self.chunk.refuse(token_gone);
            }
        } else {
            tokio::select! {
                biased;
                () = app.live.changed(&caller) => {
                    // Nor are the items that were read ahead executed.
                    self.chunk.forget();
                    self.stop(token_gone());
                }
                () = app.drained() => self.stop(Problem::new(
                    HttpRefusal::ShuttingDown,
                    "this item and all after it were not done; send them again to a server that runs",
                )),
                () = self.gather_some() => {}
            }
        }
        let chunk = self.chunk.take(&self.lines);
        if chunk.slots.is_empty() {
            return None;
        }
        let mut out = Vec::with_capacity(chunk.slots.len() * 192);
        let BatchStream { operation, lines, chunk: next, max_items, over, .. } = self;
        let failed = {
            let mut running = pin!(chunk.run(&app.metrics, operation, &mut out, b"\n"));
            tokio::select! {
                biased;
                () = &mut running => None,
                // After the answer that ends the stream nothing may be executed any more. Nor is anything read ahead
                // that would have to wait for room: it would make others wait.
                failed = gather(&app, lines, next, *max_items, operation), if !*over && !app.memory.is_over() => {
                    running.await;
                    failed.err()
                }
            }
        };
        if let Some(problem) = failed {
            self.stop(problem);
        }
        self.to_do.holds(self.chunk.held());
        shrink(&mut out);
        Some(out)
    }

    /// Reads until there are items to execute and nothing more is buffered, or the chunk is full.
    async fn gather_some(&mut self) {
        loop {
            if self.chunk.slots.is_empty()
                && self.lines.has_more_than(FEW)
                && let Err(problem) = self.chunk.wait_for_room(&self.app).await
            {
                self.stop(problem);
                return;
            }
            let full =
                read_buffered(&self.app, &mut self.lines, &mut self.chunk, self.max_items, &self.operation);
            if full || self.lines.has_ended() {
                return;
            }
            let more = if self.chunk.slots.is_empty() {
                self.chunk.fill(&self.app, &mut self.lines).await
            } else {
                match futures_util::FutureExt::now_or_never(self.chunk.fill(&self.app, &mut self.lines)) {
                    None => return,
                    Some(more) => more,
                }
            };
            if let Err(problem) = more {
                self.stop(problem);
                return;
            }
        }
    }

    /// Answers the next item with `problem`, and reads no further one.
    fn stop(&mut self, problem: Problem) {
        self.chunk.push::<O>(Err(problem), 0);
        self.over = true;
    }
}

/// Reads until the chunk is full or the body has ended. Cancel safe.
async fn gather<O: BatchOperation>(
    app: &App,
    lines: &mut Lines,
    chunk: &mut ItemChunk<O::Item>,
    max_items: usize,
    operation: &O,
) -> Result<(), Problem> {
    while !read_buffered(app, lines, chunk, max_items, operation) && !lines.has_ended() {
        chunk.fill(app, lines).await?;
    }
    Ok(())
}

/// Parses the lines that are buffered already, and counts their memory; true if the chunk is full.
fn read_buffered<O: BatchOperation>(
    app: &App,
    lines: &mut Lines,
    chunk: &mut ItemChunk<O::Item>,
    max_items: usize,
    operation: &O,
) -> bool {
    let is_full = read_lines(lines, chunk, max_items, operation);
    chunk.count(app, lines);
    is_full
}

fn read_lines<O: BatchOperation>(
    lines: &mut Lines,
    chunk: &mut ItemChunk<O::Item>,
    max_items: usize,
    operation: &O,
) -> bool {
    loop {
        if chunk.slots.len() >= max_items || chunk.bytes >= CHUNK_BYTES {
            return true;
        }
        match lines.next_line() {
            None => return false,
            Some(Err(problem)) => chunk.push::<O>(Err(problem), 0),
            Some(Ok(line)) => {
                let item = std::str::from_utf8(line)
                    .map_err(|error| {
                        Problem::new(HttpRefusal::MalformedJson, format!("the line is not UTF-8: {error}"))
                    })
                    .and_then(|text| operation.read(text));
                let len = line.len();
                chunk.push::<O>(item, len);
            }
        }
    }
}

#[cfg(test)]
mod tests;
