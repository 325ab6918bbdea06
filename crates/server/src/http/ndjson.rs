//! Splits a request's body into lines, in bounded memory: at most twice the bytes that are not consumed yet.

use axum::body::Body;
use bytes::Bytes;

use super::body::{self, Timing};
use super::{Problem, overloaded};
use crate::admission::{SMALL, pressed_pace};
use crate::arrival_rate::ArrivalRate;

/// A body that is read line by line. A line ends with `\n` or `\r\n`; the last one may end with the body.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Body,
    buffer: Vec<u8>,
    /// The number of consumed bytes of the buffer.
    done: usize,
    /// The number of bytes of the buffer that are known to contain no line end.
    scanned: usize,
    /// Inside a line that is too long, the rest of which is discarded.
    skipping: bool,
    limit: usize,
    timing: Timing,
    /// The rate limit of the line that is buffered in part, and the rate that it has to keep while others wait for
    /// room.
    pace: ArrivalRate,
    pressed: ArrivalRate,
    ended: bool,
}

impl Lines {
    /// Lines of at most `limit` bytes, of a body with the minimum rate of `timing`: it may pause between lines any
    /// number of times, and has to arrive at the rate within each of them.
    pub(crate) fn new(body: Body, limit: usize, timing: Timing) -> Lines {
        let (pace, pressed, buffer) = (timing.pace(), pressed_pace(timing.now_ms()), Vec::new());
        Lines {
            body,
            buffer,
            done: 0,
            scanned: 0,
            skipping: false,
            limit,
            timing,
            pace,
            pressed,
            ended: false,
        }
    }

    /// Whether nothing follows what is buffered.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The number of buffered bytes that are not in a returned line.
    pub(crate) fn buffered(&self) -> usize {
        self.buffer.len() - self.done
    }

    /// Whether more than `few` lines are buffered.
    pub(crate) fn has_more_than(&self, few: usize) -> bool {
        memchr::memchr_iter(b'\n', &self.buffer[self.done..]).nth(few).is_some()
    }

    /// Waits for more of the body. Cancel safe.
    ///
    /// # Errors
    /// The body was cut off, paused for too long or was too slow, also with regard to others who wait for the room that
    /// a partial line holds. Nothing follows then, and a partial line is discarded.
    pub(crate) async fn fill(&mut self) -> Result<(), Problem> {
        // Nothing was read meanwhile: earlier lines were being executed, or there was no room.
        let now_ms = self.timing.now_ms();
        self.pace.excuse(now_ms);
        self.pressed.excuse(now_ms);
        let set_aside_in = (self.buffered() >= SMALL).then_some(self.timing.memory());
        let next = body::next_chunk(&mut self.body, self.timing.idle(), set_aside_in).await;
        match next.and_then(|next| self.in_time(next)) {
            Ok(Some(chunk)) => {
                self.give_back();
                self.buffer.extend_from_slice(&chunk);
            }
            Ok(None) => self.ended = true,
            Err(problem) => {
                self.ended = true;
                self.forget();
                return Err(problem);
            }
        }
        Ok(())
    }

    /// The next piece, unless the line that is buffered in part arrives too slowly.
    fn in_time(&mut self, next: Option<Bytes>) -> Result<Option<Bytes>, Problem> {
        let Some(chunk) = &next else { return Ok(next) };
        let now_ms = self.timing.now_ms();
        if self.buffered() == 0 || memchr::memchr(b'\n', chunk).is_some() {
            (self.pace, self.pressed) = (self.timing.pace(), pressed_pace(now_ms));
            return Ok(next);
        }
        let is_fast = self.pressed.came(chunk.len(), now_ms);
        if !self.pace.came(chunk.len(), now_ms) {
            return Err(self.timing.too_slow());
        }
        if !is_fast && self.buffered() >= SMALL && self.timing.memory().is_pressed() {
            return Err(overloaded());
        }
        Ok(next)
    }

    /// Discards what is buffered.
    fn forget(&mut self) {
        (self.done, self.scanned) = (self.buffer.len(), self.buffer.len());
        self.give_back();
    }

    /// Frees the memory of consumed lines, so that a pause after a long line holds what arrives next alone.
    fn give_back(&mut self) {
        if self.done > 0 {
            self.buffer.drain(..self.done);
            self.scanned -= self.done;
            self.done = 0;
        }
        if self.buffer.capacity() > SMALL.max(2 * self.buffer.len()) {
            self.buffer.shrink_to_fit();
        }
    }

