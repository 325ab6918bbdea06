//! The Tokio runtime of a store that has its own.

use tokio::runtime::{Builder, Runtime};

use crate::OpenError;

/// A runtime on one thread. Dropping a [`Runtime`] blocks until its tasks have ended, which is not allowed on a thread of
/// another runtime: this one is shut down in the background.
pub(super) struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    pub(super) fn start() -> Result<OwnRuntime, OpenError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("dwell-postgres")
            .enable_all()
            .build()
            .map_err(|error| OpenError::Threads { reason: error.to_string() })?;
        Ok(OwnRuntime(Some(runtime)))
    }

    pub(super) fn get(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
