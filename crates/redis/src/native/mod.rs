//! The native store.
