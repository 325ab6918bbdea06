//! The answer to a take, as a body that gives its messages back if it is not written.
//!
//! Ground rules:
//! 1. Until the bytes are in the connection's buffer, the receipts belong to the body: dropped, it gives
//!    their messages back.
//! 2. From then on, they belong to the connection's [`Unwritten`], until all that is buffered was passed to
//!    the operating system.

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
            // hyper does not poll a body that it knows to be empty, and would drop it as if nobody had come.
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