    /// The next buffered line, if it is complete: its bytes, or that it is too long.
    pub(crate) fn next_line(&mut self) -> Option<Result<&[u8], Problem>> {
        loop {
            let end = memchr::memchr(b'\n', &self.buffer[self.scanned..]).map(|at| self.scanned + at);
            let Some(end) = end else {
                self.scanned = self.buffer.len();
                if self.buffered() > self.limit {
                    self.forget();
                    if !std::mem::replace(&mut self.skipping, true) {
                        return Some(Err(body::request_too_large(self.limit)));
                    }
                }
                if !self.ended || self.buffered() == 0 {
                    self.give_back();
                    return None;
                }
                let last = self.done..self.buffer.len();
                self.done = last.end;
                if std::mem::take(&mut self.skipping) || is_blank(&self.buffer[last.clone()]) {
                    return None;
                }
                return Some(Ok(&self.buffer[last]));
            };
            let line = self.done..end;
            (self.done, self.scanned) = (end + 1, end + 1);
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            // Checked before blank lines are skipped: a line that is too long is refused however it is cut.
            if line.len() > self.limit {
                return Some(Err(body::request_too_large(self.limit)));
            }
            if is_blank(&self.buffer[line.clone()]) {
                continue;
            }
            // JSON treats a carriage return as white space.
            return Some(Ok(&self.buffer[line]));
        }
    }
}

fn is_blank(line: &[u8]) -> bool {
    !line.iter().any(|byte| !byte.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use dwell_model::Timestamp;
    use dwell_time::{ManualClock, SystemClock};
    use futures_util::stream::{self, StreamExt as _};

    use super::*;
    use crate::admission::Memory;

    fn timing() -> Timing {
        Timing::on(Arc::new(SystemClock::new()), Memory::new(1 << 30), 10_000, 0)
    }

    /// The lines of `text` when it arrives in pieces of `piece` bytes; too long ones as `!`.
    async fn lines(text: &str, piece: usize, limit: usize) -> Vec<String> {
        let pieces: Vec<_> =
            text.as_bytes().chunks(piece).map(|piece| Ok::<_, Infallible>(piece.to_vec())).collect();
        let body = Body::from_stream(stream::iter(pieces));
        let mut lines = Lines::new(body, limit, timing());
        let mut found = Vec::new();
        loop {
            while let Some(line) = lines.next_line() {
                found.push(match line {
                    Ok(line) => String::from_utf8(line.to_vec()).unwrap(),
                    Err(_) => "!".to_owned(),
                });
            }
            if lines.has_ended() {
                return found;
            }
            lines.fill().await.unwrap();
        }
    }

    /// The number of lines read of a body whose pieces arrive nine seconds apart, and that may pause for ten; all, or
    /// up to a refusal.
    async fn lines_that_come_slowly(pieces: Vec<&'static str>) -> Result<usize, usize> {
        let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
        let timing = Timing::on(Arc::new(clock.clone()), Memory::new(1 << 30), 10_000, 1 << 20);
        let pieces = stream::iter(pieces).map(move |piece| {
            clock.advance(9_000);
            Ok::<_, Infallible>(piece)
        });
        let (mut lines, mut count) = (Lines::new(Body::from_stream(pieces), 100, timing), 0);
        while !lines.has_ended() {
            lines.fill().await.map_err(|_| count)?;
            while lines.next_line().is_some_and(|line| line.is_ok()) {
                count += 1;
            }
        }
        Ok(count)
    }

    #[tokio::test]
    async fn lines_may_come_now_and_then_and_the_pieces_of_one_may_not() {
        assert_eq!(lines_that_come_slowly(vec!["1\n"; 100]).await, Ok(100));
        assert_eq!(lines_that_come_slowly(["1", "2\n"].repeat(100)).await, Ok(100), "each in time");
        assert_eq!(lines_that_come_slowly(vec!["1\n", "2", "3", "4", "5\n"]).await, Err(1));
    }

    #[tokio::test]
    async fn what_a_long_line_was_read_into_is_free_when_it_is_done_with() {
        let text = format!("{}\n{}", "x".repeat(1 << 20), "y".repeat(100));
        let pieces: Vec<_> =
            text.as_bytes().chunks(40_000).map(|piece| Ok::<_, Infallible>(piece.to_vec())).collect();
        let open = stream::iter(pieces).chain(stream::pending());
        let mut lines = Lines::new(Body::from_stream(open), 2 << 20, timing());
        while lines.next_line().is_none() {
            assert!(
                lines.buffer.capacity() <= SMALL.max(3 * lines.buffered()),
                "{}",
                lines.buffer.capacity()
            );
            lines.fill().await.unwrap();
        }
        assert!(lines.next_line().is_none());
        assert_eq!(lines.buffered(), 100);
        assert!(lines.buffer.capacity() <= SMALL, "{} bytes are held", lines.buffer.capacity());
    }

    #[tokio::test]
    async fn lines_come_whole_however_they_arrive() {
        for piece in 1..12 {
            assert_eq!(lines("a\nbb\n\n \r\nccc", piece, 4).await, ["a", "bb", "ccc"], "{piece}");
            assert_eq!(lines("a\nb\n", piece, 4).await, ["a", "b"], "{piece}");
            assert!(lines("", piece, 4).await.is_empty());
            assert_eq!(
                lines("12345\na\n123456789012\nb\n123456", piece, 4).await,
                ["!", "a", "!", "b", "!"],
                "{piece}"
            );
            assert_eq!(lines("      \nb\n     ", piece, 4).await, ["!", "b", "!"], "{piece}");
        }
    }
}
