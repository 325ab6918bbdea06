//! What can change while the server runs: names, tokens, certificates. A request or a connection that has
//! begun goes on with what it began with.

use std::sync::{Arc, PoisonError, RwLock};

use super::tls::Tls;
use super::token::Tokens;
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
pub(crate) struct Live(RwLock<InForce>);

impl Live {
    pub(crate) fn new(hosts: Hosts, tokens: Tokens, tls: Option<Tls>) -> Live {
        Live(RwLock::new(InForce { hosts: Arc::new(hosts), tokens: Arc::new(tokens), tls }))
    }

    /// Puts these in force. A listener that speaks TLS goes on to do so, and one that does not does not begin:
    /// clients on the other side would not follow.
    pub(crate) fn replace(&self, hosts: Hosts, tokens: Tokens, tls: Option<Tls>) {
        let mut in_force = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let tls = in_force.tls.take().map(|old| tls.unwrap_or(old));
        *in_force = InForce { hosts: Arc::new(hosts), tokens: Arc::new(tokens), tls };
    }

    pub(crate) fn hosts(&self) -> Arc<Hosts> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).hosts)
    }

    pub(crate) fn tokens(&self) -> Arc<Tokens> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).tokens)
    }

    pub(crate) fn tls(&self) -> Option<Tls> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).tls.clone()
    }
}
