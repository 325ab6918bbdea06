//! The answer to a take, as a body that gives its messages back if it is not written.
//!
//! Ground rules:
//! 1. Until the bytes are in the connection's buffer, the receipts belong to the body: dropped, it gives
//!    their messages back.
//! 2. From then on, they belong to the connection's [`Unwritten`], until everything buffered has been passed to the
//!    operating system.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::HttpBody;
use bytes::Bytes;
use dwell_model::Receipt;
use hyper::body::{Frame, SizeHint};

use super::connection::Unwritten;

/// A body with receipts in it.
#[derive(Debug)]
pub(crate) struct Handover {
    bytes: Option<Bytes>,
    receipts: Vec<Receipt>,
    unwritten: Arc<Unwritten>,
}

impl Handover {
    /// The answer `bytes`, which hands over the messages of `receipts`.
    pub(crate) fn new(bytes: Bytes, receipts: Vec<Receipt>, unwritten: Arc<Unwritten>) -> Handover {
        Handover { bytes: Some(bytes), receipts, unwritten }
    }
}

impl HttpBody for Handover {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(bytes) = self.bytes.take() else { return Poll::Ready(None) };
        let receipts = std::mem::take(&mut self.receipts);
        self.unwritten.writing(receipts);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.bytes {
            None => SizeHint::with_exact(0),
            // hyper does not poll a body that it knows to be empty, and would drop it as if it had not been sent.
            Some(bytes) if bytes.is_empty() => SizeHint::default(),
            Some(bytes) => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        self.unwritten.returns().give_back(std::mem::take(&mut self.receipts));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use dwell_model::Limits;
    use dwell_store::{MemoryStore, Put, Store, Take};
    use dwell_time::SystemClock;
    use http_body_util::BodyExt as _;
    use tokio::time::timeout;

    use super::*;
    use crate::returns::Returns;

    /// The state of the store's message after `end` has had the answer that hands it over: leased, or given back.
    async fn leased_after(end: impl AsyncFnOnce(Handover, Arc<Unwritten>)) -> u64 {
        let store = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
        let queue: dwell_model::QueueName = "q".parse().unwrap();
        let _ = store.put(vec![Put::new(queue.clone(), "x")]).await;
        let taken = store.take(Take::from(queue.clone())).await.unwrap();
        let (returns, returned) = Returns::start(Arc::clone(&store) as Arc<dyn Store>);
        let unwritten = Arc::new(Unwritten::new(returns));
        let receipts = vec![taken[0].receipt.clone()];
        end(Handover::new("answer".into(), receipts, Arc::clone(&unwritten)), unwritten).await;
        timeout(Duration::from_secs(10), returned).await.unwrap().unwrap();
        store.stats(queue).await.unwrap().counts.leased
    }

    #[tokio::test]
    async fn a_body_that_nobody_reads_gives_back() {
        assert_eq!(leased_after(async |body, _| drop(body)).await, 0);
    }

    #[tokio::test]
    async fn a_body_that_was_buffered_and_not_written_gives_back_with_its_connection() {
        let leased = leased_after(async |mut body, unwritten| {
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "answer");
            drop(body);
            assert!(!unwritten.is_empty());
        });
        assert_eq!(leased.await, 0);
    }

    #[tokio::test]
    async fn a_body_that_was_written_is_handed_over() {
        let leased = leased_after(async |mut body, unwritten| {
            assert!(body.frame().await.is_some() && body.is_end_stream());
            unwritten.written();
        });
        assert_eq!(leased.await, 1);
    }
}
