//! A worker over HTTP: it logs each message, and acks it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dwell_client::Client;
use dwell_delivery::{Failure, Job, Lane, Worker};

use super::ledger::Way;
use super::log::Log;
use super::{IN_FLIGHT, LEASE, part};

/// Handles messages until the process is killed.
///
/// # Errors
/// If the log cannot be opened, or the worker ends by itself.
pub(crate) fn work(server: &str, log: &Path) -> io::Result<()> {
    part::end_with_parent();
    let log = Arc::new(Log::open(log)?);
    let handler = move |job: Job| {
        let log = Arc::clone(&log);
        async move {
            let work_ms = log.record(job.text()?)?;
            tokio::time::sleep(Duration::from_millis(work_ms)).await;
            Ok::<(), Failure>(())
        }
    };
    let client = Client::builder(server).build().map_err(io::Error::other)?;
    let lane = Lane::new(Way::Worker.queue(), handler).concurrency(IN_FLIGHT as usize).lease(LEASE);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let worked = runtime.block_on(Worker::new(Arc::new(client)).lane(lane).run_until(std::future::pending()));
    worked.map_err(io::Error::other)
}
