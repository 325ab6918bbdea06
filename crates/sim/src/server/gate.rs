//! The gate between clients and a server that is killed again and again.
//!
//! Clients pass while a server runs. When it was killed they come to the gate, say that they have nothing
//! under way any more, and wait for the next one. Whoever kills waits until all are there: then nothing is in
//! flight, and what is unknown stays unknown.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dwell_client::Client;

/// What a client is told at the gate.
#[derive(Clone, Debug)]
pub(crate) enum Pass {
    /// Go on with this server.
    Server(Client),
    /// It is over.
    Over,
}

#[derive(Debug)]
enum State {
    /// This server runs.
    Open(Client),
    /// It was killed, and no request can reach it any more.
    Killed,
    /// It is over.
    Over,
}

#[derive(Debug)]
struct Inner {
    state: State,
    parked: usize,
    /// Clients that have gone for good.
    gone: usize,
    answered: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Gate {
    inner: Mutex<Inner>,
    changed: Condvar,
    clients: usize,
}

impl Gate {
    /// A closed gate for so many clients.
    pub(crate) fn new(clients: usize) -> Gate {
        let inner = Inner { state: State::Killed, parked: 0, gone: 0, answered: 0 };
        Gate { inner: Mutex::new(inner), changed: Condvar::new(), clients }
    }

    /// The server that runs, without waiting; nothing if the client has to go to the gate.
    pub(crate) fn server(&self) -> Option<Client> {
        match &self.inner().state {
            State::Open(client) => Some(client.clone()),
            State::Killed | State::Over => None,
        }
    }

    /// Blocks until the server that the client spoke to is dead. A client whose request broke comes here
    /// first, and calls it lost only then: until then, it could still happen.
    pub(crate) fn await_killed(&self) {
        let mut inner = self.inner();
        while matches!(inner.state, State::Open(_)) {
            inner = self.wait(inner);
        }
    }

    /// Parks the client until a server runs, or all is over. It has nothing under way.
    pub(crate) fn park(&self) -> Pass {
        let mut inner = self.inner();
        inner.parked += 1;
        self.changed.notify_all();
        let pass = loop {
            match &inner.state {
                State::Open(client) => break Pass::Server(client.clone()),
                State::Over => break Pass::Over,
                State::Killed => inner = self.wait(inner),
            }
        };
        inner.parked -= 1;
        pass
    }

    /// The client has gone for good.
    pub(crate) fn leave(&self) {
        self.inner().gone += 1;
        self.changed.notify_all();
    }

    /// A request was answered.
    pub(crate) fn answered(&self) {
        self.inner().answered += 1;
        self.changed.notify_all();
    }

    /// Lets clients pass to a server.
    pub(crate) fn open(&self, client: Client) {
        let mut inner = self.inner();
        inner.state = State::Open(client);
        inner.answered = 0;
        drop(inner);
        self.changed.notify_all();
    }

    /// Waits until so many requests were answered since the gate was opened, or `patience` is over, or
    /// nobody is left to send any.
    pub(crate) fn await_answers(&self, count: u64, patience: Duration) {
        self.wait_while(patience, |inner| inner.answered < count && inner.gone < self.clients);
    }

    /// The server is dead: closes the gate and waits until every client is at it. False if one is not after
    /// `patience`.
    #[must_use = "false means that something is still in flight"]
    pub(crate) fn close(&self, patience: Duration) -> bool {
        self.inner().state = State::Killed;
        self.changed.notify_all();
        self.wait_while(patience, |inner| inner.parked + inner.gone < self.clients)
    }

    /// It is over: all clients at the gate leave.
    pub(crate) fn over(&self) {
        self.inner().state = State::Over;
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
        // Nothing under this lock can panic half-way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the way out for everybody, also when whoever holds it panics.
#[derive(Debug)]
pub(crate) struct OverOnDrop<'a>(pub(crate) &'a Gate);

impl Drop for OverOnDrop<'_> {
    fn drop(&mut self) {
        self.0.over();
    }
}
