//! Lines of a streamed body: they must be the same wherever the body is cut.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use dwell_time::SystemClock;
use futures_util::stream;
use tokio::runtime::{Builder, Runtime};

use crate::admission::Memory;
use crate::http::{Lines, Timing};

/// The first byte is the maximum line length, the second the number of piece lengths that follow (one byte each,
/// repeated from the first at the end); the rest is the body.
pub fn ndjson(data: &[u8]) {
    let [limit, count, rest @ ..] = data else { return };
    let limit = usize::from(*limit) + 1;
    let (pieces, body) = rest.split_at(rest.len().min(usize::from(count % 16)));
    let whole = lines(body, &[body.len().max(1)], limit);
    assert_eq!(whole, expected(body, limit), "in one piece");
    let pieces: Vec<usize> = pieces.iter().map(|len| usize::from(*len).max(1)).collect();
    if !pieces.is_empty() {
        assert_eq!(lines(body, &pieces, limit), whole, "in pieces of {pieces:?}");
    }
    assert_eq!(lines(body, &[1], limit), whole, "byte by byte");
}

/// A line; `None` for one that is too long.
type ReadLine = Option<Vec<u8>>;

/// The expected lines of `body`, read at once.
fn expected(body: &[u8], limit: usize) -> Vec<ReadLine> {
    let mut lines: Vec<&[u8]> = body.split(|byte| *byte == b'\n').collect();
    lines.retain(|line| line.len() > limit || line.iter().any(|byte| !byte.is_ascii_whitespace()));
    lines.into_iter().map(|line| (line.len() <= limit).then(|| line.to_vec())).collect()
}

fn lines(body: &[u8], pieces: &[usize], limit: usize) -> Vec<ReadLine> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        Builder::new_current_thread().enable_time().build().expect("a runtime without sockets can be made")
    });
    let mut rest = body;
    let mut chunks = Vec::new();
    for len in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, after) = rest.split_at(rest.len().min(*len));
        chunks.push(Ok::<_, Infallible>(chunk.to_vec()));
        rest = after;
    }
    let timing = Timing::on(Arc::new(SystemClock::new()), Memory::new(u64::MAX), 60_000, 0);
    let mut lines = Lines::new(Body::from_stream(stream::iter(chunks)), limit, timing);
    let mut found = Vec::new();
    loop {
        while let Some(line) = lines.next_line() {
            found.push(line.ok().map(|line| line.to_vec()));
        }
        if lines.has_ended() {
            return found;
        }
        runtime.block_on(lines.fill()).expect("this body does not break off");
    }
}
