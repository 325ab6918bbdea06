//! Sinks: handlers that forward messages. A message is acked only once the destination has confirmed it.
//!
//! - [`webhook`]: a request over HTTP for each message

pub mod webhook;
