//! Sinks: handlers that pass messages on to something else. A message is acked only once the far side has confirmed it.
//!
//! - [`webhook`]: a request over HTTP for each message

pub mod webhook;
