//! The progress of a long command, in bytes.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dwell_engine::disk::CountedDisk;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error, until it is dropped.
pub(super) struct Bar {
    watcher: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Bar {
    /// A bar over the bytes to read from `disk`.
    pub(super) fn over_reads(disk: &CountedDisk, total: u64, is_shown: bool) -> Bar {
        let disk = disk.clone();
        Bar::over(total, is_shown, move || disk.counts().read_bytes)
    }

    /// A bar over `total` bytes, of which `done` returns the completed part; none unless `is_shown`.
    pub(super) fn over(total: u64, is_shown: bool, mut done: impl FnMut() -> u64 + Send + 'static) -> Bar {
        if !is_shown {
            return Bar { watcher: None };
        }
        let bar = ProgressBar::with_draw_target(Some(total.max(1)), ProgressDrawTarget::stderr());
        let template = "{bar:30} {bytes}/{total_bytes}  {elapsed}, {eta} to go";
        bar.set_style(ProgressStyle::with_template(template).expect("the template is one"));
        let (stop, stopped) = channel();
        let watch = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(Duration::from_millis(100)) {
                bar.set_position(done().min(total));
            }
            bar.finish_and_clear();
        };
        // Without a thread there is no bar.
        let watcher = thread::Builder::new().name("dwell-bar".to_owned()).spawn(watch).ok();
        Bar { watcher: watcher.map(|watcher| (stop, watcher)) }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some((stop, watcher)) = self.watcher.take() {
            drop(stop);
            let _ = watcher.join();
        }
    }
}
