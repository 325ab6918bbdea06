//! The gate between clients and a server that is killed again and again.
//!
//! Clients pass while a server runs. When it was killed they come to the gate, report that they
//! have nothing in flight, and wait for the next server. The thread that kills waits until all
//! clients are there: then nothing is in flight, and unknown outcomes stay unknown.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dwell_client::Client;

/// The result of passing the gate.
#[derive(Clone, Debug)]
pub(crate) enum Pass {
    /// Go on with this server.
    Server(Client),
    /// The run is over.
    Over,
}

#[derive(Debug)]
enum GateState {
    /// This server runs.
    Open(Client),
    /// It was killed, and no request can reach it any more.
    Killed,
    /// The run is over.
    Over,
}

#[derive(Debug)]
struct Inner {
    state: GateState,
    parked: usize,
    /// The number of clients that have left.
    gone: usize,
    answered: u64,
}

/// The gate; see the [module](self).
#[derive(Debug)]
pub(crate) struct ClientGate {
    inner: Mutex<Inner>,
    changed: Condvar,
    clients: usize,
}

impl ClientGate {
    /// A closed gate for `clients` clients.
    pub(crate) fn new(clients: usize) -> ClientGate {
        let inner = Inner { state: GateState::Killed, parked: 0, gone: 0, answered: 0 };
        ClientGate { inner: Mutex::new(inner), changed: Condvar::new(), clients }
    }

    /// The running server, without waiting; `None` if the client has to go to the gate.
    pub(crate) fn server(&self) -> Option<Client> {
        match &self.inner().state {
            GateState::Open(client) => Some(client.clone()),
            GateState::Killed | GateState::Over => None,
        }
    }

    /// Blocks until the client's server is dead. A client whose request broke calls this before it reports the request as
    /// lost: until then it could still take effect.
    pub(crate) fn await_killed(&self) {
        let mut inner = self.inner();
        while matches!(inner.state, GateState::Open(_)) {
            inner = self.wait(inner);
        }
    }

    /// Parks the client until a server runs or the run is over. It must have nothing in flight.
    pub(crate) fn park(&self) -> Pass {
        let mut inner = self.inner();
        inner.parked += 1;
        self.changed.notify_all();
        let pass = loop {
            match &inner.state {
                GateState::Open(client) => break Pass::Server(client.clone()),
                GateState::Over => break Pass::Over,
                GateState::Killed => inner = self.wait(inner),
            }
        };
        inner.parked -= 1;
        pass
    }

    /// Records that the client has left.
    pub(crate) fn leave(&self) {
        self.inner().gone += 1;
        self.changed.notify_all();
    }

    /// Records that a request was answered.
    pub(crate) fn answered(&self) {
        self.inner().answered += 1;
        self.changed.notify_all();
    }

    /// Lets clients pass to a server.
    pub(crate) fn open(&self, client: Client) {
        let mut inner = self.inner();
        inner.state = GateState::Open(client);
        inner.answered = 0;
        drop(inner);
        self.changed.notify_all();
    }

    /// Waits until `count` requests were answered since the gate was opened, or `patience` is over, or all clients have left.
    pub(crate) fn await_answers(&self, count: u64, patience: Duration) {
        self.wait_while(patience, |inner| inner.answered < count && inner.gone < self.clients);
    }

    /// Closes the gate after the server is dead, and waits until every
    /// client is at it. Returns false if one is not within `patience`.
    #[must_use = "false means that something is still in flight"]
    pub(crate) fn close(&self, patience: Duration) -> bool {
        self.inner().state = GateState::Killed;
        self.changed.notify_all();
        self.wait_while(patience, |inner| inner.parked + inner.gone < self.clients)
    }

    /// Ends the run: all clients at the gate leave.
    pub(crate) fn over(&self) {
        self.inner().state = GateState::Over;
        self.changed.notify_all();
    }

    fn wait<'a>(&self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, patience: Duration, condition: impl Fn(&Inner) -> bool) -> bool {
        let waited = self.changed.wait_timeout_while(self.inner(), patience, |inner| condition(inner));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing that can panic runs while this lock is held.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Releases all clients when it is dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct OverOnDrop<'a>(pub(crate) &'a ClientGate);

impl Drop for OverOnDrop<'_> {
    fn drop(&mut self) {
        self.0.over();
    }
}
