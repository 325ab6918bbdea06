//! What a server has to do for a bench, whichever protocol it is asked in.

use dwell_model::QueueName;

use crate::exit::Failure;

/// What became of an item: done, or refused for now with this code.
pub(super) type Answer = Result<(), String>;

/// A message that was handed over.
pub(super) struct Taken<H> {
    /// When it was sent, as it says itself; nothing if it is none of ours.
    pub(super) sent_us: Option<u64>,
    /// What it is acked by.
    pub(super) held: H,
}

/// A server, and a queue there.
pub(super) trait Peer: Sync {
    type Wire: Wire;

    /// The protocol's name, and where it is spoken.
    fn protocol(&self) -> &'static str;
    fn address(&self) -> &str;
    fn queue(&self) -> &QueueName;

    /// Makes sure that the queue is nobody's, and that it can be removed afterwards.
    fn claim(&self) -> Result<(), Failure>;

    /// A connection.
    fn connect(&self) -> Result<Self::Wire, Failure>;

    /// Removes what is in the queue: how many messages, and how many could not be removed.
    fn clean(&self) -> Result<(u64, u64), Failure>;
}

/// What was taken, or why the server refused for now.
pub(super) type TakeAnswer<Held> = Result<Vec<Taken<Held>>, String>;

/// A connection to a server. A failure ends the bench; a refusal that may pass does not.
pub(super) trait Wire: Send {
    type Held: Send;

    /// Puts a message for each body, due so long after.
    fn put(&mut self, bodies: Vec<Vec<u8>>, delay_ms: u64) -> Result<Vec<Answer>, Failure>;

    /// Takes messages; waits a moment for the first.
    fn take(&mut self, max: usize) -> Result<TakeAnswer<Self::Held>, Failure>;

    /// Acks what was taken.
    fn ack(&mut self, held: Vec<Self::Held>) -> Result<Vec<Answer>, Failure>;
}

/// How many digits say when a message was sent; no body is shorter.
pub(super) const STAMP: usize = 16;

/// A body of so many bytes that says when it was sent.
pub(super) fn body(len: usize, sent_us: u64) -> Vec<u8> {
    let mut body = format!("{sent_us:0STAMP$x}").into_bytes();
    body.resize(len.max(STAMP), b'.');
    body
}

/// When a body says that it was sent.
pub(super) fn sent_us(body: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(body.get(..STAMP)?).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_says_when_it_was_sent() {
        for len in [STAMP, STAMP + 1, 1_000] {
            let body = body(len, 123_456_789);
            assert_eq!((body.len(), sent_us(&body)), (len, Some(123_456_789)));
        }
        assert_eq!(sent_us(b"somebody else's message"), None);
        assert_eq!(sent_us(b"short"), None);
    }
}
