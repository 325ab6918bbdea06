//! What can change while the server runs: names, tokens, certificates. A connection goes on with the certificate that it
//! began with; a request that waits, or goes on item by item, ends when its caller's token is gone or has changed.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

use super::tls::Tls;
use super::token::{Caller, Tokens};
use crate::http::Hosts;

/// What is in force.
#[derive(Clone, Debug)]
struct InForce {
    hosts: Arc<Hosts>,
    tokens: Arc<Tokens>,
    tls: Option<Tls>,
}

/// What is in force now. The lock is held for as long as it takes to clone an `Arc`.
#[derive(Debug)]
pub(crate) struct Live {
    in_force: RwLock<InForce>,
    replaced: watch::Sender<()>,
}

impl Live {
    pub(crate) fn new(hosts: Hosts, tokens: Tokens, tls: Option<Tls>) -> Live {
        let in_force = InForce { hosts: Arc::new(hosts), tokens: Arc::new(tokens), tls };
        Live { in_force: RwLock::new(in_force), replaced: watch::Sender::new(()) }
    }

    /// Puts these in force. A listener that speaks TLS goes on to do so, and one that does not does not begin:
    /// clients on the other side would not follow.
    pub(crate) fn replace(&self, hosts: Hosts, tokens: Tokens, tls: Option<Tls>) {
        let mut in_force = self.in_force.write().unwrap_or_else(PoisonError::into_inner);
        let tls = in_force.tls.take().map(|old| tls.unwrap_or(old));
        *in_force = InForce { hosts: Arc::new(hosts), tokens: Arc::new(tokens), tls };
        drop(in_force);
        self.replaced.send_replace(());
    }

    /// Returns once the tokens that are in force do not know `caller` as it was when its request began.
    pub(crate) async fn changed(&self, caller: &Caller) {
        // Before the look, so that what is replaced meanwhile is not missed.
        let mut replaced = self.replaced.subscribe();
        while self.tokens().know(caller) {
            // The sender is this one's own.
            let _ = replaced.changed().await;
        }
    }

    pub(crate) fn hosts(&self) -> Arc<Hosts> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner).hosts)
    }

    pub(crate) fn tokens(&self) -> Arc<Tokens> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner).tokens)
    }

    pub(crate) fn tls(&self) -> Option<Tls> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner).tls.clone()
    }
}
