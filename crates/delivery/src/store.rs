//! Conversions into a store, so that a caller with an open store can pass it directly.

use std::sync::Arc;

use dwell_store::Store;

/// A store, or what contains one.
pub trait IntoStore {
    /// The store.
    fn into_store(self) -> Arc<dyn Store>;
}

impl IntoStore for Arc<dyn Store> {
    fn into_store(self) -> Arc<dyn Store> {
        self
    }
}

impl<S: Store + 'static> IntoStore for Arc<S> {
    fn into_store(self) -> Arc<dyn Store> {
        self
    }
}

impl<S: IntoStore + Clone> IntoStore for &S {
    fn into_store(self) -> Arc<dyn Store> {
        self.clone().into_store()
    }
}
