//! The thread that all clients of a process share: it drives their sockets and timers, so that a caller needs no runtime.
//!
//! A call runs on the thread that polls its future; this thread wakes that one when a
//! socket is ready. So no call moves from one thread to another and back. Only takes
//! are tasks here, since they have to go on after their caller is dropped.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::OpenError;

/// The shared thread. It ends when the last client is dropped and the last take has ended.
pub(crate) struct Reactor {
    handle: Handle,
    /// The thread ends when this is dropped.
    _running: oneshot::Sender<()>,
}

/// The thread that runs, if any.
static SHARED: Mutex<Weak<Reactor>> = Mutex::new(Weak::new());

impl Reactor {
    /// Returns the thread of this process, and starts it if it does not run.
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
            // Nothing is ever sent: this returns when the sender is dropped.
            let _ = runtime.block_on(ended);
        };
        std::thread::Builder::new().name("dwell-http".to_owned()).spawn(run).map_err(failed)?;
        Ok(Reactor { handle, _running: running })
    }

    /// Runs `call` on the polling thread, with its sockets and timers on the reactor's thread.
    pub(crate) async fn enter<F: Future>(&self, call: F) -> F::Output {
        let mut call = pin!(call);
        poll_fn(|context| {
            let _entered = self.handle.enter();
            call.as_mut().poll(context)
        })
        .await
    }

    /// Spawns a task on the reactor's thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }
}
