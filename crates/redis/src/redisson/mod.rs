//! The layout of Redisson's `RDelayedQueue`, shared with live Java clients.
