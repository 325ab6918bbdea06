//! The token that tells a handler to stop: its lease is lost, its time is over, or the worker ends.

use std::sync::Arc;

use tokio::sync::watch;

/// Why a handler should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fired {
    /// The lease is over, or may be: somebody else may have the message. What the handler comes to is thrown away.
    LeaseLost,
    /// The handler's time is over. The message has failed this attempt already.
    TimedOut,
    /// The worker ends. What the handler comes to within a second still counts.
    Draining,
}

/// Tells a handler to stop. Clones tell the same.
///
/// An async handler is dropped when its time is over, and needs to look at this only before it does what must not be done twice. A blocking
/// one cannot be dropped: it looks at [`fired`](Token::fired) between its steps.
#[derive(Clone, Debug)]
pub struct Token(watch::Receiver<Option<Fired>>);

/// Fires a token, once.
#[derive(Clone, Debug)]
pub(crate) struct Fuse(Arc<watch::Sender<Option<Fired>>>);

impl Token {
    /// A token, and what fires it.
    pub(crate) fn new() -> (Fuse, Token) {
        let (sender, receiver) = watch::channel(None);
        (Fuse(Arc::new(sender)), Token(receiver))
    }

    /// Why the handler should stop, if it should.
    pub fn fired(&self) -> Option<Fired> {
        *self.0.borrow()
    }

    /// Waits until the handler should stop. Without end, if it never should.
    pub async fn wait(&self) -> Fired {
        let mut receiver = self.0.clone();
        // Bound to a name: what is borrowed must go before the receiver does.
        let fired = receiver.wait_for(Option::is_some).await.map(|fired| *fired);
        match fired {
            Ok(Some(fired)) => fired,
            // Nobody can fire it any more.
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
