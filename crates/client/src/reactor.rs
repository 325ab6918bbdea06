//! The thread that all clients of a process share: it watches their sockets and timers, so that a caller needs no runtime.
//!
//! A call is run by whoever polls its future, and this thread wakes the caller when a socket is ready. So a call is not handed
//! from one thread to another and back. Takes alone are tasks here, since they have to go on when their caller has gone.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::OpenError;

/// The thread. It ends when the last client is dropped and the last take has ended.
pub(crate) struct Reactor {
    handle: Handle,
    /// Dropped, it lets the thread end.
    _running: oneshot::Sender<()>,
}

/// The one that runs, if one does.
static SHARED: Mutex<Weak<Reactor>> = Mutex::new(Weak::new());

impl Reactor {
    /// The thread of this process; starts it if it does not run.
    ///
    /// # Errors
    /// [`OpenError::Threads`].
    pub(crate) fn shared() -> Result<Arc<Reactor>, OpenError> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reactor) = shared.upgrade() {
            return Ok(reactor);
        }
        let reactor = Arc::new(Reactor::start()?);
        *shared = Arc::downgrade(&reactor);
        Ok(reactor)
    }

    fn start() -> Result<Reactor, OpenError> {
        let failed = |error: std::io::Error| OpenError::Threads { reason: error.to_string().into() };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel::<()>();
        let run = move || {
            // Nothing is sent: the sender is dropped.
            let _ = runtime.block_on(ended);
        };
        std::thread::Builder::new().name("dwell-http".to_owned()).spawn(run).map_err(failed)?;
        Ok(Reactor { handle, _running: running })
    }

    /// Runs `call` on the thread that polls, with sockets and timers on this one.
    pub(crate) async fn enter<F: Future>(&self, call: F) -> F::Output {
        let mut call = pin!(call);
        poll_fn(|context| {
            let _entered = self.handle.enter();
            call.as_mut().poll(context)
        })
        .await
    }

    /// Starts a task on this thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }
}
