//! The operations of a server that a bench needs, for any protocol.

use dwell_model::QueueName;

use crate::exit::Failure;

/// The result of an item: done, or refused for now with this code.
pub(super) type ItemAnswer = Result<(), String>;

/// A message that was taken.
pub(super) struct TakenMessage<H> {
    /// The time at which it was sent, from its body; `None` if it is not one of the bench.
    pub(super) sent_us: Option<u64>,
    /// What acks it.
    pub(super) held: H,
}

/// A server, and a queue of it.
pub(super) trait Peer: Sync {
    type Wire: PeerConnection;

    /// The protocol's name, and the server's address.
    fn protocol(&self) -> &'static str;
    fn address(&self) -> &str;
    fn queue(&self) -> &QueueName;

    /// Checks that the queue is not in use, and that it can be removed afterwards.
    fn claim(&self) -> Result<(), Failure>;

    /// A connection.
    fn connect(&self) -> Result<Self::Wire, Failure>;

    /// Removes the messages of the queue; returns how many were removed, and how many could not be.
    fn clean(&self) -> Result<(u64, u64), Failure>;
}

/// The taken messages, or the code of a transient refusal.
pub(super) type TakeAnswer<Held> = Result<Vec<TakenMessage<Held>>, String>;

/// A connection to a server. A failure ends the bench; a transient refusal does not.
pub(super) trait PeerConnection: Send {
    type Held: Send;

    /// Puts a message for each body, with this delay.
    fn put(&mut self, bodies: Vec<Vec<u8>>, delay_ms: u64) -> Result<Vec<ItemAnswer>, Failure>;

    /// Takes messages; waits a moment for the first.
    fn take(&mut self, max: usize) -> Result<TakeAnswer<Self::Held>, Failure>;

    /// Acks taken messages.
    fn ack(&mut self, held: Vec<Self::Held>) -> Result<Vec<ItemAnswer>, Failure>;
}

/// The number of digits of the time at which a message was sent; the minimum length of a body.
pub(super) const STAMP: usize = 16;

/// A body of `len` bytes that contains the time at which it was sent.
pub(super) fn body(len: usize, sent_us: u64) -> Vec<u8> {
    let mut body = format!("{sent_us:0STAMP$x}").into_bytes();
    body.resize(len.max(STAMP), b'.');
    body
}

/// The time at which a body was sent.
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
