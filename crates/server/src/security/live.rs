//! Host names, tokens and certificates, which can change while the server runs. A connection keeps the certificate that
//! it began with; a request that waits, or is executed item by item, ends when its caller's token is revoked or
//! changed.

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

/// The current state. The lock is held only to clone an `Arc`.
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

    /// Puts these in force. A listener with TLS keeps it, and one without does not begin it: clients would not follow.
    pub(crate) fn replace(&self, hosts: Hosts, tokens: Tokens, tls: Option<Tls>) {
        let mut in_force = self.in_force.write().unwrap_or_else(PoisonError::into_inner);
        let tls = in_force.tls.take().map(|old| tls.unwrap_or(old));
        *in_force = InForce { hosts: Arc::new(hosts), tokens: Arc::new(tokens), tls };
        drop(in_force);
        self.replaced.send_replace(());
    }

    /// Returns once the tokens in force do not know `caller` as it was when its request began.
    pub(crate) async fn changed(&self, caller: &Caller) {
        // Subscribed before the check, so that no replacement is missed.
        let mut replaced = self.replaced.subscribe();
        while self.tokens().know(caller) {
            // This struct owns the sender.
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
