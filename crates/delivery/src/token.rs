//! The token that signals a handler to stop: its lease is lost, it has timed out, or the worker ends.

use std::sync::Arc;

use tokio::sync::watch;

/// Why a handler should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fired {
    /// The lease is over, or may be: another worker may have the message. The handler's outcome is discarded.
    LeaseLost,
    /// The handler has timed out. The message has failed this attempt already.
    TimedOut,
    /// The worker ends. An outcome within a second still counts.
    Draining,
}

/// Signals a handler to stop. Clones are the same token.
///
/// An async handler is dropped when it times out, and needs to check this only before it does what must not be done
/// twice. A blocking one cannot be dropped: it checks [`fired`](Token::fired) between its steps.
#[derive(Clone, Debug)]
pub struct Token(watch::Receiver<Option<Fired>>);

/// Fires a token, once.
#[derive(Clone, Debug)]
pub(crate) struct Fuse(Arc<watch::Sender<Option<Fired>>>);

impl Token {
    /// A token, and its fuse.
    pub(crate) fn new() -> (Fuse, Token) {
        let (sender, receiver) = watch::channel(None);
        (Fuse(Arc::new(sender)), Token(receiver))
    }

    /// Why the handler should stop, if it should.
    pub fn fired(&self) -> Option<Fired> {
        *self.0.borrow()
    }

    /// Waits until the handler should stop; for ever, if it never should.
    pub async fn wait(&self) -> Fired {
        let mut receiver = self.0.clone();
        // Bound to a name: the borrow has to end before the receiver is dropped.
        let fired = receiver.wait_for(Option::is_some).await.map(|fired| *fired);
        match fired {
            Ok(Some(fired)) => fired,
            // The fuse is dropped, so it cannot fire any more.
            _ => std::future::pending().await,
        }
    }
}

impl Fuse {
    /// Fires, unless it has fired.
    pub(crate) fn fire(&self, why: Fired) {
        self.0.send_if_modified(|fired| fired.replace(fired.unwrap_or(why)).is_none());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_fires_once_and_for_all_clones() {
        let (fuse, token) = Token::new();
        let clone = token.clone();
        assert_eq!(token.fired(), None);
        let waits = tokio::spawn(async move { clone.wait().await });
        fuse.fire(Fired::TimedOut);
        fuse.fire(Fired::LeaseLost);
        drop(fuse);
        assert_eq!(waits.await.unwrap(), Fired::TimedOut);
        assert_eq!((token.fired(), token.wait().await), (Some(Fired::TimedOut), Fired::TimedOut));
    }
}
