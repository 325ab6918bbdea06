//! The primitives that the queue blocks with, so that a model checker can stand in for the standard library's:
//! with `--cfg shuttle` every lock and wait is a point at which shuttle may switch threads.

#[cfg(not(shuttle))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(shuttle)]
pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};
